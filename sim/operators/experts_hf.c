/*
 * Experts in eager PyTorch (transformers integrations/moe.py: grouped_mm_experts_forward;
 * models/qwen3_moe, mixtral, gpt_oss, deepseek_v2, deepseek_v3: the router). Rows are pairs of a
 * token and an expert chosen for it, sorted by expert. How many rows there are does not depend on
 * the choice. Formulas: derivatives.yaml (topk, index, gather, masked_fill, div, _grouped_mm, sum).
 * What has no row of its own in kernels.h has no arithmetic here.
 */
#include <assert.h>

#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

static void emit_moved(emitter *e, dtype type, int64_t elements, const ref *reads,
                       const ref *writes)
{
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, reads, writes);
}

/* A gradient that is zero but for some elements; 0: a frozen parameter has none. */
static ref zeroed_gradient(emitter *e, const graph *g, tensor_id x)
{
  ref gx = g->tensors.items[x].parameter ? emit_parameter_grad(e, x, false) : emit_grad_for(e, x);
  if (gx == 0) return 0;
  emit_fill(e, type_of(g, x), tensor_elements(g, x), gx);
  return gx;
}

/* ---- the router ------------------------------------------------------------------------------ */

static void topk_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  ref values = emit_output(e, n->outputs[0]), indices = emit_output(e, n->outputs[1]);
  hf_columns_kernel(e, g, KERNEL_TOPK, n->inputs[0], n->outputs[0], (ref[]){ x, 0 },
                    (ref[]){ values, indices, 0 });
}

static void topk_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = zeroed_gradient(e, g, n->inputs[0]);
  hf_columns_kernel(e, g, KERNEL_SCATTER_COLUMNS, n->inputs[0], n->outputs[0],
                    (ref[]){ gy, emit_saved(e, 0), 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_topk = { "topk", topk_forward, topk_backward };

static void gather_elements_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]), columns = emit_input(e, n->inputs[1]);
  hf_columns_kernel(e, g, KERNEL_GATHER_COLUMNS, n->inputs[0], n->outputs[0],
                    (ref[]){ x, columns, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

const operator_kind operator_hf_gather_elements = { "gather_elements", gather_elements_forward,
                                                    topk_backward };

static void masked(emitter *e, const graph *g, tensor_id x, ref from, ref mask, ref to)
{
  emit_moved(e, type_of(g, x), tensor_elements(g, x), (ref[]){ from, mask, 0 }, (ref[]){ to, 0 });
}

static void masked_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]), mask = emit_input(e, n->inputs[1]);
  masked(e, g, n->inputs[0], x, mask, emit_output(e, n->outputs[0]));
}

static void masked_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  masked(e, g, n->inputs[0], gy, emit_saved(e, 0), emit_grad_for(e, n->inputs[0]));
}

const operator_kind operator_hf_masked = { "masked", masked_forward, masked_backward };

enum { NORMALISED, SUM, BEFORE }; /* outputs */

/* In place: autograd keeps a copy of what was there. */
static void normalise_forward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->inputs[0]);
  int64_t elements = tensor_elements(g, n->inputs[0]);
  ref x = emit_input(e, n->inputs[0]), sum = emit_output(e, n->outputs[SUM]);
  emit_memory_kernel(e, KERNEL_SUM, type, elements, (ref[]){ x, 0 }, (ref[]){ sum, 0 });
  emit_copy(e, type, elements, x, emit_output(e, n->outputs[BEFORE]));
  emit_moved(e, type, elements, (ref[]){ x, sum, 0 },
             (ref[]){ emit_output(e, n->outputs[NORMALISED]), 0 });
}

