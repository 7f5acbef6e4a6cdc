/*
 * Forward and backward of the operators of local experts.
 *
 * Megatron-LM core/transformer/moe/experts.py (d98e8a64); Transformer Engine (d0067d0d):
 * pytorch/module/grouped_linear.py.
 */
#include "sim/operators/moe.h"

#include <assert.h>

#include "sim/graph/fp8.h"
#include "sim/graph/operand_list.h"
#include "sim/operators/fp8.h"
#include "sim/operators/shared.h"

/* ---- grouped linear -------------------------------------------------------------------------- */

/* Each expert has an equal part of the rows, or as many as the tensor of row owners
 * (GROUPED_COUNTS) says. */
static kernel_shape grouped_product(const graph_node *n, dtype type, int64_t rows, int64_t columns,
                                    int64_t inner, gemm_layout layout)
{
  return (kernel_shape){ .kind = KERNEL_GROUPED_GEMM,
                         .type = type,
                         .dims = { rows, columns, inner, 1, n->dims[GROUPED_EXPERTS] },
                         .scalars = { [GEMM_LAYOUT] = layout },
                         .uncounted = n->dims[GROUPED_COUNTS] != 0 };
}

static bool is_quantized(const graph_node *n)
{
  return n->dims[GROUPED_GRADIENT_BYTES] > 0;
}

static dtype grouped_type(const graph *g, const graph_node *n)
{
  return is_quantized(n) ? DTYPE_FP8 : type_of(g, n->outputs[0]);
}

static int fp8_of(emitter *e, const graph_node *n, bool gradient)
{
  return is_quantized(n) ? fp8_code(emit_settings(e), gradient) : FP8_NONE;
}

/* The first `used` bytes of a buffer of `has` bytes for fp8 copies: the rows that are computed. */
static ref used_bytes(emitter *e, ref buffer, int64_t has, int64_t used)
{
  assert(used > 0 && used <= has);
  return has == used ? buffer : emit_strided(e, buffer, DTYPE_FP8, 0, 1, &used, NULL);
}

static int64_t forward_bytes(emitter *e, const graph_node *n)
{
  const settings *s = emit_settings(e);
  int64_t rows = n->dims[GROUPED_ROWS], inputs = n->dims[GROUPED_INPUTS];
  int64_t apart = fp8_forward_bytes(s, rows, inputs);
  return apart > 0 ? apart : fp8_rowwise_bytes(s, rows, inputs);
}

/* Each expert's rows are a matrix of its own (pytorch/csrc/extensions/cast.cpp, split_quantize). */
static fp8_source rows_of_experts(const graph_node *n, ref x, int64_t columns)
{
  return (fp8_source){
    .x = x, .rows = n->dims[GROUPED_ROWS], .columns = columns, .experts = n->dims[GROUPED_EXPERTS]
  };
}

/* grouped_linear.py, _GroupedLinear.forward: the rows of all experts are one tensor. fp8
 * quantises them in both layouts and keeps the columnwise one. */
