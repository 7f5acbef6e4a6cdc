/*
 * Forward and backward of the operators of local experts.
 *
 * Megatron-LM core/transformer/moe/experts.py (d98e8a64); Transformer Engine (d0067d0d):
 * pytorch/module/grouped_linear.py.
 */
#include "sim/model/operators_moe.h"

#include "sim/model/operand_list.h"
#include "sim/model/operators_shared.h"

/* ---- grouped linear -------------------------------------------------------------------------- */

static void emit_grouped_gemm(emitter *e, dtype type, int64_t rows, int64_t columns, int64_t inner,
                              const ref *reads, ref write)
{
  emit_kernel(e,
              (kernel_shape){
                  .kind = KERNEL_GROUPED_GEMM, .type = type, .dims = { rows, columns, inner, 1 } },
              reads, (ref[]){ write, 0 });
}

static bool is_quantized(const graph_node *n)
{
  return n->dims[GROUPED_GRADIENT_BYTES] > 0;
}

static dtype grouped_type(const graph *g, const graph_node *n)
{
  return is_quantized(n) ? DTYPE_FP8 : type_of(g, n->outputs[0]);
}

/* grouped_linear.py, _GroupedLinear.forward: rows of all experts in one tensor; fp8 quantises them
 * in both layouts and keeps the columnwise one. */
static void grouped_linear_forward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t rows = n->dims[GROUPED_ROWS], inputs = n->dims[GROUPED_INPUTS],
          outputs = n->dims[GROUPED_OUTPUTS];
  ref x = emit_input(e, n->inputs[0]);
  if (is_quantized(n)) {
    ref operand = emit_scratch(e, "input_fp8", n->dims[GROUPED_FORWARD_BYTES]);
    ref kept = n->outputs[1] != 0 ? emit_output(e, n->outputs[1]) : 0;
    operand_list writes = { 0 };
    operands_append(&writes, operand);
    operands_append(&writes, kept);
    emit_memory_kernel(e, KERNEL_QUANTIZE, DTYPE_FP8, rows * inputs, (ref[]){ x, 0 }, writes.items);
    x = operand != 0 ? operand : kept;
  }
  operand_list reads = { 0 };
  operands_append(&reads, x);
  operands_append(&reads, emit_parameter(e, n->inputs[1]));
  if (n->inputs[2] != 0) operands_append(&reads, emit_parameter(e, n->inputs[2]));
  emit_grouped_gemm(e, grouped_type(g, n), rows, outputs, inputs, reads.items,
                    emit_output(e, n->outputs[0]));
}

static ref quantized_gradient(emitter *e, const graph_node *n, ref gy)
{
  if (!is_quantized(n)) return gy;
  ref copy = emit_scratch(e, "gradient_fp8", n->dims[GROUPED_GRADIENT_BYTES]);
  emit_memory_kernel(e, KERNEL_QUANTIZE, DTYPE_FP8,
                     n->dims[GROUPED_ROWS] * n->dims[GROUPED_OUTPUTS], (ref[]){ gy, 0 },
                     (ref[]){ copy, 0 });
  return copy;
}

static ref wgrad_operand(emitter *e, const graph_node *n)
{
  ref x = emit_saved(e, 0);
  if (n->dims[GROUPED_REQUANTIZE_BYTES] == 0) return x;
  ref copy = emit_scratch(e, "input_fp8", n->dims[GROUPED_REQUANTIZE_BYTES]);
  emit_memory_kernel(e, KERNEL_QUANTIZE, DTYPE_FP8, n->dims[GROUPED_ROWS] * n->dims[GROUPED_INPUTS],
                     (ref[]){ x, 0 }, (ref[]){ copy, 0 });
  return copy;
}

static void grouped_linear_backward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t rows = n->dims[GROUPED_ROWS], inputs = n->dims[GROUPED_INPUTS],
          outputs = n->dims[GROUPED_OUTPUTS];
  dtype type = grouped_type(g, n);
  ref full = emit_grad_of(e, n->outputs[0]);
  ref gy = quantized_gradient(e, n, full);
  if (g->tensors.items[n->inputs[0]].requires_grad)
    emit_grouped_gemm(e, type, rows, inputs, outputs,
                      (ref[]){ gy, emit_parameter(e, n->inputs[1]), 0 },
                      emit_grad_for(e, n->inputs[0]));
  if (g->tensors.items[n->inputs[1]].requires_grad)
    emit_weight_gradient(
        e, (kernel_shape){ KERNEL_GROUPED_GEMM, type, { outputs, inputs, rows, 1 }, 0 },
        (ref[]){ gy, wgrad_operand(e, n), 0 }, n->inputs[1]);
  ref gb = n->inputs[2] != 0 ? emit_parameter_grad(e, n->inputs[2], false) : 0;
  if (gb != 0)
    emit_row_kernel(e, KERNEL_BIAS_GRAD, type_of(g, n->outputs[0]), rows, outputs,
                    (ref[]){ full, 0 }, (ref[]){ gb, 0 });
}

const operator_kind operator_grouped_linear = { "grouped_linear", grouped_linear_forward,
                                                grouped_linear_backward };

/* ---- probabilities times rows ---------------------------------------------------------------- */

/* The product has the wider of the two types and is converted afterwards (experts.py,
 * bias_act_func). */
static ref product(emitter *e, const graph *g, const graph_node *n, const char *name)
{
  int64_t elements = n->dims[WEIGHTED_ROWS] * n->dims[WEIGHTED_WIDTH];
  bool converts = n->dims[WEIGHTED_ELEMENT_BYTES] != dtype_bytes(type_of(g, n->outputs[0]));
  return converts ? emit_scratch(e, name, elements * n->dims[WEIGHTED_ELEMENT_BYTES]) : 0;
}

