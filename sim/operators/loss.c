/*
 * The loss: cross entropy over a vocabulary that is split over TP, and the training script's sum.
 *
 * Megatron-LM: core/tensor_parallel/cross_entropy.py, core/fusions/fused_cross_entropy.py,
 * core/fusions/fused_linear_cross_entropy.py, pretrain_gpt.py (loss_func); Transformer Engine:
 * pytorch/triton/cross_entropy.py (d0067d0d).
 */
#include "sim/operators/operators.h"

#include <assert.h>

#include "sim/operators/shared.h"

static void vocabulary_kernel(emitter *e, const graph_node *n, kernel_kind kind, const ref *reads,
                              const ref *writes)
{
  emit_row_kernel(e, kind, DTYPE_FP32, n->dims[0], n->dims[1], reads, writes);
}

/* A part of Megatron-LM's loss. bytes: of several passes, their traffic; else 0. */
static void cross_entropy_kernel(emitter *e, const graph_node *n, kernel_kind kind, int64_t bytes,
                                 const ref *reads, const ref *writes)
{
  bool eager = (n->flags & CROSS_ENTROPY_COMPILED) == 0;
  emit_kernel(e,
              (kernel_shape){ .kind = kind,
                              .type = DTYPE_FP32,
                              .dims = { n->dims[0], n->dims[1] },
                              .scalars = { [CROSS_ENTROPY_EAGER] = eager },
                              .bytes = bytes },
              reads, writes);
}

static void reduce_tokens(emitter *e, const graph_node *n, collective_kind kind, ref r)
{
  if (n->dims[2] > 1)
    emit_collective(e, STREAM_COMPUTE, kind, GROUP_TP, n->dims[0] * 4, (ref[]){ r, 0 },
                    (ref[]){ r, 0 });
}

/* Eager: the maxima are subtracted, exponentials formed, and summed, by a kernel each. */
enum { EAGER_PASSES = 5 };

/*
 * The eager sequence works in place on an fp32 copy of the logits, which ends as the softmax; the
 * caller still holds the logits themselves. dims: tokens, vocabulary, TP.
 *
 * Compiled (CROSS_ENTROPY_COMPILED), the exponentials are a new tensor, because the compiler
 * turns the in-place update of the copy into a write at the end. Older compilers also keep the
 * difference, the argument of the exponentials.
 */
static void cross_entropy_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) == n->dims[0] * n->dims[1]);
  assert(tensor_elements(g, n->inputs[1]) == n->dims[0]);
  (void)g;
  int64_t tokens = n->dims[0];
  ref logits = emit_input(e, n->inputs[0]);
  ref labels = emit_input(e, n->inputs[1]);
  bool compiled = (n->flags & CROSS_ENTROPY_COMPILED) != 0;
  ref work = compiled ? emit_matrix(e, "logits_fp32", DTYPE_FP32, tokens, n->dims[1])
                      : emit_output(e, n->outputs[1]);
  ref maxima = emit_vector(e, "logits_max", DTYPE_FP32, tokens);
  emit_vector(e, "logits_argmax", DTYPE_INT64, tokens);
  int64_t pass_bytes = compiled ? 0 : emit_bytes(e, work);
  cross_entropy_kernel(e, n, KERNEL_CROSS_ENTROPY_MAXIMA,
                       2 * pass_bytes + (pass_bytes > 0 ? emit_bytes(e, logits) : 0),
                       (ref[]){ logits, 0 }, (ref[]){ work, maxima, 0 });
  reduce_tokens(e, n, COLLECTIVE_ALL_REDUCE_MAX, maxima);
  ref mask = emit_output(e, n->outputs[2]);
  ref target = emit_output(e, n->outputs[3]);
  ref predicted = emit_vector(e, "predicted_logits", DTYPE_FP32, tokens);
  ref sums = emit_vector(e, "sum_exp_logits", DTYPE_FP32, tokens);
  if (n->flags & CROSS_ENTROPY_DIFFERENCE_APART)
    emit_matrix(e, "logits_less_max", DTYPE_FP32, tokens, n->dims[1]);
  ref softmax = compiled ? emit_output(e, n->outputs[1]) : work;
  cross_entropy_kernel(e, n, KERNEL_CROSS_ENTROPY_SUMS, EAGER_PASSES * pass_bytes,
                       (ref[]){ work, labels, maxima, 0 },
                       (ref[]){ softmax, mask, target, predicted, sums, 0 });
  reduce_tokens(e, n, COLLECTIVE_ALL_REDUCE, predicted);
  reduce_tokens(e, n, COLLECTIVE_ALL_REDUCE, sums);
  ref loss = emit_output(e, n->outputs[0]);
  cross_entropy_kernel(e, n, KERNEL_CROSS_ENTROPY_LOSS, 0, (ref[]){ softmax, sums, predicted, 0 },
                       (ref[]){ loss, softmax, 0 });
}

