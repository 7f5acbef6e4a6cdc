/*
 * Output layer and cross entropy in one (Megatron-LM core/fusions/fused_linear_cross_entropy.py):
 * the logits of a token exist only while it is processed, and backward recomputes them. Without TP.
 * Products as in gemm.h, the rest as in cross_entropy.c.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/gemm.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

/* dims: tokens, vocabulary, width of a token. */
enum { TOKENS_AT_ONCE = 16 };
typedef struct token_logits {
  int64_t tokens, vocab, width;
  ref_matrices x, weight;
  real *block; /* [TOKENS_AT_ONCE, vocab] */
} token_logits;

static token_logits begin(const exec_call *c)
{
  token_logits l = { .tokens = exec_dim(c, 0), .vocab = exec_dim(c, 1), .width = exec_dim(c, 2) };
  l.x = ref_matrices_read(&c->reads[0], 1, l.tokens, l.width);
  l.weight = ref_matrices_read(&c->reads[1], 1, l.vocab, l.width);
  l.block = ref_reals(TOKENS_AT_ONCE * l.vocab);
  return l;
}

static void end(token_logits *l)
{
  ref_matrices_release(&l->x);
  ref_matrices_release(&l->weight);
  free(l->block);
}

static void compute_block(token_logits *l, int64_t first)
{
  ref_matrix rows = ref_matrix_number(&l->x, 0);
  rows.data = (char *)rows.data + first * rows.row_stride * dtype_bytes(rows.type);
  ref_gemm_part(
      &(ref_product){ .m = l->tokens - first < TOKENS_AT_ONCE ? l->tokens - first : TOKENS_AT_ONCE,
                      .n = l->vocab,
                      .k = l->width,
                      .a = rows,
                      .b = ref_transposed(ref_matrix_number(&l->weight, 0)),
                      .c = { l->block, REF_REAL_TYPE, l->vocab, 1 } });
}

/* [vocab], valid until the next call; call it for tokens in ascending order. */
static real *logits_of(token_logits *l, int64_t token)
{
  assert(token < l->tokens);
  if (token % TOKENS_AT_ONCE == 0) compute_block(l, token);
  return l->block + token % TOKENS_AT_ONCE * l->vocab;
}

/* reads x, weight, labels, writes losses, maxima, sums of exponentials. */
void ref_linear_cross_entropy_forward(const exec_call *c)
{
  token_logits l = begin(c);
  assert(c->read_count == 3 && REF_WRITES(c, l.tokens, l.tokens, l.tokens));
  for (int64_t t = 0; t < l.tokens; t++) {
    int64_t label = ref_load_int(&c->reads[2], t);
    real maximum = -real_infinity(), sum = 0;
    assert(label >= 0 && label < l.vocab);
    real *logits = logits_of(&l, t);
    for (int64_t i = 0; i < l.vocab; i++)
      if (logits[i] > maximum) maximum = logits[i];
    for (int64_t i = 0; i < l.vocab; i++)
      sum += real_exp(logits[i] - maximum);
    ref_store(&c->writes[0], t, real_log(sum) - (logits[label] - maximum));
    ref_store(&c->writes[1], t, maximum);
    ref_store(&c->writes[2], t, sum);
  }
  end(&l);
}

/* reads x, weight, gy, labels, maxima, sums, writes the gradient of the logits. */
void ref_linear_cross_entropy_backward(const exec_call *c)
{
  token_logits l = begin(c);
  assert(c->read_count == 6 && REF_WRITES(c, l.tokens * l.vocab));
  for (int64_t t = 0; t < l.tokens; t++) {
    real gy = ref_load(&c->reads[2], t), maximum = ref_load(&c->reads[4], t);
    real sum = ref_load(&c->reads[5], t);
    int64_t label = ref_load_int(&c->reads[3], t);
    assert(label >= 0 && label < l.vocab);
    real *logits = logits_of(&l, t);
    for (int64_t i = 0; i < l.vocab; i++)
      logits[i] = real_exp(logits[i] - maximum) / sum;
    logits[label] -= 1;
    for (int64_t i = 0; i < l.vocab; i++)
      logits[i] = logits[i] * gy;
    ref_store_row(&c->writes[0], t * l.vocab, l.vocab, logits);
  }
  end(&l);
}
