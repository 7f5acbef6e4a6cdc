/*
 * Linear attention beside the delta rule (delta_rule.c): the convolution of the causal-conv1d package
 * (Dao-AILab, causal_conv1d_interface.py: CausalConv1dFn; cpp_functions.py), and the decay of
 * Qwen3NextGatedDeltaNet.forward.
 */
#include <assert.h>

#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

/* ---- CAUSAL_CONV ---- */

static kernel_shape convolution(const graph *g, const graph_node *n, kernel_kind kind)
{
  const graph_tensor *x = &g->tensors.items[n->inputs[0]], *w = &g->tensors.items[n->inputs[1]];
  assert(x->rank == 3 && w->rank == 2 && x->shape[2] == w->shape[0]);
  return (kernel_shape){ .kind = kind,
                         .type = (dtype)x->dtype,
                         .dims = { x->shape[0], x->shape[1], x->shape[2], w->shape[1] } };
}

static void convolution_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]), weight = emit_parameter(e, n->inputs[1]);
  emit_kernel(e, convolution(g, n, KERNEL_CAUSAL_CONV_FORWARD), (ref[]){ x, weight, 0 },
              (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* Blocks add up the gradient of the weight in fp32, whether it trains or not. */
static void convolution_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->inputs[1]);
  int64_t elements = tensor_elements(g, n->inputs[1]);
  ref gy = emit_grad_of(e, n->outputs[0]), x = emit_saved(e, 0), weight = emit_saved(e, 1);
  ref gx = emit_grad_for(e, n->inputs[0]);
  ref sum = emit_vector(e, "weight_gradient_fp32", DTYPE_FP32, elements);
  emit_fill(e, DTYPE_FP32, elements, sum);
  emit_kernel(e, convolution(g, n, KERNEL_CAUSAL_CONV_BACKWARD), (ref[]){ gy, x, weight, 0 },
              (ref[]){ gx, sum, 0 });
  if (type == DTYPE_FP32) {
    emit_parameter_grad_is(e, n->inputs[1], sum);
    return;
  }
  ref gw = emit_parameter_grad(e, n->inputs[1], false);
  if (gw == 0) gw = emit_vector(e, "weight_gradient", type, elements);
  emit_copy(e, type, elements, sum, gw);
}

const operator_kind operator_causal_conv = { "causal_conv", convolution_forward,
                                             convolution_backward };

/* ---- DECAY_RATE ---- */

enum { RATE, EXPONENTIAL };

static ref vector(emitter *e, const graph *g, const graph_node *n, const char *name)
{
  return emit_vector(e, name, DTYPE_FP32, tensor_elements(g, n->inputs[0]));
}

static void convert(emitter *e, const graph *g, const graph_node *n, dtype type, ref from, ref to)
{
  emit_copy(e, type, tensor_elements(g, n->inputs[0]), from, to);
}

static void decay_rate_forward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t elements = tensor_elements(g, n->inputs[0]);
  ref logarithm = emit_parameter(e, n->inputs[0]);
  if (type_of(g, n->inputs[0]) != DTYPE_FP32) {
    ref wide = vector(e, g, n, "A_log_fp32");
    convert(e, g, n, DTYPE_FP32, logarithm, wide);
    logarithm = wide;
  }
  ref exponential = emit_output(e, n->outputs[EXPONENTIAL]);
  emit_memory_kernel(e, KERNEL_EXP, DTYPE_FP32, elements, (ref[]){ logarithm, 0 },
                     (ref[]){ exponential, 0 });
  hf_number_kernel(e, KERNEL_SCALE, DTYPE_FP32, elements, -1, exponential,
                   emit_output(e, n->outputs[RATE]));
}

static void decay_rate_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->inputs[0]);
  int64_t elements = tensor_elements(g, n->inputs[0]);
  ref gy = emit_grad_of(e, n->outputs[RATE]), negated = vector(e, g, n, "rate_gradient");
  hf_number_kernel(e, KERNEL_SCALE, DTYPE_FP32, elements, -1, gy, negated);
  ref gradient = vector(e, g, n, "A_log_gradient");
  emit_memory_kernel(e, KERNEL_MULTIPLY, DTYPE_FP32, elements,
                     (ref[]){ negated, emit_saved(e, 0), 0 }, (ref[]){ gradient, 0 });
  if (type == DTYPE_FP32)
    emit_parameter_grad_is(e, n->inputs[0], gradient);
  else
    convert(e, g, n, type, gradient, emit_parameter_grad(e, n->inputs[0], false));
}

const operator_kind operator_decay_rate = { "decay_rate", decay_rate_forward, decay_rate_backward };

/* ---- ADD_BIAS ---- */

static void add_bias_forward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id x = n->inputs[0], y = n->outputs[0];
  ref bias = hf_expanded(e, g, emit_parameter(e, n->inputs[1]), n->inputs[1], y);
  emit_memory_kernel(e, KERNEL_ADD_STRIDED, type_of(g, y), tensor_elements(g, y),
                     (ref[]){ emit_input(e, x), bias, 0 }, (ref[]){ emit_output(e, y), 0 });
}

/* The engine sums the gradient to the shape of the bias, then converts it. */
static void add_bias_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype sum_type = type_of(g, n->outputs[0]), type = type_of(g, n->inputs[1]);
  int64_t columns = tensor_elements(g, n->inputs[1]);
  int64_t rows = tensor_elements(g, n->outputs[0]) / columns;
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gradient = emit_parameter_grad(e, n->inputs[1], false);
  if (gradient != 0 && type != sum_type) {
    ref sum = emit_vector(e, "bias_gradient", sum_type, columns);
    hf_sum_rows(e, sum_type, rows, columns, gy, sum);
    emit_copy(e, type, columns, sum, gradient);
    emit_drop(e, sum);
  } else if (gradient != 0) {
    hf_sum_rows(e, type, rows, columns, gy, gradient);
  }
  emit_grad_is(e, n->inputs[0], gy);
}

const operator_kind operator_hf_add_bias = { "add_bias", add_bias_forward, add_bias_backward };
