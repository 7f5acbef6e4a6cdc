/*
 * Linear attention by the gated delta rule: Qwen3NextGatedDeltaNet, Qwen3_5GatedDeltaNet. As
 * transformers runs it where flash-linear-attention and causal-conv1d are installed
 * (integrations/hub_kernels.py: use_kernel_func_from_hub_with_fallback): the convolution and the
 * delta rule are functions of these packages, all else is eager.
 */
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"
#include "sim/operators/operators.h"

typedef struct head_sizes {
  int64_t key_heads, heads, key, value; /* heads of keys and of values, their widths */
} head_sizes;

static head_sizes sizes_of(const settings *s)
{
  const struct model_settings *m = &s->model;
  return (head_sizes){ m->linear_num_key_heads, m->linear_num_value_heads, m->linear_key_head_dim,
                       m->linear_value_head_dim };
}

/* What the projections make: queries, keys and values side by side [b, s, columns], and gate, beta
 * and decay before their functions. `frame`: what the module's frame refers to. */
typedef struct projected {
  tensor_id mixed, gate, beta, decay;
  tensor_id frame[2];
} projected;

static tensor_id linear(graph *g, const settings *s, const char *module, int64_t inputs,
                        int64_t outputs, tensor_id x)
{
  hf_linear_spec spec = {
    .module = module, .inputs = inputs, .outputs = outputs, .in_layer = true
  };
  return hf_linear(g, s, &spec, x);
}

static projected project_apart(graph *g, const settings *s, const head_sizes *h, tensor_id x)
{
  int64_t hidden = s->model.hidden_size, keys = h->key_heads * h->key;
  int64_t values = h->heads * h->value;
  projected p = { 0 };
  p.mixed = linear(g, s, "linear_attn.in_proj_qkv", hidden, 2 * keys + values, x);
  p.gate = linear(g, s, "linear_attn.in_proj_z", hidden, values, x);
  p.beta = linear(g, s, "linear_attn.in_proj_b", hidden, h->heads, x);
  p.decay = linear(g, s, "linear_attn.in_proj_a", hidden, h->heads, x);
  return p;
}

/* A copy of a part of each key head: [b, s, key heads x width] */
static tensor_id of_all_heads(graph *g, tensor_id part, const int64_t *shape)
{
  const graph_tensor t = g->tensors.items[part];
  tensor_id copy = hf_copy(g, t.name, part);
  return hf_view(g, t.name, copy, true, shape[0], shape[1],
                 tensor_elements(g, copy) / (shape[0] * shape[1]), 0);
}

/* Rows with the columns of a key head: [b, s, key heads, width] */
static tensor_id key_heads_of(graph *g, const head_sizes *h, tensor_id x)
{
  const int64_t *shape = g->tensors.items[x].shape;
  return hf_view(g, "by_key_head", x, true, shape[0], shape[1], h->key_heads,
                 shape[2] / h->key_heads);
}

/* Each key head's query, key, values and gates; each key head's betas and decays
 * (fix_query_key_value_ordering). */
