/*
 * Pointwise operators and reductions of rows, and the fused norm (derivatives.yaml: mul, pow, mean,
 * rsqrt, _fused_rms_norm; FunctionsManual.cpp: mul_tensor_backward, pow_backward, mean_backward).
 */
#include "sim/model/hf/operators_hf.h"
#include "sim/model/operators_shared.h"

static bool needs_gradient(const graph *g, tensor_id t)
{
  return g->tensors.items[t].requires_grad;
}

/* ---- multiply -------------------------------------------------------------------------------- */

static void multiply_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref a = emit_input(e, n->inputs[0]), b = emit_input(e, n->inputs[1]);
  const tensor_id operands[] = { n->outputs[0], n->inputs[0], n->inputs[1] };
  emit_memory_kernel(e, hf_elementwise_kind(g, operands, 3), type_of(g, n->outputs[0]),
                     tensor_elements(g, n->outputs[0]), (ref[]){ a, b, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static bool is_broadcast(const graph *g, const graph_node *n, tensor_id t)
{
  return g->tensors.items[t].rank < g->tensors.items[n->outputs[0]].rank ||
         tensor_elements(g, t) < tensor_elements(g, n->outputs[0]);
}

/* The gradient of `t` in the shape of the result: its gradient, or what is to be summed. */
static ref product(emitter *e, const graph *g, const graph_node *n, ref gy, tensor_id t,
                   tensor_id factor)
{
  if (!needs_gradient(g, t)) return 0;
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]);
  ref made = is_broadcast(g, n, t)
                 ? emit_temporary(e, "gradient_of_all", type, elements, 0, 0, 0, CLASS_TRANSIENT)
                 : emit_grad_for(e, t);
  const tensor_id operands[] = { n->outputs[0], factor };
  emit_memory_kernel(e, hf_elementwise_kind(g, operands, 2), type, elements,
                     (ref[]){ gy, hf_saved(e, n, factor), 0 }, (ref[]){ made, 0 });
  return made;
}

/* The engine sums a gradient to the shape of its input when the operator has returned. */
static void sum_to_shape(emitter *e, const graph *g, const graph_node *n, ref all, tensor_id t)
{
  if (all == 0 || !is_broadcast(g, n, t)) return;
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]), columns = tensor_elements(g, t);
  if (g->tensors.items[t].parameter) {
    hf_sum_rows(e, type, elements / columns, columns, all, emit_parameter_grad(e, t, false));
  } else {
    emit_memory_kernel(e, KERNEL_REDUCE, type, elements, (ref[]){ all, 0 },
                       (ref[]){ emit_grad_for(e, t), 0 });
  }
  emit_drop(e, all);
}

static void multiply_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id a = n->inputs[0], b = n->inputs[1];
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref of_b = product(e, g, n, gy, b, a);
  ref of_a = product(e, g, n, gy, a, b);
  sum_to_shape(e, g, n, of_b, b);
  sum_to_shape(e, g, n, of_a, a);
}

const operator_kind operator_hf_multiply = { "multiply", multiply_forward, multiply_backward };

/* ---- of one input ---------------------------------------------------------------------------- */

static void one_kernel(emitter *e, const graph *g, const graph_node *n, kernel_kind kind)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_memory_kernel(e, kind, type_of(g, n->inputs[0]), tensor_elements(g, n->inputs[0]),
                     (ref[]){ x, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void square_forward(emitter *e, const graph *g, const graph_node *n)
{
  one_kernel(e, g, n, KERNEL_ELEMENTWISE);
}

/* g * (2 * x^1): the power, twice it, and the product are tensors of their own. */
static void square_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->inputs[0]);
  int64_t elements = tensor_elements(g, n->inputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref power = emit_temporary(e, "power", type, elements, 0, 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_COPY, type, elements, (ref[]){ emit_saved(e, 0), 0 },
                     (ref[]){ power, 0 });
  ref twice = emit_temporary(e, "power_scaled", type, elements, 0, 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, (ref[]){ power, 0 },
                     (ref[]){ twice, 0 });
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, (ref[]){ gy, twice, 0 },
                     (ref[]){ gx, 0 });
}

const operator_kind operator_hf_square = { "square", square_forward, square_backward };

static void row_mean_forward(emitter *e, const graph *g, const graph_node *n)
{
  one_kernel(e, g, n, KERNEL_REDUCE);
}

static void row_mean_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE_STRIDED, type_of(g, n->inputs[0]),
                     tensor_elements(g, n->inputs[0]), (ref[]){ gy, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_row_mean = { "row_mean", row_mean_forward, row_mean_backward };

static ref small(emitter *e, const char *name, const graph *g, const graph_node *n, ref from)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]);
  ref made = emit_temporary(e, name, type, elements, 0, 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, (ref[]){ from, 0 }, (ref[]){ made, 0 });
  return made;
}

static void rsqrt_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref sum = small(e, "plus_epsilon", g, n, emit_input(e, n->inputs[0]));
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]),
                     tensor_elements(g, n->outputs[0]), (ref[]){ sum, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* -1/2 g y^3. */
static void rsqrt_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref cube = small(e, "cube", g, n, emit_saved(e, 0));
  ref half = small(e, "half_gradient", g, n, gy);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]),
                     tensor_elements(g, n->outputs[0]), (ref[]){ half, cube, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_rsqrt = { "rsqrt", rsqrt_forward, rsqrt_backward };

/* ---- the fused norm -------------------------------------------------------------------------- */

static void rms_norm_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_output(e, n->outputs[0]);
  emit_norm(e, false, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
            (ref[]){ x, emit_parameter(e, n->inputs[1]), 0 },
            (ref[]){ y, emit_output(e, n->outputs[1]), 0 });
}

/* One kernel for the rows, one for the gain. */
static void rms_norm_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref x = emit_saved(e, 0), rstd = emit_saved(e, 2);
  ref gx = emit_grad_for(e, n->inputs[0]);
  ref gain = emit_parameter_grad(e, n->inputs[1], false);
  if (gx != 0)
    emit_norm_backward(e, false, type, n->dims[0], n->dims[1],
                       (ref[]){ gy, x, rstd, emit_saved(e, 1), 0 }, (ref[]){ gx, 0 });
  if (gain != 0)
    emit_memory_kernel(e, KERNEL_REDUCE, type, n->dims[0] * n->dims[1], (ref[]){ gy, x, rstd, 0 },
                       (ref[]){ gain, 0 });
}

const operator_kind operator_hf_rms_norm = { "rms_norm", rms_norm_forward, rms_norm_backward };
