/*
 * Linear modules: TELinear, TELayerNormColumnParallelLinear and TERowParallelLinear (Megatron-LM
 * core/extensions/transformer_engine.py), ColumnParallelLinear and RowParallelLinear
 * (core/tensor_parallel/layers.py).
 */
#include <assert.h>

#include "sim/graph/fp8.h"
#include "sim/graph/node.h"
#include "sim/model/megatron/modules.h"
#include "sim/operators/operators.h"

static int32_t communication(const settings *s, const linear_spec *spec)
{
  if (spec->explicit_comm || spec->split == LINEAR_WHOLE || size_tp(s) == 1) return 0;
  if (spec->split == LINEAR_COLUMN)
    return !spec->sequence_parallel ? LINEAR_REDUCES_DGRAD
           : uses_te(s)             ? LINEAR_GATHERS_INPUT
                                    : LINEAR_GATHERS_INPUT | LINEAR_GATHER_BUFFER;
  return spec->sequence_parallel ? LINEAR_SCATTERS_OUTPUT : LINEAR_REDUCES_OUTPUT;
}

/* Which exchanges run beside products in user buffers, with those of communication(). Megatron-LM (d98e8a64)
 * core/extensions/transformer_engine.py: the first projections of MLA, which have no such buffers, turn them
 * off for all layers; linears without a norm do nothing in bulk. */
static int32_t overlap(const graph *g, const settings *s, const linear_spec *spec, int32_t flags)
{
  const struct parallel_settings *p = &s->parallel;
  bool in_decoder = g->layer < s->model.num_layers;
  if (!p->tp_comm_overlap || !uses_te(s) || s->model.multi_latent_attention || !in_decoder ||
      spec->user == NO_USER_BUFFERS || !(flags & (LINEAR_GATHERS_INPUT | LINEAR_SCATTERS_OUTPUT)))
    return 0;
  bool gathers = p->tp_comm_overlap_ag &&
                 !(spec->user == USER_QKV && p->tp_comm_overlap_disable_qkv) &&
                 !(spec->user == USER_FC1 && p->tp_comm_overlap_disable_fc1);
  bool rings = p->tp_comm_overlap_rs_method == RS_RING_EXCHANGE;
  int32_t result = gathers ? LINEAR_RINGS_GATHER : 0;
  if (flags & LINEAR_SCATTERS_OUTPUT && p->tp_comm_overlap_rs)
    result |= rings ? LINEAR_RINGS_SUM : LINEAR_PIPELINES_SUM;
  if (spec->norm && p->tp_comm_bulk_dgrad) result |= LINEAR_GATHERS_IN_BULK;
  if (spec->norm && p->tp_comm_bulk_wgrad) result |= LINEAR_SUMS_IN_BULK;
  return result;
}

/* The bias that this module adds or returns. */
static module_output bias_parameter(graph *g, const settings *s, const linear_spec *spec)
{
  module_output m = { 0 };
  if (spec->bias) m.bias = graph_parameter(g, "bias", model_dtype(s), spec->outputs, 0);
  return m;
}

/* The output has the input's leading dimensions, with the sequence gathered or scattered. */
static tensor_id output_of(graph *g, const settings *s, const linear_spec *spec, int32_t flags,
                           tensor_id x)
{
  graph_tensor in = g->tensors.items[x];
  int64_t d0 = in.shape[0];
  if (flags & LINEAR_GATHERS_INPUT) d0 *= size_tp(s);
  assert(!(flags & LINEAR_SCATTERS_OUTPUT) || d0 % size_tp(s) == 0);
  if (flags & LINEAR_SCATTERS_OUTPUT) d0 /= size_tp(s);
  if (in.rank == 2) return graph_tensor_new(g, "output", model_dtype(s), d0, spec->outputs, 0, 0);
  return graph_tensor_new(g, "output", model_dtype(s), d0, in.shape[1], spec->outputs, 0);
}

static void set_dims(const graph *g, const settings *s, const linear_spec *spec, tensor_id x,
                     graph_node *n)
{
  int64_t rows = tensor_elements(g, x) / spec->inputs;
  n->dims[LINEAR_INPUTS] = spec->inputs;
  n->dims[LINEAR_USER] = spec->user;
  n->dims[LINEAR_OUTPUTS] = spec->outputs;
  n->dims[LINEAR_GEMM_ROWS] = n->flags & LINEAR_GATHERS_INPUT ? rows * size_tp(s) : rows;
  n->dims[LINEAR_ROWS] = n->flags & LINEAR_SCATTERS_OUTPUT ? rows / size_tp(s) : rows;
}

/* The quantised input that is saved, with its scales. */
static tensor_id fp8_copy(graph *g, const settings *s, const char *name, int64_t rows,
                          int64_t width, int32_t flags)
{
  int64_t bytes = fp8_saved_bytes(s, rows, width, (flags & LINEAR_GATHERS_INPUT) != 0);
  return graph_tensor_new(g, name, DTYPE_FP8, bytes, 0, 0, 0);
}

