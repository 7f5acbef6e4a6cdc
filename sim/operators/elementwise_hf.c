/*
 * Elementwise operators of eager PyTorch, reductions of rows, and the fused norm.
 *
 * PyTorch's elementwise kernels read and write several elements at once where all operands have
 * the same layout. Otherwise, or if they widen a type, a thread computes the address of each
 * element, which bounds the kernel (aten/src/ATen/native/cuda/CUDALoops.cuh): the rows *_STRIDED
 * of kernels.h. Formulas: derivatives.yaml (mul, pow, mean, rsqrt, _fused_rms_norm) and
 * FunctionsManual.cpp (mul_tensor_backward, pow_backward, mean_backward).
 */
#include <assert.h>

#include "sim/graph/node.h"
#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

static int64_t elements_of(const graph *g, const graph_node *n)
{
  return tensor_elements(g, n->outputs[0]);
}

static void add_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) == elements_of(g, n));
  tensor_id y = n->outputs[0], x = n->inputs[1];
  ref a = emit_input(e, n->inputs[0]), b = hf_expanded(e, g, emit_input(e, x), x, y);
  const tensor_id operands[] = { y, n->inputs[0], x };
  kernel_kind kind = is_strided(g, operands, 3) ? KERNEL_ADD_STRIDED : KERNEL_ADD;
  emit_memory_kernel(e, kind, type_of(g, y), elements_of(g, n), (ref[]){ a, b, 0 },
                     (ref[]){ emit_output(e, y), 0 });
}

static void add_backward(emitter *e, const graph *g, const graph_node *n)
{
  (void)g;
  ref gy = emit_grad_of(e, n->outputs[0]);
  emit_grad_is(e, n->inputs[0], gy);
  emit_grad_is(e, n->inputs[1], gy);
}

const operator_kind operator_hf_add = { "add", add_forward, add_backward };

static void subtract_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref a = emit_input(e, n->inputs[0]), b = emit_input(e, n->inputs[1]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]), elements_of(g, n),
                     (ref[]){ a, b, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void subtract_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]), gb = emit_grad_for(e, n->inputs[1]);
  hf_number_kernel(e, KERNEL_SCALE, type_of(g, n->outputs[0]), elements_of(g, n), -1, gy, gb);
  emit_grad_is(e, n->inputs[0], gy);
}

const operator_kind operator_hf_subtract = { "subtract", subtract_forward, subtract_backward };

static void plus_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  hf_number_kernel(e, KERNEL_ADD_NUMBER, type_of(g, n->outputs[0]), elements_of(g, n),
                   node_number(n), x, emit_output(e, n->outputs[0]));
}

const operator_kind operator_hf_plus = { "plus", plus_forward, emit_same_gradient };

/* A kernel from x to a tensor like it; in backward, from gy and what was saved. */
static void one_to_one(emitter *e, const graph *g, const graph_node *n, kernel_kind kind)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_memory_kernel(e, kind, type_of(g, n->outputs[0]), elements_of(g, n), (ref[]){ x, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void one_to_one_gradient(emitter *e, const graph *g, const graph_node *n, kernel_kind kind)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, kind, type_of(g, n->outputs[0]), elements_of(g, n),
                     (ref[]){ gy, emit_saved(e, 0), 0 }, (ref[]){ gx, 0 });
}

static void sigmoid_forward(emitter *e, const graph *g, const graph_node *n)
{
  one_to_one(e, g, n, KERNEL_SIGMOID_FORWARD);
}

static void sigmoid_backward(emitter *e, const graph *g, const graph_node *n)
{
  one_to_one_gradient(e, g, n, KERNEL_SIGMOID_BACKWARD);
}

const operator_kind operator_hf_sigmoid = { "sigmoid", sigmoid_forward, sigmoid_backward };

static void softplus_forward(emitter *e, const graph *g, const graph_node *n)
{
  one_to_one(e, g, n, KERNEL_SOFTPLUS_FORWARD);
}

