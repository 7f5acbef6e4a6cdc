/*
 * Linear layers, alone and with the norm before them.
 *
 * Transformer Engine: module/linear.py and module/layernorm_linear.py (d0067d0d), forward and
 * backward. Megatron-LM: core/tensor_parallel/layers.py,
 * LinearWithGradAccumulationAndAsyncCommunication.
 */
#include "sim/model/operators.h"

#include "sim/model/operators_shared.h"

/* Operands of one linear node. */
typedef struct linear_node {
  int64_t rows, inputs, outputs, gemm_rows;
  dtype type;
  int32_t flags;
  tensor_id x, weight, bias, y;
} linear_node;

/* The last of the inputs when there is a bias to add. */
static tensor_id bias_of(const graph_node *n)
{
  if (!(n->flags & LINEAR_HAS_BIAS)) return 0;
  uint32_t i = 0;
  while (i + 1 < NODE_INPUTS && n->inputs[i + 1] != 0)
    i++;
  return n->inputs[i];
}

static linear_node linear_of(const graph *g, const graph_node *n)
{
  return (linear_node){ .rows = n->dims[LINEAR_ROWS],
                        .inputs = n->dims[LINEAR_INPUTS],
                        .outputs = n->dims[LINEAR_OUTPUTS],
                        .gemm_rows = n->dims[LINEAR_GEMM_ROWS],
                        .type = type_of(g, n->inputs[1]),
                        .flags = n->flags,
                        .x = n->inputs[0],
                        .weight = n->inputs[1],
                        .bias = bias_of(n),
                        .y = n->outputs[0] };
}

static dtype gemm_type(const linear_node *l)
{
  return l->flags & LINEAR_QUANTIZES ? DTYPE_FP8 : l->type;
}

/* Sequence parallel: the whole sequence from all ranks, a temporary. Megatron's own linear keeps it
 * in a buffer that all layers share and that is part of the resident memory. */
static ref gather_rows(emitter *e, const linear_node *l, dtype type, ref x, int64_t width)
{
  if (!(l->flags & LINEAR_GATHERS_INPUT)) return x;
  if (l->flags & LINEAR_GATHER_BUFFER) {
    emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_GATHER, GROUP_TP,
                    l->rows * width * dtype_bytes(type), (ref[]){ x, 0 }, (ref[]){ 0 });
    return x;
  }
  ref whole = emit_temporary(e, "gathered_input", type, l->gemm_rows, width, 0, 0, CLASS_TRANSIENT);
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_GATHER, GROUP_TP,
                  l->rows * width * dtype_bytes(type), (ref[]){ x, 0 }, (ref[]){ whole, 0 });
  return whole;
}

/* A temporary quantised copy of `bytes` (0: none) beside the copy `kept` (0: none); the one to
 * multiply. */
static ref quantized(emitter *e, const char *name, int64_t bytes, int64_t elements, ref x, ref kept)
{
  ref copy = bytes > 0 ? emit_temporary(e, name, DTYPE_FP8, bytes, 0, 0, 0, CLASS_TRANSIENT) : 0;
  ref operand = copy != 0 ? copy : kept;
  emit_memory_kernel(e, KERNEL_QUANTIZE, DTYPE_FP8, elements, (ref[]){ x, 0 },
                     (ref[]){ operand, operand != kept ? kept : 0, 0 });
  return operand;
}

/* fp8: the quantised copy that forward multiplies, and beside it the transposed one that is saved
 * for the weight gradient (Float8Quantizer with both usages; blockwise and MXFP8 likewise). */
static ref quantize_input(emitter *e, const graph_node *n, const linear_node *l, ref x)
{
  if (!(l->flags & LINEAR_QUANTIZES)) return x;
  int64_t rows = l->flags & LINEAR_GATHERS_INPUT ? l->rows : l->gemm_rows;
  ref kept =
      l->flags & LINEAR_KEEPS_ORIGINAL ? 0 : emit_output(e, last_tensor(n->outputs, NODE_OUTPUTS));
  return quantized(e, "input_fp8", n->dims[LINEAR_FP8_FORWARD], rows * l->inputs, x, kept);
}

/* fp8: the operand of the weight gradient, made from what was saved. */
static ref quantize_saved(emitter *e, const graph_node *n, const linear_node *l, ref x)
{
  if (!(l->flags & LINEAR_QUANTIZES) || n->dims[LINEAR_FP8_WGRAD] == 0) return x;
  return quantized(e, "input_fp8_t", n->dims[LINEAR_FP8_WGRAD], l->gemm_rows * l->inputs, x, 0);
}