typedef struct norm_tensors {
  tensor_id gamma, beta, normed, rstd, mean;
} norm_tensors;

/* fp8: only the quantised copy of the normed rows is saved. */
static norm_tensors norm_inside(graph *g, const settings *s, tensor_id x, int64_t width, bool fp8,
                                int32_t flags)
{
  int64_t rows = tensor_elements(g, x) / width;
  norm_tensors t = { 0 };
  t.gamma = graph_parameter(g, "layer_norm_weight", model_dtype(s), width, 0);
  if (is_layernorm(s)) t.beta = graph_parameter(g, "layer_norm_bias", model_dtype(s), width, 0);
  t.normed = fp8 ? fp8_copy(g, s, "normed_fp8", rows, width, flags)
                 : graph_tensor_like(g, "normed", model_dtype(s), x);
  t.rstd = graph_tensor_new(g, "rstd", DTYPE_FP32, rows, 0, 0, 0);
  if (is_layernorm(s)) t.mean = graph_tensor_new(g, "mean", DTYPE_FP32, rows, 0, 0, 0);
  return t;
}

static module_output norm_linear(graph *g, const settings *s, const linear_spec *spec, tensor_id x)
{
  int32_t flags = communication(s, spec) | (is_layernorm(s) ? LINEAR_HAS_BETA : 0);
  bool fp8 = layer_is_fp8(s, g->layer);
  norm_tensors norm = norm_inside(g, s, x, spec->inputs, fp8, flags);
  tensor_id weight = graph_parameter(g, "weight", model_dtype(s), spec->outputs, spec->inputs);
  module_output m = bias_parameter(g, s, spec);
  m.output = output_of(g, s, spec, flags, x);
  if (spec->bias && !spec->skip_bias_add) flags |= LINEAR_HAS_BIAS;
  graph_node *n = graph_add(g, &operator_norm_linear);
  n->flags = flags | overlap(g, s, spec, flags) | (fp8 ? LINEAR_QUANTIZES : 0);
  set_dims(g, s, spec, x, n);
  node_input(n, x);
  node_input(n, weight);
  node_input(n, norm.gamma);
  node_input(n, norm.beta);
  node_input(n, flags & LINEAR_HAS_BIAS ? m.bias : 0);
  node_output(n, m.output);
  node_output(n, norm.normed);
  node_output(n, norm.rstd);
  node_output(n, norm.mean);
  node_save(n, x);
  node_save(n, norm.normed);
  node_save(n, norm.rstd);
  node_save(n, norm.mean);
  if (!spec->skip_bias_add) m.bias = 0;
  return m;
}

static module_output plain_linear(graph *g, const settings *s, const linear_spec *spec, tensor_id x)
{
  int32_t flags = communication(s, spec);
  bool fp8 = uses_te(s) && layer_is_fp8(s, g->layer);
  tensor_id weight = graph_parameter(g, "weight", model_dtype(s), spec->outputs, spec->inputs);
  module_output m = bias_parameter(g, s, spec);
  if (spec->bias && !spec->skip_bias_add)
    flags |= uses_te(s) ? LINEAR_HAS_BIAS : LINEAR_HAS_BIAS | LINEAR_BIAS_APART;
  m.output = output_of(g, s, spec, flags, x);
  if (fp8) flags |= LINEAR_QUANTIZES;
  if (fp8 && spec->keeps_original && fp8_can_keep_original(s)) flags |= LINEAR_KEEPS_ORIGINAL;
  int64_t rows = tensor_elements(g, x) / spec->inputs;
  bool copies = fp8 && !(flags & LINEAR_KEEPS_ORIGINAL);
  tensor_id quantized = copies ? fp8_copy(g, s, "input_fp8", rows, spec->inputs, flags) : 0;
  graph_node *n = graph_add(g, &operator_linear);
  n->structured = !uses_te(s);
  n->flags = flags | overlap(g, s, spec, flags);
  set_dims(g, s, spec, x, n);
  node_input(n, x);
  node_input(n, weight);
  node_input(n, flags & LINEAR_HAS_BIAS ? m.bias : 0);
  node_output(n, m.output);
  node_output(n, quantized);
  node_save(n, copies ? quantized : x);
  if (!spec->skip_bias_add) m.bias = 0;
  return m;
}

module_output linear(graph *g, const settings *s, const linear_spec *spec, tensor_id x)
{
  assert(spec->inputs > 0 && spec->outputs > 0);
  assert(tensor_elements(g, x) % spec->inputs == 0);
  graph_site(g, spec->module);
  return spec->norm ? norm_linear(g, s, spec, x) : plain_linear(g, s, spec, x);
}
