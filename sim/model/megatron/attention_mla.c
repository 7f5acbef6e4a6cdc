/*
 * MLASelfAttention (Megatron-LM core/transformer/multi_latent_attention.py): low-rank projections,
 * their norms, up projections, rotary embedding, core attention.
 *
 * q_lora_rank 0: queries come straight from the hidden states. With TE the up projections contain
 * the norms of the compressed vectors (gpt_layer_specs.py: TELayerNormColumnParallelLinear when
 * qk_layernorm is on); otherwise the norms are modules.
 */
#include "sim/model/megatron/attention_core.h"

#include "sim/graph/node.h"
#include "sim/operators/operators.h"

typedef struct latents {
  tensor_id query;      /* compressed queries, or the hidden states */
  tensor_id key_value;  /* compressed keys and values */
  tensor_id key_rotary; /* rotary part of the keys, whole sequence */
} latents;

static tensor_id slice(graph *g, const char *name, tensor_id of, int64_t offset, int64_t width)
{
  graph_tensor t = g->tensors.items[of];
  tensor_id v = graph_tensor_new(g, name, (dtype)t.dtype, t.shape[0], t.shape[1], width, 0);
  g->tensors.items[v].base = tensor_storage(g, of);
  graph_strides(g, v, t.offset_elements + offset, 3,
                (const int64_t[]){ t.shape[0], t.shape[1], width },
                (const int64_t[]){ t.shape[1] * t.shape[2], t.shape[2], 1 });
  return v;
}

static void split_in_two(graph *g, tensor_id x, tensor_id a, tensor_id b)
{
  graph_node *n = graph_add_of(g, &operator_split, x);
  node_output(n, a);
  node_output(n, b);
}

static tensor_id whole_sequence(graph *g, const settings *s, tensor_id x)
{
  if (!s->parallel.sequence_parallel || size_tp(s) == 1) return x;
  return gathered_sequence(g, s, "k_pos_emb_gathered", x);
}

static tensor_id project(graph *g, const settings *s, const char *module, linear_split split,
                         int64_t inputs, int64_t outputs, bool norm_inside, tensor_id x)
{
  linear_spec spec = { .module = module,
                       .split = split,
                       .inputs = inputs,
                       .outputs = outputs,
                       .norm = norm_inside,
                       .sequence_parallel = s->parallel.sequence_parallel,
                       .keeps_original =
                           split == LINEAR_WHOLE && recomputes(s, RECOMPUTE_LAYERNORM) };
  return linear(g, s, &spec, x).output;
}

static bool norms_inside(const settings *s)
{
  return uses_te(s) && s->model.qk_layernorm;
}

static latents compress(graph *g, const settings *s, tensor_id hidden)
{
  int64_t h = s->model.hidden_size;
  int64_t rank = s->model.kv_lora_rank;
  int64_t rotary = s->model.qk_pos_emb_head_dim;
  latents l = { .query = hidden };
  if (s->model.q_lora_rank > 0)
    l.query = project(g, s, "self_attention.linear_q_down_proj", LINEAR_WHOLE, h,
                      s->model.q_lora_rank, false, hidden);
  tensor_id combined = project(g, s, "self_attention.linear_kv_down_proj", LINEAR_WHOLE, h,
                               rank + rotary, false, hidden);
  l.key_value = slice(g, "kv_compressed", combined, 0, rank);
  l.key_rotary = slice(g, "k_pos_emb", combined, rank, rotary);
  split_in_two(g, combined, l.key_value, l.key_rotary);
  l.key_rotary = whole_sequence(g, s, l.key_rotary);
  return l;
}

/* Norms that are modules: TE's norm makes the view of kv contiguous. */
static latents normed(graph *g, const settings *s, latents l)
{
  if (!s->model.qk_layernorm || norms_inside(s)) return l;
  if (s->model.q_lora_rank > 0)
    l.query = norm_of_width(g, s, "self_attention.q_layernorm", l.query, s->model.q_lora_rank);
  l.key_value =
      norm_of_width(g, s, "self_attention.kv_layernorm", l.key_value, s->model.kv_lora_rank);
  return l;
}

static tensor_id up_query(graph *g, const settings *s, tensor_id x, int64_t heads)
{
  int64_t outputs = heads * (s->model.qk_head_dim + s->model.qk_pos_emb_head_dim);
  if (s->model.q_lora_rank > 0)
    return project(g, s, "self_attention.linear_q_up_proj", LINEAR_COLUMN, s->model.q_lora_rank,
                   outputs, norms_inside(s), x);
  return project(g, s, "self_attention.linear_q_proj", LINEAR_COLUMN, s->model.hidden_size, outputs,
                 false, x);
}

