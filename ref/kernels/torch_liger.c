/*
 * Kernels of linkedin/Liger-Kernel 0.8 (src/liger_kernel/ops: swiglu.py, cross_entropy.py) and
 * Axolotl (src/axolotl/kernels/swiglu.py).
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/activation.h"
#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

/* Reads gate, up; writes silu(gate) up. */
void ref_gated_silu_forward(const exec_call *c)
{
  int64_t width = exec_dim(c, 1);
  real *gate = ref_reals(2 * width), *up = gate + width;
  int64_t elements = exec_dim(c, 0) * width;
  assert(REF_READS(c, elements, elements) && REF_WRITES(c, elements));
  for (int64_t r = 0; r < exec_dim(c, 0); r++) {
    ref_load_row(&c->reads[0], r * width, width, gate);
    ref_load_row(&c->reads[1], r * width, width, up);
    for (int64_t i = 0; i < width; i++)
      gate[i] = ref_activation_of(ACTIVATION_SILU, gate[i]) * up[i];
    ref_store_row(&c->writes[0], r * width, width, gate);
  }
  free(gate);
}

/* Reads gy, gate, up; writes [silu(gate) up,] gy up silu'(gate), gy silu(gate): each may overwrite
 * one of the reads. */
void ref_gated_silu_backward(const exec_call *c)
{
  int64_t width = exec_dim(c, 1);
  const exec_tensor *gradients = &c->writes[c->write_count - 2];
  real *gy = ref_reals(3 * width), *gate = gy + width, *up = gate + width;
  assert(REF_READS(c, exec_dim(c, 0) * width, exec_dim(c, 0) * width, exec_dim(c, 0) * width));
  assert(c->write_count == 2 || c->write_count == 3);
  for (int64_t r = 0; r < exec_dim(c, 0); r++) {
    ref_load_row(&c->reads[0], r * width, width, gy);
    ref_load_row(&c->reads[1], r * width, width, gate);
    ref_load_row(&c->reads[2], r * width, width, up);
    for (int64_t i = 0; i < width; i++) {
      real silu = ref_activation_of(ACTIVATION_SILU, gate[i]);
      real slope = ref_activation_slope(ACTIVATION_SILU, gate[i]), gradient = gy[i];
      gy[i] = silu * up[i];
      gate[i] = gradient * up[i] * slope;
      up[i] = gradient * silu;
    }
    if (c->write_count == 3) ref_store_row(&c->writes[0], r * width, width, gy);
    ref_store_row(&gradients[0], r * width, width, gate);
    ref_store_row(&gradients[1], r * width, width, up);
  }
  free(gy);
}

/* ---- cross-entropy ---- */

/* PyTorch's ignore_index is -100: labels below 0 are ignored. Counts the others. */
static real labels_that_count(const exec_tensor *labels)
{
  int64_t count = 0;
  for (int64_t i = 0; i < exec_elements(labels); i++)
    count += ref_load_int(labels, i) >= 0;
  return (real)count;
}

/* Turns a row of logits into its gradient and returns its loss. */
static real row_loss(real *x, int64_t vocabulary, int64_t label, real counted)
{
  real largest = x[0], sum = 0, picked = x[label];
  for (int64_t k = 1; k < vocabulary; k++)
    largest = x[k] > largest ? x[k] : largest;
  for (int64_t k = 0; k < vocabulary; k++) {
    x[k] = real_exp(x[k] - largest);
    sum += x[k];
  }
  for (int64_t k = 0; k < vocabulary; k++)
    x[k] = (k == label ? x[k] / sum - 1 : x[k] / sum) / counted;
  return (largest + real_log(sum) - picked) / counted;
}

/*
 * Reads the logits of some tokens, their labels, the labels of all tokens; writes over the logits
 * (softmax - 1 at the label) / n, and losses (log-sum-exp - the label's logit) / n, where n is the
 * number of all labels that are not ignored; zeros for ignored ones. A row: the largest logit,
 * ascending; exponentials of the differences from it and their sum, ascending.
 */
void ref_rows_cross_entropy(const exec_call *c)
{
  int64_t vocabulary = exec_dim(c, 1);
  real counted = labels_that_count(&c->reads[2]);
  real *x = ref_reals(vocabulary);
  assert(c->read_count == 3 && REF_WRITES(c, exec_dim(c, 0) * vocabulary, exec_dim(c, 0)));
  for (int64_t r = 0; r < exec_dim(c, 0); r++) {
    int64_t label = ref_load_int(&c->reads[1], r);
    real loss = 0;
    assert(label < vocabulary && "a label of the vocabulary");
    ref_load_row(&c->reads[0], r * vocabulary, vocabulary, x);
    if (label >= 0)
      loss = row_loss(x, vocabulary, label, counted);
    else
      for (int64_t k = 0; k < vocabulary; k++)
        x[k] = 0;
    ref_store_row(&c->writes[0], r * vocabulary, vocabulary, x);
    ref_store(&c->writes[1], r, loss);
  }
  free(x);
}
