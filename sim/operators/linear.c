/*
 * Linear layers, alone and with the norm before them.
 *
 * Transformer Engine: module/linear.py and module/layernorm_linear.py (d0067d0d), forward and
 * backward. Megatron-LM: core/tensor_parallel/layers.py,
 * LinearWithGradAccumulationAndAsyncCommunication.
 */
#include "sim/operators/linear.h"

#include <assert.h>

#include "sim/config/software.h"
#include "sim/graph/fp8.h"
#include "sim/operators/fp8.h"
#include "sim/operators/operators.h"
#include "sim/operators/shared.h"

/* The bias, if there is one to add, is the last input. */
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
  bool gathers = (n->flags & LINEAR_GATHERS_INPUT) != 0;
  linear_node l = { .rows = n->dims[LINEAR_ROWS],
                    .input_rows = n->dims[gathers ? LINEAR_ROWS : LINEAR_GEMM_ROWS],
                    .inputs = n->dims[LINEAR_INPUTS],
                    .outputs = n->dims[LINEAR_OUTPUTS],
                    .gemm_rows = n->dims[LINEAR_GEMM_ROWS],
                    .type = type_of(g, n->inputs[1]),
                    .flags = n->flags,
                    .user = (user_linear)n->dims[LINEAR_USER],
                    .x = n->inputs[0],
                    .weight = n->inputs[1],
                    .bias = bias_of(n),
                    .y = n->outputs[0] };
  assert(l.gemm_rows >= l.rows && l.gemm_rows % l.rows == 0);
  assert(tensor_elements(g, l.x) == l.input_rows * l.inputs);
  assert(tensor_elements(g, l.weight) == l.inputs * l.outputs &&
         g->tensors.items[l.weight].parameter);
  assert(l.bias == 0 || tensor_elements(g, l.bias) == l.outputs);
  return l;
}

/* Sequence parallel: gathers the whole sequence from all ranks into a temporary, on `stream`. Megatron's
 * own linear gathers into a buffer that all layers share and that stays allocated. */
static ref gather_rows(emitter *e, const linear_node *l, plan_stream stream, ref x)
{
  if (!(l->flags & LINEAR_GATHERS_INPUT)) return x;
  bool fp8 = (l->flags & LINEAR_QUANTIZES) != 0;
  int64_t parts = l->gemm_rows / l->rows;
  int64_t part = fp8 ? emit_bytes(e, x) : l->rows * l->inputs * dtype_bytes(l->type);
  if (l->flags & LINEAR_GATHER_BUFFER) {
    ref shared = emit_shared_buffer(e, "global_memory_buffer", l->type, l->gemm_rows, l->inputs,
                                    emit_bytes(e, x));
    emit_collective(e, stream, COLLECTIVE_ALL_GATHER, GROUP_TP, part, (ref[]){ x, 0 },
                    (ref[]){ shared, 0 });
    return shared;
  }
  ref whole = emit_matrix(e, "gathered_input", linear_gemm_type(l), fp8 ? parts : l->gemm_rows,
                          fp8 ? part : l->inputs);
  emit_collective(e, stream, COLLECTIVE_ALL_GATHER, GROUP_TP, part, (ref[]){ x, 0 },
                  (ref[]){ whole, 0 });
  return whole;
}

/* ---- fp8 ------------------------------------------------------------------------------------- */

static int fp8_of(emitter *e, const linear_node *l, bool gradient)
{
  return l->flags & LINEAR_QUANTIZES ? fp8_code(emit_settings(e), gradient) : FP8_NONE;
}

static fp8_target kept_copy(emitter *e, const linear_node *l, ref kept)
{
  bool gathers = (l->flags & LINEAR_GATHERS_INPUT) != 0;
  return (fp8_target){ kept, fp8_saved_copies(emit_settings(e), gathers) };
}

static fp8_source input_of(const linear_node *l, ref x)
{
  return (fp8_source){ .x = x, .rows = l->input_rows, .columns = l->inputs };
}

