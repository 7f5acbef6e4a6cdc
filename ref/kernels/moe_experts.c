/*
 * The local experts (moe_rows.h maps rows to experts). Parameters of several experts are one
 * operand, or one for each. Sums go by ascending row or column.
 *
 * grouped_gemm: reads a, b [, biases] [, index]; one product for each expert, in the order of
 *   gemm.h. With `of`: for the experts from `first` on, whose rows are among those of `of`
 *   experts; the last such call writes the zeros. A is the rows and B the weights of all experts,
 *   or, for the gradients of weights (GEMM_TN, GEMM_TN_COPIES), both are rows; rows that belong to
 *   no expert give zeros.
 * expert_bias_forward: reads x, probabilities, biases [, index]; writes [scratch,] x + b p.
 * expert_bias_backward: reads g, biases, probabilities [, index]; writes [scratch,] [gx = g,] [the
 *   gradient of probabilities: sums of g b,] that of biases: sums of g p.
 * expert_bias_grad: reads g [, index]; sums of the rows of each expert.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/gemm.h"
#include "ref/kernels/moe_rows.h"
#include "ref/kernels/storage.h"

enum { GROUPED_M, GROUPED_N, GROUPED_K, GROUPED_BATCH, GROUPED_EXPERTS, GROUPED_FIRST, GROUPED_OF };

/* The last read operand, if it is an index. */
static const exec_tensor *index_of(const exec_call *c)
{
  const exec_tensor *last = &c->reads[c->read_count - 1];
  return last->type == DTYPE_INT32 || last->type == DTYPE_INT64 ? last : NULL;
}

/* The number of operands for each parameter, if `others` operands are not parameters. */
static uint32_t parts_of(const exec_call *c, uint32_t others, uint32_t parameters, int64_t experts)
{
  uint32_t parts = (c->read_count - others - (index_of(c) != NULL)) / parameters;
  assert(parts == 1 || parts == experts);
  return parts;
}

static ref_matrix at_row(ref_matrix m, int64_t row)
{
  if (m.data != NULL) m.data = (char *)m.data + row * m.row_stride * dtype_bytes(m.type);
  return m;
}

static ref_matrix at_column(ref_matrix m, int64_t column)
{
  return ref_transposed(at_row(ref_transposed(m), column));
}

/* The weights of one expert, or of all if they are one operand. */
static ref_matrices weights_of(const exec_call *c, uint32_t parts, int64_t e, int64_t k, int64_t n)
{
  exec_call one = *c;
  if (parts == 1) return ref_right_operand(c, exec_dim(c, GROUPED_EXPERTS), k, n);
  one.reads = (exec_tensor[]){ c->reads[0], c->reads[1 + e] };
  one.read_count = 2;
  return ref_right_operand(&one, 1, k, n);
}

/* Biases have as many operands as weights. */
static ref_matrices biases_of(const exec_call *c, uint32_t parts, int64_t e, int64_t n)
{
  bool biased = c->call->scalars[GEMM_BIASED] != 0;
  if (!biased) return (ref_matrices){ 0 };
  if (parts == 1) return ref_matrices_read(&c->reads[2], exec_dim(c, GROUPED_EXPERTS), 1, n);
  return ref_matrices_read(&c->reads[1 + parts + e], 1, 1, n);
}

static void multiply_expert(const exec_call *c, uint32_t parts, int64_t e, moe_span s, ref_matrix x,
                            ref_matrix y)
{
  int64_t n = exec_dim(c, GROUPED_N), k = exec_dim(c, GROUPED_K), number = parts == 1 ? e : 0;
  ref_matrices b = weights_of(c, parts, e, k, n), biases = biases_of(c, parts, e, n);
  ref_matrix addend = biases.first.data != NULL ? ref_matrix_number(&biases, number) : biases.first;
  addend.row_stride = 0;
  ref_gemm_part(&(ref_product){ s.count, n, k, at_row(x, s.first), ref_matrix_number(&b, number),
                                addend, at_row(y, s.first) });
  ref_matrices_release(&biases);
  ref_matrices_release(&b);
}

