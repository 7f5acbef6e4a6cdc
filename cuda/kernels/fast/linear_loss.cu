#include "cuda/kernels/fast/linear_loss.h"

#include <cuda_runtime_api.h>

#include "cuda/kernels/fast/row_pass.cuh"

enum { LOSS_THREADS = 512 };

/* A number for each token, and the gradients of its logits. */
struct loss_operands {
  layout labels, losses, maxima, sums, gy, gradient;
};

static bool losses_of(const exec_call *c, loss_operands *o)
{
  const tensor *in = c->reads, *out = c->writes;
  int64_t tokens = c->call->dims[0];
  return indices_suit(in[2], tokens, &o->labels) && numbers_suit(out[0], tokens, &o->losses) &&
         numbers_suit(out[1], tokens, &o->maxima) && numbers_suit(out[2], tokens, &o->sums);
}

static bool gradients_of(const exec_call *c, loss_operands *o)
{
  const tensor *in = c->reads, *out = c->writes;
  int64_t tokens = c->call->dims[0], vocab = c->call->dims[1];
  return numbers_suit(in[2], tokens, &o->gy) && indices_suit(in[3], tokens, &o->labels) &&
         numbers_suit(in[4], tokens, &o->maxima) && numbers_suit(in[5], tokens, &o->sums) &&
         is_number(out[0]) && layout_of(out[0], vocab, 1, &o->gradient);
}

/* A block for each token; a thread takes every LOSS_THREADS-th logit. */
__global__ void losses_kernel(logit_rows rows, loss_operands o)
{
  const float *logits = rows.logits + blockIdx.x * rows.vocab;
  uint32_t token = (uint32_t)rows.first + blockIdx.x;
  float largest = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < rows.vocab; i += LOSS_THREADS)
    largest = fmaxf(largest, logits[i]);
  largest = group_reduce<larger_number>(LOSS_THREADS, largest);
  for (int64_t i = threadIdx.x; i < rows.vocab; i += LOSS_THREADS)
    sum += expf(logits[i] - largest);
  sum = group_reduce<add_numbers>(LOSS_THREADS, sum);
  if (threadIdx.x != 0) return;
  float logit = logits[index_at(o.labels, token)] - largest;
  store_one(o.losses, place_of(o.losses, token), logf(sum) - logit);
  store_one(o.maxima, place_of(o.maxima, token), largest);
  store_one(o.sums, place_of(o.sums, token), sum);
}

__global__ void gradients_kernel(logit_rows rows, loss_operands o)
{
  const float *logits = rows.logits + blockIdx.x * rows.vocab;
  uint32_t token = (uint32_t)rows.first + blockIdx.x;
  int64_t label = index_at(o.labels, token), to = place_of(o.gradient, token);
  float times = number_at(o.gy, token), largest = number_at(o.maxima, token);
  float sum = number_at(o.sums, token);
  for (int64_t i = threadIdx.x; i < rows.vocab; i += LOSS_THREADS) {
    float x = expf(logits[i] - largest) / sum - (i == label ? 1.0F : 0.0F);
    store_one(o.gradient, to + i, x * times);
  }
}

bool fast_losses_suit(const exec_call *c)
{
  loss_operands o;
  bool gradient = c->call->kind == KERNEL_LINEAR_CROSS_ENTROPY_BACKWARD;
  return gradient ? gradients_of(c, &o) : losses_of(c, &o);
}

void fast_losses_of(cuda_call *c, const logit_rows *rows)
{
  loss_operands o;
  if (c->failure != NULL || !losses_of(c->of, &o)) return;
  losses_kernel<<<(unsigned)rows->count, LOSS_THREADS, 0, stream_of(c)>>>(*rows, o);
  launched(c);
}

void fast_logit_gradients_of(cuda_call *c, const logit_rows *rows)
{
  loss_operands o;
  if (c->failure != NULL || !gradients_of(c->of, &o)) return;
  gradients_kernel<<<(unsigned)rows->count, LOSS_THREADS, 0, stream_of(c)>>>(*rows, o);
  launched(c);
}
