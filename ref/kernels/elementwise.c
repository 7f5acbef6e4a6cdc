/* Sums, fills, copies and parts: each element of the result depends on elements with the same
 * number. */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/positions.h"
#include "ref/kernels/storage.h"

enum { CHUNK = 512 };

static int64_t chunk_at(int64_t i, int64_t count)
{
  return count - i < CHUNK ? count - i : CHUNK;
}

/* reads a, b, writes their sum. */
void ref_add(const exec_call *c)
{
  real a[CHUNK], b[CHUNK];
  int64_t count = exec_elements(&c->writes[0]);
  assert(exec_elements(&c->reads[0]) == count && exec_elements(&c->reads[1]) == count);
  for (int64_t i = 0, n; i < count; i += n) {
    n = chunk_at(i, count);
    ref_load_row(&c->reads[0], i, n, a);
    ref_load_row(&c->reads[1], i, n, b);
    for (int64_t k = 0; k < n; k++)
      a[k] += b[k];
    ref_store_row(&c->writes[0], i, n, a);
  }
}

static bool holds_integers(const exec_tensor *t)
{
  return t->type == DTYPE_BYTE || t->type == DTYPE_INT32 || t->type == DTYPE_INT64;
}

void ref_fill(const exec_call *c)
{
  for (uint32_t w = 0; w < c->write_count; w++) {
    int64_t count = exec_elements(&c->writes[w]);
    if (!holds_integers(&c->writes[w]))
      ref_fill_row(&c->writes[w], 0, count, ref_scalar(c, 0));
    else
      for (int64_t i = 0; i < count; i++)
        ref_store_int(&c->writes[w], i, (int64_t)c->call->scalars[0]);
  }
}

/* Copies the elements of the reads, one after the other, to the writes. */
void ref_copy_elements(const exec_call *c)
{
  uint32_t r = 0, w = 0;
  int64_t from = 0, to = 0;
  while (r < c->read_count && w < c->write_count) {
    int64_t left = exec_elements(&c->reads[r]) - from, room = exec_elements(&c->writes[w]) - to;
    int64_t count = left < room ? left : room;
    ref_copy_row(&c->reads[r], from, &c->writes[w], to, count);
    from = left == count ? 0 : from + count;
    to = room == count ? 0 : to + count;
    r += left == count;
    w += room == count;
  }
  assert(r == c->read_count && w == c->write_count && "equally many elements are written and read");
}

/* reads x, equal parts one after the other; writes the rank's part. */
void ref_own_part(const exec_call *c)
{
  const exec_position *own = &c->rank->group[(int)c->call->scalars[0]];
  int64_t count = exec_elements(&c->writes[0]);
  assert(exec_elements(&c->reads[0]) == count * own->size);
  ref_copy_row(&c->reads[0], count * own->index, &c->writes[0], 0, count);
}

/* Each position gets the next position's value in its sequence, the last one 0. reads the rows of
 * all ranks that share the sequences, rank by rank; writes the rank's. */
void ref_roll(const exec_call *c)
{
  int64_t rows = exec_dim(c, 0), columns = exec_dim(c, 1);
  exec_position part = ref_sequence_part(c);
  const exec_tensor *x = &c->reads[0], *y = &c->writes[0];
  assert(exec_elements(x) == part.size * rows * columns && exec_elements(y) == rows * columns);
  for (int64_t i = 0; i < rows * columns; i++) {
    int64_t next = ref_position_of(part, columns, i % columns) + 1;
    int64_t from = ref_row_of_position(part.size, columns, next);
    if (next < part.size * columns)
      ref_copy(x, (from / columns * rows + i / columns) * columns + from % columns, y, i);
    else if (holds_integers(y))
      ref_store_int(y, i, 0);
    else
      ref_store(y, i, 0);
  }
}

/* reads x [rows, h], bias [h], writes x + bias. */
void ref_bias_add(const exec_call *c)
{
  int64_t rows = exec_dim(c, 0), h = exec_dim(c, 1);
  real *bias = ref_reals(2 * h), *x = bias + h;
  assert(exec_elements(&c->reads[0]) == rows * h && exec_elements(&c->reads[1]) == h);
  ref_load_row(&c->reads[1], 0, h, bias);
  for (int64_t r = 0; r < rows; r++) {
    ref_load_row(&c->reads[0], r * h, h, x);
    for (int64_t i = 0; i < h; i++)
      x[i] += bias[i];
    ref_store_row(&c->writes[0], r * h, h, x);
  }
  free(bias);
}

/* reads gy [rows, h], writes its sum over rows, ascending. */
void ref_bias_grad(const exec_call *c)
{
  int64_t rows = exec_dim(c, 0), h = exec_dim(c, 1);
  real *sum = ref_reals(2 * h), *gy = sum + h;
  assert(exec_elements(&c->reads[0]) == rows * h && exec_elements(&c->writes[0]) == h);
  for (int64_t i = 0; i < h; i++)
    sum[i] = 0;
  for (int64_t r = 0; r < rows; r++) {
    ref_load_row(&c->reads[0], r * h, h, gy);
    for (int64_t i = 0; i < h; i++)
      sum[i] += gy[i];
  }
  ref_store_row(&c->writes[0], 0, h, sum);
  free(sum);
}