/* y = x w (+ bias), reduced over tensor parallel ranks. */
static void multiply(emitter *e, const linear_node *l, ref x)
{
  ref weight = emit_parameter(e, l->weight);
  bool apart = l->bias != 0 && (l->flags & LINEAR_BIAS_APART);
  bool scatters = (l->flags & LINEAR_SCATTERS_OUTPUT) != 0;
  ref whole = apart || scatters ? emit_temporary(e, "gemm_output", l->type, l->gemm_rows,
                                                 l->outputs, 0, 0, CLASS_TRANSIENT)
                                : emit_output(e, l->y);
  ref bias = l->bias != 0 && !apart ? emit_parameter(e, l->bias) : 0;
  emit_gemm(e, gemm_type(l), l->gemm_rows, l->outputs, l->inputs, 1, (ref[]){ x, weight, bias, 0 },
            whole);
  int64_t bytes = l->gemm_rows * l->outputs * dtype_bytes(l->type);
  if (scatters)
    emit_collective(e, STREAM_COMPUTE, COLLECTIVE_REDUCE_SCATTER, GROUP_TP, bytes,
                    (ref[]){ whole, 0 }, (ref[]){ emit_output(e, l->y), 0 });
  else if (l->flags & LINEAR_REDUCES_OUTPUT)
    emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_REDUCE, GROUP_TP, bytes, (ref[]){ whole, 0 },
                    (ref[]){ whole, 0 });
  if (apart)
    emit_row_kernel(e, KERNEL_BIAS_ADD, l->type, l->gemm_rows, l->outputs,
                    (ref[]){ whole, emit_parameter(e, l->bias), 0 },
                    (ref[]){ emit_output(e, l->y), 0 });
}

static void linear_forward(emitter *e, const graph *g, const graph_node *n)
{
  linear_node l = linear_of(g, n);
  ref x = quantize_input(e, n, &l, emit_input(e, l.x));
  multiply(e, &l, gather_rows(e, &l, gemm_type(&l), x, l.inputs));
}

/* Row parallel with sequence parallel: every rank needs the gradient of the whole sequence. */
static ref gather_output_gradient(emitter *e, const linear_node *l, ref gy)
{
  if (!(l->flags & LINEAR_SCATTERS_OUTPUT)) return gy;
  ref whole = emit_temporary(e, "gathered_gradient", l->type, l->gemm_rows, l->outputs, 0, 0,
                             CLASS_TRANSIENT);
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_GATHER, GROUP_TP,
                  l->rows * l->outputs * dtype_bytes(l->type), (ref[]){ gy, 0 },
                  (ref[]){ whole, 0 });
  return whole;
}

/* fp8: the gradient quantised for both products. */
static ref quantize_gradient(emitter *e, const graph_node *n, const linear_node *l, ref gy)
{
  if (!(l->flags & LINEAR_QUANTIZES)) return gy;
  return quantized(e, "gradient_fp8", n->dims[LINEAR_FP8_GRADIENT], l->gemm_rows * l->outputs, gy,
                   0);
}

/* gx = gy w, which lands in `whole`: the gradient itself, or what is reduced afterwards. */
static void multiply_gradient(emitter *e, const linear_node *l, ref gy, ref whole)
{
  emit_gemm(e, gemm_type(l), l->gemm_rows, l->inputs, l->outputs, 1,
            (ref[]){ gy, emit_parameter(e, l->weight), 0 }, whole);
}

/* The sums over tensor parallel ranks run beside the weight gradient on their own stream. */
static void reduce_gradient(emitter *e, const linear_node *l, ref whole, ref target)
{
  int64_t bytes = l->gemm_rows * l->inputs * dtype_bytes(l->type);
  if (!(l->flags & (LINEAR_GATHERS_INPUT | LINEAR_REDUCES_DGRAD))) return;
  emit_join(e, STREAM_COMM, STREAM_COMPUTE);
  if (l->flags & LINEAR_GATHERS_INPUT)
    emit_collective(e, STREAM_COMM, COLLECTIVE_REDUCE_SCATTER, GROUP_TP, bytes, (ref[]){ whole, 0 },
                    (ref[]){ target, 0 });
  else
    emit_collective(e, STREAM_COMM, COLLECTIVE_ALL_REDUCE, GROUP_TP, bytes, (ref[]){ whole, 0 },
                    (ref[]){ whole, 0 });
}

static void multiply_weight_gradient(emitter *e, const linear_node *l, ref gy, ref x)
{
  if (l->flags & LINEAR_DEFERS_WGRAD) {
    ref gw = emit_parameter_grad(e, l->weight, true);
    if (gw != 0)
      emit_deferred_gemm(e, gemm_type(l), l->outputs, l->inputs, l->gemm_rows, 1,
                         (ref[]){ gy, x, 0 }, gw);
    return;
  }
  kernel_shape product = {
    KERNEL_GEMM, gemm_type(l), { l->outputs, l->inputs, l->gemm_rows, 1 }, 0
  };
  emit_weight_gradient(e, product, (ref[]){ gy, x, 0 }, l->weight);
  if (l->bias == 0) return;
  ref gb = emit_parameter_grad(e, l->bias, false);
  if (gb != 0)
    emit_row_kernel(e, KERNEL_BIAS_GRAD, l->type, l->gemm_rows, l->outputs, (ref[]){ gy, 0 },
                    (ref[]){ gb, 0 });
}

/* Backward of the product; the gradient of x goes to `target`, made by the caller when it is known.
 */
