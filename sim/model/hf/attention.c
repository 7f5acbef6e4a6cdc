/* LlamaAttention and its relatives: forward. */

#include "sim/graph/sizes.h"
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"
#include "sim/operators/operators.h"

/* query, key, value */
typedef struct projections {
  tensor_id of[3];
  tensor_id gate; /* of the result [b, s, heads x width], or 0 */
} projections;

static const char *const names[] = { "query", "key", "value" };

static int64_t heads_of(const settings *s, int which)
{
  return which == 0 ? s->model.num_attention_heads : s->model.num_query_groups;
}

/* One linear for query, key and value: [b, s, all their heads x width] */
static tensor_id mixed_projection(graph *g, const settings *s, tensor_id x)
{
  hf_linear_spec spec = { .module = "self_attn.qkv_proj",
                          .inputs = s->model.hidden_size,
                          .outputs = (heads_of(s, 0) + 2 * heads_of(s, 1)) * s->model.kv_channels,
                          .bias = s->model.add_qkv_bias,
                          .in_layer = true };
  return hf_linear(g, s, &spec, x);
}

/* Views of that linear's output, each [b, s, heads, width]. */
static projections split_projection(graph *g, const settings *s, tensor_id x)
{
  int64_t width = s->model.kv_channels, offset = 0;
  tensor_id mixed = mixed_projection(g, s, x);
  graph_tensor t = g->tensors.items[mixed];
  graph_node *n = graph_add_of(g, &operator_split, mixed);
  projections made = { 0 };
  for (int i = 0; i < 3; i++) {
    const int64_t shape[4] = { t.shape[0], t.shape[1], heads_of(s, i), width };
    made.of[i] = hf_split_view(g, n, names[i], mixed, offset, shape);
    offset += heads_of(s, i) * width;
  }
  return made;
}

/* Slices of that linear's output, each [b, s, heads x width]. */
static projections sliced_projection(graph *g, const settings *s, tensor_id x)
{
  int64_t offset = 0;
  tensor_id mixed = mixed_projection(g, s, x);
  projections made = { 0 };
  for (int i = 0; i < 3; i++) {
    int64_t width = heads_of(s, i) * s->model.kv_channels;
    made.of[i] = hf_slice(g, names[i], mixed, offset, width);
    offset += width;
  }
  return made;
}

/* The slices and concatenations of the rotary embedding return gradients with heads before
 * positions. */
static tensor_id relaid(graph *g, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add_of(g, &operator_hf_relayout, x);
  tensor_id y = hf_split_view(g, n, "by_head", x, 0, t.shape);
  if (!t.contiguous) graph_strides(g, y, t.offset_elements, t.rank, t.shape, t.view.strides);
  g->tensors.items[y].contiguous = t.contiguous;
  return y;
}

/* Each head's query, and its gate in a tensor of its own. */
static void split_gate(graph *g, const settings *s, projections *made)
{
  graph_tensor t = g->tensors.items[made->of[0]];
  int64_t width = s->model.kv_channels, heads = s->model.num_attention_heads;
  tensor_id part[2];
  graph_site(g, "self_attn");
  tensor_id both =
      hf_view(g, "query_and_gate", made->of[0], true, t.shape[0], t.shape[1], heads, 2 * width);
  hf_split_columns(g, both, 2, (hf_columns[]){ { "query", width }, { "gate", width } }, part);
  made->of[0] = part[0];
  made->gate = hf_view(g, "gate", hf_copy(g, "gate", part[1]), true, t.shape[0], t.shape[1],
                       heads * width, 0);
}

static hf_linear_spec projection_spec(const settings *s, int which)
{
  static const char *const modules[] = { "self_attn.q_proj", "self_attn.k_proj",
                                         "self_attn.v_proj" };
  bool gated = which == 0 && s->model.attention_output_gate;
  return (hf_linear_spec){ .module = modules[which],
                           .inputs = s->model.hidden_size,
                           .outputs = heads_of(s, which) * s->model.kv_channels * (gated ? 2 : 1),
                           .bias = s->model.add_qkv_bias,
                           .in_layer = true };
}

/* One kernel for the projections and their adapters; each result is [b, s, heads x width]. */
static projections projected(graph *g, const settings *s, tensor_id x)
{
  projections made = { 0 };
  hf_linear_spec specs[3];
  for (int i = 0; i < 3; i++)
    specs[i] = projection_spec(s, i);
  hf_fused_adapters(g, s, specs, 3, x, made.of);
  return made;
}

static tensor_id projection(graph *g, const settings *s, int which, tensor_id x)
{
  hf_linear_spec spec = projection_spec(s, which);
  return hf_linear(g, s, &spec, x);
}

static tensor_id with_heads(graph *g, const settings *s, int which, bool rotated, tensor_id y)
{
  if (rotated && which < 2) y = relaid(g, y);
  graph_tensor t = g->tensors.items[y];
  int64_t width = s->model.kv_channels;
  tensor_id made =
      hf_view(g, names[which], y, t.contiguous, t.shape[0], t.shape[1], heads_of(s, which), width);
  if (!t.contiguous)
    graph_strides(g, made, t.offset_elements, 4, g->tensors.items[made].shape,
                  (int64_t[]){ t.view.strides[0], t.view.strides[1], width, 1 });
  return made;
}

