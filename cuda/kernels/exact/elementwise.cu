/* ref/kernels/elementwise.c for GPUs; bias.cu has the kernels on rows and columns. */
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/sequence_part.cuh"

/* reads a, b, writes their sum. */
extern "C" void EXACT(add)(cuda_call *c)
{
  tensor a = read_of(c->of, 0), b = read_of(c->of, 1), y = write_of(c->of, 0);
  int64_t count = elements_of(y);
  assert(elements_of(a) == count && elements_of(b) == count);
  for_each(
      c, count, KERNEL_LAMBDA(int64_t i) { store(y, i, load(a, i) + load(b, i)); });
}

static void fill(cuda_call *c, tensor y, double value)
{
  bool is_integer = y.type == DTYPE_BYTE || y.type == DTYPE_INT32 || y.type == DTYPE_INT64;
  float number = (float)value;
  int64_t whole = is_integer ? (int64_t)value : 0;
  for_each(
      c, elements_of(y), KERNEL_LAMBDA(int64_t i) {
        if (is_integer)
          store_int(y, i, whole);
        else
          store(y, i, number);
      });
}

extern "C" void EXACT(fill)(cuda_call *c)
{
  for (uint32_t w = 0; w < c->of->write_count; w++)
    fill(c, write_of(c->of, w), c->of->call->scalars[0]);
}

/* As copy_run, between rows. The types are known here, so that the host's loop has no branch: it
 * makes a model's weights from their main parameters. */
static void copy_fp32_to_bf16(cuda_call *c, const float *from, uint16_t *to, int64_t count)
{
  for_each(
      c, count, KERNEL_LAMBDA(int64_t n) { to[n] = bf16_code(from[n]); });
}

/* `count` elements from `i` and from `k` on. */
static void copy_run(cuda_call *c, tensor from, int64_t i, tensor to, int64_t k, int64_t count)
{
  if (from.type == DTYPE_FP32 && to.type == DTYPE_BF16 && exec_is_contiguous(&from) &&
      exec_is_contiguous(&to)) {
    copy_fp32_to_bf16(c, (const float *)from.data + i, (uint16_t *)to.data + k, count);
    return;
  }
  for_each(
      c, count, KERNEL_LAMBDA(int64_t n) { copy_element(from, i + n, to, k + n); });
}

/* Copies the elements of the reads, one after the other, to the writes. */
extern "C" void EXACT(copy_elements)(cuda_call *c)
{
  const exec_call *of = c->of;
  uint32_t r = 0, w = 0;
  int64_t from = 0, to = 0;
  while (r < of->read_count && w < of->write_count) {
    tensor source = read_of(of, r), target = write_of(of, w);
    int64_t left = elements_of(source) - from, room = elements_of(target) - to;
    int64_t count = least(left, room);
    copy_run(c, source, from, target, to, count);
    from = left == count ? 0 : from + count;
    to = room == count ? 0 : to + count;
    r += left == count;
    w += room == count;
  }
  assert(r == of->read_count && w == of->write_count &&
         "equally many elements are written and read");
}

/* reads x, equal parts one after the other; writes the rank's part. */
extern "C" void EXACT(own_part)(cuda_call *c)
{
  const exec_position *own = &c->of->rank->group[(int)c->of->call->scalars[0]];
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  int64_t count = elements_of(y);
  assert(elements_of(x) == count * own->size);
  copy_run(c, x, count * own->index, y, 0, count);
}

/* Each position gets the next position's value in its sequence, the last one 0. reads the rows of
 * all ranks that share the sequences, rank by rank; writes the rank's. */
extern "C" void EXACT(roll)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, 0), columns = dim_of(c->of, 1);
  exec_position part = sequence_part_of(c->of);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  assert(elements_of(x) == part.size * rows * columns && elements_of(y) == rows * columns);
  for_each(
      c, rows * columns, KERNEL_LAMBDA(int64_t i) {
        int64_t next = position_of(part, columns, i % columns) + 1;
        int64_t from = row_of_position(part.size, columns, next);
        if (next < part.size * columns)
          copy_element(x, (from / columns * rows + i / columns) * columns + from % columns, y, i);
        else if (holds_codes(y) && y.type != DTYPE_FP8)
          store_int(y, i, 0);
        else
          store(y, i, 0);
      });
}
