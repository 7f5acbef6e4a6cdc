/* Attention: by cuDNN where there is one, otherwise by own kernels. */
#include "cuda/kernels/fast/attention_cudnn.h"
#include "cuda/kernels/fast/attention_own.h"
#include "cuda/kernels/fast/functions.h"
#include "sim/base/units.h"

enum { ATTENTION_STATES = 2 }; /* writes after output and log sums */

static bool suits(const attention_shape *a)
{
  return a->batch * a->heads * a->queries > 0 && attention_own_suits(a);
}

bool fast_suits_attention_forward(const exec_call *c)
{
  attention_shape a;
  return attention_forward_shape(c, &a) && suits(&a);
}

bool fast_suits_attention_backward(const exec_call *c)
{
  attention_shape a;
  return attention_backward_shape(c, &a) && suits(&a);
}

int64_t fast_scratch_attention_forward(const exec_call *c)
{
  attention_shape a;
  return attention_forward_shape(c, &a) ? attention_cudnn_scratch(&a, false) : 0;
}

int64_t fast_scratch_attention_backward(const exec_call *c)
{
  attention_shape a;
  if (!attention_backward_shape(c, &a)) return 0;
  return max_i64(attention_cudnn_scratch(&a, true), attention_own_backward_scratch(&a));
}

void fast_attention_forward(cuda_call *c)
{
  attention_shape a;
  (void)attention_forward_shape(c->of, &a);
  if (!attention_cudnn(c, &a, false)) attention_own_forward(c, &a);
  attention_write_states(c, ATTENTION_STATES);
}

void fast_attention_backward(cuda_call *c)
{
  attention_shape a;
  (void)attention_backward_shape(c->of, &a);
  if (!attention_cudnn(c, &a, true)) attention_own_backward(c, &a);
}
