#include "sim/compile/muon.h"

#include <string.h>

#include "sim/compile/collectives.h"
#include "sim/compile/kernel_calls.h"

/* ---- ops ------------------------------------------------------------------------------------- */

/* What an op sees of a buffer. */
typedef struct operand {
  uint32_t buffer;
  plan_view view; /* rank 0: all of it */
} operand;

enum { MOST_OPERANDS = 4 };

static operand all_of(uint32_t buffer)
{
  assert(buffer != NO_BUFFER);
  return (operand){ .buffer = buffer };
}

/* `operands`: those read, then those written. */
static void emit(walk *w, plan_call *call, const operand *operands, uint32_t reads, uint32_t writes)
{
  plan_view views[MOST_OPERANDS];
  uint32_t buffers[MOST_OPERANDS];
  assert(reads > 0 && writes > 0 && reads + writes <= MOST_OPERANDS);
  for (uint32_t i = 0; i < reads + writes; i++) {
    views[i] = operands[i].view.rank > 0 ? operands[i].view : (plan_view){ .whole = 1 };
    buffers[i] = operands[i].buffer;
  }
  plan_call_views(w->plan, call, views, reads + writes);
  walk_call(w, STREAM_COMPUTE, call, buffers, reads, buffers + reads, writes);
}

/* An eager operator that reads `from` and `to`, which it writes. */
static void update(walk *w, operand from, operand to, int64_t elements, int64_t element_bytes)
{
  plan_call call = kernel_call(KERNEL_MUON_UPDATE, DTYPE_FP32, elements * element_bytes);
  call.dims[0] = elements;
  emit(w, &call, (operand[]){ from, to, to }, 2, 1);
}

static walk_operand_view seen(walk *w, operand o)
{
  return (walk_operand_view){ o.buffer, o.view.rank > 0 ? plan_view_row(w->plan, &o.view) : 0 };
}