/* Quantises the copy that forward multiplies and the copy that is saved for the weight gradient
 * (0: none). They are one operand where one serves both (Float8Quantizer with both usages;
 * blockwise and MXFP8 likewise). */
static ref quantized(emitter *e, const linear_node *l, const char *name, fp8_source from, ref kept)
{
  const settings *s = emit_settings(e);
  assert(l->flags & LINEAR_QUANTIZES);
  bool shared = kept != 0 && kept_copy(e, l, kept).copies == FP8_ROWWISE;
  ref copy =
      shared ? 0 : emit_vector(e, name, DTYPE_FP8, fp8_rowwise_bytes(s, l->input_rows, l->inputs));
  emit_quantize(e, fp8_code(s, false), from, (fp8_target){ copy, FP8_ROWWISE },
                kept_copy(e, l, kept));
  return shared ? kept : copy;
}

static ref quantize_input(emitter *e, const graph_node *n, const linear_node *l, ref x)
{
  if (!(l->flags & LINEAR_QUANTIZES)) return x;
  ref kept =
      l->flags & LINEAR_KEEPS_ORIGINAL ? 0 : emit_output(e, last_tensor(n->outputs, NODE_OUTPUTS));
  return quantized(e, l, "input_fp8", input_of(l, x), kept);
}

/* The saved input quantised, where forward has kept the original. */
static ref quantize_saved(emitter *e, const linear_node *l, ref x)
{
  if ((l->flags & (LINEAR_QUANTIZES | LINEAR_KEEPS_ORIGINAL)) !=
      (LINEAR_QUANTIZES | LINEAR_KEEPS_ORIGINAL))
    return x;
  const settings *s = emit_settings(e);
  bool gathers = (l->flags & LINEAR_GATHERS_INPUT) != 0;
  ref copy =
      emit_vector(e, "input_fp8", DTYPE_FP8, fp8_saved_bytes(s, l->input_rows, l->inputs, gathers));
  emit_quantize(e, fp8_code(s, false), input_of(l, x), kept_copy(e, l, copy),
                (fp8_target){ 0, FP8_NO_COPY });
  return copy;
}

/* The rows of all ranks for the weight gradient, from the saved tensor. They are gathered beside the product
 * of the input's gradient; await_gathered waits for them. */
static ref gather_saved(emitter *e, const linear_node *l, ref x)
{
  if (l->flags & LINEAR_DEFERS_WGRAD) return x;
  x = quantize_saved(e, l, x);
  if (l->flags & LINEAR_GATHERS_IN_BULK) return linear_gather_in_bulk(e, l, x);
  if (l->flags & LINEAR_GATHERS_INPUT) emit_join(e, STREAM_COMM, STREAM_COMPUTE);
  return gather_rows(e, l, STREAM_COMM, x);
}

/* Before anything else is issued on the comm stream: compute waits for all that is there. */
static void await_gathered(emitter *e, const linear_node *l)
{
  if (l->flags & LINEAR_GATHERS_INPUT && !(l->flags & LINEAR_DEFERS_WGRAD))
    emit_join(e, STREAM_COMPUTE, STREAM_COMM);
}

/* The rows of all ranks, quantised by each, as the product of the weight's gradient reads them. */
static ref turned_rows(emitter *e, const linear_node *l, const char *name, ref whole,
                       int64_t columns)
{
  if (!fp8_transposes_gathered(emit_settings(e))) return whole;
  int64_t parts = l->gemm_rows / l->rows;
  ref turned = emit_matrix(e, name, DTYPE_FP8, parts, emit_bytes(e, whole) / parts);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_FP8_TRANSPOSE,
                              .type = DTYPE_FP8,
                              .dims = { l->gemm_rows * columns },
                              .scalars = { (double)columns } },
              (ref[]){ whole, 0 }, (ref[]){ turned, 0 });
  return turned;
}

/* The operand of the weight gradient, from the rows of all ranks. */
static ref wgrad_operand(emitter *e, const linear_node *l, ref whole)
{
  bool gathers_fp8 = l->flags & LINEAR_GATHERS_INPUT && l->flags & LINEAR_QUANTIZES;
  return gathers_fp8 ? turned_rows(e, l, "input_fp8_t", whole, l->inputs) : whole;
}