/* Autograd converts the gradient to the type of the logits while the tensor that holds it is
 * still saved. */
static void give_logits_gradient(emitter *e, const graph *g, const graph_node *n, ref gradient,
                                 dtype type)
{
  tensor_id logits = n->inputs[0];
  if (type_of(g, logits) == type) {
    emit_grad_is(e, logits, gradient);
    return;
  }
  ref gx = emit_grad_for(e, logits);
  if (gx != 0) emit_copy(e, type_of(g, logits), tensor_elements(g, logits), gradient, gx);
}

/* The gradient is formed in the softmax. */
static void cross_entropy_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  ref softmax = emit_saved(e, 0);
  cross_entropy_kernel(e, n, KERNEL_CROSS_ENTROPY_BACKWARD, 0,
                       (ref[]){ gy, softmax, emit_saved(e, 1), emit_saved(e, 2), 0 },
                       (ref[]){ softmax, 0 });
  give_logits_gradient(e, g, n, softmax, DTYPE_FP32);
}

const operator_kind operator_cross_entropy = { "cross_entropy", cross_entropy_forward,
                                               cross_entropy_backward };

/* Forward computes the gradient: over the logits or, since July 2026 (TE 01bbe3ee), in a separate
 * fp32 tensor. Backward multiplies it by the gradient of the loss. */
static void te_cross_entropy_forward(emitter *e, const graph *g, const graph_node *n)
{
  (void)g;
  ref logits = emit_input(e, n->inputs[0]);
  ref loss = emit_output(e, n->outputs[0]);
  ref gradient = n->outputs[1] != 0 ? emit_output(e, n->outputs[1]) : logits;
  ref labels = emit_input(e, n->inputs[1]);
  ref partial = emit_vector(e, "m_d_xy", DTYPE_FP32, 3 * n->dims[0]);
  ref all = partial;
  vocabulary_kernel(e, n, KERNEL_ONLINE_SOFTMAX, (ref[]){ logits, labels, 0 },
                    (ref[]){ partial, 0 });
  if (n->dims[2] > 1) {
    all = emit_vector(e, "m_d_xy_gathered", DTYPE_FP32, n->dims[2] * 3 * n->dims[0]);
    emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_GATHER, GROUP_TP, 12 * n->dims[0],
                    (ref[]){ partial, 0 }, (ref[]){ all, 0 });
  }
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_FUSED_CROSS_ENTROPY,
                              .type = DTYPE_FP32,
                              .dims = { n->dims[0], n->dims[1] },
                              .bytes = emit_bytes(e, logits) + emit_bytes(e, partial) +
                                       emit_bytes(e, loss) + emit_bytes(e, gradient) },
              (ref[]){ logits, labels, all, 0 }, (ref[]){ loss, gradient, 0 });
}

static void te_cross_entropy_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  ref gradient = emit_saved(e, 0);
  vocabulary_kernel(e, n, KERNEL_SCALE_ROWS, (ref[]){ gy, gradient, 0 }, (ref[]){ gradient, 0 });
  give_logits_gradient(e, g, n, gradient, type_of(g, n->saved[0]));
}

const operator_kind operator_te_cross_entropy = { "te_cross_entropy", te_cross_entropy_forward,
                                                  te_cross_entropy_backward };

/* The kernels with the logits' shape. */
static kernel_shape logits_kernel(const graph_node *n, kernel_kind kind, dtype type)
{
  return (kernel_shape){ .kind = kind,
                         .type = type,
                         .dims = { n->dims[0], n->dims[1], n->dims[3], 1 } };
}

/* dims: tokens, vocabulary, TP, hidden. The logits exist only tile by tile. With TP, the kernels
 * that rescale the ranks' sums to the global maxima are not modelled: the loss covers the rank's
 * part. */
