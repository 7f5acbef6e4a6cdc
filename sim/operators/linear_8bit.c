/*
 * bitsandbytes 0.50.2: autograd/_functions.py (MatMul8bitLt), backends/cuda/ops.py
 * (int8_vectorwise_quant, int8_mm_dequant), backends/default/ops.py (int8_mixed_scaled_mm);
 * transformers sets the threshold of outliers, 6.0. No input reaches it here.
 */
#include "sim/operators/lora.h"
#include "sim/operators/shared.h"

enum { IN_X, IN_WEIGHT, IN_SCALES, IN_BIAS };

/* Magnitudes are compared with the threshold, and the host asks whether one reaches it. */
static void find_outliers(emitter *e, ref half, int64_t rows, int64_t columns)
{
  int64_t elements = rows * columns;
  ref outliers = 0, magnitudes = emit_matrix(e, "magnitudes", DTYPE_FP16, rows, columns);
  emit_memory_kernel(e, KERNEL_MAGNITUDE, DTYPE_FP16, elements, (ref[]){ half, 0 },
                     (ref[]){ magnitudes, 0 });
  outliers = emit_matrix(e, "outliers", DTYPE_BYTE, rows, columns);
  emit_memory_kernel(e, KERNEL_OUTLIERS, DTYPE_FP16, elements, (ref[]){ magnitudes, 0 },
                     (ref[]){ outliers, 0 });
  emit_drop(e, magnitudes);
  emit_host_read(e);
  emit_drop(e, outliers);
}

/* The product in fp16; its caller has it in its own type. */
static void multiply(emitter *e, const graph *g, const graph_node *n, ref bytes, ref row_scales)
{
  int64_t rows = n->dims[LINEAR_8BIT_ROWS], outputs = n->dims[LINEAR_8BIT_OUTPUTS];
  dtype type = type_of(g, n->outputs[0]);
  ref sums = emit_matrix(e, "product_int32", DTYPE_INT32, rows, outputs);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_INT8_GEMM,
                              .type = DTYPE_BYTE,
                              .dims = { rows, outputs, n->dims[LINEAR_8BIT_INPUTS], 1 },
                              .scalars = { GEMM_NT } },
              (ref[]){ bytes, emit_parameter(e, n->inputs[IN_WEIGHT]), 0 }, (ref[]){ sums, 0 });
  ref half = type == DTYPE_FP16 ? emit_output(e, n->outputs[0])
                                : emit_matrix(e, "product_fp16", DTYPE_FP16, rows, outputs);
  emit_row_kernel(e, KERNEL_DEQUANTIZE_PRODUCT, DTYPE_FP16, rows, outputs,
                  (ref[]){ sums, row_scales, emit_parameter(e, n->inputs[IN_SCALES]), 0 },
                  (ref[]){ half, 0 });
  if (n->inputs[IN_BIAS] != 0)
    emit_row_kernel(e, KERNEL_BIAS_ADD, DTYPE_FP16, rows, outputs,
                    (ref[]){ half, emit_parameter(e, n->inputs[IN_BIAS]), 0 }, (ref[]){ half, 0 });
  if (type != DTYPE_FP16) emit_copy(e, type, rows * outputs, half, emit_output(e, n->outputs[0]));
}

static void linear_8bit_forward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t rows = n->dims[LINEAR_8BIT_ROWS], inputs = n->dims[LINEAR_8BIT_INPUTS];
  bool cast = type_of(g, n->inputs[IN_X]) != DTYPE_FP16;
  ref x = emit_input(e, n->inputs[IN_X]), half = x;
  if (cast) {
    half = emit_matrix(e, "input_fp16", DTYPE_FP16, rows, inputs);
    emit_copy(e, DTYPE_FP16, rows * inputs, x, half);
  }
  ref row_scales = emit_vector(e, "input_scales", DTYPE_FP32, rows);
  ref bytes = emit_matrix(e, "input_int8", DTYPE_BYTE, rows, inputs);
  find_outliers(e, half, rows, inputs);
  emit_row_kernel(e, KERNEL_QUANTIZE_ROWS, DTYPE_FP16, rows, inputs, (ref[]){ half, 0 },
                  (ref[]){ bytes, row_scales, 0 });
  if (cast) emit_drop(e, half);
  multiply(e, g, n, bytes, row_scales);
}

/* The weight in the type of the input; its scales over 127 are a temporary too. */
static ref weight_of(emitter *e, const graph *g, const graph_node *n)
{
  int64_t inputs = n->dims[LINEAR_8BIT_INPUTS], outputs = n->dims[LINEAR_8BIT_OUTPUTS];
  dtype type = type_of(g, n->outputs[0]);
  ref stored = emit_parameter(e, n->inputs[IN_WEIGHT]);
  ref weight = emit_matrix(e, "weight_16", type, outputs, inputs);
  emit_copy(e, type, outputs * inputs, stored, weight);
  ref scales = emit_vector(e, "weight_scales", DTYPE_FP32, outputs);
  emit_memory_kernel(e, KERNEL_SCALE, DTYPE_FP32, outputs,
                     (ref[]){ emit_parameter(e, n->inputs[IN_SCALES]), 0 }, (ref[]){ scales, 0 });
  ref by_row = emit_strided(e, scales, DTYPE_FP32, 0, 2, (int64_t[]){ outputs, inputs },
                            (int64_t[]){ 1, 0 });
  emit_memory_kernel(e, KERNEL_MULTIPLY, type, outputs * inputs, (ref[]){ weight, by_row, 0 },
                     (ref[]){ weight, 0 });
  emit_drop(e, scales);
  return weight;
}

static void linear_8bit_backward(emitter *e, const graph *g, const graph_node *n)
{
  const int64_t *d = n->dims;
  tensor_id x = n->inputs[IN_X];
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0 || !g->tensors.items[x].requires_grad) return;
  ref weight = weight_of(e, g, n);
  emit_gemm(e, type_of(g, n->outputs[0]), d[LINEAR_8BIT_ROWS], d[LINEAR_8BIT_INPUTS],
            d[LINEAR_8BIT_OUTPUTS], 1, GEMM_NN, (ref[]){ gy, weight, 0 }, emit_grad_for(e, x));
}

const operator_kind operator_linear_8bit = { "linear_8bit", linear_8bit_forward,
                                             linear_8bit_backward };
