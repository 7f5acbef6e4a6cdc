/*
 * Rotary position embedding in eager operators (transformers modeling_llama.py:
 * LlamaRotaryEmbedding, rotate_half, apply_rotary_pos_emb).
 */
#include "sim/model/hf/operators_hf.h"
#include "sim/model/operators_shared.h"

/* Angles in fp32, twice side by side; cosine and sine of them, scaled, converted. */
static void tables_forward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]);
  ref half = emit_temporary(e, "angles", DTYPE_FP32, elements / 2, 0, 0, 0, CLASS_TRANSIENT);
  ref angles = emit_temporary(e, "angles_twice", DTYPE_FP32, elements, 0, 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_COPY, DTYPE_FP32, elements, (ref[]){ half, 0 },
                     (ref[]){ angles, 0 });
  ref of_angles[2];
  for (int i = 0; i < 2; i++) {
    ref unscaled = emit_temporary(e, "unscaled", DTYPE_FP32, elements, 0, 0, 0, CLASS_TRANSIENT);
    emit_memory_kernel(e, KERNEL_ELEMENTWISE, DTYPE_FP32, elements, (ref[]){ angles, 0 },
                       (ref[]){ unscaled, 0 });
    of_angles[i] = emit_temporary(e, i == 0 ? "cos_fp32" : "sin_fp32", DTYPE_FP32, elements, 0, 0,
                                  0, CLASS_TRANSIENT);
    emit_memory_kernel(e, KERNEL_ELEMENTWISE, DTYPE_FP32, elements, (ref[]){ unscaled, 0 },
                       (ref[]){ of_angles[i], 0 });
    emit_drop(e, unscaled);
  }
  for (int i = 0; i < 2; i++)
    emit_memory_kernel(e, KERNEL_COPY, type, elements, (ref[]){ of_angles[i], 0 },
                       (ref[]){ emit_output(e, n->outputs[i]), 0 });
}

const operator_kind operator_hf_rotary_tables = { "rotary_tables", tables_forward, NULL };

static ref half_of(emitter *e, const graph *g, const graph_node *n, ref x)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t half = tensor_elements(g, n->outputs[0]) / 2;
  ref negated = emit_temporary(e, "negated_half", type, half, 0, 0, 0, CLASS_TRANSIENT);
  emit_kernel(
      e, (kernel_shape){ KERNEL_ELEMENTWISE_STRIDED, type, { half }, 2 * half * dtype_bytes(type) },
      (ref[]){ x, 0 }, (ref[]){ negated, 0 });
  return negated;
}

static void rotate_half_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]);
  ref negated = half_of(e, g, n, x);
  emit_kernel(
      e,
      (kernel_shape){
          KERNEL_ELEMENTWISE_STRIDED, type, { elements }, 2 * elements * dtype_bytes(type) },
      (ref[]){ x, negated, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* A slice's gradient is a zeroed tensor of the whole size, into which the part is copied. */
static void slice_gradient(emitter *e, const graph *g, const graph_node *n, ref part)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]);
  ref whole = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, (ref[]){ 0 }, (ref[]){ whole, 0 });
  emit_kernel(
      e,
      (kernel_shape){
          KERNEL_ELEMENTWISE_STRIDED, type, { elements / 2 }, elements * dtype_bytes(type) },
      (ref[]){ part, 0 }, (ref[]){ whole, 0 });
}

static void rotate_half_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref negated = half_of(e, g, n, gy);
  slice_gradient(e, g, n, negated);
  emit_drop(e, negated);
  slice_gradient(e, g, n, gy);
}

const operator_kind operator_hf_rotate_half = { "rotate_half", rotate_half_forward,
                                                rotate_half_backward };

static void relayout_forward(emitter *e, const graph *g, const graph_node *n)
{
  (void)g;
  emit_output(e, n->outputs[0]);
}

static void relayout_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE_STRIDED, type_of(g, n->inputs[0]),
                     tensor_elements(g, n->inputs[0]), (ref[]){ gy, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_relayout = { "relayout", relayout_forward, relayout_backward };
