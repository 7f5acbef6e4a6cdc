/*
 * Rows and columns that are moved unchanged.
 *
 * moe_local_columns_*: reads [rows, all], writes the columns of the rank's experts [rows, cols];
 * backward the reverse, zeros elsewhere. moe_sort_chunks_*: reads rows and optionally a number for
 * each, [outer, inner, ..]; writes them as [inner, outer, ..], and an index that no kernel reads.
 * Backward the reverse. resize_rows: reads a number of equal parts, writes the beginning of each,
 * padded with zeros.
 */
#include <assert.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"
#include "sim/base/units.h"

enum { MATRIX_ROWS, MATRIX_COLS, MATRIX_ALL };

static void transpose(int64_t rows, int64_t cols, const exec_tensor *from, const exec_tensor *to)
{
  assert(exec_elements(from) == rows * cols && exec_elements(to) == rows * cols);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      ref_copy(from, i * cols + j, to, j * rows + i);
}

void ref_transpose(const exec_call *c)
{
  transpose(exec_dim(c, MATRIX_ROWS), exec_dim(c, MATRIX_COLS), &c->reads[0], &c->writes[0]);
}

void ref_transpose_backward(const exec_call *c)
{
  transpose(exec_dim(c, MATRIX_COLS), exec_dim(c, MATRIX_ROWS), &c->reads[0], &c->writes[0]);
}

static int64_t first_column(const exec_call *c)
{
  exec_position p = c->rank->group[GROUP_EP];
  assert(exec_dim(c, MATRIX_COLS) * p.size == exec_dim(c, MATRIX_ALL));
  return p.index * exec_dim(c, MATRIX_COLS);
}

void ref_moe_local_columns_forward(const exec_call *c)
{
  int64_t rows = exec_dim(c, MATRIX_ROWS), cols = exec_dim(c, MATRIX_COLS),
          all = exec_dim(c, MATRIX_ALL), first = first_column(c);
  assert(REF_READS(c, rows * all) && REF_WRITES(c, rows * cols));
  for (int64_t i = 0; i < rows; i++)
    ref_copy_row(&c->reads[0], i * all + first, &c->writes[0], i * cols, cols);
}

void ref_moe_local_columns_backward(const exec_call *c)
{
  int64_t rows = exec_dim(c, MATRIX_ROWS), cols = exec_dim(c, MATRIX_COLS),
          all = exec_dim(c, MATRIX_ALL), first = first_column(c);
  assert(REF_READS(c, rows * cols) && REF_WRITES(c, rows * all));
  ref_clear(&c->writes[0]);
  for (int64_t i = 0; i < rows; i++)
    ref_copy_row(&c->reads[0], i * cols, &c->writes[0], i * all + first, cols);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

enum { CHUNK_ROWS, CHUNK_WIDTH, CHUNK_OUTER, CHUNK_INNER };

static void sort_chunks(int64_t outer, int64_t inner, const exec_tensor *from,
                        const exec_tensor *to)
{
  int64_t elements = exec_elements(to), chunk = elements / (outer * inner);
  assert(exec_elements(from) == elements && chunk * outer * inner == elements);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++)
      ref_copy_row(from, (o * inner + i) * chunk, to, (i * outer + o) * chunk, chunk);
}

static void write_index(const exec_tensor *to)
{
  for (int64_t i = 0; i < exec_elements(to); i++)
    ref_store_int(to, i, i);
}

void ref_moe_sort_chunks_forward(const exec_call *c)
{
  int64_t outer = exec_dim(c, CHUNK_OUTER), inner = exec_dim(c, CHUNK_INNER);
  uint32_t next = 0;
  assert(exec_dim(c, CHUNK_ROWS) % (outer * inner) == 0 &&
         "each rank and expert has equally many rows");
  for (uint32_t i = 0; i < c->write_count; i++)
    if (c->writes[i].type == DTYPE_INT32)
      write_index(&c->writes[i]);
    else
      sort_chunks(outer, inner, &c->reads[next++], &c->writes[i]);
  assert(next == c->read_count);
}

void ref_moe_sort_chunks_backward(const exec_call *c)
{
  int64_t outer = exec_dim(c, CHUNK_OUTER), inner = exec_dim(c, CHUNK_INNER);
  assert(c->read_count >= c->write_count);
  for (uint32_t i = 0; i < c->write_count; i++)
    sort_chunks(inner, outer, &c->reads[i], &c->writes[i]);
}

/* ---- parts ----------------------------------------------------------------------------------- */

enum { PARTS_ELEMENTS, PARTS_COUNT };

void ref_resize_rows(const exec_call *c)
{
  const exec_tensor *from = &c->reads[0], *to = &c->writes[0];
  int64_t parts = exec_dim(c, PARTS_COUNT);
  int64_t had = exec_elements(from) / parts, gets = exec_elements(to) / parts;
  assert(had * parts == exec_elements(from) && gets * parts == exec_elements(to));
  int64_t stays = min_i64(had, gets);
  for (int64_t p = 0; p < parts; p++) {
    ref_copy_row(from, p * had, to, p * gets, stays);
    ref_fill_row(to, p * gets + stays, gets - stays, 0);
  }
}