static void softplus_backward(emitter *e, const graph *g, const graph_node *n)
{
  one_to_one_gradient(e, g, n, KERNEL_SOFTPLUS_BACKWARD);
}

const operator_kind operator_hf_softplus = { "softplus", softplus_forward, softplus_backward };

static void clamp_forward(emitter *e, const graph *g, const graph_node *n)
{
  one_to_one(e, g, n, KERNEL_ELEMENTWISE);
}

/* where(x <= limit, gy, 0): a mask for each limit. */
static void clamp_backward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t elements = elements_of(g, n);
  ref gy = emit_grad_of(e, n->outputs[0]), x = emit_saved(e, 0);
  ref masks[2] = { 0 };
  for (int i = 0; i <= n->flags; i++) {
    masks[i] = emit_vector(e, "mask", DTYPE_BYTE, elements);
    emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->inputs[0]), elements, (ref[]){ x, 0 },
                       (ref[]){ masks[i], 0 });
  }
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]), elements,
                     (ref[]){ gy, masks[0], masks[1], 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_clamp = { "clamp", clamp_forward, clamp_backward };

/* x in the type of y. */
static void convert(emitter *e, const graph *g, tensor_id x, tensor_id y, ref from, ref to)
{
  assert(tensor_elements(g, x) == tensor_elements(g, y));
  const tensor_id operands[] = { y, x };
  kernel_kind kind = is_strided(g, operands, 2) ? KERNEL_COPY_STRIDED : KERNEL_COPY;
  emit_memory_kernel(e, kind, type_of(g, y), tensor_elements(g, y), (ref[]){ from, 0 },
                     (ref[]){ to, 0 });
}

static void copy_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]), y = emit_output(e, n->outputs[0]);
  if (n->flags == HF_COPY_OF_ROWS)
    emit_copy(e, type_of(g, n->outputs[0]), elements_of(g, n), x, y);
  else
    convert(e, g, n->inputs[0], n->outputs[0], x, y);
}

static void copy_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (type_of(g, n->inputs[0]) == type_of(g, n->outputs[0])) {
    emit_grad_is(e, n->inputs[0], gy);
    return;
  }
  ref gx = emit_grad_for(e, n->inputs[0]);
  if (gx != 0) convert(e, g, n->outputs[0], n->inputs[0], gy, gx);
}

const operator_kind operator_hf_copy = { "copy", copy_forward, copy_backward };

static bool silu_is_strided(const graph *g, const graph_node *n)
{
  return is_strided(g, (tensor_id[]){ n->outputs[0], n->inputs[0] }, 2);
}

static void silu_forward(emitter *e, const graph *g, const graph_node *n)
{
  one_to_one(e, g, n, silu_is_strided(g, n) ? KERNEL_SILU_FORWARD_STRIDED : KERNEL_SILU_FORWARD);
}

static void silu_backward(emitter *e, const graph *g, const graph_node *n)
{
  one_to_one_gradient(e, g, n,
                      silu_is_strided(g, n) ? KERNEL_SILU_BACKWARD_STRIDED : KERNEL_SILU_BACKWARD);
}

const operator_kind operator_hf_silu = { "silu", silu_forward, silu_backward };

/* The kernel's name for gelu, both of its formulas. */
static kernel_shape gelu_kernel(const graph *g, const graph_node *n, kernel_kind kind)
{
  const graph_tensor *y = &g->tensors.items[n->outputs[0]];
  int64_t width = y->shape[y->rank - 1];
  return (kernel_shape){ .kind = kind,
                         .type = (dtype)y->dtype,
                         .dims = { elements_of(g, n) / width, width },
                         .scalars = { (double)n->flags } };
}

