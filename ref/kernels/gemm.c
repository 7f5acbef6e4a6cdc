#include "ref/kernels/gemm.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/gemm_tile.h"
#include "ref/kernels/storage.h"
#include "ref/kernels/threads.h"
#include "sim/base/diag.h"
#include "sim/base/units.h"

/*
 * Blocks of the three dimensions: the packed operands and the sums fit a core's second-level cache,
 * a panel of b its first. `sums` has a block's sums while k advances from block to block. With
 * several threads blocks may be smaller, so that each thread gets one.
 */
enum { BLOCK_M = 512, BLOCK_N = 512, BLOCK_K = 256, BLOCK_LEAST = 64 };
_Static_assert(BLOCK_N >= BLOCK_M && BLOCK_N >= BLOCK_K, "a line holds a row of any block");
_Static_assert(BLOCK_M % TILE_ROWS_MAX == 0 && BLOCK_N % TILE_COLUMNS_MAX == 0, "whole tiles");

typedef struct blocks {
  _Alignas(TILE_ALIGNMENT) real a[BLOCK_M * BLOCK_K]; /* [tile of rows][k][row] */
  _Alignas(TILE_ALIGNMENT) real b[BLOCK_K * BLOCK_N]; /* [tile of columns][k][column] */
  _Alignas(TILE_ALIGNMENT) real sums[BLOCK_M * BLOCK_N];
} blocks;

/*
 * Each thread has its blocks from its first product until it ends. A variable of the thread itself would
 * cost two megabytes of zeros at every start of a thread, and of the program.
 */
static pthread_key_t key_of_blocks;

static void make_key(void)
{
  if (pthread_key_create(&key_of_blocks, free) != 0) die_refused("too many keys of threads");
}

static blocks *own_blocks(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_key);
  blocks *own = pthread_getspecific(key_of_blocks);
  if (own != NULL) return own;
  own = aligned_alloc(TILE_ALIGNMENT, sizeof *own);
  if (own == NULL || pthread_setspecific(key_of_blocks, own) != 0)
    die_refused("no memory for a product's blocks of %zu bytes", sizeof *own);
  return own;
}

/* A range of each dimension. */
typedef struct range {
  int64_t first, count;
} range;

static range part_of(int64_t size, int64_t first, int64_t most)
{
  return (range){ first, min_i64(size - first, most) };
}

/* `count` elements from (i, j) on, along a row. */
static exec_tensor along_row(const ref_matrix *m, int64_t i, int64_t j, int64_t count)
{
  int64_t place = i * m->row_stride + j * m->column_stride;
  return (exec_tensor){ .data = (char *)m->data + place * dtype_bytes(m->type),
                        .type = (uint8_t)m->type,
                        .rank = 1,
                        .shape = { count },
                        .strides = { m->column_stride } };
}

static void load_row(const ref_matrix *m, int64_t i, int64_t j, int64_t count, real *to)
{
  exec_tensor row = along_row(m, i, j, count);
  ref_load_row(&row, 0, count, to);
}

/*
 * Packs `lines` x `k` elements of m into panels of `width` lines, in which the lines of one k are
 * consecutive. The last panel is padded with zeros, whose sums are never read. Elements are loaded
 * along the contiguous dimension.
 */
static void pack(const ref_matrix *m, range lines, range k, int width, real *to)
{
  real line[BLOCK_N];
  ref_matrix turned = ref_transposed(*m);
  int64_t missing = lines.count % width == 0 ? 0 : width - lines.count % width;
  assert(lines.count <= BLOCK_N && k.count <= BLOCK_N);
  for (int64_t i = lines.count; i < lines.count + missing; i++)
    for (int64_t p = 0; p < k.count; p++)
      to[i / width * width * k.count + p * width + i % width] = 0;
  for (int64_t p = 0; p < k.count && m->row_stride == 1; p++) {
    load_row(&turned, k.first + p, lines.first, lines.count, line);
    for (int64_t i = 0; i < lines.count; i += width)
      for (int64_t r = 0; r < min_i64(width, lines.count - i); r++)
        to[i * k.count + p * width + r] = line[i + r];
  }
  for (int64_t i = 0; i < lines.count && m->row_stride != 1; i++) {
    load_row(m, lines.first + i, k.first, k.count, line);
    real *panel = to + i / width * width * k.count + i % width;
    for (int64_t p = 0; p < k.count; p++)
      panel[p * width] = line[p];
  }
}

/* Adds the products of the packed operands to the sums. */
static void add_products(blocks *own, int64_t rows, int64_t columns, int64_t k)
{
  const gemm_path *path = gemm_chosen_path();
  for (int64_t j = 0; j < columns; j += path->columns)
    for (int64_t i = 0; i < rows; i += path->rows)
      path->tile(k, own->a + i * k, own->b + j * k, own->sums + i * BLOCK_N + j, BLOCK_N);
}

