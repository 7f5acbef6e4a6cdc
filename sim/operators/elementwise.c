/*
 * Copies, dropout and residual adds.
 *
 * Megatron-LM: core/fusions/fused_bias_dropout.py (d98e8a64); PyTorch's native_dropout keeps its
 * mask as one byte per element.
 */
#include "sim/operators/operators.h"

#include <assert.h>

#include "sim/graph/node.h"
#include "sim/operators/shared.h"

/* ---- copies ---------------------------------------------------------------------------------- */

static void copy_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) == tensor_elements(g, n->outputs[0]));
  ref x = emit_input(e, n->inputs[0]);
  tensor_id y = n->outputs[0];
  bool strided = is_strided(g, (tensor_id[]){ y, n->inputs[0] }, 2);
  emit_memory_kernel(e, strided ? KERNEL_COPY_STRIDED : KERNEL_COPY, type_of(g, y),
                     tensor_elements(g, y), (ref[]){ x, 0 }, (ref[]){ emit_output(e, y), 0 });
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
  if (gx != 0) emit_copy(e, type_of(g, n->inputs[0]), tensor_elements(g, n->inputs[0]), gy, gx);
}

const operator_kind operator_copy = { "copy", copy_forward, copy_backward };

static int64_t width_of(const graph *g, tensor_id t)
{
  const graph_tensor *of = &g->tensors.items[t];
  return of->shape[of->rank - 1];
}

/* `width` columns of the rows of `whole`, from column `first` on. */
static ref columns_of(emitter *e, const graph *g, const graph_node *n, ref whole, int64_t first,
                      int64_t width)
{
  int64_t all = width_of(g, n->outputs[0]);
  return emit_strided(e, whole, type_of(g, n->outputs[0]), first, 2,
                      (int64_t[]){ tensor_elements(g, n->outputs[0]) / all, width },
                      (int64_t[]){ all, 1 });
}

static void join_columns_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref y = emit_output(e, n->outputs[0]);
  int64_t first = 0, width = 0;
  for (uint32_t i = 0; i < NODE_INPUTS && n->inputs[i] != 0; i++, first += width) {
    width = width_of(g, n->inputs[i]);
    emit_copy(e, type_of(g, n->outputs[0]), tensor_elements(g, n->inputs[i]),
              emit_input(e, n->inputs[i]), columns_of(e, g, n, y, first, width));
  }
  assert(first == width_of(g, n->outputs[0]));
}

static void join_columns_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  int64_t first = 0, width = 0;
  for (uint32_t i = 0; i < NODE_INPUTS && n->inputs[i] != 0; i++, first += width) {
    width = width_of(g, n->inputs[i]);
    emit_grad_is(e, n->inputs[i], columns_of(e, g, n, gy, first, width));
  }
  assert(first == width_of(g, n->outputs[0]));
}

const operator_kind operator_join_columns = { "join_columns", join_columns_forward,
                                              join_columns_backward };

/* With CP the next position may belong to another rank: roll_tensor exchanges the ends of the
 * parts (Megatron-LM core/transformer/multi_token_prediction.py). Here ranks gather all of these
 * few numbers. */
static ref rows_of_all(emitter *e, const graph *g, const graph_node *n, ref x)
{
  int64_t ranks = emit_settings(e)->parallel.context_parallel_size;
  if (ranks == 1) return x;
  ref all = emit_temporary(e, "rows_of_all", type_of(g, n->inputs[0]), ranks, n->dims[0],
                           n->dims[1], 0, CLASS_TRANSIENT);
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_GATHER, GROUP_CP, emit_bytes(e, x),
                  (ref[]){ x, 0 }, (ref[]){ all, 0 });
  return all;
}

static void roll_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]), y = emit_output(e, n->outputs[0]);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_ROLL,
                              .type = type_of(g, n->outputs[0]),
                              .dims = { n->dims[0], n->dims[1] },
                              .bytes = emit_bytes(e, x) + emit_bytes(e, y) },
              (ref[]){ rows_of_all(e, g, n, x), 0 }, (ref[]){ y, 0 });
}

const operator_kind operator_roll = { "roll", roll_forward, emit_nothing };

/* ---- dropout --------------------------------------------------------------------------------- */

/* `blocks`: the rank has a part of each block. 0: with sequence parallelism the rank has a part
 * of the whole residual stream. */
