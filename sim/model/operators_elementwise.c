/*
 * Copies, dropout, residual adds and activations.
 *
 * Megatron-LM: core/fusions/fused_bias_dropout.py, fused_bias_gelu.py, fused_bias_swiglu.py
 * (d98e8a64); PyTorch's native_dropout keeps its mask as one byte per element.
 */
#include "sim/model/operators.h"

#include "sim/model/operators_shared.h"

/* ---- copies ---------------------------------------------------------------------------------- */

static void copy_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_COPY, type_of(g, n->outputs[0]), tensor_elements(g, n->outputs[0]),
                     (ref[]){ x, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void copy_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  if (type_of(g, n->inputs[0]) == type_of(g, n->outputs[0])) {
    emit_grad_is(e, n->inputs[0], gy);
    return;
  }
  ref gx = emit_grad_for(e, n->inputs[0]);
  if (gx != 0)
    emit_memory_kernel(e, KERNEL_COPY, type_of(g, n->inputs[0]), tensor_elements(g, n->inputs[0]),
                       (ref[]){ gy, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_copy = { "copy", copy_forward, copy_backward };

/* ---- dropout --------------------------------------------------------------------------------- */

static void dropout_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_output(e, n->outputs[0]);
  emit_memory_kernel(e, KERNEL_DROPOUT_FORWARD, type_of(g, n->inputs[0]),
                     tensor_elements(g, n->inputs[0]), (ref[]){ x, 0 },
                     (ref[]){ y, emit_output(e, n->outputs[1]), 0 });
}

static void dropout_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0)
    emit_memory_kernel(e, KERNEL_DROPOUT_BACKWARD, type_of(g, n->inputs[0]),
                       tensor_elements(g, n->inputs[0]), (ref[]){ gy, emit_saved(e, 0), 0 },
                       (ref[]){ gx, 0 });
}

const operator_kind operator_dropout = { "dropout", dropout_forward, dropout_backward };

/* ---- bias, dropout, residual ----------------------------------------------------------------- */

/* Without fusion x + bias and its dropout are tensors of their own. */
static void bda_forward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id residual = n->inputs[1];
  int64_t elements = tensor_elements(g, residual);
  dtype type = type_of(g, residual);
  ref x = emit_input(e, n->inputs[0]);
  ref bias = n->flags & BDA_BIAS ? emit_parameter(e, n->inputs[2]) : 0;
  ref mask = 0;
  if ((n->flags & BDA_UNFUSED) && bias != 0) {
    ref sum = emit_temporary(e, "x_plus_bias", type, elements, 0, 0, 0, CLASS_TRANSIENT);
    emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, (ref[]){ x, bias, 0 },
                       (ref[]){ sum, 0 });
    x = sum;
    bias = 0;
  }
  if (n->flags & BDA_DROPOUT) mask = emit_output(e, n->outputs[1]);
  if ((n->flags & BDA_UNFUSED) && mask != 0) {
    ref dropped = emit_temporary(e, "dropped", type, elements, 0, 0, 0, CLASS_TRANSIENT);
    emit_memory_kernel(e, KERNEL_DROPOUT_FORWARD, type, elements, (ref[]){ x, 0 },
                       (ref[]){ dropped, mask, 0 });
    x = dropped;
    mask = 0;
  }
  ref y = emit_output(e, n->outputs[0]);
  emit_memory_kernel(e, KERNEL_BIAS_DROPOUT_ADD_FORWARD, type, elements,
                     (ref[]){ x, emit_input(e, residual), bias, 0 }, (ref[]){ y, mask, 0 });
}

/* The residual takes the gradient as it is; so does x unless a mask or another type comes between.
 */
static void bda_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  tensor_id x = n->inputs[0];
  int64_t elements = tensor_elements(g, x);
  ref gx = gy;
  emit_grad_is(e, n->inputs[1], gy);
  if ((n->flags & BDA_DROPOUT) || type_of(g, x) != type_of(g, n->outputs[0])) {
    gx = emit_grad_for(e, x);
    ref mask = n->flags & BDA_DROPOUT ? emit_saved(e, 0) : 0;
    emit_memory_kernel(e, KERNEL_BIAS_DROPOUT_ADD_BACKWARD, type_of(g, x), elements,
                       (ref[]){ gy, mask, 0 }, (ref[]){ gx, 0 });
  } else {
    emit_grad_is(e, x, gy);
  }
  if (!(n->flags & BDA_BIAS)) return;
  ref gb = emit_parameter_grad(e, n->inputs[2], false);
  int64_t width = g->tensors.items[n->inputs[2]].shape[0];
  if (gb != 0)
    emit_row_kernel(e, KERNEL_BIAS_GRAD, type_of(g, x), elements / width, width, (ref[]){ gx, 0 },
                    (ref[]){ gb, 0 });
}