static tensor_id by_head(graph *g, const char *name, tensor_id x, int64_t heads, int64_t width)
{
  graph_tensor t = g->tensors.items[x];
  return graph_view(g, name, x, true, t.shape[0], t.shape[1], heads, width);
}

/* fused_apply_mla_rope_for_q rotates in place, in the query's own storage; without fusion the
 * rotated part is a new tensor, and the query is the concatenation. */
static tensor_id rotate_query(graph *g, const settings *s, tensor_id q)
{
  graph_site(g, "self_attention.rotary_pos_emb");
  tensor_id y = rotary_embedding(g, s, "query", q, s->model.qk_pos_emb_head_dim);
  if (s->model.apply_rope_fusion) g->tensors.items[y].base = tensor_storage(g, q);
  return y;
}

/* Key and value are new, contiguous tensors in either case. */
static void rotate_key_value(graph *g, const settings *s, tensor_id kv, tensor_id rotary,
                             attention_operands *a)
{
  graph_tensor t = g->tensors.items[kv];
  a->key = graph_tensor_new(g, "key", (dtype)t.dtype, t.shape[0], t.shape[1], a->heads, a->qk_dim);
  a->value =
      graph_tensor_new(g, "value", (dtype)t.dtype, t.shape[0], t.shape[1], a->heads, a->v_dim);
  graph_node *n = graph_add(g, &operator_mla_key_value);
  n->dims[0] = t.shape[0] * t.shape[1];
  n->dims[1] = a->heads;
  n->dims[2] = s->model.qk_pos_emb_head_dim;
  n->dims[3] = t.shape[1];
  node_input(n, kv);
  node_input(n, rotary);
  node_output(n, a->key);
  node_output(n, a->value);
}

static attention_operands up_project(graph *g, const settings *s, latents l)
{
  int64_t heads = s->model.num_attention_heads / size_tp(s);
  attention_operands a = { .heads = heads,
                           .kv_heads = heads,
                           .length = size_sequence(s),
                           .batch = s->training.micro_batch_size,
                           .qk_dim = s->model.qk_head_dim + s->model.qk_pos_emb_head_dim,
                           .v_dim = s->model.v_head_dim };
  tensor_id q = by_head(g, "q_by_head", up_query(g, s, l.query, heads), heads, a.qk_dim);
  int64_t kv_width = s->model.qk_head_dim + s->model.v_head_dim;
  tensor_id kv = project(g, s, "self_attention.linear_kv_up_proj", LINEAR_COLUMN,
                         s->model.kv_lora_rank, heads * kv_width, norms_inside(s), l.key_value);
  kv = by_head(g, "kv_by_head", kv, heads, kv_width);
  a.query = rotate_query(g, s, q);
  rotate_key_value(g, s, kv, l.key_rotary, &a);
  return a;
}

module_output mla_self_attention(graph *g, const settings *s, tensor_id hidden)
{
  group_id group = marks_group(s, OFFLOAD_QKV_LINEAR) ? graph_group_start(g, "qkv_linear") : 0;
  latents l = normed(g, s, compress(g, s, hidden));
  region_id region = 0;
  if (recomputes(s, RECOMPUTE_MLA_UP_PROJ)) {
    const tensor_id inputs[] = { l.query, l.key_value, l.key_rotary };
    region = graph_region_begin(g, REGION_DISCARD, inputs, 3);
  }
  attention_operands a = up_project(g, s, l);
  if (region != 0) {
    graph_region_end(g, region, a.query);
    graph_region_output(g, region, a.key);
    graph_region_output(g, region, a.value);
  }
  if (group != 0) {
    graph_group_hooks_end(g, group);
    graph_group_release(g, group, hidden);
    graph_group_commit(g, group);
  }
  tensor_id context = core_attention_module(g, s, &a);
  if (region != 0) graph_discard(g, region);
  module_output out = attention_projection(g, s, context);
  const tensor_id held[] = { a.query, a.key, a.value, context, l.query, l.key_value };
  for (size_t i = region != 0 ? 3 : 0; i < sizeof held / sizeof held[0]; i++)
    graph_keep(g, held[i]);
  return out;
}
