/*
 * Operators of eager attention other than products, sums and scales (transformers
 * modeling_llama.py: eager_attention_forward, repeat_kv).
 */
#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

/* Each row is 0 up to its own position and the lowest number after it (transformers
 * masking_utils.py: eager_mask). With a sliding window, and of bytes for sdpa, it has no arithmetic
 * here. */
static void causal_mask_forward(emitter *e, const graph *g, const graph_node *n)
{
  const graph_tensor *mask = &g->tensors.items[n->outputs[0]];
  int64_t columns = mask->shape[3];
  int64_t elements = tensor_elements(g, n->outputs[0]);
  ref y = emit_output(e, n->outputs[0]);
  if (n->dims[0] != 0)
    emit_memory_kernel(e, KERNEL_ELEMENTWISE, (dtype)mask->dtype, elements, (ref[]){ 0 },
                       (ref[]){ y, 0 });
  else
    emit_row_kernel(e, KERNEL_CAUSAL_MASK, (dtype)mask->dtype, elements / columns, columns,
                    (ref[]){ 0 }, (ref[]){ y, 0 });
}

const operator_kind operator_hf_causal_mask = { "causal_mask", causal_mask_forward, NULL };

/* scaled_dot_product_attention converts a mask in each call
 * (aten/src/ATen/native/transformers/attention.cpp: convert_boolean_attn_mask). */
static void mask_bias_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref mask = emit_input(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]),
                     tensor_elements(g, n->outputs[0]), (ref[]){ mask, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

const operator_kind operator_hf_mask_bias = { "mask_bias", mask_bias_forward, NULL };

static void softmax_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_row_kernel(e, KERNEL_SOFTMAX_FORWARD, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
                  (ref[]){ x, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void softmax_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_row_kernel(e, KERNEL_SOFTMAX_BACKWARD, type_of(g, n->inputs[0]), n->dims[0], n->dims[1],
                  (ref[]){ gy, emit_saved(e, 0), 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_softmax = { "softmax", softmax_forward, softmax_backward };

/* How often each head is repeated, and the elements after the head dimension. */
static kernel_shape repeat_kernel(const graph *g, const graph_node *n, kernel_kind kind)
{
  const graph_tensor *x = &g->tensors.items[n->inputs[0]];
  const graph_tensor *y = &g->tensors.items[n->outputs[0]];
  return (kernel_shape){ .kind = kind,
                         .type = (dtype)x->dtype,
                         .dims = { tensor_elements(g, n->outputs[0]) },
                         .scalars = { (double)(y->shape[1] / x->shape[1]),
                                      (double)(x->shape[2] * x->shape[3]) } };
}

static void repeat_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_kernel(e, repeat_kernel(g, n, KERNEL_REPEAT_FORWARD), (ref[]){ x, 0 },
              (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void repeat_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  emit_kernel(e, repeat_kernel(g, n, KERNEL_REPEAT_BACKWARD), (ref[]){ gy, 0 },
              (ref[]){ emit_grad_for(e, n->inputs[0]), 0 });
}

const operator_kind operator_hf_repeat = { "repeat", repeat_forward, repeat_backward };
