/* Output layer and cross entropy in one: the logits of some tokens at a time, in scratch memory. */
#include "cuda/kernels/fast/functions.h"
#include "cuda/kernels/fast/linear_loss.h"
#include "cuda/kernels/fast/product.h"
#include "sim/base/units.h"

enum { TOKENS, VOCAB, WIDTH };
enum { LOGIT_BYTES = 128 << 20, TOKENS_TOGETHER = 128 };

/* Tokens whose logits are in memory at once. */
static int64_t tokens_at_once(const exec_call *c)
{
  int64_t most = LOGIT_BYTES / (exec_dim(c, VOCAB) * (int64_t)sizeof(float));
  most = max_i64(most / TOKENS_TOGETHER, 1) * TOKENS_TOGETHER;
  return min_i64(most, exec_dim(c, TOKENS));
}

/* Of all tokens; a and b are set, c is not. */
static bool product_of(const exec_call *c, fast_product *p)
{
  *p = (fast_product){
    .m = exec_dim(c, TOKENS),
    .n = exec_dim(c, VOCAB),
    .k = exec_dim(c, WIDTH),
    .batch = 1,
    .batches = 1,
    .c = { .type = DTYPE_FP32, .row_stride = exec_dim(c, VOCAB), .column_stride = 1 },
    .alpha = 1
  };
  if (!fast_matrix_of(&c->reads[0], 1, 1, p->m, p->k, &p->a) ||
      !fast_matrix_of(&c->reads[1], 1, 1, p->n, p->k, &p->b))
    return false;
  p->b = fast_transposed(p->b);
  return true;
}

bool fast_suits_linear_cross_entropy(const exec_call *c)
{
  fast_product p;
  return product_of(c, &p) && fast_product_suits(&p) && fast_losses_suit(c);
}

int64_t fast_scratch_linear_cross_entropy(const exec_call *c)
{
  return FAST_PRODUCT_WORKSPACE + tokens_at_once(c) * exec_dim(c, VOCAB) * (int64_t)sizeof(float);
}

void fast_linear_cross_entropy(cuda_call *c)
{
  fast_product all;
  int64_t tokens = exec_dim(c->of, TOKENS), most = tokens_at_once(c->of);
  bool gradient = c->of->call->kind == KERNEL_LINEAR_CROSS_ENTROPY_BACKWARD;
  float *logits = (float *)(void *)((char *)c->scratch + FAST_PRODUCT_WORKSPACE);
  if (!product_of(c->of, &all)) {
    c->failure = "the fast kernel supports this output layer";
    return;
  }
  for (int64_t first = 0; first < tokens; first += most) {
    logit_rows rows = { logits, first, min_i64(most, tokens - first), all.n };
    fast_product p = all;
    p.m = rows.count;
    p.a.data = (char *)all.a.data + first * all.a.row_stride * dtype_bytes(all.a.type);
    p.c.data = logits;
    fast_run_product(c, &p, c->scratch);
    if (gradient)
      fast_logit_gradients_of(c, &rows);
    else
      fast_losses_of(c, &rows);
  }
}