static void linear_backward(emitter *e, const graph *g, const graph_node *n)
{
  linear_node l = linear_of(g, n);
  ref gy = emit_grad_of(e, l.y);
  if (gy == 0) return;
  gy = quantize_gradient(e, n, &l, gather_output_gradient(e, &l, gy));
  ref x =
      l.flags & LINEAR_DEFERS_WGRAD
          ? emit_saved(e, 0)
          : quantize_saved(e, n, &l, gather_rows(e, &l, gemm_type(&l), emit_saved(e, 0), l.inputs));
  bool scatters = (l.flags & LINEAR_GATHERS_INPUT) != 0;
  ref whole = 0;
  ref gx = 0;
  if (g->tensors.items[l.x].requires_grad) {
    whole = scatters ? emit_temporary(e, "input_gradient", l.type, l.gemm_rows, l.inputs, 0, 0,
                                      CLASS_TRANSIENT)
                     : emit_grad_for(e, l.x);
    multiply_gradient(e, &l, gy, whole);
    gx = scatters ? emit_grad_for(e, l.x) : whole;
    reduce_gradient(e, &l, whole, gx);
  }
  multiply_weight_gradient(e, &l, gy, x);
  if (gx != 0 && (l.flags & (LINEAR_GATHERS_INPUT | LINEAR_REDUCES_DGRAD)))
    emit_join(e, STREAM_COMPUTE, STREAM_COMM);
}

const operator_kind operator_linear = { "linear", linear_forward, linear_backward };

/* fp8: the normed rows may be there in bf16 first; beside the kept copy forward may need another.
 */
static ref quantize_normed(emitter *e, const graph_node *n, const linear_node *l, ref kept)
{
  int64_t bytes = n->dims[LINEAR_FP8_NORMED];
  ref rows =
      bytes > 0 ? emit_temporary(e, "normed", DTYPE_BYTE, bytes, 0, 0, 0, CLASS_TRANSIENT) : 0;
  ref operand =
      quantized(e, "normed_fp8_rows", n->dims[LINEAR_FP8_FORWARD], l->rows * l->inputs, kept, kept);
  emit_drop(e, rows);
  return operand;
}

static void norm_linear_forward(emitter *e, const graph *g, const graph_node *n)
{
  linear_node l = linear_of(g, n);
  bool layernorm = (l.flags & LINEAR_HAS_BETA) != 0;
  ref normed = emit_output(e, n->outputs[1]);
  ref rstd = emit_output(e, n->outputs[2]);
  ref mean = layernorm ? emit_output(e, n->outputs[3]) : 0;
  ref beta = layernorm ? emit_parameter(e, n->inputs[3]) : 0;
  emit_norm(e, layernorm, l.type, l.rows, l.inputs,
            (ref[]){ emit_input(e, l.x), emit_parameter(e, n->inputs[2]), beta, 0 },
            (ref[]){ normed, rstd, mean, 0 });
  if (l.flags & LINEAR_QUANTIZES) normed = quantize_normed(e, n, &l, normed);
  multiply(e, &l, gather_rows(e, &l, gemm_type(&l), normed, l.inputs));
}

/* Saved: x, the normed rows, then the statistics. The gradient that the product gives to the normed
 * rows is a temporary of the node. */
static void norm_linear_backward(emitter *e, const graph *g, const graph_node *n)
{
  linear_node l = linear_of(g, n);
  bool layernorm = (l.flags & LINEAR_HAS_BETA) != 0;
  ref gy = emit_grad_of(e, l.y);
  if (gy == 0) return;
  gy = quantize_gradient(e, n, &l, gy);
  ref normed =
      quantize_saved(e, n, &l, gather_rows(e, &l, gemm_type(&l), emit_saved(e, 1), l.inputs));
  ref whole =
      emit_temporary(e, "normed_gradient", l.type, l.gemm_rows, l.inputs, 0, 0, CLASS_TRANSIENT);
  multiply_gradient(e, &l, gy, whole);
  ref part = l.flags & LINEAR_GATHERS_INPUT
                 ? emit_temporary(e, "normed_gradient_part", l.type, l.rows, l.inputs, 0, 0,
                                  CLASS_TRANSIENT)
                 : whole;
  reduce_gradient(e, &l, whole, part);
  multiply_weight_gradient(e, &l, gy, normed);
  if (l.flags & (LINEAR_GATHERS_INPUT | LINEAR_REDUCES_DGRAD))
    emit_join(e, STREAM_COMPUTE, STREAM_COMM);
  ref rstd = emit_saved(e, 2);
  ref mean = layernorm ? emit_saved(e, 3) : 0;
  ref gx = emit_grad_for(e, l.x);
  ref ggamma = emit_parameter_grad(e, n->inputs[2], false);
  ref gbeta = layernorm ? emit_parameter_grad(e, n->inputs[3], false) : 0;
  emit_norm_backward(e, layernorm, l.type, l.rows, l.inputs,
                     (ref[]){ part, emit_saved(e, 0), rstd, mean, 0 },
                     (ref[]){ gx, ggamma, gbeta, 0 });
}

const operator_kind operator_norm_linear = { "norm_linear", norm_linear_forward,
                                             norm_linear_backward };