static void emit_dropout(emitter *e, kernel_kind kind, dtype type, int64_t elements,
                         double probability, int64_t blocks, const ref *reads, const ref *writes)
{
  double split = blocks != 0 ? (double)blocks : emit_settings(e)->parallel.sequence_parallel;
  emit_kernel(
      e,
      (kernel_shape){
          .kind = kind, .type = type, .dims = { elements }, .scalars = { probability, split } },
      reads, writes);
}

static void dropout_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(node_number(n) > 0 && node_number(n) <= 1);
  assert(dtype_bytes(type_of(g, n->outputs[1])) == 1);
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_output(e, n->outputs[0]);
  emit_dropout(e, KERNEL_DROPOUT_FORWARD, type_of(g, n->inputs[0]),
               tensor_elements(g, n->inputs[0]), node_number(n), n->dims[1], (ref[]){ x, 0 },
               (ref[]){ y, emit_output(e, n->outputs[1]), 0 });
}

static void dropout_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0)
    emit_dropout(e, KERNEL_DROPOUT_BACKWARD, type_of(g, n->inputs[0]),
                 tensor_elements(g, n->inputs[0]), node_number(n), n->dims[1],
                 (ref[]){ gy, emit_saved(e, 0), 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_dropout = { "dropout", dropout_forward, dropout_backward };

/* ---- bias, dropout, residual ----------------------------------------------------------------- */

/* Without fusion, x + bias and its dropout are separate tensors. */
static void bda_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) == tensor_elements(g, n->inputs[1]));
  tensor_id residual = n->inputs[1];
  int64_t elements = tensor_elements(g, residual), width = width_of(g, residual);
  double probability = emit_settings(e)->model.hidden_dropout;
  dtype type = type_of(g, residual);
  ref x = emit_input(e, n->inputs[0]);
  ref bias = n->flags & BDA_BIAS ? emit_parameter(e, n->inputs[2]) : 0;
  ref mask = 0;
  if ((n->flags & BDA_UNFUSED) && bias != 0) {
    ref sum = emit_vector(e, "x_plus_bias", type, elements);
    emit_row_kernel(e, KERNEL_BIAS_ADD, type, elements / width, width, (ref[]){ x, bias, 0 },
                    (ref[]){ sum, 0 });
    x = sum;
    bias = 0;
  }
  if (n->flags & BDA_DROPOUT) mask = emit_output(e, n->outputs[1]);
  if ((n->flags & BDA_UNFUSED) && mask != 0) {
    ref dropped = emit_vector(e, "dropped", type, elements);
    emit_dropout(e, KERNEL_DROPOUT_FORWARD, type, elements, probability, 0, (ref[]){ x, 0 },
                 (ref[]){ dropped, mask, 0 });
    x = dropped;
    mask = 0;
  }
  ref y = emit_output(e, n->outputs[0]);
  emit_dropout(e, KERNEL_BIAS_DROPOUT_ADD_FORWARD, type, elements, probability, 0,
               (ref[]){ x, emit_input(e, residual), bias, 0 }, (ref[]){ y, mask, 0 });
}

/* The residual's gradient is the output's; so is that of x, unless a mask or a conversion comes
 * between. */
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
    emit_dropout(e, KERNEL_BIAS_DROPOUT_ADD_BACKWARD, type_of(g, x), elements,
                 emit_settings(e)->model.hidden_dropout, 0, (ref[]){ gy, mask, 0 },
                 (ref[]){ gx, 0 });
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
  assert(tensor_elements(g, n->inputs[0]) == tensor_elements(g, n->outputs[0]));
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_input(e, n->inputs[1]);
  ref sum = emit_output(e, n->outputs[0]);
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]), width = width_of(g, n->outputs[0]);
  if (n->flags != 0)
    emit_row_kernel(e, KERNEL_BIAS_ADD, type, elements / width, width, (ref[]){ x, y, 0 },
                    (ref[]){ sum, 0 });
  else
    emit_memory_kernel(e, KERNEL_ADD, type, elements, (ref[]){ x, y, 0 }, (ref[]){ sum, 0 });
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
  emit_number_kernel(e, KERNEL_SCALE, type_of(g, n->outputs[0]), tensor_elements(g, n->outputs[0]),
                     node_number(n), (ref[]){ x, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void scale_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0)
    emit_number_kernel(e, KERNEL_SCALE, type_of(g, n->inputs[0]), tensor_elements(g, n->inputs[0]),
                       node_number(n), (ref[]){ gy, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_scale = { "scale", scale_forward, scale_backward };