/* gy / sum, and of the sum the sum of -gy x / sum^2, which each element gets. */
static void normalise_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->inputs[0]);
  int64_t elements = tensor_elements(g, n->inputs[0]);
  ref gy = emit_grad_of(e, n->outputs[NORMALISED]);
  ref sum = emit_saved(e, 0), before = emit_saved(e, 1);
  ref all = emit_vector(e, "gradient_of_all", type, elements);
  emit_moved(e, type, elements, (ref[]){ gy, sum, before, 0 }, (ref[]){ all, 0 });
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_moved(e, type, elements, (ref[]){ gy, sum, all, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_normalise = { "normalise", normalise_forward, normalise_backward };

/* ---- the order of rows ----------------------------------------------------------------------- */

/* Integers from integers, one kernel for each result. */
static void integers_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  for (uint32_t i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    emit_moved(e, type_of(g, n->outputs[i]), tensor_elements(g, n->inputs[0]), (ref[]){ x, 0 },
               (ref[]){ emit_output(e, n->outputs[i]), 0 });
}

const operator_kind operator_hf_integers = { "integers", integers_forward, NULL };

static void gather_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]), index = emit_input(e, n->inputs[1]);
  emit_moved(e, type_of(g, n->outputs[0]), tensor_elements(g, n->outputs[0]),
             (ref[]){ x, index, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* index_put_ with accumulation sorts the indices and keeps where they were
 * (aten/src/ATen/native/cuda/Indexing.cu: index_put_with_sort_kernel). */
static void gather_backward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t rows = tensor_elements(g, n->inputs[1]);
  ref gy = emit_grad_of(e, n->outputs[0]), index = emit_saved(e, 0);
  ref gx = zeroed_gradient(e, g, n->inputs[0]);
  if (gx == 0) return;
  ref sorted = emit_vector(e, "sorted_indices", DTYPE_INT64, rows);
  ref origin = emit_vector(e, "original_indices", DTYPE_INT64, rows);
  emit_moved(e, DTYPE_INT64, rows, (ref[]){ index, 0 }, (ref[]){ sorted, origin, 0 });
  emit_moved(e, type_of(g, n->outputs[0]), tensor_elements(g, n->outputs[0]),
             (ref[]){ gy, sorted, origin, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_gather = { "gather", gather_forward, gather_backward };

/* [rows, times, width] -> [rows, width] */
static void sum_parts_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_moved(e, type_of(g, n->outputs[0]), tensor_elements(g, n->inputs[0]), (ref[]){ x, 0 },
             (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* The gradient is a view that repeats that of the sum; the gather before makes it contiguous. */
static void sum_parts_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  emit_memory_kernel(e, KERNEL_COPY_STRIDED, type_of(g, n->inputs[0]),
                     tensor_elements(g, n->inputs[0]), (ref[]){ gy, 0 },
                     (ref[]){ emit_grad_for(e, n->inputs[0]), 0 });
}

const operator_kind operator_hf_sum_parts = { "sum_parts", sum_parts_forward, sum_parts_backward };

/* ---- products -------------------------------------------------------------------------------- */

enum { ROWS, INPUTS, OUTPUTS, EXPERTS };

static kernel_shape grouped_kernel(const graph_node *n, dtype type, int64_t columns, int64_t inner,
                                   gemm_layout layout)
{
  return (kernel_shape){ .kind = KERNEL_GROUPED_GEMM,
                         .type = type,
                         .dims = { n->dims[ROWS], columns, inner, 1, n->dims[EXPERTS] },
                         .scalars = { [GEMM_LAYOUT] = layout } };
}

static void grouped_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) == n->dims[ROWS] * n->dims[INPUTS]);
  assert(tensor_elements(g, n->inputs[1]) == n->dims[EXPERTS] * n->dims[OUTPUTS] * n->dims[INPUTS]);
  ref x = emit_input(e, n->inputs[0]), weight = emit_input(e, n->inputs[1]);
  emit_kernel(
      e, grouped_kernel(n, type_of(g, n->outputs[0]), n->dims[OUTPUTS], n->dims[INPUTS], GEMM_NN),
      (ref[]){ x, weight, emit_input(e, n->inputs[2]), 0 },
      (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void grouped_backward(emitter *e, const graph *g, const graph_node *n)
{
  const int64_t *d = n->dims;
  dtype type = type_of(g, n->outputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]), offsets = hf_saved(e, n, n->inputs[2]);
  ref gw = emit_parameter_grad(e, tensor_storage(g, n->inputs[1]), false);
  if (gw != 0) {
    kernel_shape of_weight = grouped_kernel(n, type, d[INPUTS], d[ROWS], GEMM_TN);
    of_weight.dims[0] = d[OUTPUTS];
    emit_kernel(e, of_weight, (ref[]){ gy, hf_saved(e, n, n->inputs[0]), offsets, 0 },
                (ref[]){ gw, 0 });
  }
  ref gx = emit_grad_for(e, n->inputs[0]);
  if (gx != 0)
    emit_kernel(e, grouped_kernel(n, type, d[INPUTS], d[OUTPUTS], GEMM_NT),
                (ref[]){ gy, hf_saved(e, n, n->inputs[1]), offsets, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_grouped_linear = { "grouped_linear", grouped_forward,
                                                   grouped_backward };