static void gelu_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_kernel(e, gelu_kernel(g, n, KERNEL_ACTIVATION_FORWARD), (ref[]){ x, 0 },
              (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void gelu_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_kernel(e, gelu_kernel(g, n, KERNEL_ACTIVATION_BACKWARD), (ref[]){ gy, emit_saved(e, 0), 0 },
              (ref[]){ gx, 0 });
}

const operator_kind operator_hf_gelu = { "gelu", gelu_forward, gelu_backward };

static void tanh_forward(emitter *e, const graph *g, const graph_node *n)
{
  one_to_one(e, g, n, KERNEL_TANH_FORWARD);
}

static void tanh_backward(emitter *e, const graph *g, const graph_node *n)
{
  one_to_one_gradient(e, g, n, KERNEL_TANH_BACKWARD);
}

const operator_kind operator_hf_tanh = { "tanh", tanh_forward, tanh_backward };

static void scale_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  hf_number_kernel(e, KERNEL_SCALE, type_of(g, n->outputs[0]), elements_of(g, n), node_number(n), x,
                   emit_output(e, n->outputs[0]));
}

static void scale_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  hf_number_kernel(e, KERNEL_SCALE, type_of(g, n->inputs[0]), elements_of(g, n), node_number(n), gy,
                   gx);
}

const operator_kind operator_hf_scale = { "scale", scale_forward, scale_backward };

static bool needs_gradient(const graph *g, tensor_id t)
{
  return g->tensors.items[t].requires_grad;
}

/* ---- multiply -------------------------------------------------------------------------------- */

static kernel_kind multiply_kind(const graph *g, const tensor_id *operands, uint32_t count)
{
  return is_strided(g, operands, count) ? KERNEL_MULTIPLY_STRIDED : KERNEL_MULTIPLY;
}

static void multiply_forward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id y = n->outputs[0], a = n->inputs[0], b = n->inputs[1];
  ref factors[] = { hf_expanded(e, g, emit_input(e, a), a, y),
                    hf_expanded(e, g, emit_input(e, b), b, y), 0 };
  emit_memory_kernel(e, multiply_kind(g, (tensor_id[]){ y, a, b }, 3), type_of(g, y),
                     tensor_elements(g, y), factors, (ref[]){ emit_output(e, y), 0 });
}

static bool is_broadcast(const graph *g, const graph_node *n, tensor_id t)
{
  return g->tensors.items[t].rank < g->tensors.items[n->outputs[0]].rank ||
         tensor_elements(g, t) < tensor_elements(g, n->outputs[0]);
}

/* The gradient of `t` in the shape of the result: its gradient, or the terms whose sum it is. */
static ref product(emitter *e, const graph *g, const graph_node *n, ref gy, tensor_id t,
                   tensor_id factor)
{
  if (!needs_gradient(g, t)) return 0;
  tensor_id y = n->outputs[0];
  dtype type = type_of(g, y);
  int64_t elements = tensor_elements(g, y);
  ref made = is_broadcast(g, n, t) || type_of(g, t) != type
                 ? emit_vector(e, "gradient_of_all", type, elements)
                 : emit_grad_for(e, t);
  ref other = hf_expanded(e, g, hf_saved(e, n, factor), factor, y);
  emit_memory_kernel(e, multiply_kind(g, (tensor_id[]){ y, factor }, 2), type, elements,
                     (ref[]){ gy, other, 0 }, (ref[]){ made, 0 });
  return made;
}

/* After the operator has returned, the engine sums a gradient to the shape of its input, a vector
 * or a column of numbers, and converts it to the input's type. */
static void sum_to_shape(emitter *e, const graph *g, const graph_node *n, ref all, tensor_id t)
{
  if (all == 0) return;
  if (!is_broadcast(g, n, t)) {
    if (type_of(g, t) != type_of(g, n->outputs[0])) {
      convert(e, g, n->outputs[0], t, all, emit_grad_for(e, t));
      emit_drop(e, all);
    }
    return;
  }
  assert(tensor_elements(g, n->outputs[0]) % tensor_elements(g, t) == 0);
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]), columns = tensor_elements(g, t);
  if (g->tensors.items[t].rank == 1) {
    ref to = g->tensors.items[t].parameter ? emit_parameter_grad(e, t, false) : emit_grad_for(e, t);
    hf_sum_rows(e, type, elements / columns, columns, all, to);
  } else {
    hf_number_kernel(e, KERNEL_SUM, type, elements, 1, all, emit_grad_for(e, t));
  }
  emit_drop(e, all);
}