static void grouped_linear_forward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t rows = n->dims[GROUPED_ROWS], inputs = n->dims[GROUPED_INPUTS],
          outputs = n->dims[GROUPED_OUTPUTS];
  assert(tensor_elements(g, n->inputs[0]) >= rows * inputs);
  assert(tensor_elements(g, n->inputs[1]) == n->dims[GROUPED_EXPERTS] * inputs * outputs);
  tensor_id counts = (tensor_id)n->dims[GROUPED_COUNTS];
  int fp8 = fp8_of(e, n, false);
  ref x = emit_input(e, n->inputs[0]);
  if (is_quantized(n)) {
    int64_t has = n->dims[GROUPED_FORWARD_BYTES];
    ref operand = emit_scratch(e, "input_fp8", has);
    if (operand != 0) operand = used_bytes(e, operand, has, forward_bytes(e, n));
    ref kept = n->outputs[1] != 0 ? emit_output(e, n->outputs[1]) : 0;
    emit_quantize(e, fp8, rows_of_experts(n, x, inputs), (fp8_target){ operand, FP8_ROWWISE },
                  (fp8_target){ kept, fp8_saved_copies(emit_settings(e), false) });
    x = operand != 0 ? operand : kept;
  }
  operand_list reads = { 0 };
  operands_append(&reads, x);
  operands_append(&reads, emit_parameter(e, n->inputs[1]));
  if (n->inputs[2] != 0) operands_append(&reads, emit_parameter(e, n->inputs[2]));
  if (counts != 0) operands_append(&reads, emit_input(e, counts));
  kernel_shape product = grouped_product(n, grouped_type(g, n), rows, outputs, inputs, GEMM_NT);
  product.scalars[GEMM_FP8] = fp8;
  product.scalars[GEMM_BIASED] = n->inputs[2] != 0;
  emit_kernel(e, product, reads.items, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static fp8_gradient product_gradient(emitter *e, const graph_node *n, ref gy)
{
  if (!is_quantized(n)) return (fp8_gradient){ gy, gy };
  int64_t rows = n->dims[GROUPED_ROWS], outputs = n->dims[GROUPED_OUTPUTS],
          has = n->dims[GROUPED_GRADIENT_BYTES];
  ref copies = used_bytes(e, emit_scratch(e, "gradient_fp8", has), has,
                          fp8_gradient_bytes(emit_settings(e), rows, outputs));
  return emit_quantize_gradient(e, rows_of_experts(n, gy, outputs), copies);
}

static ref wgrad_operand(emitter *e, const graph_node *n)
{
  const settings *s = emit_settings(e);
  ref x = emit_saved(e, 0);
  if (n->dims[GROUPED_REQUANTIZE_BYTES] == 0) return x;
  ref copy = emit_vector(e, "input_fp8", DTYPE_FP8, n->dims[GROUPED_REQUANTIZE_BYTES]);
  copy = used_bytes(e, copy, n->dims[GROUPED_REQUANTIZE_BYTES],
                    fp8_saved_bytes(s, n->dims[GROUPED_ROWS], n->dims[GROUPED_INPUTS], false));
  emit_quantize(e, fp8_code(s, false), rows_of_experts(n, x, n->dims[GROUPED_INPUTS]),
                (fp8_target){ copy, fp8_saved_copies(s, false) }, (fp8_target){ 0, FP8_NO_COPY });
  return copy;
}

static void grouped_linear_backward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t rows = n->dims[GROUPED_ROWS], inputs = n->dims[GROUPED_INPUTS],
          outputs = n->dims[GROUPED_OUTPUTS];
  dtype type = grouped_type(g, n);
  ref full = emit_grad_of(e, n->outputs[0]);
  fp8_gradient gy = product_gradient(e, n, full);
  ref counts = n->dims[GROUPED_COUNTS] != 0 ? emit_kept(e, (tensor_id)n->dims[GROUPED_COUNTS]) : 0;
  gemm_layout wgrad_layout = is_quantized(n) ? fp8_wgrad_layout(emit_settings(e)) : GEMM_TN;
  kernel_shape dgrad = grouped_product(n, type, rows, inputs, outputs, GEMM_NN),
               wgrad = grouped_product(n, type, outputs, inputs, rows, wgrad_layout);
  dgrad.scalars[GEMM_FP8] = wgrad.scalars[GEMM_FP8] = fp8_of(e, n, true);
  if (g->tensors.items[n->inputs[0]].requires_grad)
    emit_kernel(e, dgrad, (ref[]){ gy.rowwise, emit_parameter(e, n->inputs[1]), counts, 0 },
                (ref[]){ emit_grad_for(e, n->inputs[0]), 0 });
  if (g->tensors.items[n->inputs[1]].requires_grad)
    emit_weight_gradient(e, wgrad, (ref[]){ gy.wgrad, wgrad_operand(e, n), counts, 0 },
                         n->inputs[1]);
  ref gb = n->inputs[2] != 0 ? emit_parameter_grad(e, n->inputs[2], false) : 0;
  if (gb != 0)
    emit_kernel(e,
                (kernel_shape){ .kind = KERNEL_EXPERT_BIAS_GRAD,
                                .type = type_of(g, n->outputs[0]),
                                .dims = { rows, outputs, n->dims[GROUPED_EXPERTS] },
                                .uncounted = counts != 0 },
                (ref[]){ full, counts, 0 }, (ref[]){ gb, 0 });
}