/* The gradient of the output as both products of backward read it. */
static fp8_gradient product_gradient(emitter *e, const linear_node *l, ref gy)
{
  if (!(l->flags & LINEAR_QUANTIZES)) return (fp8_gradient){ gy, gy };
  int64_t bytes = fp8_gradient_bytes(emit_settings(e), l->gemm_rows, l->outputs);
  ref copies = emit_vector(e, "gradient_fp8", DTYPE_FP8, bytes);
  return emit_quantize_gradient(
      e, (fp8_source){ .x = gy, .rows = l->gemm_rows, .columns = l->outputs }, copies);
}

/* Row parallel with sequence parallel: every rank needs the gradient of the whole sequence. */
static ref gather_output_gradient(emitter *e, const linear_node *l, ref gy)
{
  if (!(l->flags & LINEAR_SCATTERS_OUTPUT)) return gy;
  ref whole = emit_matrix(e, "gathered_gradient", l->type, l->gemm_rows, l->outputs);
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_GATHER, GROUP_TP,
                  l->rows * l->outputs * dtype_bytes(l->type), (ref[]){ gy, 0 },
                  (ref[]){ whole, 0 });
  return whole;
}

/* A bias sums the rows of the unquantised gradient. Other recipes gather two copies of a byte for each
 * element instead of one of two bytes; the plan gathers the latter. */
static bool gathers_quantized_gradient(const emitter *e, const linear_node *l)
{
  return l->flags & LINEAR_SCATTERS_OUTPUT && l->flags & LINEAR_QUANTIZES && l->bias == 0 &&
         fp8_is_per_tensor(emit_settings(e));
}

/* Each rank quantises its rows (pytorch/module/base.py, grad_output_preprocess; pytorch/distributed.py,
 * _all_gather_fp8). */
static fp8_gradient gather_quantized_gradient(emitter *e, const linear_node *l, ref gy)
{
  const settings *s = emit_settings(e);
  int64_t part_bytes = fp8_rowwise_bytes(s, l->rows, l->outputs);
  ref part = emit_vector(e, "gradient_fp8", DTYPE_FP8, part_bytes);
  emit_quantize(e, fp8_code(s, true),
                (fp8_source){ .x = gy, .rows = l->rows, .columns = l->outputs },
                (fp8_target){ part, FP8_ROWWISE }, (fp8_target){ 0, FP8_NO_COPY });
  ref whole = emit_matrix(e, "gathered_gradient", DTYPE_FP8, l->gemm_rows / l->rows, part_bytes);
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_GATHER, GROUP_TP, part_bytes,
                  (ref[]){ part, 0 }, (ref[]){ whole, 0 });
  emit_drop(e, part);
  return (fp8_gradient){ whole, turned_rows(e, l, "gradient_fp8_t", whole, l->outputs) };
}

/* ---- the products ---------------------------------------------------------------------------- */

static linear_product forward_product(emitter *e, const linear_node *l)
{
  bool adds = l->bias != 0 && !(l->flags & LINEAR_BIAS_APART);
  return (linear_product){ .outer = l->outputs,
                           .inner = l->inputs,
                           .layout = GEMM_NT,
                           .fp8 = fp8_of(e, l, false),
                           .weight = emit_parameter(e, l->weight),
                           .bias = adds ? emit_parameter(e, l->bias) : 0 };
}