const operator_kind operator_bias_dropout_add = { "bias_dropout_add", bda_forward, bda_backward };

/* ---- add, scale ------------------------------------------------------------------------------ */

static void add_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_input(e, n->inputs[1]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]),
                     tensor_elements(g, n->outputs[0]), (ref[]){ x, y, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void add_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  emit_grad_is(e, n->inputs[0], gy);
  if (n->flags == 0) {
    emit_grad_is(e, n->inputs[1], gy);
    return;
  }
  ref gb = emit_parameter_grad(e, n->inputs[1], false);
  int64_t width = g->tensors.items[n->inputs[1]].shape[0];
  if (gb != 0)
    emit_row_kernel(e, KERNEL_BIAS_GRAD, type_of(g, n->outputs[0]),
                    tensor_elements(g, n->outputs[0]) / width, width, (ref[]){ gy, 0 },
                    (ref[]){ gb, 0 });
}

const operator_kind operator_add = { "add", add_forward, add_backward };

static void scale_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]),
                     tensor_elements(g, n->outputs[0]), (ref[]){ x, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void scale_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0)
    emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->inputs[0]),
                       tensor_elements(g, n->inputs[0]), (ref[]){ gy, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_scale = { "scale", scale_forward, scale_backward };

/* ---- activations ----------------------------------------------------------------------------- */

static void activation_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  ref bias = n->flags ? emit_parameter(e, n->inputs[1]) : 0;
  emit_row_kernel(e, KERNEL_ACTIVATION_FORWARD, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
                  (ref[]){ x, bias, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* Megatron's fused functions return the gradient of x as that of the bias too; autograd sums it
 * over rows (fused_bias_gelu.py: GeLUFunction.backward). */
static void activation_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  ref bias = n->flags ? emit_parameter(e, n->inputs[1]) : 0;
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_row_kernel(e, KERNEL_ACTIVATION_BACKWARD, type_of(g, n->inputs[0]), n->dims[0], n->dims[1],
                  (ref[]){ gy, emit_saved(e, 0), bias, 0 }, (ref[]){ gx, 0 });
  ref gb = n->flags ? emit_parameter_grad(e, n->inputs[1], false) : 0;
  if (gb != 0)
    emit_row_kernel(e, KERNEL_BIAS_GRAD, type_of(g, n->inputs[0]), n->dims[0], n->dims[1],
                    (ref[]){ gx, 0 }, (ref[]){ gb, 0 });
}

const operator_kind operator_activation = { "activation", activation_forward, activation_backward };

static void gated_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  dtype type = type_of(g, n->inputs[0]);
  ref act = emit_output(e, n->outputs[0]);
  emit_row_kernel(e, KERNEL_ACTIVATION_FORWARD, type, n->dims[0], n->dims[2], (ref[]){ x, 0 },
                  (ref[]){ act, 0 });
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, n->dims[0] * n->dims[2], (ref[]){ act, x, 0 },
                     (ref[]){ emit_output(e, n->outputs[1]), 0 });
}

/* Each half has its own gradient; chunk's backward joins them. */
static void gated_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[1]);
  if (gy == 0) return;
  dtype type = type_of(g, n->inputs[0]);
  ref x = emit_saved(e, 0);
  ref act = emit_saved(e, 1);
  ref glinear =
      emit_temporary(e, "linear_gradient", type, n->dims[0], n->dims[2], 0, 0, CLASS_TRANSIENT);
  ref gact =
      emit_temporary(e, "gate_gradient", type, n->dims[0], n->dims[2], 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, n->dims[0] * n->dims[2], (ref[]){ gy, act, x, 0 },
                     (ref[]){ glinear, gact, 0 });
  ref gglu =
      emit_temporary(e, "activation_gradient", type, n->dims[0], n->dims[2], 0, 0, CLASS_TRANSIENT);
  emit_row_kernel(e, KERNEL_ACTIVATION_BACKWARD, type, n->dims[0], n->dims[2],
                  (ref[]){ gact, x, 0 }, (ref[]){ gglu, 0 });
  emit_drop(e, gact);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_COPY, type, n->dims[0] * n->dims[1], (ref[]){ glinear, gglu, 0 },
                     (ref[]){ gx, 0 });
}

const operator_kind operator_gated_activation = { "gated_activation", gated_forward,
                                                  gated_backward };