static projected project_by_key_head(graph *g, const settings *s, const head_sizes *h, tensor_id x)
{
  enum { QUERY, KEY, VALUE, GATE, PARTS, BETA = 0, DECAY };
  int64_t hidden = s->model.hidden_size, keys = h->key_heads * h->key;
  int64_t values = h->heads * h->value, of_key = h->heads / h->key_heads;
  graph_tensor t = g->tensors.items[x];
  tensor_id part[PARTS], small[2];
  tensor_id all = linear(g, s, "linear_attn.in_proj_qkvz", hidden, 2 * (keys + values), x);
  tensor_id both = linear(g, s, "linear_attn.in_proj_ba", hidden, 2 * h->heads, x);
  projected p = { .frame = { all, both } };
  graph_site(g, "linear_attn");
  hf_split_columns(g, key_heads_of(g, h, all), PARTS,
                   (hf_columns[]){ { "query", h->key },
                                   { "key", h->key },
                                   { "value", of_key * h->value },
                                   { "gate", of_key * h->value } },
                   part);
  hf_split_columns(g, key_heads_of(g, h, both), 2,
                   (hf_columns[]){ { "beta", of_key }, { "decay", of_key } }, small);
  part[VALUE] = of_all_heads(g, part[VALUE], t.shape);
  p.gate = of_all_heads(g, part[GATE], t.shape);
  p.beta = of_all_heads(g, small[BETA], t.shape);
  p.decay = of_all_heads(g, small[DECAY], t.shape);
  part[QUERY] = of_all_heads(g, part[QUERY], t.shape);
  part[KEY] = of_all_heads(g, part[KEY], t.shape);
  graph_node *n = graph_add(g, &operator_join_columns);
  for (int i = QUERY; i <= VALUE; i++)
    node_input(n, part[i]);
  t.shape[2] = 2 * keys + values;
  p.mixed = hf_result(g, n, "mixed", (dtype)t.dtype, t.shape);
  for (int i = QUERY; i <= VALUE; i++)
    graph_keep(g, part[i]);
  return p;
}

static tensor_id convolved(graph *g, const settings *s, tensor_id mixed)
{
  graph_tensor t = g->tensors.items[mixed];
  graph_site(g, "linear_attn.conv1d");
  tensor_id weight = hf_parameter(g, s, "weight", t.shape[2], s->model.linear_conv_kernel_dim);
  graph_site(g, "linear_attn");
  graph_node *n = graph_add_of(g, &operator_causal_conv, mixed);
  node_input(n, weight);
  tensor_id y = hf_result(g, n, "convolved", (dtype)t.dtype, t.shape);
  if (!hf_needs_gradient(g, y)) return y;
  node_save(n, mixed);
  node_save(n, weight);
  return y;
}

/* -exp(A_log) softplus(decay + dt_bias), in fp32 */
static tensor_id decay_of(graph *g, const settings *s, tensor_id decay)
{
  int64_t heads = s->model.linear_num_value_heads;
  const int64_t vector[4] = { heads, 0, 0, 0 };
  tensor_id logarithm = hf_parameter(g, s, "A_log", heads, 0);
  tensor_id bias = hf_parameter(g, s, "dt_bias", heads, 0);
  graph_node *n = graph_add_of(g, &operator_decay_rate, logarithm);
  tensor_id rate = hf_result(g, n, "decay_rate", DTYPE_FP32, vector);
  tensor_id exponential = hf_side_result(g, n, "exp_A_log", DTYPE_FP32, vector);
  if (hf_needs_gradient(g, rate)) node_save(n, exponential);
  tensor_id wide = hf_cast(g, decay, DTYPE_FP32);
  n = graph_add_of(g, &operator_hf_add_bias, wide);
  node_input(n, bias);
  tensor_id step = hf_result(g, n, "step", DTYPE_FP32, g->tensors.items[wide].shape);
  n = graph_add_of(g, &operator_hf_softplus, step);
  if (hf_needs_gradient(g, step)) node_save(n, step);
  tensor_id positive = hf_result(g, n, "softplus", DTYPE_FP32, g->tensors.items[step].shape);
  return hf_multiply(g, rate, positive);
}

/* A view of some columns as heads: [b, s, heads, width] */
static tensor_id heads_of(graph *g, tensor_id x, int64_t heads)
{
  graph_tensor t = g->tensors.items[x];
  int64_t strides[4], width = t.shape[2] / heads;
  hf_strides_of(g, x, strides);
  tensor_id y = hf_view(g, t.name, x, false, t.shape[0], t.shape[1], heads, width);
  graph_strides(g, y, t.offset_elements, 4, g->tensors.items[y].shape,
                (int64_t[]){ strides[0], strides[1], width, 1 });
  return y;
}

