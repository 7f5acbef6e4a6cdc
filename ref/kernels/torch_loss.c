/*
 * Losses of plain PyTorch models: log_softmax and nll_loss (aten/src/ATen/native/cuda/SoftMax.cu,
 * Loss.cu), and the cross-entropy of the flash-attn package (ops/triton/cross_entropy.py), with
 * which verl computes log-probabilities. Rows are tokens, columns the vocabulary; labels that equal
 * the call's `ignored` are ignored.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

enum { ROWS, COLUMNS };

/* The largest, then the sum of exp(x - largest), ascending; largest + log(sum). */
static real log_sum_exp(const real *x, int64_t count)
{
  real largest = x[0], sum = 0;
  for (int64_t k = 1; k < count; k++)
    largest = x[k] > largest ? x[k] : largest;
  for (int64_t k = 0; k < count; k++)
    sum += real_exp(x[k] - largest);
  return largest + real_log(sum);
}

/* y = x - log_sum_exp(x) */
void ref_log_softmax_forward(const exec_call *c)
{
  int64_t columns = exec_dim(c, COLUMNS);
  real *x = ref_reals(columns);
  assert(REF_READS(c, exec_dim(c, ROWS) * columns) && REF_WRITES(c, exec_dim(c, ROWS) * columns));
  for (int64_t i = 0; i < exec_dim(c, ROWS); i++) {
    ref_load_row(&c->reads[0], i * columns, columns, x);
    real all = log_sum_exp(x, columns);
    for (int64_t k = 0; k < columns; k++)
      x[k] = x[k] - all;
    ref_store_row(&c->writes[0], i * columns, columns, x);
  }
  free(x);
}

/* Reads gy, y. gx = gy - exp(y) s, where s is the sum of the row's gy, ascending. */
void ref_log_softmax_backward(const exec_call *c)
{
  int64_t columns = exec_dim(c, COLUMNS);
  real *gy = ref_reals(2 * columns), *y = gy + columns;
  assert(REF_READS(c, exec_dim(c, ROWS) * columns, exec_dim(c, ROWS) * columns));
  assert(REF_WRITES(c, exec_dim(c, ROWS) * columns));
  for (int64_t i = 0; i < exec_dim(c, ROWS); i++) {
    real sum = 0;
    ref_load_row(&c->reads[0], i * columns, columns, gy);
    ref_load_row(&c->reads[1], i * columns, columns, y);
    for (int64_t k = 0; k < columns; k++)
      sum += gy[k];
    for (int64_t k = 0; k < columns; k++)
      gy[k] = gy[k] - real_exp(y[k]) * sum;
    ref_store_row(&c->writes[0], i * columns, columns, gy);
  }
  free(gy);
}

/* The token's label; -1: ignored. */
static int64_t label_of(const exec_call *c, const exec_tensor *labels, int64_t token)
{
  int64_t label = ref_load_int(labels, token);
  if (label == (int64_t)c->call->scalars[0]) return -1;
  assert(label >= 0 && label < exec_dim(c, COLUMNS) && "a label of the vocabulary");
  return label;
}

/* Reads log-probabilities, labels; writes the loss and the number of labels that are not ignored.
 * The loss is the negated sum, ascending, of the log-probabilities of the labels, divided by that
 * number. */
void ref_nll_forward(const exec_call *c)
{
  real sum = 0, counted = 0;
  assert(REF_READS(c, exec_dim(c, ROWS) * exec_dim(c, COLUMNS), exec_dim(c, ROWS)));
  assert(REF_WRITES(c, 1, 1));
  for (int64_t i = 0; i < exec_dim(c, ROWS); i++) {
    int64_t label = label_of(c, &c->reads[1], i);
    if (label < 0) continue;
    sum -= ref_load(&c->reads[0], i * exec_dim(c, COLUMNS) + label);
    counted += 1;
  }
  ref_store(&c->writes[0], 0, sum / counted);
  ref_store(&c->writes[1], 0, counted);
}

/* Reads gy, labels, number of labels; -(gy / number) at the label, 0 elsewhere. */
void ref_nll_backward(const exec_call *c)
{
  real share = ref_load(&c->reads[0], 0) / ref_load(&c->reads[2], 0);
  assert(REF_READS(c, 1, exec_dim(c, ROWS), 1));
  assert(REF_WRITES(c, exec_dim(c, ROWS) * exec_dim(c, COLUMNS)));
  for (int64_t i = 0; i < exec_dim(c, ROWS); i++) {
    int64_t label = label_of(c, &c->reads[1], i);
    if (label >= 0) ref_store(&c->writes[0], i * exec_dim(c, COLUMNS) + label, -share);
  }
}

/* Reads logits, labels; writes losses, log_sum_exp of the rows, and its penalty, which is off. */
void ref_log_probs_forward(const exec_call *c)
{
  int64_t columns = exec_dim(c, COLUMNS);
  real *x = ref_reals(columns);
  int64_t rows = exec_dim(c, ROWS);
  assert(REF_READS(c, rows * columns, rows) && REF_WRITES(c, rows, rows, rows));
  for (int64_t i = 0; i < exec_dim(c, ROWS); i++) {
    int64_t label = label_of(c, &c->reads[1], i);
    ref_load_row(&c->reads[0], i * columns, columns, x);
    real all = log_sum_exp(x, columns);
    ref_store(&c->writes[0], i, label < 0 ? 0 : all - x[label]);
    ref_store(&c->writes[1], i, all);
    ref_store(&c->writes[2], i, 0);
  }
  free(x);
}

/* Reads gy, logits, log_sum_exp, labels; gx = gy (exp(x - log_sum_exp) - 1 at the label), which may
 * overwrite the logits. */
void ref_log_probs_backward(const exec_call *c)
{
  int64_t columns = exec_dim(c, COLUMNS);
  real *x = ref_reals(columns);
  int64_t rows = exec_dim(c, ROWS);
  assert(REF_READS(c, rows, rows * columns, rows, rows) && REF_WRITES(c, rows * columns));
  for (int64_t i = 0; i < exec_dim(c, ROWS); i++) {
    int64_t label = label_of(c, &c->reads[3], i);
    real gy = label < 0 ? 0 : ref_load(&c->reads[0], i), all = ref_load(&c->reads[2], i);
    ref_load_row(&c->reads[1], i * columns, columns, x);
    for (int64_t k = 0; k < columns; k++) {
      real probability = real_exp(x[k] - all);
      x[k] = gy * (k == label ? probability - 1 : probability);
    }
    ref_store_row(&c->writes[0], i * columns, columns, x);
  }
  free(x);
}

/* Rows of integers, one element longer than the rows read: the last element is the call's value. */
void ref_pad(const exec_call *c)
{
  enum { VALUE, LENGTH };
  int64_t length = (int64_t)c->call->scalars[LENGTH], rows = exec_dim(c, 0) / length;
  assert(REF_READS(c, rows * (length - 1)) && REF_WRITES(c, rows * length));
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t k = 0; k < length - 1; k++)
      ref_copy(&c->reads[0], i * (length - 1) + k, &c->writes[0], i * length + k);
    ref_store_int(&c->writes[0], i * length + length - 1, (int64_t)c->call->scalars[VALUE]);
  }
}