const operator_kind operator_grouped_linear = { "grouped_linear", grouped_linear_forward,
                                                grouped_linear_backward };

/* ---- probabilities times rows ---------------------------------------------------------------- */

/* The product has the wider of the two types and is converted afterwards (experts.py,
 * bias_act_func). */
static ref product(emitter *e, const graph *g, const graph_node *n, const char *name)
{
  int64_t rows = n->dims[WEIGHTED_ROWS], width = n->dims[WEIGHTED_WIDTH];
  bool converts = n->dims[WEIGHTED_ELEMENT_BYTES] != dtype_bytes(type_of(g, n->outputs[0]));
  if (!converts) return 0;
  ref wide = emit_scratch(e, name, rows * width * n->dims[WEIGHTED_ELEMENT_BYTES]);
  return emit_strided(e, wide, type_of(g, n->inputs[1]), 0, 2, (int64_t[]){ rows, width }, NULL);
}

static void weighted_forward(emitter *e, const graph *g, const graph_node *n)
{
  operand_list reads = operands_of_inputs(e, n);
  ref wide = product(e, g, n, "product");
  ref y = emit_output(e, n->outputs[0]);
  emit_row_kernel(e, KERNEL_WEIGHT_ROWS_FORWARD, type_of(g, n->outputs[0]), n->dims[WEIGHTED_ROWS],
                  n->dims[WEIGHTED_WIDTH], reads.items, (ref[]){ y, wide, 0 });
}

/* First the gradient in the product's type, then the gradient of the rows, then gradient x rows,
 * whose sums are the gradient of the probabilities. */
static void weighted_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t rows = n->dims[WEIGHTED_ROWS], width = n->dims[WEIGHTED_WIDTH];
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref wide = product(e, g, n, "gradient");
  if (wide != 0) {
    emit_copy(e, type, rows * width, gy, wide);
    gy = wide;
  }
  ref wide_ga = product(e, g, n, "row_gradient");
  ref ga = emit_grad_for(e, n->inputs[0]);
  emit_row_kernel(e, KERNEL_WEIGHT_ROWS_FORWARD, type, rows, width,
                  (ref[]){ gy, emit_saved(e, 1), 0 }, (ref[]){ ga, wide_ga, 0 });
  if (wide_ga != 0) emit_drop(e, wide_ga);
  ref terms = emit_scratch(e, "terms", rows * width * n->dims[WEIGHTED_ELEMENT_BYTES]);
  ref gp = emit_grad_for(e, n->inputs[1]);
  operand_list writes = { 0 };
  operands_append(&writes, terms);
  operands_append(&writes, gp);
  emit_row_kernel(e, KERNEL_ROW_DOT, type, rows, width, (ref[]){ gy, emit_saved(e, 0), 0 },
                  writes.items);
}

const operator_kind operator_weighted = { "weighted", weighted_forward, weighted_backward };

/* mlp.py: output += output_bias x per_token_scale. The product is a temporary in the wider type. */
static int64_t scaled_bias_bytes(const graph_node *n)
{
  return n->dims[WEIGHTED_ROWS] * n->dims[WEIGHTED_WIDTH] * n->dims[WEIGHTED_ELEMENT_BYTES];
}

static kernel_shape scaled_bias_kernel(const graph *g, const graph_node *n, kernel_kind kind)
{
  return (kernel_shape){ .kind = kind,
                         .type = type_of(g, n->outputs[0]),
                         .dims = { n->dims[WEIGHTED_ROWS], n->dims[WEIGHTED_WIDTH], 1 } };
}

