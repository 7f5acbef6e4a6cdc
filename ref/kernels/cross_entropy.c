/*
 * Cross entropy of logits whose vocabulary is split over TP: rank i has columns i vocab .. (i + 1)
 * vocab - 1. Sums run over a row's columns, ascending; over ranks in the order of the group.
 *
 * Megatron-LM core/tensor_parallel/cross_entropy.py; Transformer Engine
 * pytorch/triton/cross_entropy.py.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/positions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

static real largest_of(const real *x, int64_t count)
{
  real largest = x[0];
  for (int64_t i = 1; i < count; i++)
    if (x[i] > largest) largest = x[i];
  return largest;
}

/* x becomes exp(x - maximum); returns the sum. */
static real exponentiate(real *x, int64_t count, real maximum)
{
  real sum = 0;
  for (int64_t i = 0; i < count; i++) {
    x[i] = real_exp(x[i] - maximum);
    sum += x[i];
  }
  return sum;
}

/* The label's column of this rank's part; -1 when it is another rank's. */
static int64_t own_label(const exec_call *c, const exec_tensor *labels, int64_t token)
{
  int64_t vocab = exec_dim(c, 1);
  int64_t label = ref_load_int(labels, token) - vocab * c->rank->group[GROUP_TP].index;
  return label >= 0 && label < vocab ? label : -1;
}

/* ---- the unfused sequence and Megatron's fusion of it ---------------------------------------- */

/* reads logits, writes them in another type, and the largest of each row. */
void ref_cross_entropy_maxima(const exec_call *c)
{
  int64_t tokens = exec_dim(c, 0), vocab = exec_dim(c, 1);
  real *x = ref_reals(vocab);
  assert(REF_READS(c, tokens * vocab) && REF_WRITES(c, tokens * vocab, tokens));
  for (int64_t t = 0; t < tokens; t++) {
    ref_load_row(&c->reads[0], t * vocab, vocab, x);
    ref_store_row(&c->writes[0], t * vocab, vocab, x);
    ref_store(&c->writes[1], t, largest_of(x, vocab));
  }
  free(x);
}

/* reads logits, labels, maxima; writes exp(logit - maximum), a mask of labels that other ranks
 * have, labels as columns (0 for masked ones), the label's logit - maximum (0 for masked ones), the
 * sum of the exponentials. */
void ref_cross_entropy_sums(const exec_call *c)
{
  int64_t tokens = exec_dim(c, 0), vocab = exec_dim(c, 1);
  real *x = ref_reals(vocab);
  assert(REF_READS(c, tokens * vocab, tokens, tokens));
  assert(REF_WRITES(c, tokens * vocab, tokens, tokens, tokens, tokens));
  for (int64_t t = 0; t < tokens; t++) {
    int64_t label = own_label(c, &c->reads[1], t);
    real maximum = ref_load(&c->reads[2], t);
    ref_load_row(&c->reads[0], t * vocab, vocab, x);
    real predicted = label >= 0 ? x[label] - maximum : 0;
    real sum = exponentiate(x, vocab, maximum);
    ref_store_row(&c->writes[0], t * vocab, vocab, x);
    ref_store_int(&c->writes[1], t, label < 0);
    ref_store_int(&c->writes[2], t, label < 0 ? 0 : label);
    ref_store(&c->writes[3], t, predicted);
    ref_store(&c->writes[4], t, sum);
  }
  free(x);
}

/* loss = log(sum) - predicted, softmax = exponential / sum. reads exponentials, sums, predicted,
 * writes losses, softmax. */
void ref_cross_entropy_loss(const exec_call *c)
{
  int64_t tokens = exec_dim(c, 0), vocab = exec_dim(c, 1);
  real *x = ref_reals(vocab);
  assert(REF_READS(c, tokens * vocab, tokens, tokens) && REF_WRITES(c, tokens, tokens * vocab));
  for (int64_t t = 0; t < tokens; t++) {
    real sum = ref_load(&c->reads[1], t);
    ref_load_row(&c->reads[0], t * vocab, vocab, x);
    for (int64_t i = 0; i < vocab; i++)
      x[i] = x[i] / sum;
    ref_store(&c->writes[0], t, real_log(sum) - ref_load(&c->reads[2], t));
    ref_store_row(&c->writes[1], t * vocab, vocab, x);
  }
  free(x);
}

/* (softmax - [label]) gy. reads gy, softmax, mask, labels as columns, writes the gradient of the
 * logits. */
void ref_cross_entropy_backward(const exec_call *c)
{
  int64_t tokens = exec_dim(c, 0), vocab = exec_dim(c, 1);
  real *x = ref_reals(vocab);
  assert(REF_READS(c, tokens, tokens * vocab, tokens, tokens) && REF_WRITES(c, tokens * vocab));
  for (int64_t t = 0; t < tokens; t++) {
    real gy = ref_load(&c->reads[0], t);
    ref_load_row(&c->reads[1], t * vocab, vocab, x);
    if (ref_load_int(&c->reads[2], t) == 0) x[ref_load_int(&c->reads[3], t)] -= 1;
    for (int64_t i = 0; i < vocab; i++)
      x[i] = x[i] * gy;
    ref_store_row(&c->writes[0], t * vocab, vocab, x);
  }
  free(x);
}

/* ---- Transformer Engine's two kernels -------------------------------------------------------- */

/* A rank's numbers for a token: the largest logit, the sum of exponentials relative to it, the
 * label's logit (minus infinity if another rank has the label). */
