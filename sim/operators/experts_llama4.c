/*
 * Llama 4's experts in eager PyTorch (transformers models/llama4/modeling_llama4.py: Llama4Router,
 * Llama4TextMoe, Llama4TextExperts; Axolotl's linearized experts). Formulas: derivatives.yaml
 * (scatter, repeat, sum, bmm, select) and torch/csrc/autograd/functions/tensor.cpp (CopySlices).
 */

#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

/* In place of -inf, because numbers of plans are finite. Its sigmoid is 0, too. */
static const double lowest_bf16 = -0x1.fep127;

/* full_like(-inf), then scatter_ into it. */
static void scatter_forward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id y = n->outputs[0];
  ref values = emit_input(e, n->inputs[0]), columns = emit_input(e, n->inputs[1]);
  ref to = emit_output(e, y);
  emit_number_kernel(e, KERNEL_FILL, type_of(g, y), tensor_elements(g, y), lowest_bf16,
                     (ref[]){ 0 }, (ref[]){ to, 0 });
  hf_columns_kernel(e, g, KERNEL_SCATTER_COLUMNS, y, n->inputs[0], (ref[]){ values, columns, 0 },
                    (ref[]){ to, 0 });
}

static void scatter_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id x = n->inputs[0];
  ref gy = emit_grad_of(e, n->outputs[0]);
  hf_columns_kernel(e, g, KERNEL_GATHER_COLUMNS, n->outputs[0], x,
                    (ref[]){ gy, emit_saved(e, 0), 0 }, (ref[]){ emit_grad_for(e, x), 0 });
}

const operator_kind operator_hf_scatter = { "scatter", scatter_forward, scatter_backward };

/* ---- copies of a tensor, and their sum ---- */

/* `times` copies one after the other: a row that is the whole tensor. */
static kernel_shape tiles(const graph *g, kernel_kind kind, tensor_id one, tensor_id all)
{
  const double times = (double)(tensor_elements(g, all) / tensor_elements(g, one));
  return (kernel_shape){ .kind = kind,
                         .type = type_of(g, one),
                         .dims = { tensor_elements(g, all) },
                         .scalars = { times, (double)tensor_elements(g, one) } };
}

static void tile_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_kernel(e, tiles(g, KERNEL_REPEAT_FORWARD, n->inputs[0], n->outputs[0]), (ref[]){ x, 0 },
              (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void tile_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  emit_kernel(e, tiles(g, KERNEL_REPEAT_BACKWARD, n->inputs[0], n->outputs[0]), (ref[]){ gy, 0 },
              (ref[]){ emit_grad_for(e, n->inputs[0]), 0 });
}

const operator_kind operator_hf_tile = { "tile", tile_forward, tile_backward };

static void sum_tiles_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_kernel(e, tiles(g, KERNEL_REPEAT_BACKWARD, n->outputs[0], n->inputs[0]), (ref[]){ x, 0 },
              (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* The gradient of the sum, expanded; the view before the sum copies it. */
static void sum_tiles_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  emit_kernel(e, tiles(g, KERNEL_REPEAT_FORWARD, n->outputs[0], n->inputs[0]), (ref[]){ gy, 0 },
              (ref[]){ emit_grad_for(e, n->inputs[0]), 0 });
}

const operator_kind operator_hf_sum_tiles = { "sum_tiles", sum_tiles_forward, sum_tiles_backward };

/* ---- one expert after the other ---- */

/* Part `dims[0]` of `all`, which has parts like `part`. */
static ref part_of(emitter *e, const graph *g, const graph_node *n, ref all, tensor_id part)
{
  const graph_tensor *t = &g->tensors.items[part];
  return emit_strided(e, all, (dtype)t->dtype, n->dims[0] * tensor_elements(g, part), t->rank,
                      t->shape, NULL);
}

static void zeros_forward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id y = n->outputs[0];
  emit_fill(e, type_of(g, y), tensor_elements(g, y), emit_output(e, y));
}

const operator_kind operator_hf_zeros = { "zeros", zeros_forward, NULL };

static void select_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id x = n->inputs[0], y = n->outputs[0];
  ref gy = emit_grad_of(e, y), gx = emit_grad_for(e, x);
  emit_fill(e, type_of(g, x), tensor_elements(g, x), gx);
  emit_copy(e, type_of(g, y), tensor_elements(g, y), gy, part_of(e, g, n, gx, y));
}

const operator_kind operator_hf_select = { "select", emit_outputs, select_backward };

static void put_forward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id y = n->inputs[1];
  ref from = emit_input(e, y);
  emit_input(e, n->inputs[0]);
  ref all = emit_output(e, n->outputs[0]);
  emit_copy(e, type_of(g, y), tensor_elements(g, y), from, part_of(e, g, n, all, y));
}

static ref temporary(emitter *e, const graph *g, const char *name, tensor_id like)
{
  return emit_vector(e, name, type_of(g, like), tensor_elements(g, like));
}

/* CopySlices: the whole gradient is copied; its part goes to y, and zeros come in its place. */
static void put_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id all = n->inputs[0], y = n->inputs[1];
  dtype type = type_of(g, y);
  ref gy = emit_grad_of(e, n->outputs[0]), whole = emit_grad_for(e, all);
  bool passes = whole != 0;
  if (!passes) whole = temporary(e, g, "gradient_of_all", all);
  emit_copy(e, type, tensor_elements(g, all), gy, whole);
  ref part = part_of(e, g, n, whole, y);
  emit_copy(e, type, tensor_elements(g, y), part, emit_grad_for(e, y));
  if (!passes) return;
  ref zeros = temporary(e, g, "zeros", y);
  emit_fill(e, type, tensor_elements(g, y), zeros);
  emit_copy(e, type, tensor_elements(g, y), zeros, part);
}

const operator_kind operator_hf_put = { "put", put_forward, put_backward };