static void scaled_bias_forward(emitter *e, const graph *g, const graph_node *n)
{
  operand_list reads = operands_of_inputs(e, n);
  ref terms = emit_scratch(e, "bias_rows", scaled_bias_bytes(n));
  emit_kernel(e, scaled_bias_kernel(g, n, KERNEL_EXPERT_BIAS_FORWARD), reads.items,
              (ref[]){ terms, emit_output(e, n->outputs[0]), 0 });
}

/* The gradient of x is the output's; those of bias and probabilities are sums of products. */
static void scaled_bias_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  emit_grad_is(e, n->inputs[0], gy);
  operand_list writes = { 0 };
  operands_append(&writes, emit_scratch(e, "terms", scaled_bias_bytes(n)));
  operands_append(&writes, emit_grad_for(e, n->inputs[1]));
  operands_append(&writes, emit_parameter_grad(e, n->inputs[2], false));
  emit_kernel(e, scaled_bias_kernel(g, n, KERNEL_EXPERT_BIAS_BACKWARD),
              (ref[]){ gy, emit_saved(e, 0), emit_saved(e, 1), 0 }, writes.items);
}

const operator_kind operator_scaled_bias = { "scaled_bias", scaled_bias_forward,
                                             scaled_bias_backward };

/* ---- slices ---------------------------------------------------------------------------------- */

static ref slice_of(emitter *e, dtype type, ref whole, int64_t first, int64_t elements)
{
  assert(first >= 0 && elements > 0);
  return emit_strided(e, whole, type, first, 1, &elements, NULL);
}

/* The gradients of the slices are joined in a new tensor. */
static void slices_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id first = (tensor_id)n->dims[SLICES_FIRST];
  ref gx = emit_grad_for(e, n->inputs[0]);
  int64_t done = 0, elements = 0;
  for (tensor_id i = 0; i < (tensor_id)n->dims[SLICES_COUNT]; i++, done += elements) {
    ref part = emit_grad_of(e, first + i);
    elements = tensor_elements(g, first + i);
    if (part == 0) continue;
    emit_copy(e, type_of(g, first), elements, part,
              slice_of(e, type_of(g, first), gx, done, elements));
  }
  assert(done >= tensor_elements(g, n->inputs[0]));
  for (tensor_id i = 0; i < (tensor_id)n->dims[SLICES_COUNT]; i++)
    emit_drop(e, emit_grad_of(e, first + i));
}

const operator_kind operator_slices = { "slices", emit_nothing, slices_backward };

static void join_slices_forward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id first = (tensor_id)n->dims[SLICES_FIRST];
  dtype type = type_of(g, n->outputs[0]);
  ref y = emit_output(e, n->outputs[0]);
  int64_t done = 0, elements = 0;
  for (tensor_id i = 0; i < (tensor_id)n->dims[SLICES_COUNT]; i++, done += elements) {
    elements = tensor_elements(g, first + i);
    emit_copy(e, type, elements, emit_input(e, first + i), slice_of(e, type, y, done, elements));
  }
  assert(done >= tensor_elements(g, n->outputs[0]));
}

/* Each slice's gradient is a view of the whole one. */
static void join_slices_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id first = (tensor_id)n->dims[SLICES_FIRST];
  ref gy = emit_grad_of(e, n->outputs[0]);
  int64_t done = 0, elements = 0;
  for (tensor_id i = 0; i < (tensor_id)n->dims[SLICES_COUNT]; i++, done += elements) {
    elements = tensor_elements(g, first + i);
    emit_grad_is(e, first + i, slice_of(e, type_of(g, n->outputs[0]), gy, done, elements));
  }
  assert(done >= tensor_elements(g, n->outputs[0]));
}

const operator_kind operator_join_slices = { "join_slices", join_slices_forward,
                                             join_slices_backward };