/* The norm of query or key, where the model has it. */
static tensor_id normed(graph *g, const settings *s, qk_norm_choice where, int which, tensor_id x)
{
  static const char *const modules[] = { "self_attn.q_norm", "self_attn.k_norm" };
  if (!s->model.qk_layernorm || which == 2 || s->model.qk_norm != where) return x;
  const graph_tensor *t = &g->tensors.items[x];
  return hf_norm(g, s, modules[which], t->shape[t->rank - 1], x);
}

/* [b, s, heads, width] -> [b, heads, s, width] */
static tensor_id heads_first(graph *g, tensor_id x)
{
  return hf_transposed_view(g, g->tensors.items[x].name, x, 1);
}

static projections project(graph *g, const settings *s, bool rotated, tensor_id x)
{
  projections made = { 0 };
  bool split = s->model.fused_projections, kernel = hf_fuses_adapters(s, HF_LORA_QKV);
  bool sliced = s->model.fused_qkv_sliced, apart = !split && !kernel && !sliced;
  if (split) made = split_projection(g, s, x);
  if (kernel) made = projected(g, s, x);
  if (sliced) made = sliced_projection(g, s, x);
  for (int i = 0; i < 3; i++) {
    bool gated = i == 0 && s->model.attention_output_gate;
    if (apart) made.of[i] = projection(g, s, i, x);
    if (gated) split_gate(g, s, &made);
    tensor_id one = normed(g, s, QK_NORM_WHOLE, i, made.of[i]);
    if (!split && !gated) one = with_heads(g, s, i, rotated, one);
    made.of[i] = heads_first(g, normed(g, s, QK_NORM_BY_HEAD, i, one));
  }
  for (int i = 0; i < 2; i++)
    made.of[i] = normed(g, s, QK_NORM_TRANSPOSED, i, made.of[i]);
  return made;
}

/* Each layer computes the scale of its positions, which are dimension `positions` of queries. */
static tensor_id scaled_by_position(graph *g, dtype type, uint8_t positions, tensor_id query)
{
  int64_t shape[4] = { 1, 1, 1, 1 };
  shape[positions] = g->tensors.items[query].shape[positions];
  graph_node *n = graph_add(g, &operator_hf_position_scale);
  return hf_multiply(g, query, hf_side_result(g, n, "position_scale", type, shape));
}

/* Llama 4: layers either rotate, and norm afterwards, or scale by position. */
static void place(graph *g, const settings *s, hf_shared shared, projections *made)
{
  dtype type = model_dtype(s);
  if (shared.rotates) {
    hf_rotate_by_position(g, shared, &made->of[0], &made->of[1]);
    for (int i = 0; i < 2 && s->model.qk_l2_norm; i++)
      made->of[i] = hf_l2_norm(g, "self_attn.qk_norm", made->of[i]);
    return;
  }
  graph_site(g, "self_attn");
  if (s->model.attn_temperature_tuning)
    made->of[0] = hf_cast(g, scaled_by_position(g, DTYPE_FP32, 1, made->of[0]), type);
}

static projections project_llama4(graph *g, const settings *s, hf_shared shared, tensor_id x)
{
  projections made = { 0 };
  bool kernel = hf_fuses_adapters(s, HF_LORA_QKV);
  if (kernel) made = projected(g, s, x);
  for (int i = 0; i < 3; i++)
    made.of[i] = with_heads(g, s, i, false, kernel ? made.of[i] : projection(g, s, i, x));
  place(g, s, shared, &made);
  for (int i = 0; i < 3; i++)
    made.of[i] = heads_first(g, made.of[i]);
  return made;
}

/* The frame refers to query, key and value until it returns. */
tensor_id hf_attention(graph *g, const settings *s, hf_shared shared, tensor_id x)
{
  if (s->model.multi_latent_attention) return hf_latent_attention(g, s, shared, x);
  bool llama4 = s->model.attention_class == ATTENTION_LLAMA4;
  projections p = llama4 ? project_llama4(g, s, shared, x) : project(g, s, shared.rotates, x);
  tensor_id probabilities = 0;
  if (shared.rotates && !llama4) hf_rotate(g, s, shared, &p.of[0], &p.of[1]);
  graph_site(g, "self_attn");
  if (s->model.query_position_scale) p.of[0] = scaled_by_position(g, model_dtype(s), 2, p.of[0]);
  tensor_id sinks =
      s->model.attention_sinks ? hf_parameter(g, s, "sinks", s->model.num_attention_heads, 0) : 0;
  tensor_id core =
      hf_attention_core(g, s, p.of[0], p.of[1], p.of[2], shared.mask, sinks, &probabilities);
  if (p.gate != 0) core = hf_multiply(g, core, hf_sigmoid(g, p.gate));
  hf_linear_spec spec = { .module = "self_attn.o_proj",
                          .inputs = s->model.num_attention_heads * s->model.kv_channels,
                          .outputs = s->model.hidden_size,
                          .bias = s->model.add_bias_linear || s->model.add_attention_output_bias,
                          .in_layer = true };
  tensor_id y = hf_linear(g, s, &spec, core);
  for (int i = 0; i < 3; i++)
    graph_keep(g, p.of[i]);
  if (probabilities != 0) graph_keep(g, probabilities);
  if (p.gate != 0) graph_keep(g, p.gate);
  return y;
}