/* y = x w (+ bias), reduced over tensor parallel ranks. */
static void multiply(emitter *e, const linear_node *l, ref x)
{
  linear_product product = forward_product(e, l);
  bool apart = l->bias != 0 && (l->flags & LINEAR_BIAS_APART);
  if (l->flags & (LINEAR_RINGS_SUM | LINEAR_PIPELINES_SUM)) {
    linear_scatter_beside(e, l, &product, x, emit_output(e, l->y));
    return;
  }
  bool scatters = (l->flags & LINEAR_SCATTERS_OUTPUT) != 0;
  ref whole = apart || scatters ? emit_matrix(e, "gemm_output", l->type, l->gemm_rows, l->outputs)
                                : emit_output(e, l->y);
  linear_multiply(e, l, &product, l->gemm_rows, 0, x, whole);
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

/* Gathers x if it has to, and multiplies. */
static void gather_and_multiply(emitter *e, const linear_node *l, ref x)
{
  if (!(l->flags & LINEAR_GATHERS_INPUT) || !(l->flags & LINEAR_RINGS_GATHER)) {
    multiply(e, l, gather_rows(e, l, STREAM_COMPUTE, x));
    return;
  }
  linear_product product = forward_product(e, l);
  linear_gather_in_ring(e, l, USER_FORWARD, &product, (fp8_gradient){ x, x }, emit_output(e, l->y));
}

static void linear_forward(emitter *e, const graph *g, const graph_node *n)
{
  linear_node l = linear_of(g, n);
  ref x = quantize_input(e, n, &l, emit_input(e, l.x));
  gather_and_multiply(e, &l, x);
}

static linear_product gradient_product(emitter *e, const linear_node *l)
{
  return (linear_product){ .outer = l->inputs,
                           .inner = l->outputs,
                           .layout = GEMM_NN,
                           .fp8 = fp8_of(e, l, true),
                           .weight = emit_parameter(e, l->weight) };
}

/* gx = gy w, written to `whole`: the gradient itself, or the tensor that is reduced afterwards. */
static void multiply_gradient(emitter *e, const linear_node *l, ref gy, ref whole)
{
  linear_product product = gradient_product(e, l);
  linear_multiply(e, l, &product, l->gemm_rows, 0, gy, whole);
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

/* The bias gradient sums the rows of the unquantised gradient. */
static void bias_gradient(emitter *e, const linear_node *l, ref gy, ref product_gy)
{
  ref gb = l->bias != 0 ? emit_parameter_grad(e, l->bias, false) : 0;
  if (gb == 0) return;
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_BIAS_GRAD,
                              .type = l->type,
                              .dims = { l->gemm_rows, l->outputs },
                              .bytes = emit_bytes(e, product_gy) + emit_bytes(e, gb) },
              (ref[]){ gy, 0 }, (ref[]){ gb, 0 });
}

static void multiply_weight_gradient(emitter *e, const linear_node *l, ref gy, ref x)
{
  bool fp8 = (l->flags & LINEAR_QUANTIZES) != 0;
  if (l->flags & LINEAR_DEFERS_WGRAD) {
    ref gw = emit_parameter_grad(e, l->weight, true);
    assert(!fp8);
    if (gw == 0) return;
    x = gather_rows(e, l, STREAM_COMPUTE, x);
    if (l->flags & LINEAR_GATHERS_INPUT) emit_defer(e);
    emit_deferred_gemm(e, l->type, l->outputs, l->inputs, l->gemm_rows, 1, GEMM_TN,
                       (ref[]){ gy, x, 0 }, gw);
    return;
  }
  kernel_shape product = { .kind = KERNEL_GEMM,
                           .type = linear_gemm_type(l),
                           .dims = { l->outputs, l->inputs, l->gemm_rows, 1 } };
  product.scalars[GEMM_LAYOUT] = fp8 ? fp8_wgrad_layout(emit_settings(e)) : GEMM_TN;
  product.scalars[GEMM_FP8] = fp8_of(e, l, true);
  emit_weight_gradient(e, product, (ref[]){ gy, x, 0 }, l->weight);
}