/* y = x w of each expert's rows. */
static void multiply_rows(const exec_call *c)
{
  int64_t rows = exec_dim(c, GROUPED_M), n = exec_dim(c, GROUPED_N), k = exec_dim(c, GROUPED_K),
          experts = exec_dim(c, GROUPED_EXPERTS), first = exec_dim(c, GROUPED_FIRST),
          of = exec_dim(c, GROUPED_OF), done = 0;
  assert(of == 0 || (first + experts <= of && exec_is_contiguous(&c->writes[0])));
  if (of > 0) rows = exec_elements(&c->reads[0]) / k;
  if (of == 0) of = experts;
  uint32_t parts = parts_of(c, 1, c->call->scalars[GEMM_BIASED] != 0 ? 2 : 1, experts);
  ref_matrices a = ref_left_operand(c, 1, rows, k);
  ref_matrices to = ref_matrices_write(&c->writes[0], 1, rows, n);
  for (int64_t e = 0; e < experts; e++) {
    moe_span s = moe_span_of(index_of(c), rows, of, first + e);
    multiply_expert(c, parts, e, s, a.first, to.first);
    done = s.first + s.count;
  }
  ref_matrices_release(&to);
  ref_matrices_release(&a);
  if (first + experts == of) ref_fill_row(&c->writes[0], done * n, (rows - done) * n, 0);
}

/* gw = gy^T x of each expert's rows. */
static void multiply_weights(const exec_call *c)
{
  int64_t m = exec_dim(c, GROUPED_M), n = exec_dim(c, GROUPED_N), rows = exec_dim(c, GROUPED_K),
          experts = exec_dim(c, GROUPED_EXPERTS);
  bool adds = c->call->scalars[GEMM_ADD] != 0;
  ref_matrices a = ref_left_operand(c, 1, m, rows), b = ref_right_operand(c, 1, rows, n);
  ref_matrices old = { 0 }, to = ref_matrices_write(&c->writes[0], experts, m, n);
  if (adds) old = ref_matrices_read(&c->writes[0], experts, m, n);
  for (int64_t e = 0; e < experts; e++) {
    moe_span s = moe_span_of(index_of(c), rows, experts, e);
    ref_gemm_part(
        &(ref_product){ m, n, s.count, at_column(a.first, s.first), at_row(b.first, s.first),
                        adds ? ref_matrix_number(&old, e) : old.first, ref_matrix_number(&to, e) });
  }
  ref_matrices_release(&old);
  ref_matrices_release(&to);
  ref_matrices_release(&b);
  ref_matrices_release(&a);
}

void ref_grouped_gemm(const exec_call *c)
{
  assert(c->write_count == 1 && exec_dim(c, GROUPED_BATCH) == 1);
  gemm_layout layout = (gemm_layout)c->call->scalars[GEMM_LAYOUT];
  if (layout == GEMM_TN || layout == GEMM_TN_COPIES)
    multiply_weights(c);
  else
    multiply_rows(c);
}

/* ---- biases ---------------------------------------------------------------------------------- */

enum { BIAS_ROWS, BIAS_WIDTH, BIAS_EXPERTS };

/* Loads the bias of expert `e`; biases begin at operand `first`. */
static void load_bias(const exec_call *c, uint32_t first, uint32_t parts, int64_t e, real *to)
{
  int64_t width = exec_dim(c, BIAS_WIDTH);
  if (parts == 1)
    ref_load_row(&c->reads[first], e * width, width, to);
  else
    ref_load_row(&c->reads[first + e], 0, width, to);
}