static void linear_cross_entropy_forward(emitter *e, const graph *g, const graph_node *n)
{
  (void)g;
  ref x = emit_input(e, n->inputs[0]);
  ref loss = emit_output(e, n->outputs[0]);
  ref maxima = emit_output(e, n->outputs[1]);
  ref sums = emit_output(e, n->outputs[2]);
  ref weight = emit_parameter(e, n->inputs[1]), labels = emit_input(e, n->inputs[2]);
  kernel_shape losses =
      logits_kernel(n, KERNEL_LINEAR_CROSS_ENTROPY_FORWARD, type_of(g, n->inputs[0]));
  losses.bytes =
      emit_bytes(e, x) + emit_bytes(e, weight) + emit_bytes(e, labels) + emit_bytes(e, loss);
  emit_kernel(e, losses, (ref[]){ x, weight, labels, 0 }, (ref[]){ loss, maxima, sums, 0 });
  reduce_tokens(e, n, COLLECTIVE_ALL_REDUCE_MAX, maxima);
  reduce_tokens(e, n, COLLECTIVE_ALL_REDUCE, sums);
}

static void linear_cross_entropy_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  dtype type = type_of(g, n->inputs[0]);
  ref x = emit_saved(e, 0);
  ref weight = emit_parameter(e, n->inputs[1]);
  ref logits = emit_matrix(e, "logits_gradient", type, n->dims[0], n->dims[1]);
  kernel_shape gradient = logits_kernel(n, KERNEL_LINEAR_CROSS_ENTROPY_BACKWARD, type);
  gradient.uncounted = 3;
  emit_kernel(e, gradient,
              (ref[]){ x, weight, gy, emit_saved(e, 3), emit_saved(e, 1), emit_saved(e, 2), 0 },
              (ref[]){ logits, 0 });
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_gemm(e, type, n->dims[0], n->dims[3], n->dims[1], 1, GEMM_NN, (ref[]){ logits, weight, 0 },
            gx);
  ref gw = emit_parameter_grad(e, n->inputs[1], false);
  if (gw != 0)
    emit_gemm(e, type, n->dims[1], n->dims[3], n->dims[0], 1, GEMM_TN, (ref[]){ logits, x, 0 }, gw);
}

const operator_kind operator_linear_cross_entropy = { "linear_cross_entropy",
                                                      linear_cross_entropy_forward,
                                                      linear_cross_entropy_backward };

/* ---- multi-token prediction ------------------------------------------------------------------ */

/* multi_token_prediction.py, process_mtp_loss and MTPLossAutoScaler: losses count
 * mtp_loss_scaling_factor / mtp_num_layers, as a mean over the rank's tokens that have a target. */
static void attach_mtp_loss_backward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[2] >= 0 && n->dims[2] <= n->dims[1]);
  const settings *s = emit_settings(e);
  double weight = s->model.mtp_loss_scaling_factor / (double)s->model.mtp_num_layers /
                  (double)s->derived.num_microbatches;
  emit_grad_is(e, n->inputs[0], emit_grad_of(e, n->outputs[0]));
  ref gl = emit_grad_for(e, n->inputs[1]);
  if (gl != 0)
    emit_kernel(e,
                (kernel_shape){ .kind = KERNEL_MTP_LOSS_GRADIENT,
                                .type = type_of(g, n->inputs[1]),
                                .dims = { n->dims[0], n->dims[1] },
                                .scalars = { weight, (double)n->dims[2] } },
                NULL, (ref[]){ gl, 0 });
}

const operator_kind operator_attach_mtp_loss = { "attach_mtp_loss", emit_nothing,
                                                 attach_mtp_loss_backward };

/* ---- the training script's loss -------------------------------------------------------------- */

/* sum(losses * mask). */
static void masked_sum_forward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t tokens = tensor_elements(g, n->inputs[0]);
  ref losses = emit_input(e, n->inputs[0]);
  ref product = emit_vector(e, "masked_losses", DTYPE_FP32, tokens);
  emit_memory_kernel(e, KERNEL_MULTIPLY, DTYPE_FP32, tokens,
                     (ref[]){ losses, emit_input(e, n->inputs[1]), 0 }, (ref[]){ product, 0 });
  emit_number_kernel(e, KERNEL_SUM, DTYPE_FP32, tokens, 1, (ref[]){ product, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void masked_sum_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  int64_t tokens = tensor_elements(g, n->inputs[0]);
  ref of_each = emit_strided(e, gy, DTYPE_FP32, 0, 1, &tokens, (int64_t[]){ 0 });
  if (gx != 0)
    emit_memory_kernel(e, KERNEL_MULTIPLY, DTYPE_FP32, tokens,
                       (ref[]){ of_each, emit_saved(e, 0), 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_masked_sum = { "masked_sum", masked_sum_forward, masked_sum_backward };