/* Each rank quantises its rows; MXFP8 has a copy for each product of backward. */
static fp8_gradient own_gradient(emitter *e, const linear_node *l, ref gy)
{
  const settings *s = emit_settings(e);
  if (!(l->flags & LINEAR_QUANTIZES)) return (fp8_gradient){ gy, gy };
  ref rowwise =
      emit_vector(e, "gradient_fp8", DTYPE_FP8, fp8_rowwise_bytes(s, l->rows, l->outputs));
  ref columnwise = fp8_is_per_tensor(s) ? 0
                                        : emit_vector(e, "gradient_fp8_columns", DTYPE_FP8,
                                                      fp8_columnwise_bytes(s, l->rows, l->outputs));
  emit_quantize(e, fp8_code(s, true),
                (fp8_source){ .x = gy, .rows = l->rows, .columns = l->outputs },
                (fp8_target){ rowwise, FP8_ROWWISE }, (fp8_target){ columnwise, FP8_COLUMNWISE });
  return (fp8_gradient){ rowwise, columnwise != 0 ? columnwise : rowwise };
}

/* Row parallel: each part of the output's gradient is multiplied when it has arrived. */
static void backward_in_ring(emitter *e, const linear_node *l, ref gy)
{
  fp8_gradient own = own_gradient(e, l, gy);
  ref x = gather_saved(e, l, emit_saved(e, 0));
  linear_product product = gradient_product(e, l);
  fp8_gradient all = linear_gather_in_ring(e, l, USER_DGRAD, &product, own, emit_grad_for(e, l->x));
  if (all.wgrad != all.rowwise) emit_join(e, STREAM_COMPUTE, STREAM_COMM);
  bool fp8 = (l->flags & LINEAR_QUANTIZES) != 0;
  ref factor = fp8 ? turned_rows(e, l, "gradient_fp8_t", all.wgrad, l->outputs) : all.wgrad;
  multiply_weight_gradient(e, l, factor, x);
  assert(l->bias == 0 && "its module leaves it to a later kernel");
}

static void linear_backward(emitter *e, const graph *g, const graph_node *n)
{
  linear_node l = linear_of(g, n);
  ref gy = emit_grad_of(e, l.y);
  if (gy == 0) return;
  if (l.flags & LINEAR_RINGS_GATHER && l.flags & LINEAR_SCATTERS_OUTPUT) {
    backward_in_ring(e, &l, gy);
    return;
  }
  fp8_gradient factor;
  if (gathers_quantized_gradient(e, &l)) {
    factor = gather_quantized_gradient(e, &l, gy);
  } else {
    gy = gather_output_gradient(e, &l, gy);
    factor = product_gradient(e, &l, gy);
  }
  ref x = gather_saved(e, &l, emit_saved(e, 0));
  bool scatters = (l.flags & LINEAR_GATHERS_INPUT) != 0;
  ref whole = 0;
  ref gx = 0;
  if (g->tensors.items[l.x].requires_grad) {
    whole = scatters ? emit_matrix(e, "input_gradient", l.type, l.gemm_rows, l.inputs)
                     : emit_grad_for(e, l.x);
    multiply_gradient(e, &l, factor.rowwise, whole);
  }
  await_gathered(e, &l);
  if (whole != 0) {
    gx = scatters ? emit_grad_for(e, l.x) : whole;
    reduce_gradient(e, &l, whole, gx);
  }
  multiply_weight_gradient(e, &l, factor.wgrad, wgrad_operand(e, &l, x));
  if (!(l.flags & LINEAR_DEFERS_WGRAD)) bias_gradient(e, &l, gy, factor.wgrad);
  if (gx != 0 && (l.flags & (LINEAR_GATHERS_INPUT | LINEAR_REDUCES_DGRAD)))
    emit_join(e, STREAM_COMPUTE, STREAM_COMM);
}

const operator_kind operator_linear = { "linear", linear_forward, linear_backward };

/* Transformer Engine 51eb6362 */
enum { TE_NORM_FINDS_AMAX = SOFTWARE_VERSION(2, 7) };

/* fp8: a norm that does not write fp8 itself writes its rows to a temporary. */
static ref normed_rows(emitter *e, const linear_node *l)
{
  if (!(l->flags & LINEAR_QUANTIZES) || fp8_norm_is_fused(emit_settings(e))) return 0;
  return emit_matrix(e, "normed", l->type, l->rows, l->inputs);
}

