/*
 * Norms that are modules, and the helpers of all operators.
 *
 * Transformer Engine: ops/basic/layer_norm.py, rmsnorm.py (d0067d0d); apex FusedLayerNorm in the
 * local implementation keeps the same tensors.
 */
#include "sim/operators/operators.h"

#include <assert.h>

#include "sim/operators/shared.h"

void emit_memory_kernel(emitter *e, kernel_kind kind, dtype type, int64_t elements,
                        const ref *reads, const ref *writes)
{
  assert(kind < KERNEL_KINDS && elements > 0);
  emit_kernel(e, (kernel_shape){ .kind = kind, .type = type, .dims = { elements } }, reads, writes);
}

void emit_row_kernel(emitter *e, kernel_kind kind, dtype type, int64_t rows, int64_t columns,
                     const ref *reads, const ref *writes)
{
  assert(kind < KERNEL_KINDS && rows > 0 && columns > 0);
  emit_kernel(e, (kernel_shape){ .kind = kind, .type = type, .dims = { rows, columns } }, reads,
              writes);
}

void emit_number_kernel(emitter *e, kernel_kind kind, dtype type, int64_t elements, double number,
                        const ref *reads, const ref *writes)
{
  emit_kernel(
      e, (kernel_shape){ .kind = kind, .type = type, .dims = { elements }, .scalars = { number } },
      reads, writes);
}

void emit_norm(emitter *e, bool layernorm, dtype type, int64_t rows, int64_t width,
               const ref *reads, const ref *writes)
{
  const settings *s = emit_settings(e);
  emit_kernel(e,
              (kernel_shape){ .kind = layernorm ? KERNEL_LAYERNORM_FORWARD : KERNEL_RMSNORM_FORWARD,
                              .type = type,
                              .dims = { rows, width },
                              .scalars = { s->model.norm_epsilon, s->model.apply_layernorm_1p } },
              reads, writes);
}

void emit_norm_backward(emitter *e, bool layernorm, dtype type, int64_t rows, int64_t width,
                        const ref *reads, ref gamma, const ref *writes)
{
  ref all[6] = { 0 };
  uint32_t count = 0;
  for (; reads[count] != 0; count++)
    all[count] = reads[count];
  assert(count < 5);
  all[count] = gamma;
  emit_kernel(
      e,
      (kernel_shape){ .kind = layernorm ? KERNEL_LAYERNORM_BACKWARD : KERNEL_RMSNORM_BACKWARD,
                      .type = type,
                      .dims = { rows, width },
                      .scalars = { emit_settings(e)->model.apply_layernorm_1p },
                      .uncounted = 1 },
      all, writes);
}

tensor_id last_tensor(const tensor_id *list, uint32_t capacity)
{
  uint32_t count = 0;
  while (count < capacity && list[count] != 0)
    count++;
  assert(count > 0);
  return list[count - 1];
}

static void norm_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[0] * n->dims[1] == tensor_elements(g, n->inputs[0]));
  bool layernorm = n->flags != 0;
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_output(e, n->outputs[0]);
  ref rstd = emit_output(e, n->outputs[1]);
  ref mean = layernorm ? emit_output(e, n->outputs[2]) : 0;
  ref beta = layernorm ? emit_parameter(e, n->inputs[2]) : 0;
  emit_norm(e, layernorm, (dtype)g->tensors.items[n->outputs[0]].dtype, n->dims[0], n->dims[1],
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
  emit_norm_backward(e, layernorm, (dtype)g->tensors.items[n->outputs[0]].dtype, n->dims[0],
                     n->dims[1], (ref[]){ gy, emit_saved(e, 0), emit_saved(e, 1), mean, 0 },
                     emit_parameter(e, n->inputs[1]), (ref[]){ gx, ggamma, gbeta, 0 });
}

const operator_kind operator_norm = { "norm", norm_forward, norm_backward };