static void weighted_forward(emitter *e, const graph *g, const graph_node *n)
{
  operand_list reads = operands_of_inputs(e, n);
  ref wide = product(e, g, n, "product");
  ref y = emit_output(e, n->outputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]),
                     n->dims[WEIGHTED_ROWS] * n->dims[WEIGHTED_WIDTH], reads.items,
                     (ref[]){ y, wide, 0 });
}

/* The gradient in the product's type, then that of the rows, then gradient x rows before its sum.
 */
static void weighted_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t rows = n->dims[WEIGHTED_ROWS], width = n->dims[WEIGHTED_WIDTH];
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref wide = product(e, g, n, "gradient");
  if (wide != 0) {
    emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, rows * width, (ref[]){ gy, 0 },
                       (ref[]){ wide, 0 });
    gy = wide;
  }
  ref wide_ga = product(e, g, n, "row_gradient");
  ref ga = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, rows * width, (ref[]){ gy, emit_saved(e, 1), 0 },
                     (ref[]){ ga, wide_ga, 0 });
  if (wide_ga != 0) emit_drop(e, wide_ga);
  ref terms = emit_scratch(e, "terms", rows * width * n->dims[WEIGHTED_ELEMENT_BYTES]);
  ref gp = emit_grad_for(e, n->inputs[1]);
  operand_list writes = { 0 };
  operands_append(&writes, terms);
  operands_append(&writes, gp);
  emit_memory_kernel(e, KERNEL_REDUCE, type, rows * width, (ref[]){ gy, emit_saved(e, 0), 0 },
                     writes.items);
}

const operator_kind operator_weighted = { "weighted", weighted_forward, weighted_backward };

/* mlp.py: output += output_bias x per_token_scale. The product is a temporary in the wider type. */
static int64_t scaled_bias_bytes(const graph_node *n)
{
  return n->dims[WEIGHTED_ROWS] * n->dims[WEIGHTED_WIDTH] * n->dims[WEIGHTED_ELEMENT_BYTES];
}

static void scaled_bias_forward(emitter *e, const graph *g, const graph_node *n)
{
  operand_list reads = operands_of_inputs(e, n);
  ref terms = emit_scratch(e, "bias_rows", scaled_bias_bytes(n));
  emit_row_kernel(e, KERNEL_BIAS_ADD, type_of(g, n->outputs[0]), n->dims[WEIGHTED_ROWS],
                  n->dims[WEIGHTED_WIDTH], reads.items,
                  (ref[]){ terms, emit_output(e, n->outputs[0]), 0 });
}

/* The gradient of x passes; those of bias and probabilities are sums of products. */
static void scaled_bias_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  emit_grad_is(e, n->inputs[0], gy);
  operand_list writes = { 0 };
  operands_append(&writes, emit_scratch(e, "terms", scaled_bias_bytes(n)));
  operands_append(&writes, emit_grad_for(e, n->inputs[1]));
  operands_append(&writes, emit_parameter_grad(e, n->inputs[2], false));
  emit_memory_kernel(e, KERNEL_REDUCE, type_of(g, n->outputs[0]),
                     n->dims[WEIGHTED_ROWS] * n->dims[WEIGHTED_WIDTH],
                     (ref[]){ gy, emit_saved(e, 0), emit_saved(e, 1), 0 }, writes.items);
}

const operator_kind operator_scaled_bias = { "scaled_bias", scaled_bias_forward,
                                             scaled_bias_backward };

/* ---- slices ---------------------------------------------------------------------------------- */

static void slices_forward(emitter *e, const graph *g, const graph_node *n)
{
  (void)e, (void)g, (void)n;
}

/* The gradients of the slices are joined in a new tensor. */
static void slices_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id first = (tensor_id)n->dims[SLICES_FIRST];
  ref gx = emit_grad_for(e, n->inputs[0]);
  for (tensor_id i = 0; i < (tensor_id)n->dims[SLICES_COUNT]; i++) {
    ref part = emit_grad_of(e, first + i);
    if (part == 0) continue;
    emit_memory_kernel(e, KERNEL_COPY, type_of(g, first), tensor_elements(g, first + i),
                       (ref[]){ part, 0 }, (ref[]){ gx, 0 });
  }
  for (tensor_id i = 0; i < (tensor_id)n->dims[SLICES_COUNT]; i++)
    emit_drop(e, emit_grad_of(e, first + i));
}

const operator_kind operator_slices = { "slices", slices_forward, slices_backward };

static void join_slices_forward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id first = (tensor_id)n->dims[SLICES_FIRST];
  ref y = emit_output(e, n->outputs[0]);
  for (tensor_id i = 0; i < (tensor_id)n->dims[SLICES_COUNT]; i++)
    emit_memory_kernel(e, KERNEL_COPY, type_of(g, n->outputs[0]), tensor_elements(g, first + i),
                       (ref[]){ emit_input(e, first + i), 0 }, (ref[]){ y, 0 });
}

/* Each slice's gradient is a view of the whole one. */
static void join_slices_backward(emitter *e, const graph *g, const graph_node *n)
{
  (void)g;
  tensor_id first = (tensor_id)n->dims[SLICES_FIRST];
  ref gy = emit_grad_of(e, n->outputs[0]);
  for (tensor_id i = 0; i < (tensor_id)n->dims[SLICES_COUNT]; i++)
    emit_grad_is(e, first + i, gy);
}

const operator_kind operator_join_slices = { "join_slices", join_slices_forward,
                                             join_slices_backward };