static void norm_linear_forward(emitter *e, const graph *g, const graph_node *n)
{
  linear_node l = linear_of(g, n);
  bool layernorm = (l.flags & LINEAR_HAS_BETA) != 0;
  ref normed = emit_output(e, n->outputs[1]);
  ref rstd = emit_output(e, n->outputs[2]);
  ref mean = layernorm ? emit_output(e, n->outputs[3]) : 0;
  ref beta = layernorm ? emit_parameter(e, n->inputs[3]) : 0;
  ref rows = normed_rows(e, &l);
  emit_norm(e, layernorm, l.type, l.rows, l.inputs,
            (ref[]){ emit_input(e, l.x), emit_parameter(e, n->inputs[2]), beta, 0 },
            (ref[]){ rows != 0 ? rows : normed, rstd, mean, 0 });
  if (l.flags & LINEAR_QUANTIZES) {
    fp8_source from = input_of(&l, rows != 0 ? rows : normed);
    from.has_amax = emit_settings(e)->derived.software.transformer_engine >= TE_NORM_FINDS_AMAX;
    normed = quantized(e, &l, "normed_fp8_rows", from, normed);
  }
  if (rows != 0) emit_drop(e, rows);
  gather_and_multiply(e, &l, normed);
}

static ref normed_gradient_part(emitter *e, const linear_node *l)
{
  return emit_matrix(e, "normed_gradient_part", l->type, l->rows, l->inputs);
}

static ref reduced_normed_gradient(emitter *e, const linear_node *l, ref whole)
{
  ref part = l->flags & LINEAR_GATHERS_INPUT ? normed_gradient_part(e, l) : whole;
  reduce_gradient(e, l, whole, part);
  return part;
}

/* Out of the user buffer. */
static ref cloned_part(emitter *e, const linear_node *l, ref part)
{
  ref clone = normed_gradient_part(e, l);
  emit_copy(e, l->type, l->rows * l->inputs, part, clone);
  return clone;
}

/* Saved: x, the normed rows, then the statistics. The gradient of the normed rows is a temporary
 * of the node. */
static void norm_linear_backward(emitter *e, const graph *g, const graph_node *n)
{
  linear_node l = linear_of(g, n);
  bool layernorm = (l.flags & LINEAR_HAS_BETA) != 0;
  ref gy = emit_grad_of(e, l.y);
  if (gy == 0) return;
  fp8_gradient factor = product_gradient(e, &l, gy);
  ref normed = gather_saved(e, &l, emit_saved(e, 1));
  bool in_bulk = (l.flags & LINEAR_SUMS_IN_BULK) != 0;
  ref whole = in_bulk ? linear_bulk_gradient(e, &l)
                      : emit_matrix(e, "normed_gradient", l.type, l.gemm_rows, l.inputs);
  multiply_gradient(e, &l, factor.rowwise, whole);
  await_gathered(e, &l);
  ref part = in_bulk ? linear_sum_in_bulk(e, &l, whole) : reduced_normed_gradient(e, &l, whole);
  multiply_weight_gradient(e, &l, factor.wgrad, wgrad_operand(e, &l, normed));
  bias_gradient(e, &l, gy, factor.wgrad);
  if (l.flags & (LINEAR_GATHERS_INPUT | LINEAR_REDUCES_DGRAD))
    emit_join(e, STREAM_COMPUTE, STREAM_COMM);
  if (in_bulk) part = cloned_part(e, &l, part);
  ref rstd = emit_saved(e, 2);
  ref mean = layernorm ? emit_saved(e, 3) : 0;
  ref gx = emit_grad_for(e, l.x);
  ref ggamma = emit_parameter_grad(e, n->inputs[2], false);
  ref gbeta = layernorm ? emit_parameter_grad(e, n->inputs[3], false) : 0;
  emit_norm_backward(e, layernorm, l.type, l.rows, l.inputs,
                     (ref[]){ part, emit_saved(e, 0), rstd, mean, 0 },
                     emit_parameter(e, n->inputs[2]), (ref[]){ gx, ggamma, gbeta, 0 });
}

const operator_kind operator_norm_linear = { "norm_linear", norm_linear_forward,
                                             norm_linear_backward };