static void store_sums(blocks *own, const ref_product *p, range rows, range columns)
{
  real line[BLOCK_N];
  for (int64_t i = 0; i < rows.count; i++) {
    real *sums = own->sums + i * BLOCK_N;
    if (p->addend.data != NULL) {
      load_row(&p->addend, rows.first + i, columns.first, columns.count, line);
      for (int64_t j = 0; j < columns.count; j++)
        sums[j] += line[j];
    }
    exec_tensor to = along_row(&p->c, rows.first + i, columns.first, columns.count);
    ref_store_row(&to, 0, columns.count, sums);
  }
}

static void clear_sums(blocks *own, int64_t rows, int64_t columns)
{
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++)
      own->sums[i * BLOCK_N + j] = 0;
}

static void multiply_block(const ref_product *p, range rows, range columns)
{
  const gemm_path *path = gemm_chosen_path();
  ref_matrix b = ref_transposed(p->b);
  blocks *own = own_blocks();
  assert(rows.count <= BLOCK_M && columns.count <= BLOCK_N);
  clear_sums(own, round_up(rows.count, path->rows), round_up(columns.count, path->columns));
  for (int64_t first = 0; first < p->k; first += BLOCK_K) {
    range k = part_of(p->k, first, BLOCK_K);
    pack(&p->a, rows, k, path->rows, own->a);
    pack(&b, columns, k, path->columns, own->b);
    add_products(own, rows.count, columns.count, k.count);
  }
  store_sums(own, p, rows, columns);
}

/* A product cut into blocks of rows x columns, numbered row by row. */
typedef struct grid {
  const ref_product *product;
  int64_t rows, columns;
} grid;

static int64_t blocks_of(const grid *g)
{
  return ceil_div(g->product->m, g->rows) * ceil_div(g->product->n, g->columns);
}

static grid cut(const ref_product *p)
{
  grid g = { p, BLOCK_M, BLOCK_N };
  while (blocks_of(&g) < ref_threads() && max_i64(g.rows, g.columns) > BLOCK_LEAST)
    *(g.rows > g.columns ? &g.rows : &g.columns) /= 2;
  return g;
}

static void multiply_part(void *context, uint32_t i)
{
  const grid *g = context;
  int64_t across = ceil_div(g->product->n, g->columns);
  multiply_block(g->product, part_of(g->product->m, i / across * g->rows, g->rows),
                 part_of(g->product->n, i % across * g->columns, g->columns));
}

void ref_gemm_part(const ref_product *p)
{
  grid g = cut(p);
  assert(p->a.data != NULL && p->b.data != NULL && p->c.data != NULL);
  (void)gemm_chosen_path(); /* before threads use it */
  ref_run_parts((uint32_t)blocks_of(&g), multiply_part, &g);
}

/* ---- the row of the plan -------------------------------------------------------------------- */

/*
 * gemm: reads a, b and optionally an addend: a bias of n elements, which every row adds, or a
 * matrix like c. With `add`, the addend is c's old contents. A batch is a number of products, of
 * consecutive matrices.
 */
enum { GEMM_M, GEMM_N, GEMM_K, GEMM_BATCH };

/* None: data is NULL. */
static ref_matrices addend_of(const exec_call *c, int64_t batch, int64_t m, int64_t n)
{
  bool adds = c->call->scalars[GEMM_ADD] != 0;
  assert(c->read_count == 2 || (c->read_count == 3 && !adds));
  if (c->read_count == 2 && !adds) return (ref_matrices){ 0 };
  const exec_tensor *t = adds ? &c->writes[0] : &c->reads[2];
  if (exec_elements(t) == batch * m * n) return ref_matrices_read(t, batch, m, n);
  ref_matrices bias = ref_matrices_read(t, 1, 1, n);
  bias.first.row_stride = bias.next = 0;
  return bias;
}

void ref_gemm(const exec_call *c)
{
  int64_t m = exec_dim(c, GEMM_M), n = exec_dim(c, GEMM_N), k = exec_dim(c, GEMM_K),
          batch = exec_dim(c, GEMM_BATCH);
  assert(c->write_count == 1);
  ref_matrices a = ref_left_operand(c, batch, m, k), b = ref_right_operand(c, batch, k, n);
  ref_matrices addend = addend_of(c, batch, m, n);
  ref_matrices to = ref_matrices_write(&c->writes[0], batch, m, n);
  for (int64_t i = 0; i < batch; i++)
    ref_gemm_part(&(ref_product){ m, n, k, ref_matrix_number(&a, i), ref_matrix_number(&b, i),
                                  ref_matrix_number(&addend, i), ref_matrix_number(&to, i) });
  ref_matrices_release(&to);
  ref_matrices_release(&addend);
  ref_matrices_release(&b);
  ref_matrices_release(&a);
}