enum { ROW_MAXIMUM, ROW_SUM, ROW_LABEL, ROW_NUMBERS };

/* reads logits, labels, writes three numbers for each row. */
void ref_online_softmax(const exec_call *c)
{
  int64_t tokens = exec_dim(c, 0), vocab = exec_dim(c, 1);
  real *x = ref_reals(vocab);
  assert(REF_READS(c, tokens * vocab, tokens) && REF_WRITES(c, tokens * ROW_NUMBERS));
  for (int64_t t = 0; t < tokens; t++) {
    int64_t label = own_label(c, &c->reads[1], t);
    real numbers[ROW_NUMBERS];
    ref_load_row(&c->reads[0], t * vocab, vocab, x);
    numbers[ROW_LABEL] = label >= 0 ? x[label] : -real_infinity();
    numbers[ROW_MAXIMUM] = largest_of(x, vocab);
    numbers[ROW_SUM] = exponentiate(x, vocab, numbers[ROW_MAXIMUM]);
    ref_store_row(&c->writes[0], t * ROW_NUMBERS, ROW_NUMBERS, numbers);
  }
  free(x);
}

/* Combines the numbers of all ranks' parts, which follow each other. */
static void join_parts(const exec_tensor *parts, int64_t tokens, int64_t token,
                       real joined[ROW_NUMBERS])
{
  int64_t count = exec_elements(parts) / (tokens * ROW_NUMBERS);
  real part[ROW_NUMBERS];
  assert(count * tokens * ROW_NUMBERS == exec_elements(parts));
  joined[ROW_MAXIMUM] = joined[ROW_LABEL] = -real_infinity();
  joined[ROW_SUM] = 0;
  for (int64_t p = 0; p < count; p++) {
    ref_load_row(parts, (p * tokens + token) * ROW_NUMBERS, ROW_NUMBERS, part);
    if (part[ROW_MAXIMUM] > joined[ROW_MAXIMUM]) joined[ROW_MAXIMUM] = part[ROW_MAXIMUM];
    if (part[ROW_LABEL] > joined[ROW_LABEL]) joined[ROW_LABEL] = part[ROW_LABEL];
  }
  for (int64_t p = 0; p < count; p++) {
    ref_load_row(parts, (p * tokens + token) * ROW_NUMBERS, ROW_NUMBERS, part);
    joined[ROW_SUM] += part[ROW_SUM] * real_exp(part[ROW_MAXIMUM] - joined[ROW_MAXIMUM]);
  }
}

/* loss = log(sum) - (label's logit - maximum), gradient = exp(logit - maximum) / sum - [label].
 * reads logits, labels, the numbers of all parts; writes losses, gradient. */
void ref_fused_cross_entropy(const exec_call *c)
{
  int64_t tokens = exec_dim(c, 0), vocab = exec_dim(c, 1);
  real *x = ref_reals(vocab);
  assert(c->read_count == 3 && exec_elements(&c->reads[0]) == tokens * vocab);
  assert(REF_WRITES(c, tokens, tokens * vocab));
  for (int64_t t = 0; t < tokens; t++) {
    int64_t label = own_label(c, &c->reads[1], t);
    real of[ROW_NUMBERS];
    join_parts(&c->reads[2], tokens, t, of);
    ref_load_row(&c->reads[0], t * vocab, vocab, x);
    exponentiate(x, vocab, of[ROW_MAXIMUM]);
    for (int64_t i = 0; i < vocab; i++)
      x[i] = x[i] / of[ROW_SUM];
    if (label >= 0) x[label] -= 1;
    ref_store(&c->writes[0], t, real_log(of[ROW_SUM]) - (of[ROW_LABEL] - of[ROW_MAXIMUM]));
    ref_store_row(&c->writes[1], t * vocab, vocab, x);
  }
  free(x);
}

/* reads a number for each row, rows, writes rows. */
void ref_scale_rows(const exec_call *c)
{
  int64_t rows = exec_dim(c, 0), columns = exec_dim(c, 1);
  real *x = ref_reals(columns);
  assert(REF_READS(c, rows, rows * columns) && REF_WRITES(c, rows * columns));
  for (int64_t r = 0; r < rows; r++) {
    real factor = ref_load(&c->reads[0], r);
    ref_load_row(&c->reads[1], r * columns, columns, x);
    for (int64_t i = 0; i < columns; i++)
      x[i] = x[i] * factor;
    ref_store_row(&c->writes[0], r * columns, columns, x);
  }
  free(x);
}

/* ---- multi-token prediction ------------------------------------------------------------------ */

/* writes the gradient of losses [rows, columns]; only the columns with a target count. */
void ref_mtp_loss_gradient(const exec_call *c)
{
  int64_t rows = exec_dim(c, 0), columns = exec_dim(c, 1), missing = (int64_t)c->call->scalars[1];
  exec_position part = ref_sequence_part(c);
  int64_t last = part.size * columns - 1, counted = 0;
  assert(REF_WRITES(c, rows * columns));
  for (int64_t i = 0; i < columns; i++)
    counted += ref_position_of(part, columns, i) <= last - missing;
  for (int64_t i = 0; i < rows * columns; i++) {
    bool counts = ref_position_of(part, columns, i % columns) <= last - missing;
    ref_store(&c->writes[0], i, counts ? ref_scalar(c, 0) / (real)(rows * counted) : 0);
  }
}