void ref_expert_bias_forward(const exec_call *c)
{
  int64_t rows = exec_dim(c, BIAS_ROWS), width = exec_dim(c, BIAS_WIDTH),
          experts = exec_dim(c, BIAS_EXPERTS), done = 0;
  const exec_tensor *index = index_of(c), *to = &c->writes[c->write_count - 1];
  uint32_t parts = parts_of(c, 2, 1, experts);
  real *x = ref_reals(width), *bias = ref_reals(width);
  for (int64_t e = 0; e < experts; e++) {
    moe_span s = moe_span_of(index, rows, experts, e);
    load_bias(c, 2, parts, e, bias);
    for (int64_t i = s.first; i < s.first + s.count; i++) {
      real p = ref_load(&c->reads[1], i);
      ref_load_row(&c->reads[0], i * width, width, x);
      for (int64_t j = 0; j < width; j++)
        x[j] += bias[j] * p;
      ref_store_row(to, i * width, width, x);
    }
    done = s.first + s.count;
  }
  ref_copy_row(&c->reads[0], done * width, to, done * width, (rows - done) * width);
  free(x);
  free(bias);
}

/* One expert's bias, and the sums of its gradient so far. */
typedef struct expert_bias {
  const exec_tensor *probs;
  const real *bias;
  real *sums, *row;
  int64_t width;
} expert_bias;

static real bias_of_row(const exec_call *c, const expert_bias *b, int64_t i)
{
  real p = ref_load(b->probs, i), dot = 0;
  ref_load_row(&c->reads[0], i * b->width, b->width, b->row);
  for (int64_t j = 0; j < b->width; j++) {
    dot += b->row[j] * b->bias[j];
    b->sums[j] += b->row[j] * p;
  }
  return dot;
}

/* The writes besides the biases' gradients, or NULL. */
typedef struct bias_gradients {
  const exec_tensor *x, *probs;
} bias_gradients;

static bias_gradients gradients_of(const exec_call *c)
{
  bias_gradients g = { NULL, NULL };
  for (uint32_t i = 0; i + 1 < c->write_count; i++) {
    const exec_tensor *t = &c->writes[i];
    if (t->type == DTYPE_BYTE) continue;
    if (exec_elements(t) == exec_dim(c, BIAS_ROWS))
      g.probs = t;
    else
      g.x = t;
  }
  return g;
}

void ref_expert_bias_backward(const exec_call *c)
{
  int64_t rows = exec_dim(c, BIAS_ROWS), width = exec_dim(c, BIAS_WIDTH),
          experts = exec_dim(c, BIAS_EXPERTS), done = 0;
  bias_gradients to = gradients_of(c);
  uint32_t parts = parts_of(c, 2, 1, experts);
  real *bias = ref_reals(width), *sums = ref_reals(width), *row = ref_reals(width);
  expert_bias b = { &c->reads[1 + parts], bias, sums, row, width };
  for (int64_t e = 0; e < experts; e++) {
    moe_span s = moe_span_of(index_of(c), rows, experts, e);
    load_bias(c, 1, parts, e, bias);
    for (int64_t j = 0; j < width; j++)
      sums[j] = 0;
    for (int64_t i = s.first; i < s.first + s.count; i++) {
      real dot = bias_of_row(c, &b, i);
      if (to.probs != NULL) ref_store(to.probs, i, dot);
    }
    ref_store_row(&c->writes[c->write_count - 1], e * width, width, sums);
    done = s.first + s.count;
  }
  if (to.probs != NULL) ref_fill_row(to.probs, done, rows - done, 0);
  if (to.x != NULL) ref_copy_row(&c->reads[0], 0, to.x, 0, rows * width);
  free(bias);
  free(sums);
  free(row);
}

void ref_expert_bias_grad(const exec_call *c)
{
  int64_t rows = exec_dim(c, BIAS_ROWS), width = exec_dim(c, BIAS_WIDTH),
          experts = exec_dim(c, BIAS_EXPERTS);
  real *sums = ref_reals(width), *row = ref_reals(width);
  for (int64_t e = 0; e < experts; e++) {
    moe_span s = moe_span_of(index_of(c), rows, experts, e);
    for (int64_t j = 0; j < width; j++)
      sums[j] = 0;
    for (int64_t i = s.first; i < s.first + s.count; i++) {
      ref_load_row(&c->reads[0], i * width, width, row);
      for (int64_t j = 0; j < width; j++)
        sums[j] += row[j];
    }
    ref_store_row(&c->writes[0], e * width, width, sums);
  }
  free(sums);
  free(row);
}