/* q, k, v: [b, s, heads, width]; decay and beta: [b, s, heads]. Returns a tensor like v. */
static tensor_id delta_rule(graph *g, const head_sizes *h, const tensor_id qkv[3], tensor_id decay,
                            tensor_id beta)
{
  graph_tensor k = g->tensors.items[qkv[1]], v = g->tensors.items[qkv[2]];
  dtype type = (dtype)v.dtype;
  int64_t b = k.shape[0], length = k.shape[1];
  const int64_t dims[] = { b, length, h->key_heads, h->heads, h->key, h->value, DELTA_CHUNK };
  const int64_t by_key[4] = { b, length, h->key_heads, 0 }, by_head[4] = { b, length, h->heads, 0 };
  const int64_t chunk[4] = { b, length, h->heads, DELTA_CHUNK };
  graph_node *n = graph_add(g, &operator_delta_rule);
  for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
    n->dims[i] = dims[i];
  for (int i = 0; i < 3; i++)
    node_input(n, qkv[i]);
  node_input(n, decay);
  node_input(n, beta);
  tensor_id y = hf_result(g, n, "attention", type, v.shape);
  tensor_id query = hf_side_result(g, n, "query_normed", type, k.shape);
  tensor_id of_query = hf_side_result(g, n, "query_inverse_length", DTYPE_FP32, by_key);
  tensor_id key = hf_side_result(g, n, "key_normed", type, k.shape);
  tensor_id of_key = hf_side_result(g, n, "key_inverse_length", DTYPE_FP32, by_key);
  tensor_id value = hf_side_result(g, n, "value_rows", type, v.shape);
  tensor_id sums = hf_side_result(g, n, "decay_sums", DTYPE_FP32, by_head);
  tensor_id inverses = hf_side_result(g, n, "delta_inverses", type, chunk);
  if (!hf_needs_gradient(g, y)) return y;
  const tensor_id saved[] = { query, of_query, key, of_key, value, sums, beta, beta, inverses };
  for (size_t i = 0; i < sizeof saved / sizeof *saved; i++)
    node_save(n, saved[i]);
  return y;
}

static tensor_id rows_of_heads(graph *g, tensor_id x, int64_t width)
{
  return hf_view(g, g->tensors.items[x].name, x, true, tensor_elements(g, x) / width, width, 0, 0);
}

/* The frame refers to all that it has a name for until it returns. */
tensor_id hf_linear_attention(graph *g, const settings *s, tensor_id x)
{
  head_sizes h = sizes_of(s);
  graph_tensor t = g->tensors.items[x];
  int64_t keys = h.key_heads * h.key, values = h.heads * h.value;
  tensor_id part[3];
  projected p = s->model.linear_fused_projections ? project_by_key_head(g, s, &h, x)
                                                  : project_apart(g, s, &h, x);
  tensor_id mixed = convolved(g, s, p.mixed);
  hf_split_columns(g, mixed, 3,
                   (hf_columns[]){ { "query", keys }, { "key", keys }, { "value", values } }, part);
  for (int i = 0; i < 3; i++)
    part[i] = heads_of(g, part[i], i < 2 ? h.key_heads : h.heads);
  tensor_id beta = hf_sigmoid(g, p.beta), decay = decay_of(g, s, p.decay);
  tensor_id core = delta_rule(g, &h, part, decay, beta);
  tensor_id y = hf_gated_norm(g, s, "linear_attn.norm", h.value, rows_of_heads(g, core, h.value),
                              rows_of_heads(g, p.gate, h.value));
  tensor_id rows = hf_view(g, "attention_rows", y, true, t.shape[0], t.shape[1], values, 0);
  tensor_id out = linear(g, s, "linear_attn.out_proj", values, s->model.hidden_size, rows);
  const tensor_id named[] = { p.frame[0], p.frame[1], mixed, p.gate, p.beta,
                              p.decay,    beta,       decay, rows };
  for (size_t i = 0; i < sizeof named / sizeof *named; i++)
    if (named[i] != 0) graph_keep(g, named[i]);
  return out;
}