static void multiply_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id a = n->inputs[0], b = n->inputs[1];
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref of_b = product(e, g, n, gy, b, a);
  ref of_a = product(e, g, n, gy, a, b);
  sum_to_shape(e, g, n, of_b, b);
  sum_to_shape(e, g, n, of_a, a);
}

const operator_kind operator_hf_multiply = { "multiply", multiply_forward, multiply_backward };

/* ---- of one input ---------------------------------------------------------------------------- */

static void square_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_SQUARE, type_of(g, n->inputs[0]), tensor_elements(g, n->inputs[0]),
                     (ref[]){ x, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* g * (2 * x^1): the power, its double, and the product are separate tensors. */
static void square_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->inputs[0]);
  int64_t elements = tensor_elements(g, n->inputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref power = emit_vector(e, "power", type, elements);
  emit_copy(e, type, elements, emit_saved(e, 0), power);
  ref twice = emit_vector(e, "power_scaled", type, elements);
  hf_number_kernel(e, KERNEL_SCALE, type, elements, 2, power, twice);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_MULTIPLY, type, elements, (ref[]){ gy, twice, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_square = { "square", square_forward, square_backward };

/* Elements of a row. */
static double row_width(const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) % tensor_elements(g, n->outputs[0]) == 0);
  return (double)(tensor_elements(g, n->inputs[0]) / tensor_elements(g, n->outputs[0]));
}

/* The sum times the inverse of the number of elements (ReduceMomentKernel.cu). */
static void row_mean_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  hf_number_kernel(e, KERNEL_SUM, type_of(g, n->inputs[0]), tensor_elements(g, n->inputs[0]),
                   1 / row_width(g, n), x, emit_output(e, n->outputs[0]));
}

static void row_mean_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id x = n->inputs[0], y = n->outputs[0];
  ref gy = hf_expanded(e, g, emit_grad_of(e, y), y, x);
  hf_number_kernel(e, KERNEL_DIVIDE_STRIDED, type_of(g, x), tensor_elements(g, x), row_width(g, n),
                   gy, emit_grad_for(e, x));
}

const operator_kind operator_hf_row_mean = { "row_mean", row_mean_forward, row_mean_backward };

static ref small(emitter *e, const char *name, const graph *g, const graph_node *n)
{
  return emit_vector(e, name, type_of(g, n->outputs[0]), tensor_elements(g, n->outputs[0]));
}

static void rsqrt_forward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]);
  ref x = emit_input(e, n->inputs[0]), sum = small(e, "plus_epsilon", g, n);
  hf_number_kernel(e, KERNEL_ADD_NUMBER, type, elements, emit_settings(e)->model.norm_epsilon, x,
                   sum);
  emit_memory_kernel(e, KERNEL_RSQRT, type, elements, (ref[]){ sum, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* -1/2 g y^3. */
static void rsqrt_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]), cube = small(e, "cube", g, n);
  emit_memory_kernel(e, KERNEL_CUBE, type, elements, (ref[]){ emit_saved(e, 0), 0 },
                     (ref[]){ cube, 0 });
  ref half = small(e, "half_gradient", g, n);
  hf_number_kernel(e, KERNEL_SCALE, type, elements, -0.5, gy, half);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_MULTIPLY, type, elements, (ref[]){ half, cube, 0 },
                     (ref[]){ gx, 0 });
}

const operator_kind operator_hf_rsqrt = { "rsqrt", rsqrt_forward, rsqrt_backward };

