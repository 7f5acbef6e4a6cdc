/* ref/kernels/moe_layout.c for GPUs. */
#include "cuda/kernels/operands.cuh"

enum { MATRIX_ROWS, MATRIX_COLS, MATRIX_ALL };

static void transpose_matrix(cuda_call *c, int64_t rows, int64_t cols)
{
  tensor from = read_of(c->of, 0), to = write_of(c->of, 0);
  assert(elements_of(from) == rows * cols && elements_of(to) == rows * cols);
  for_each(
      c, rows * cols,
      KERNEL_LAMBDA(int64_t i) { copy_element(from, i % rows * cols + i / rows, to, i); });
}

extern "C" void EXACT(transpose)(cuda_call *c)
{
  transpose_matrix(c, dim_of(c->of, MATRIX_ROWS), dim_of(c->of, MATRIX_COLS));
}

extern "C" void EXACT(transpose_backward)(cuda_call *c)
{
  transpose_matrix(c, dim_of(c->of, MATRIX_COLS), dim_of(c->of, MATRIX_ROWS));
}

static int64_t first_column(const cuda_call *c)
{
  exec_position p = c->of->rank->group[GROUP_EP];
  assert(dim_of(c->of, MATRIX_COLS) * p.size == dim_of(c->of, MATRIX_ALL));
  return p.index * dim_of(c->of, MATRIX_COLS);
}

extern "C" void EXACT(moe_local_columns_forward)(cuda_call *c)
{
  int64_t cols = dim_of(c->of, MATRIX_COLS), all = dim_of(c->of, MATRIX_ALL),
          first = first_column(c);
  tensor from = read_of(c->of, 0), to = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, MATRIX_ROWS) * cols,
      KERNEL_LAMBDA(int64_t i) { copy_element(from, i / cols * all + first + i % cols, to, i); });
}

extern "C" void EXACT(moe_local_columns_backward)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, MATRIX_ROWS), cols = dim_of(c->of, MATRIX_COLS),
          all = dim_of(c->of, MATRIX_ALL), first = first_column(c);
  tensor from = read_of(c->of, 0), to = write_of(c->of, 0);
  assert(elements_of(to) == rows * all);
  clear(c, to);
  for_each(
      c, rows * cols,
      KERNEL_LAMBDA(int64_t i) { copy_element(from, i, to, i / cols * all + first + i % cols); });
}

/* ---- chunks --------------------------------------------------------------------------------- */

enum { CHUNK_ROWS, CHUNK_WIDTH, CHUNK_OUTER, CHUNK_INNER };

static void sort_chunks(cuda_call *c, int64_t outer, int64_t inner, tensor from, tensor to)
{
  int64_t elements = elements_of(to), chunk = elements / (outer * inner);
  assert(elements_of(from) == elements && chunk * outer * inner == elements);
  for_each(
      c, elements, KERNEL_LAMBDA(int64_t i) {
        int64_t number = i / chunk, o = number % outer, n = number / outer;
        copy_element(from, (o * inner + n) * chunk + i % chunk, to, i);
      });
}

static void write_numbers(cuda_call *c, tensor to)
{
  for_each(
      c, elements_of(to), KERNEL_LAMBDA(int64_t i) { store_int(to, i, i); });
}

extern "C" void EXACT(moe_sort_chunks_forward)(cuda_call *c)
{
  int64_t outer = dim_of(c->of, CHUNK_OUTER), inner = dim_of(c->of, CHUNK_INNER);
  uint32_t next = 0;
  assert(dim_of(c->of, CHUNK_ROWS) % (outer * inner) == 0);
  for (uint32_t i = 0; i < c->of->write_count; i++)
    if (c->of->writes[i].type == DTYPE_INT32)
      write_numbers(c, write_of(c->of, i));
    else
      sort_chunks(c, outer, inner, read_of(c->of, next++), write_of(c->of, i));
  assert(next == c->of->read_count);
}

extern "C" void EXACT(moe_sort_chunks_backward)(cuda_call *c)
{
  int64_t outer = dim_of(c->of, CHUNK_OUTER), inner = dim_of(c->of, CHUNK_INNER);
  assert(c->of->read_count >= c->of->write_count);
  for (uint32_t i = 0; i < c->of->write_count; i++)
    sort_chunks(c, inner, outer, read_of(c->of, i), write_of(c->of, i));
}

/* ---- parts ---------------------------------------------------------------------------------- */

enum { PARTS_ELEMENTS, PARTS_COUNT };

extern "C" void EXACT(resize_rows)(cuda_call *c)
{
  tensor from = read_of(c->of, 0), to = write_of(c->of, 0);
  int64_t parts = dim_of(c->of, PARTS_COUNT);
  int64_t had = elements_of(from) / parts, gets = elements_of(to) / parts;
  assert(had * parts == elements_of(from) && gets * parts == elements_of(to));
  for_each(
      c, parts * gets, KERNEL_LAMBDA(int64_t i) {
        int64_t part = i / gets, k = i % gets;
        if (k < had)
          copy_element(from, part * had + k, to, i);
        else
          store(to, i, 0);
      });
}
