/*
 * PyTorch: aten/src/ATen/autocast_mode.cpp (cached_cast).
 * bitsandbytes 0.49.1: autograd/_functions.py (MatMul4Bit), functional.py (dequantize_4bit).
 */
#include "sim/operators/lora.h"

#include <assert.h>

#include "sim/operators/shared.h"

/* The order in which the model creates them (sim/model/hf/lora.c: lora_base_new). */
lora_base lora_base_at(tensor_id weight, bool quantized, bool biased)
{
  enum { PACKED_TENSORS = 5 };
  lora_base b = { .weight = weight };
  if (quantized) {
    b.absmax = weight + 1;
    b.nested_absmax = weight + 2;
    b.nested_offset = weight + 3;
  }
  if (biased) b.bias = weight + (quantized ? PACKED_TENSORS : 1);
  return b;
}

double lora_scale(const settings *s)
{
  return (double)s->lora.lora_alpha / (double)s->lora.lora_r;
}

/* ---- AUTOCAST_WEIGHT ---- */

static void convert(emitter *e, const graph *g, tensor_id to, ref read, ref write)
{
  emit_copy(e, type_of(g, to), tensor_elements(g, to), read, write);
}

static void autocast_weight_forward(emitter *e, const graph *g, const graph_node *n)
{
  convert(e, g, n->outputs[0], emit_parameter(e, n->inputs[0]), emit_output(e, n->outputs[0]));
}

static void autocast_weight_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gw = gy != 0 ? emit_parameter_grad(e, n->inputs[0], false) : 0;
  if (gw != 0) convert(e, g, n->inputs[0], gy, gw);
}

const operator_kind operator_autocast_weight = { "autocast_weight", autocast_weight_forward,
                                                 autocast_weight_backward };

/* ---- LINEAR_4BIT ---- */

enum { IN_X, IN_WEIGHT, IN_ABSMAX, IN_NESTED_ABSMAX, IN_BIAS };

ref emit_dequantized(emitter *e, const graph *g, const tensor_id *packed, dtype type,
                     int64_t outputs, int64_t inputs)
{
  int64_t blocks = tensor_elements(g, packed[1]);
  assert(packed[0] != 0 && packed[1] == packed[0] + 1 && blocks <= outputs * inputs);
  ref scales = emit_vector(e, "absmax_fp32", DTYPE_FP32, blocks);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_DEQUANTIZE_8BIT,
                              .type = DTYPE_FP32,
                              .dims = { blocks },
                              .scalars = { LORA_BLOCK_SCALES } },
              (ref[]){ emit_parameter(e, packed[1]), emit_parameter(e, packed[2]), 0 },
              (ref[]){ scales, 0 });
  ref mean =
      emit_strided(e, emit_parameter(e, packed[3]), DTYPE_FP32, 0, 1, &blocks, (int64_t[]){ 0 });
  emit_kernel(
      e,
      (kernel_shape){ .kind = KERNEL_ADD, .type = DTYPE_FP32, .dims = { blocks }, .uncounted = 1 },
      (ref[]){ scales, mean, 0 }, (ref[]){ scales, 0 });
  ref weight = emit_matrix(e, "weight_16", type, outputs, inputs);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_DEQUANTIZE_4BIT,
                              .type = type,
                              .dims = { inputs * outputs },
                              .scalars = { LORA_BLOCK_ELEMENTS } },
              (ref[]){ emit_parameter(e, packed[0]), scales, 0 }, (ref[]){ weight, 0 });
  emit_drop(e, scales);
  return weight;
}

static ref weight_of(emitter *e, const graph *g, const graph_node *n)
{
  const tensor_id packed[] = { n->inputs[IN_WEIGHT], n->inputs[IN_ABSMAX],
                               n->inputs[IN_NESTED_ABSMAX],
                               (tensor_id)n->dims[LINEAR_4BIT_OFFSET] };
  return emit_dequantized(e, g, packed, type_of(g, n->outputs[0]), n->dims[LINEAR_4BIT_OUTPUTS],
                          n->dims[LINEAR_4BIT_INPUTS]);
}

static void linear_4bit_forward(emitter *e, const graph *g, const graph_node *n)
{
  const int64_t *d = n->dims;
  ref weight = weight_of(e, g, n);
  ref x = emit_input(e, n->inputs[IN_X]);
  ref bias = n->inputs[IN_BIAS] != 0 ? emit_parameter(e, n->inputs[IN_BIAS]) : 0;
  emit_gemm(e, type_of(g, n->outputs[0]), d[LINEAR_4BIT_ROWS], d[LINEAR_4BIT_OUTPUTS],
            d[LINEAR_4BIT_INPUTS], 1, GEMM_NT, (ref[]){ x, weight, bias, 0 },
            emit_output(e, n->outputs[0]));
}

static void linear_4bit_backward(emitter *e, const graph *g, const graph_node *n)
{
  const int64_t *d = n->dims;
  tensor_id x = n->inputs[IN_X];
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0 || !g->tensors.items[x].requires_grad) return;
  ref weight = weight_of(e, g, n);
  emit_gemm(e, type_of(g, n->outputs[0]), d[LINEAR_4BIT_ROWS], d[LINEAR_4BIT_INPUTS],
            d[LINEAR_4BIT_OUTPUTS], 1, GEMM_NN, (ref[]){ gy, weight, 0 }, emit_grad_for(e, x));
}

const operator_kind operator_linear_4bit = { "linear_4bit", linear_4bit_forward,
                                             linear_4bit_backward };
