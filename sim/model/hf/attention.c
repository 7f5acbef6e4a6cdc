/* LlamaAttention, Qwen2Attention, Qwen3Attention: forward. */
#include <string.h>

#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"
#include "sim/operators/operators.h"

/* query, key, value */
typedef struct projections {
  tensor_id of[3];
} projections;

static const char *const names[] = { "query", "key", "value" };

static int64_t heads_of(const settings *s, int which)
{
  return which == 0 ? s->model.num_attention_heads : s->model.num_query_groups;
}

/* Views of one projection's output, each [b, s, heads, width]. */
static projections split_projection(graph *g, const settings *s, tensor_id x)
{
  int64_t width = s->model.kv_channels, heads = heads_of(s, 0) + 2 * heads_of(s, 1), offset = 0;
  hf_linear_spec spec = { .module = "self_attn.qkv_proj",
                          .inputs = s->model.hidden_size,
                          .outputs = heads * width,
                          .bias = s->model.add_qkv_bias,
                          .in_layer = true };
  tensor_id mixed = hf_linear(g, s, &spec, x);
  graph_tensor t = g->tensors.items[mixed];
  graph_node *n = graph_add(g, &operator_split);
  node_input(n, mixed);
  projections made;
  for (int i = 0; i < 3; i++) {
    const int64_t shape[4] = { t.shape[0], t.shape[1], heads_of(s, i), width };
    made.of[i] = hf_split_view(g, n, names[i], mixed, offset, shape);
    offset += heads_of(s, i) * width;
  }
  return made;
}

/* The slices and concatenations of the rotary embedding return gradients with heads before
 * positions. */
static tensor_id relaid(graph *g, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add(g, &operator_hf_relayout);
  node_input(n, x);
  tensor_id y = hf_split_view(g, n, "by_head", x, 0, t.shape);
  g->tensors.items[y].contiguous = true;
  return y;
}

static hf_linear_spec projection_spec(const settings *s, int which)
{
  static const char *const modules[] = { "self_attn.q_proj", "self_attn.k_proj",
                                         "self_attn.v_proj" };
  return (hf_linear_spec){ .module = modules[which],
                           .inputs = s->model.hidden_size,
                           .outputs = heads_of(s, which) * s->model.kv_channels,
                           .bias = s->model.add_qkv_bias,
                           .in_layer = true };
}

/* One kernel for the projections and their adapters; each result is [b, s, heads x width]. */
static projections projected(graph *g, const settings *s, tensor_id x)
{
  projections made;
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
  const int64_t *shape = g->tensors.items[y].shape;
  return hf_view(g, names[which], y, true, shape[0], shape[1], heads_of(s, which),
                 s->model.kv_channels);
}

static tensor_id normed(graph *g, const settings *s, int which, tensor_id x)
{
  static const char *const modules[] = { "self_attn.q_norm", "self_attn.k_norm" };
  if (!s->model.qk_layernorm || which == 2) return x;
  return hf_norm(g, s, modules[which], s->model.kv_channels, x);
}

/* [b, s, heads, width] -> [b, heads, s, width] */
static tensor_id heads_first(graph *g, tensor_id x)
{
  return hf_transposed_view(g, g->tensors.items[x].name, x, 1);
}

/* The model norms each right after its projection. */
static projections project(graph *g, const settings *s, bool rotated, tensor_id x)
{
  projections made = { { 0 } };
  bool whole = s->model.fused_projections, kernel = hf_fuses_adapters(s, HF_LORA_QKV);
  if (whole) made = split_projection(g, s, x);
  if (kernel) made = projected(g, s, x);
  for (int i = 0; i < 3; i++) {
    tensor_id one = whole || kernel ? made.of[i] : projection(g, s, i, x);
    if (!whole) one = with_heads(g, s, i, rotated, one);
    made.of[i] = heads_first(g, normed(g, s, i, one));
  }
  return made;
}

static tensor_id rotated_half(graph *g, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add(g, &operator_hf_rotate_half);
  node_input(n, x);
  return hf_result(g, n, "rotated_half", (dtype)t.dtype, t.shape);
}

static tensor_id table(graph *g, tensor_id of)
{
  graph_tensor t = g->tensors.items[of];
  return hf_view(g, t.name, of, true, t.shape[0], 1, t.shape[1], t.shape[2]);
}

/* apply_rotary_pos_emb. Its frame refers to both arguments until it returns. */
static void rotate(graph *g, hf_shared shared, projections *p)
{
  graph_site(g, "self_attn.rotary");
  tensor_id cosine = table(g, shared.cosine), sine = table(g, shared.sine);
  projections before = *p;
  for (int i = 0; i < 2; i++) {
    tensor_id scaled = hf_multiply(g, before.of[i], cosine);
    tensor_id turned = hf_multiply(g, rotated_half(g, before.of[i]), sine);
    p->of[i] = hf_add(g, scaled, turned);
  }
  graph_keep(g, before.of[0]);
  graph_keep(g, before.of[1]);
}

/* The frame refers to query, key and value until it returns. */
tensor_id hf_attention(graph *g, const settings *s, hf_shared shared, tensor_id x)
{
  bool rotated = shared.cosine != 0;
  projections p = project(g, s, rotated, x);
  tensor_id probabilities = 0;
  if (rotated) rotate(g, shared, &p);
  graph_site(g, "self_attn");
  tensor_id core = hf_attention_core(g, s, p.of[0], p.of[1], p.of[2], shared.mask, &probabilities);
  hf_linear_spec spec = { .module = "self_attn.o_proj",
                          .inputs = s->model.num_attention_heads * s->model.kv_channels,
                          .outputs = s->model.hidden_size,
                          .bias = s->model.add_bias_linear,
                          .in_layer = true };
  tensor_id y = hf_linear(g, s, &spec, core);
  for (int i = 0; i < 3; i++)
    graph_keep(g, p.of[i]);
  if (probabilities != 0) graph_keep(g, probabilities);
  return y;
}
