/*
 * Norms that are modules.
 *
 * Transformer Engine: ops/basic/layer_norm.py, rmsnorm.py (d0067d0d); apex FusedLayerNorm in the
 * local implementation keeps the same tensors. Megatron-LM core/transformer/torch_norm.py: L2Norm,
 * which torch.compile makes one kernel in each direction.
 */
#include "sim/operators/operators.h"

#include <assert.h>

#include "sim/operators/shared.h"

static void norm_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[0] * n->dims[1] == tensor_elements(g, n->inputs[0]));
  bool layernorm = n->flags != 0;
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_output(e, n->outputs[0]);
  ref rstd = emit_output(e, n->outputs[1]);
  ref mean = layernorm ? emit_output(e, n->outputs[2]) : 0;
  ref beta = layernorm ? emit_parameter(e, n->inputs[2]) : 0;
  emit_norm(e, layernorm, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
            (ref[]){ x, emit_parameter(e, n->inputs[1]), beta, 0 }, (ref[]){ y, rstd, mean, 0 });
}

static void norm_backward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->saved[0] == n->inputs[0]);
  bool layernorm = n->flags != 0;
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  ref mean = layernorm ? emit_saved(e, 2) : 0;
  ref gx = emit_grad_for(e, n->inputs[0]);
  ref ggamma = emit_parameter_grad(e, n->inputs[1], false);
  ref gbeta = layernorm ? emit_parameter_grad(e, n->inputs[2], false) : 0;
  emit_norm_backward(e, layernorm, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
                     (ref[]){ gy, emit_saved(e, 0), emit_saved(e, 1), mean, 0 },
                     emit_parameter(e, n->inputs[1]), (ref[]){ gx, ggamma, gbeta, 0 });
}

const operator_kind operator_norm = { "norm", norm_forward, norm_backward };

static void unscaled_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[0] * n->dims[1] == tensor_elements(g, n->inputs[0]));
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_output(e, n->outputs[0]), rstd = emit_output(e, n->outputs[1]);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_UNSCALED_NORM_FORWARD,
                              .type = type_of(g, n->outputs[0]),
                              .dims = { n->dims[0], n->dims[1] },
                              .scalars = { emit_settings(e)->model.norm_epsilon } },
              (ref[]){ x, 0 }, (ref[]){ y, rstd, 0 });
}

static void unscaled_backward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->saved[0] == n->inputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  emit_row_kernel(e, KERNEL_UNSCALED_NORM_BACKWARD, type_of(g, n->outputs[0]), n->dims[0],
                  n->dims[1], (ref[]){ gy, emit_saved(e, 0), emit_saved(e, 1), 0 },
                  (ref[]){ emit_grad_for(e, n->inputs[0]), 0 });
}

const operator_kind operator_unscaled_norm = { "unscaled_norm", unscaled_forward,
                                               unscaled_backward };