static void copy(walk *w, operand from, operand to, int64_t elements, int64_t element_bytes)
{
  assert(from.buffer < w->rank->buffers.count);
  walk_copy_kernel(w, STREAM_COMPUTE, seen(w, from), seen(w, to),
                   w->rank->buffers.items[from.buffer].tensor, elements, elements * element_bytes);
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* A temporary of the step. */
typedef struct matrix {
  uint32_t buffer;
  dtype type;
  int64_t rows, columns;
} matrix;

static int64_t elements_of(const matrix *m)
{
  assert(m->rows > 0 && m->columns > 0);
  return m->rows * m->columns;
}

static matrix matrix_new(walk *w, const char *name, dtype type, int64_t rows, int64_t columns)
{
  return (matrix){ .buffer = walk_alloc_matrix(w, name, type, rows, columns),
                   .type = type,
                   .rows = rows,
                   .columns = columns };
}

static void matrix_drop(walk *w, const matrix *m)
{
  walk_drop_reference(w, m->buffer);
}

/* A new matrix from `m`, which is dropped. */
static matrix converted(walk *w, matrix m, const char *name, dtype type)
{
  matrix made = matrix_new(w, name, type, m.rows, m.columns);
  copy(w, all_of(m.buffer), all_of(made.buffer), elements_of(&m),
       dtype_bytes(m.type) + dtype_bytes(type));
  matrix_drop(w, &m);
  return made;
}

/* left x right, of which `inner` rows or columns meet; `added`: to the old contents of `to`. */
static void multiply(walk *w, const matrix *left, const matrix *right, const matrix *to,
                     int64_t inner, gemm_layout layout, bool added)
{
  int64_t traffic = elements_of(left) + elements_of(right) + (added ? 2 : 1) * elements_of(to);
  plan_call call = kernel_call(KERNEL_MUON_PRODUCT, to->type, traffic * dtype_bytes(to->type));
  call.dims[0] = to->rows;
  call.dims[1] = to->columns;
  call.dims[2] = inner;
  call.dims[3] = 1;
  call.scalars[GEMM_LAYOUT] = layout;
  operand operands[] = { all_of(left->buffer), all_of(right->buffer), all_of(to->buffer),
                         all_of(to->buffer) };
  emit(w, &call, operands, added ? 3 : 2, 1);
}

/* torch.addmm: a copy, to which a product is added. */
static matrix product_and_sum(walk *w, const matrix *sum, const matrix *left, const matrix *right,
                              const char *name)
{
  matrix made = matrix_new(w, name, sum->type, sum->rows, sum->columns);
  copy(w, all_of(sum->buffer), all_of(made.buffer), elements_of(sum), 2 * dtype_bytes(sum->type));
  multiply(w, left, right, &made, left->columns, GEMM_NN, true);
  return made;
}

/* ---- tensor parallel ranks -------------------------------------------------------------------- */

/* How the ranks of a group share a matrix. */
typedef struct sharing {
  comm_group group;
  int64_t ranks; /* 1: they do not, or each takes care of its part */
  int dimension;
  muon_tp_mode_choice mode;
} sharing;

static sharing sharing_of(const settings *s, const parameter *p)
{
  int64_t ranks = p->is_expert ? s->parallel.expert_tensor_parallel_size
                               : s->parallel.tensor_model_parallel_size;
  muon_tp_mode_choice mode = s->training.muon_tp_mode;
  bool shared = p->split_dimension >= 0 && mode != MUON_BLOCKWISE;
  return (sharing){ .group = p->is_expert ? GROUP_ETP : GROUP_TP,
                    .ranks = shared ? ranks : 1,
                    .dimension = p->split_dimension,
                    .mode = mode };
}

static bool is_summed(const sharing *how)
{
  return how->ranks > 1 && how->mode == MUON_DISTRIBUTED;
}

static void reduce(walk *w, const sharing *how, const matrix *m)
{
  plan_call call = collective_call(w->settings, COLLECTIVE_ALL_REDUCE, how->group,
                                   elements_of(m) * dtype_bytes(m->type));
  call.dtype = (uint8_t)m->type;
  assert(call.group_size == how->ranks);
  emit(w, &call, (operand[]){ all_of(m->buffer), all_of(m->buffer) }, 1, 1);
}

/* The whole matrix from the ranks' parts: a list of all parts, which are then joined. */
static matrix gathered(walk *w, const sharing *how, operand part, int64_t rows, int64_t columns)
{
  int64_t bytes = rows * columns * dtype_bytes(DTYPE_FP32);
  plan_call call = collective_call(w->settings, COLLECTIVE_ALL_GATHER, how->group, bytes);
  call.dtype = DTYPE_FP32;
  assert(call.group_size == how->ranks && how->dimension >= 0);
  matrix parts = matrix_new(w, "momentum_parts", DTYPE_FP32, rows * how->ranks, columns);
  emit(w, &call, (operand[]){ part, all_of(parts.buffer) }, 1, 1);
  if (how->dimension == 1) parts.rows = rows, parts.columns = columns * how->ranks;
  return converted(w, parts, "momentum", DTYPE_FP32);
}

/* ---- orthogonal ------------------------------------------------------------------------------ */

static matrix iterated(walk *w, const sharing *how, matrix x)
{
  matrix gram = matrix_new(w, "gram", x.type, x.rows, x.rows);
  multiply(w, &x, &x, &gram, x.columns, GEMM_NT, false);
  if (is_summed(how)) reduce(w, how, &gram);
  matrix polynomial = product_and_sum(w, &gram, &gram, &gram, "polynomial");
  matrix next = product_and_sum(w, &x, &polynomial, &x, "iterate");
  matrix_drop(w, &gram);
  matrix_drop(w, &polynomial);
  matrix_drop(w, &x);
  return next;
}

/* torch.nn.functional.normalize, or the same over the ranks: the norm of the matrix, then a quotient. */
static matrix normalised(walk *w, const sharing *how, operand from, int64_t rows, int64_t columns)
{
  matrix norm = matrix_new(w, "norm", DTYPE_FP32, 1, 1);
  matrix x = matrix_new(w, "iterate", DTYPE_FP32, rows, columns);
  int64_t elements = elements_of(&x), bytes = elements * dtype_bytes(DTYPE_FP32);
  plan_call call = kernel_call(KERNEL_MUON_NORM, DTYPE_FP32, bytes);
  call.dims[0] = elements;
  emit(w, &call, (operand[]){ from, all_of(norm.buffer) }, 1, 1);
  if (is_summed(how)) reduce(w, how, &norm);
  copy(w, from, all_of(x.buffer), elements, 2 * dtype_bytes(DTYPE_FP32));
  matrix_drop(w, &norm);
  return x;
}

/* `rows` and `columns` are those of this rank's part. */
static matrix orthogonal(walk *w, const sharing *how, operand from, int64_t rows, int64_t columns)
{
  const struct training_settings *t = &w->settings->training;
  bool gathers = how->ranks > 1 && how->mode == MUON_DUPLICATED;
  matrix whole = { .buffer = NO_BUFFER, .rows = rows, .columns = columns };
  if (gathers) {
    whole = gathered(w, how, from, rows, columns);
    from = all_of(whole.buffer);
  }
  bool turns = is_summed(how) ? how->dimension == 0 : whole.rows > whole.columns;
  matrix x = normalised(w, how, from, turns ? whole.columns : whole.rows,
                        turns ? whole.rows : whole.columns);
  bool in_bf16 = t->muon_fp32_matmul_prec == MUON_PRODUCTS_MEDIUM;
  if (in_bf16) x = converted(w, x, "iterate", DTYPE_BF16);
  for (int64_t i = 0; i < t->muon_num_ns_steps; i++)
    x = iterated(w, how, x);
  if (in_bf16) x = converted(w, x, "iterate", DTYPE_FP32);
  if (gathers) matrix_drop(w, &whole);
  /* two products with numbers, of which the first has this rank's part */
  matrix scaled = matrix_new(w, "update", DTYPE_FP32, rows, columns);
  int64_t element_bytes = 2 * dtype_bytes(DTYPE_FP32);
  copy(w, all_of(x.buffer), all_of(scaled.buffer), rows * columns, element_bytes);
  matrix_drop(w, &x);
  return converted(w, scaled, "update", DTYPE_FP32);
}

/* ---- query, key and value -------------------------------------------------------------------- */

enum { MOST_PARTS = 4 };

/* Rows of the parts in a group of queries (emerging_optimizers.py, _get_qkv_split_shapes). */
static uint32_t qkv_parts(const settings *s, int64_t rows[MOST_PARTS])
{
  const struct model_settings *m = &s->model;
  uint32_t count = 0;
  int64_t queries = m->num_attention_heads / m->num_query_groups * m->kv_channels;
  assert(queries > 0 && m->kv_channels > 0);
  rows[count++] = queries;
  if (m->attention_output_gate) rows[count++] = queries;
  rows[count++] = m->kv_channels;
  rows[count++] = m->kv_channels;
  return count;
}

static bool is_split(const settings *s, const parameter *p)
{
  return s->training.muon_split_qkv && strcmp(p->name, "self_attention.linear_qkv.weight") == 0;
}

static matrix orthogonal_parts(walk *w, const sharing *how, operand momentum, const parameter *p)
{
  int64_t part_rows[MOST_PARTS], group_rows = 0;
  uint32_t count = qkv_parts(w->settings, part_rows);
  matrix parts[MOST_PARTS];
  for (uint32_t i = 0; i < count; i++)
    group_rows += part_rows[i];
  int64_t groups = p->shape[0] / group_rows, columns = p->shape[1];
  assert(p->shape[0] % group_rows == 0 && "whole groups of queries");
  for (uint32_t i = 0; i < count; i++) {
    parts[i] = matrix_new(w, "momentum", DTYPE_FP32, groups * part_rows[i], columns);
    copy(w, momentum, all_of(parts[i].buffer), elements_of(&parts[i]), 2 * dtype_bytes(DTYPE_FP32));
  }
  for (uint32_t i = 0; i < count; i++) {
    matrix made = orthogonal(w, how, all_of(parts[i].buffer), parts[i].rows, parts[i].columns);
    matrix_drop(w, &parts[i]);
    parts[i] = made;
  }
  matrix joined = matrix_new(w, "update", DTYPE_FP32, p->shape[0], columns);
  for (uint32_t i = 0; i < count; i++)
    copy(w, all_of(parts[i].buffer), all_of(joined.buffer), elements_of(&parts[i]),
         2 * dtype_bytes(DTYPE_FP32));
  for (uint32_t i = 0; i < count; i++)
    matrix_drop(w, &parts[i]);
  return joined;
}

/* ---- the step -------------------------------------------------------------------------------- */

void muon_step(walk *w, const muon_matrix *m)
{
  const parameter *p = m->parameter;
  const optimizer_operands *o = &m->operands;
  assert(p->rank == 2 && o->state_count == 1 && o->elements == p->shape[0] * p->shape[1]);
  sharing how = sharing_of(w->settings, p);
  operand gradient = { o->gradient, o->gradient_view }, weight = { o->weight, o->weight_view };
  operand momentum = all_of(o->states[0]);
  enum { FP32_BYTES = 4 };
  update(w, weight, weight, o->elements, 2 * FP32_BYTES); /* decay */
  update(w, gradient, momentum, o->elements, 3 * FP32_BYTES);
  matrix change = is_split(w->settings, p)
                      ? orthogonal_parts(w, &how, momentum, p)
                      : orthogonal(w, &how, momentum, p->shape[0], p->shape[1]);
  update(w, all_of(change.buffer), weight, o->elements, 3 * FP32_BYTES);
  matrix_drop(w, &change);
  if (m->copy != NO_BUFFER)
    copy(w, weight, (operand){ m->copy, m->copy_view }, o->elements,
         FP32_BYTES + dtype_bytes((dtype)p->type));
}
