/*
 * torch.utils.deterministic.fill_uninitialized_memory, which deterministic algorithms switch on: every
 * allocation by torch.empty, empty_like, new_empty or resize_ is filled, with NaN or the largest integer
 * (PyTorch ATen/native/cuda/TensorFactories.cu, empty_cuda and empty_strided_cuda; since 2.2). It costs one
 * kernel each. What allocates in another way is not filled: kernels that torch.compile makes, and ATen's
 * structured operators, whose results come from at::detail (torchgen, create_out).
 *
 * A step of a dense model under the profiler on an H100 (Megatron-LM d98e8a64, Transformer Engine 2.13,
 * PyTorch 2.11) shows which is which: Transformer Engine allocates by at::empty, Megatron-LM's own linear
 * layers multiply by torch.matmul, which is structured.
 */
#include <assert.h>

#include "sim/compile/lower.h"
#include "sim/config/software.h"

enum { FIRST_FILLING_PYTORCH = SOFTWARE_VERSION(2, 2) };

/* Compiled, or structured. */
static const bool unfilled[KERNEL_KINDS] = {
  [KERNEL_EMBEDDING_FORWARD] = true,
  [KERNEL_UNSCALED_NORM_FORWARD] = true,
  [KERNEL_UNSCALED_NORM_BACKWARD] = true,
  [KERNEL_BIAS_DROPOUT_ADD_FORWARD] = true,
  [KERNEL_BIAS_DROPOUT_ADD_BACKWARD] = true,
  [KERNEL_ACTIVATION_FORWARD] = true,
  [KERNEL_ACTIVATION_BACKWARD] = true,
  [KERNEL_WEIGHTED_ACTIVATION_FORWARD] = true,
  [KERNEL_WEIGHTED_ACTIVATION_BACKWARD] = true,
  [KERNEL_ROPE_PRODUCT] = true,
  [KERNEL_ROPE_NEGATED_HALF] = true,
  [KERNEL_ROPE_ROTATED_HALF] = true,
  [KERNEL_ROPE_JOIN] = true,
  [KERNEL_JOIN] = true,
  [KERNEL_ADD] = true,
  [KERNEL_ADD_STRIDED] = true,
  [KERNEL_ADD_MIXED] = true,
  [KERNEL_MULTIPLY] = true,
  [KERNEL_MULTIPLY_STRIDED] = true,
  [KERNEL_SCALE] = true,
  [KERNEL_DIVIDE] = true,
  [KERNEL_FILL] = true,
  [KERNEL_ROUTER_TOPK_FORWARD] = true,
};

bool lower_fills(const emitter *e, op_kind kind, const plan_call *call)
{
  assert(e->node != NULL && op_is_call(kind));
  const settings *s = e->settings;
  if (!s->training.deterministic_mode || s->derived.software.pytorch < FIRST_FILLING_PYTORCH)
    return false;
  if (kind == OP_COLLECTIVE) return true;
  assert(call->kind < KERNEL_KINDS);
  return !unfilled[call->kind] && !(call->kind == KERNEL_GEMM && e->node->structured);
}
