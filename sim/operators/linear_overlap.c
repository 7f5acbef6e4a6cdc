/*
 * Linears whose products run beside their exchanges, in Transformer Engine's user buffers.
 *
 * Transformer Engine (d0067d0d): common/comm_gemm_overlap/comm_gemm_overlap.cpp, split_overlap_ag,
 * split_overlap_rs and bulk_overlap; pytorch/module/base.py, fill_userbuffers_buffer_for_all_gather. There,
 * parts of a product are on three streams in turn, so that one begins where another ends; a plan has them on
 * one, and their time says so (GEMM_PARTS). Parts lie in the order of ranks, so each rank sees them turned.
 *
 *   ring, two of four parts that rank r has:
 *     compute   product of part r  | product of part r-1 | ...
 *     comm      part r to r+1      | part r-1 to r+1     | ...
 */
#include <assert.h>

#include "sim/operators/linear.h"
#include "sim/operators/operators.h"
#include "sim/operators/shared.h"

static uint32_t ranks_of(const emitter *e)
{
  return (uint32_t)emit_settings(e)->parallel.tensor_model_parallel_size;
}

/* The first rows of the user buffer of one of the linear's products. */
static ref user_buffer(emitter *e, const linear_node *l, user_product product, dtype type,
                       int64_t rows, int64_t columns)
{
  bool fp8 = (l->flags & LINEAR_QUANTIZES) != 0;
  int64_t bytes = rows * columns * dtype_bytes(type);
  assert(bytes <= user_buffer_bytes(emit_settings(e), fp8, l->user, product));
  return emit_shared_buffer(e, user_buffer_name(fp8, l->user, product), type, rows, columns, bytes);
}

/* A rank's part of what is gathered: rows, or one copy in fp8 with its scales. */
typedef struct gathered {
  dtype type;
  uint32_t ranks;
  int64_t rows, columns; /* of a part */
  ref whole;
} gathered;

static ref part_of(emitter *e, const gathered *g, uint32_t part)
{
  return emit_turned(e, g->whole, g->type, part % g->ranks, g->ranks, g->rows, g->columns);
}

/* The buffer, with the rank's own part. */
static gathered own_part(emitter *e, const linear_node *l, user_product product, int64_t columns,
                         ref own)
{
  gathered g = { .type = linear_gemm_type(l), .ranks = ranks_of(e), .rows = 1 };
  g.columns = g.type == DTYPE_FP8 ? emit_bytes(e, own) : columns;
  if (g.type != DTYPE_FP8) g.rows = l->gemm_rows / g.ranks;
  g.whole = user_buffer(e, l, product, g.type, g.ranks * g.rows, g.columns);
  emit_copy(e, g.type, g.rows * g.columns, own, part_of(e, &g, 0));
  return g;
}

static void shift(emitter *e, int64_t by, ref from, ref to)
{
  emit_shift(e, STREAM_COMM, GROUP_TP, by, emit_bytes(e, from), (ref[]){ from, 0 },
             (ref[]){ to, 0 });
}

/* From every rank's own part of the buffer. */
static void gather(emitter *e, const gathered *g)
{
  ref part = part_of(e, g, 0);
  emit_collective(e, STREAM_COMM, COLLECTIVE_ALL_GATHER, GROUP_TP, emit_bytes(e, part),
                  (ref[]){ part, 0 }, (ref[]){ g->whole, 0 });
}

fp8_gradient linear_gather_in_ring(emitter *e, const linear_node *l, user_product product,
                                   const linear_product *p, fp8_gradient own, ref y)
{
  gathered g = own_part(e, l, product, p->inner, own.rowwise), second = { .whole = 0 };
  bool has_second = own.wgrad != own.rowwise;
  if (has_second) second = own_part(e, l, USER_WGRAD, p->inner, own.wgrad);
  int64_t rows = l->gemm_rows / g.ranks;
  emit_join(e, STREAM_COMM, STREAM_COMPUTE);
  for (uint32_t i = 0; i < g.ranks; i++) {
    ref x = part_of(e, &g, g.ranks - i);
    linear_multiply(e, l, p, rows, g.ranks, x,
                    emit_turned(e, y, l->type, (g.ranks - i) % g.ranks, g.ranks, rows, p->outer));
    if (i + 1 == g.ranks) break;
    shift(e, 1, x, part_of(e, &g, g.ranks - i - 1));
    emit_join(e, STREAM_COMPUTE, STREAM_COMM);
  }
  if (has_second) gather(e, &second);
  return (fp8_gradient){ g.whole, has_second ? second.whole : g.whole };
}

/* A part for each rank: the i-th is that of the rank i + 1 further on, which adds it to those of others; the
 * last one is this rank's own. */
