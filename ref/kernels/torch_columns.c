/*
 * Some columns of each row, by eager PyTorch: topk, scatter, gather (derivatives.yaml). `k` columns of
 * each row are named; they are distinct.
 */
#include <assert.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"

typedef struct columns_call {
  int64_t rows, columns, k;
} columns_call;

static columns_call call_of(const exec_call *c)
{
  columns_call of = { exec_dim(c, 0), exec_dim(c, 1), exec_dim(c, 2) };
  assert(of.k > 0 && of.k <= of.columns);
  return of;
}

/* The n-th largest element of a row is the one that n others precede: larger ones, and equal ones in
 * lower columns. Reads x, writes values, columns. */
void ref_topk(const exec_call *c)
{
  columns_call of = call_of(c);
  assert(REF_READS(c, of.rows * of.columns) && REF_WRITES(c, of.rows * of.k, of.rows * of.k));
  for (int64_t r = 0; r < of.rows; r++)
    for (int64_t i = 0; i < of.columns; i++) {
      real x = ref_load(&c->reads[0], r * of.columns + i);
      int64_t before = 0;
      for (int64_t j = 0; j < of.columns; j++) {
        real other = ref_load(&c->reads[0], r * of.columns + j);
        before += other > x || (other == x && j < i);
      }
      if (before >= of.k) continue;
      ref_store(&c->writes[0], r * of.k + before, x);
      ref_store_int(&c->writes[1], r * of.k + before, i);
    }
}

static int64_t place_of(const exec_call *c, const columns_call *of, int64_t i)
{
  int64_t column = ref_load_int(&c->reads[1], i);
  assert(column >= 0 && column < of->columns);
  return i / of->k * of->columns + column;
}

/* Reads x, columns; other elements of the write stay. */
void ref_scatter_columns(const exec_call *c)
{
  columns_call of = call_of(c);
  assert(REF_READS(c, of.rows * of.k, of.rows * of.k) && REF_WRITES(c, of.rows * of.columns));
  for (int64_t i = 0; i < of.rows * of.k; i++)
    ref_copy(&c->reads[0], i, &c->writes[0], place_of(c, &of, i));
}

/* Reads x, columns. */
void ref_gather_columns(const exec_call *c)
{
  columns_call of = call_of(c);
  assert(REF_READS(c, of.rows * of.columns, of.rows * of.k) && REF_WRITES(c, of.rows * of.k));
  for (int64_t i = 0; i < of.rows * of.k; i++)
    ref_copy(&c->reads[0], place_of(c, &of, i), &c->writes[0], i);
}
