/*
 * Activations of MLPs.
 *
 * Megatron-LM: core/fusions/fused_bias_gelu.py, fused_bias_swiglu.py, core/transformer/mlp.py
 * (d98e8a64).
 */
#include "sim/operators/operators.h"

#include <assert.h>

#include "sim/operators/shared.h"

enum { ROWS, INPUTS, OUTPUTS, FUNCTION }; /* dims */

static void emit_activation(emitter *e, kernel_kind kind, dtype type, const graph_node *n,
                            int64_t width, bool gated, const ref *reads, const ref *writes)
{
  emit_kernel(e,
              (kernel_shape){ .kind = kind,
                              .type = type,
                              .dims = { n->dims[ROWS], width },
                              .scalars = { (double)n->dims[FUNCTION], gated } },
              reads, writes);
}

static void activation_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[INPUTS] == n->dims[OUTPUTS] || n->dims[INPUTS] == 2 * n->dims[OUTPUTS]);
  assert(n->dims[ROWS] * n->dims[INPUTS] == tensor_elements(g, n->inputs[0]));
  ref x = emit_input(e, n->inputs[0]);
  ref bias = n->flags ? emit_parameter(e, n->inputs[1]) : 0;
  emit_activation(e, KERNEL_ACTIVATION_FORWARD, type_of(g, n->outputs[0]), n, n->dims[INPUTS],
                  n->dims[INPUTS] != n->dims[OUTPUTS], (ref[]){ x, bias, 0 },
                  (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* Megatron's fused functions return the gradient of x as that of the bias too; autograd sums it
 * over rows (fused_bias_gelu.py: GeLUFunction.backward). */
static void activation_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  ref bias = n->flags ? emit_parameter(e, n->inputs[1]) : 0;
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_activation(e, KERNEL_ACTIVATION_BACKWARD, type_of(g, n->inputs[0]), n, n->dims[INPUTS],
                  n->dims[INPUTS] != n->dims[OUTPUTS], (ref[]){ gy, emit_saved(e, 0), bias, 0 },
                  (ref[]){ gx, 0 });
  ref gb = n->flags ? emit_parameter_grad(e, n->inputs[1], false) : 0;
  if (gb != 0)
    emit_row_kernel(e, KERNEL_BIAS_GRAD, type_of(g, n->inputs[0]), n->dims[0], n->dims[1],
                    (ref[]){ gx, 0 }, (ref[]){ gb, 0 });
}

const operator_kind operator_activation = { "activation", activation_forward, activation_backward };

/* The half of the rows to which the function applies, and the other half. */
enum { ACTIVATED, LINEAR };
static ref half_of(emitter *e, dtype type, const graph_node *n, ref x, int half)
{
  return emit_strided(e, x, type, half * n->dims[OUTPUTS], 2,
                      (int64_t[]){ n->dims[ROWS], n->dims[OUTPUTS] },
                      (int64_t[]){ n->dims[INPUTS], 1 });
}

static void emit_linear_half(emitter *e, dtype type, const graph_node *n, ref x, ref linear)
{
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_UP_FORWARD,
                              .type = type,
                              .dims = { n->dims[ROWS], n->dims[OUTPUTS] } },
              (ref[]){ x, 0 }, (ref[]){ linear, 0 });
}

static void gated_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[INPUTS] == 2 * n->dims[OUTPUTS]);
  assert(n->dims[ROWS] * n->dims[INPUTS] == tensor_elements(g, n->inputs[0]));
  ref x = emit_input(e, n->inputs[0]);
  dtype type = type_of(g, n->inputs[0]);
  ref act = emit_output(e, n->outputs[0]);
  emit_activation(e, KERNEL_ACTIVATION_FORWARD, type, n, n->dims[OUTPUTS], false,
                  (ref[]){ half_of(e, type, n, x, ACTIVATED), 0 }, (ref[]){ act, 0 });
  ref linear = n->flags ? emit_output(e, n->outputs[2]) : half_of(e, type, n, x, LINEAR);
  if (n->flags) emit_linear_half(e, type, n, x, linear);
  emit_memory_kernel(e, KERNEL_MULTIPLY, type, n->dims[ROWS] * n->dims[OUTPUTS],
                     (ref[]){ act, linear, 0 }, (ref[]){ emit_output(e, n->outputs[1]), 0 });
}

/* Each half has its own gradient; chunk's backward joins them. */
static void gated_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[1]);
  if (gy == 0) return;
  dtype type = type_of(g, n->inputs[0]);
  ref x = emit_saved(e, 0);
  ref act = emit_saved(e, 1);
  ref linear = n->flags ? emit_saved(e, 2) : half_of(e, type, n, x, LINEAR);
  ref glinear = emit_matrix(e, "linear_gradient", type, n->dims[0], n->dims[2]);
  ref gact = emit_matrix(e, "gate_gradient", type, n->dims[0], n->dims[2]);
  emit_memory_kernel(e, KERNEL_MULTIPLY_BACKWARD, type, n->dims[ROWS] * n->dims[OUTPUTS],
                     (ref[]){ gy, act, linear, 0 }, (ref[]){ gact, glinear, 0 });
  ref gglu = emit_matrix(e, "activation_gradient", type, n->dims[0], n->dims[2]);
  emit_activation(e, KERNEL_ACTIVATION_BACKWARD, type, n, n->dims[OUTPUTS], false,
                  (ref[]){ gact, half_of(e, type, n, x, ACTIVATED), 0 }, (ref[]){ gglu, 0 });
  emit_drop(e, gact);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_JOIN,
                              .type = type,
                              .dims = { n->dims[ROWS], n->dims[OUTPUTS], n->dims[OUTPUTS] } },
              (ref[]){ gglu, glinear, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_gated_activation = { "gated_activation", gated_forward,
                                                  gated_backward };