static void scatter_in_ring(emitter *e, const linear_node *l, const linear_product *p, ref x, ref y)
{
  uint32_t ranks = ranks_of(e);
  int64_t rows = l->gemm_rows / ranks, part = rows * p->outer;
  ref buffer = user_buffer(e, l, USER_FORWARD, l->type, (2 * ranks - 1) * rows, p->outer);
  ref summed = emit_strided(e, buffer, l->type, 0, 2, (int64_t[]){ ranks, part }, NULL);
  for (uint32_t i = 0; i < ranks; i++) {
    bool is_own = i + 1 == ranks;
    ref to = is_own ? emit_turned(e, buffer, l->type, 0, ranks, rows, p->outer)
                    : emit_strided(e, buffer, l->type, (ranks + i) * part, 2,
                                   (int64_t[]){ rows, p->outer }, NULL);
    linear_multiply(e, l, p, rows, ranks,
                    emit_turned(e, x, linear_gemm_type(l), (i + 1) % ranks, ranks, rows, p->inner),
                    to);
    if (is_own) break;
    emit_join(e, STREAM_COMM, STREAM_COMPUTE);
    shift(e, i + 1, to, emit_turned(e, buffer, l->type, ranks - i - 1, ranks, rows, p->outer));
  }
  emit_join(e, STREAM_COMPUTE, STREAM_COMM);
  emit_memory_kernel(e, KERNEL_COLUMN_SUMS, l->type, ranks * part, (ref[]){ summed, 0 },
                     (ref[]){ y, 0 });
}

/* Parts of the columns, which kernels scatter and sum. */
static void scatter_in_pipeline(emitter *e, const linear_node *l, const linear_product *p, ref x,
                                ref y)
{
  enum { PARTS = USER_BUFFER_PIPELINE_PARTS };
  uint32_t ranks = ranks_of(e);
  int64_t rows = l->gemm_rows / ranks, columns = p->outer / PARTS;
  int64_t bytes = l->gemm_rows * columns * dtype_bytes(l->type);
  ref buffer = user_buffer(e, l, USER_FORWARD, l->type, l->gemm_rows, p->outer);
  linear_product part = *p;
  part.outer = columns;
  for (int64_t i = 0; i < PARTS; i++) {
    ref to = emit_strided(e, buffer, l->type, i * l->gemm_rows * columns, 2,
                          (int64_t[]){ l->gemm_rows, columns }, NULL);
    part.weight = emit_matrix_rows(e, p->weight, i * columns, columns, p->inner);
    if (p->bias != 0) part.bias = emit_strided(e, p->bias, l->type, i * columns, 1, &columns, NULL);
    linear_multiply(e, l, &part, l->gemm_rows, PARTS, x, to);
    emit_join(e, STREAM_COMM, STREAM_COMPUTE);
    emit_collective(e, STREAM_COMM, COLLECTIVE_REDUCE_SCATTER, GROUP_TP, bytes, (ref[]){ to, 0 },
                    (ref[]){ emit_strided(e, y, l->type, i * columns, 2,
                                          (int64_t[]){ rows, columns }, (int64_t[]){ p->outer, 1 }),
                             0 });
  }
  emit_join(e, STREAM_COMPUTE, STREAM_COMM);
}

void linear_scatter_beside(emitter *e, const linear_node *l, const linear_product *p, ref x, ref y)
{
  assert(p->layout == GEMM_NT && "parts of the columns are parts of the weight's rows");
  if (l->flags & LINEAR_RINGS_SUM)
    scatter_in_ring(e, l, p, x, y);
  else
    scatter_in_pipeline(e, l, p, x, y);
}

ref linear_gather_in_bulk(emitter *e, const linear_node *l, ref own)
{
  gathered g = own_part(e, l, USER_DGRAD, l->inputs, own);
  emit_join(e, STREAM_COMM, STREAM_COMPUTE);
  gather(e, &g);
  return g.whole;
}

ref linear_bulk_gradient(emitter *e, const linear_node *l)
{
  return user_buffer(e, l, USER_WGRAD, l->type, l->gemm_rows, l->inputs);
}

ref linear_sum_in_bulk(emitter *e, const linear_node *l, ref whole)
{
  uint32_t ranks = ranks_of(e);
  ref part = emit_turned(e, whole, l->type, 0, ranks, l->gemm_rows / ranks, l->inputs);
  emit_join(e, STREAM_COMM, STREAM_COMPUTE);
  emit_collective(e, STREAM_COMM, COLLECTIVE_REDUCE_SCATTER, GROUP_TP, emit_bytes(e, whole),
                  (ref[]){ whole, 0 }, (ref[]){ part, 0 });
  return part;
}
