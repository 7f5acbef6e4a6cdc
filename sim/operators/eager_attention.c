/*
 * Operators of eager attention other than products, sums and scales (transformers
 * modeling_llama.py: eager_attention_forward, repeat_kv).
 */
#include <assert.h>

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

/* ---- sinks (modeling_gpt_oss.py: eager_attention_forward) ---- */

/* A view of the first columns of each row of `whole`, which has one more. */
static ref but_last_column(emitter *e, const graph *g, tensor_id part, tensor_id whole, ref r)
{
  const graph_tensor *t = &g->tensors.items[whole];
  int64_t columns = t->shape[3], rows = tensor_elements(g, whole) / columns;
  assert(g->tensors.items[part].shape[3] == columns - 1);
  return emit_strided(e, r, (dtype)t->dtype, 0, 2, (int64_t[]){ rows, columns - 1 },
                      (int64_t[]){ columns, 1 });
}

static void join_sinks_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]), sinks = emit_parameter(e, n->inputs[1]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]),
                     tensor_elements(g, n->outputs[0]), (ref[]){ x, sinks, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void join_sinks_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref of_sinks = emit_parameter_grad(e, n->inputs[1], false);
  if (of_sinks != 0)
    emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]),
                       tensor_elements(g, n->outputs[0]), (ref[]){ gy, 0 }, (ref[]){ of_sinks, 0 });
  emit_grad_is(e, n->inputs[0], but_last_column(e, g, n->inputs[0], n->outputs[0], gy));
}

const operator_kind operator_hf_join_sinks = { "join_sinks", join_sinks_forward,
                                               join_sinks_backward };

enum { DIFFERENCE, MAXIMA, COLUMNS }; /* outputs */

static void less_row_max_forward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[DIFFERENCE]);
  int64_t elements = tensor_elements(g, n->inputs[0]);
  ref x = emit_input(e, n->inputs[0]);
  ref maxima = emit_output(e, n->outputs[MAXIMA]), columns = emit_output(e, n->outputs[COLUMNS]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, (ref[]){ x, 0 },
                     (ref[]){ maxima, columns, 0 });
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, (ref[]){ x, maxima, 0 },
                     (ref[]){ emit_output(e, n->outputs[DIFFERENCE]), 0 });
}

/* The maximum of a row gets the negated sum of the row's gradients, in a zeroed tensor. */
static void less_row_max_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[DIFFERENCE]);
  int64_t elements = tensor_elements(g, n->inputs[0]);
  int64_t rows = tensor_elements(g, n->outputs[MAXIMA]);
  ref gy = emit_grad_of(e, n->outputs[DIFFERENCE]);
  ref negated = emit_vector(e, "negated", type, elements);
  hf_number_kernel(e, KERNEL_SCALE, type, elements, -1, gy, negated);
  ref sums = emit_vector(e, "sums", type, rows);
  hf_number_kernel(e, KERNEL_SUM, type, elements, 1, negated, sums);
  emit_drop(e, negated);
  ref spread = emit_vector(e, "spread", type, elements);
  emit_fill(e, type, elements, spread);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, rows, (ref[]){ sums, emit_saved(e, 0), 0 },
                     (ref[]){ spread, 0 });
  emit_memory_kernel(e, KERNEL_ADD, type, elements, (ref[]){ gy, spread, 0 },
                     (ref[]){ emit_grad_for(e, n->inputs[0]), 0 });
}

const operator_kind operator_hf_less_row_max = { "less_row_max", less_row_max_forward,
                                                 less_row_max_backward };

/* ---- keys of latent attention (modeling_deepseek_v3.py: expand_kv) ---- */

static void join_shared_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref own = emit_input(e, n->inputs[0]), shared = emit_input(e, n->inputs[1]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]),
                     tensor_elements(g, n->outputs[0]), (ref[]){ own, shared, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* Each part's gradient is copied out of that of the whole; the shared one is summed over heads. */
static void join_shared_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]);
  for (int i = 0; i < 2; i++)
    emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, tensor_elements(g, n->inputs[i]),
                       (ref[]){ gy, 0 }, (ref[]){ emit_grad_for(e, n->inputs[i]), 0 });
}

const operator_kind operator_hf_join_shared = { "join_shared", join_shared_forward,
                                                join_shared_backward };