/* ---- gains in fp32 ---------------------------------------------------------------------------- */

/* The parameter in fp32: itself if it is. */
static ref widened(emitter *e, const graph *g, const graph_node *n, ref weight)
{
  if (type_of(g, n->inputs[0]) == DTYPE_FP32) return weight;
  ref wide = small(e, "gain_fp32", g, n);
  emit_memory_kernel(e, KERNEL_COPY_STRIDED, DTYPE_FP32, elements_of(g, n), (ref[]){ weight, 0 },
                     (ref[]){ wide, 0 });
  return wide;
}

static void gain_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref weight = widened(e, g, n, emit_parameter(e, n->inputs[0]));
  hf_number_kernel(e, KERNEL_ADD_NUMBER, DTYPE_FP32, elements_of(g, n), 1, weight,
                   emit_output(e, n->outputs[0]));
}

static void gain_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->inputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gw = emit_parameter_grad(e, n->inputs[0], false);
  if (gw != 0) emit_copy(e, type, elements_of(g, n), gy, gw);
}

const operator_kind operator_hf_gain = { "gain", gain_forward, gain_backward };

/* ---- the fused norms ------------------------------------------------------------------------- */

static void rms_norm_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[0] * n->dims[1] == tensor_elements(g, n->inputs[0]));
  assert(tensor_elements(g, n->inputs[1]) == n->dims[1]);
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_output(e, n->outputs[0]);
  emit_norm(e, false, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
            (ref[]){ x, emit_parameter(e, n->inputs[1]), 0 },
            (ref[]){ y, emit_output(e, n->outputs[1]), 0 });
}

/* One kernel computes the gradient of the rows, another that of the gain. */
static void rms_norm_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref x = emit_saved(e, 0), rstd = emit_saved(e, 2);
  ref gx = emit_grad_for(e, n->inputs[0]);
  ref gain = emit_parameter_grad(e, n->inputs[1], false);
  if (gx != 0)
    emit_row_kernel(e, KERNEL_RMSNORM_BACKWARD, type, n->dims[0], n->dims[1],
                    (ref[]){ gy, x, rstd, emit_saved(e, 1), 0 }, (ref[]){ gx, 0 });
  if (gain != 0)
    emit_memory_kernel(e, KERNEL_RMSNORM_GAIN, type, n->dims[0] * n->dims[1],
                       (ref[]){ gy, x, rstd, 0 }, (ref[]){ gain, 0 });
}

const operator_kind operator_hf_rms_norm = { "rms_norm", rms_norm_forward, rms_norm_backward };

enum { LAYER_NORM_X = 1, LAYER_NORM_MEAN = 3, LAYER_NORM_RSTD = 4 }; /* saved */

static void layer_norm_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[0] * n->dims[1] == tensor_elements(g, n->inputs[0]));
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_output(e, n->outputs[0]);
  ref mean = emit_output(e, n->outputs[1]), rstd = emit_output(e, n->outputs[2]);
  emit_norm(e, true, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
            (ref[]){ x, emit_parameter(e, n->inputs[1]), emit_parameter(e, n->inputs[2]), 0 },
            (ref[]){ y, rstd, mean, 0 });
}

static void layer_norm_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref x = emit_saved(e, LAYER_NORM_X), mean = emit_saved(e, LAYER_NORM_MEAN);
  ref rstd = emit_saved(e, LAYER_NORM_RSTD);
  ref gx = emit_grad_for(e, n->inputs[0]);
  ref gain = emit_parameter_grad(e, n->inputs[1], false);
  ref bias = emit_parameter_grad(e, n->inputs[2], false);
  emit_norm_backward(e, true, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
                     (ref[]){ gy, x, rstd, mean, 0 }, emit_parameter(e, n->inputs[1]),
                     (ref[]){ gx, gain, bias, 0 });
}

const operator_kind operator_hf_layer_norm = { "layer_norm", layer_norm_forward,
                                               layer_norm_backward };
