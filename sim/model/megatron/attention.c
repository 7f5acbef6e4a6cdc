/*
 * SelfAttention: projection of query, key and value, rotary embedding, core attention, output
 * projection (Megatron-LM core/transformer/attention.py: Attention.forward, SelfAttention).
 */
#include "sim/model/megatron/attention_core.h"

#include <assert.h>
#include <string.h>

#include "sim/graph/node.h"
#include "sim/model/megatron/moe.h"
#include "sim/operators/operators.h"

typedef struct head_counts {
  int64_t queries, groups, width; /* of this rank */
  int64_t of_group;               /* query heads that a group has in the projection */
} head_counts;

static head_counts heads_of(const settings *s)
{
  int64_t tp = size_tp(s);
  int64_t groups = s->model.num_query_groups;
  assert(s->model.num_attention_heads % tp == 0 && (groups % tp == 0 || tp % groups == 0));
  return (head_counts){ .queries = s->model.num_attention_heads / tp,
                        .groups = groups < tp ? 1 : groups / tp,
                        .width = s->model.kv_channels,
                        .of_group = s->model.num_attention_heads / groups };
}

/* With fewer groups than ranks, several ranks share a group's heads: the projection is split
 * evenly and gathered whole, and each rank takes views of its heads (attention.py, 1851). */
static bool shares_groups(const settings *s)
{
  return s->model.num_query_groups < size_tp(s);
}

static int64_t projected_width(const settings *s, const head_counts *h)
{
  if (!shares_groups(s)) return (h->queries + 2 * h->groups) * h->width;
  return (s->model.num_attention_heads + 2 * s->model.num_query_groups) * h->width / size_tp(s);
}

/* One of query, key and value in the fused projection, which holds each group's query heads, key
 * and value in turn. */
static tensor_id part_of_qkv(graph *g, tensor_id mixed, const head_counts *h, int64_t heads,
                             int64_t offset, const char *name)
{
  graph_tensor m = g->tensors.items[mixed];
  int64_t of_group = heads / h->groups, block = (h->of_group + 2) * h->width;
  assert(heads % h->groups == 0 && offset + h->width <= block);
  tensor_id part =
      graph_tensor_new(g, name, (dtype)m.dtype, m.shape[0], m.shape[1], heads, h->width);
  g->tensors.items[part].base = tensor_storage(g, mixed);
  const int64_t position = m.shape[2], row = m.shape[1] * position;
  if (of_group == 1 || h->groups == 1)
    graph_strides(g, part, m.offset_elements + offset, 4,
                  (const int64_t[]){ m.shape[0], m.shape[1], heads, h->width },
                  (const int64_t[]){ row, position, of_group == 1 ? block : h->width, 1 });
  else
    graph_strides(g, part, m.offset_elements + offset, 5,
                  (const int64_t[]){ m.shape[0], m.shape[1], h->groups, of_group, h->width },
                  (const int64_t[]){ row, position, block, h->width, 1 });
  return part;
}

/* SplitAlongDim: views of the fused projection. */
static void split_qkv(graph *g, tensor_id mixed, const head_counts *h, attention_operands *a)
{
  int64_t key = h->of_group * h->width;
  const tensor_id views[] = {
    part_of_qkv(g, mixed, h, h->queries, 0, "query"),
    part_of_qkv(g, mixed, h, h->groups, key, "key"),
    part_of_qkv(g, mixed, h, h->groups, key + h->width, "value"),
  };
  graph_node *n = graph_add(g, &operator_split);
  n->dims[0] = g->tensors.items[mixed].shape[0] * g->tensors.items[mixed].shape[1] * h->groups;
  node_input(n, mixed);
  for (int i = 0; i < 3; i++)
    node_output(n, views[i]);
  a->query = views[0];
  a->key = views[1];
  a->value = views[2];
}

/* query.reshape to one head per row copies when a group has several query heads and there are
 * several groups: the strides do not merge. */
static tensor_id reshaped_query(graph *g, const head_counts *h, tensor_id query)
{
  if (h->groups == 1 || h->groups == h->queries) return query;
  tensor_id y = graph_tensor_like(g, "query_reshaped", type_of(g, query), query);
  graph_node *n = graph_add_of(g, &operator_copy, query);
  node_output(n, y);
  return y;
}

/* TE's norm makes its input contiguous first, and saves that copy. */
static tensor_id head_norm(graph *g, const settings *s, const char *module, tensor_id x)
{
  graph_site(g, module);
  return norm_of_width(g, s, module, contiguous(g, "input_contiguous", x), s->model.kv_channels);
}

static bool rotates(const settings *s)
{
  position_embedding_type_choice type = s->model.position_embedding_type;
  return type == POSITIONS_ROPE || type == POSITIONS_YARN || type == POSITIONS_MROPE;
}

tensor_id rotary_embedding(graph *g, const settings *s, const char *name, tensor_id x,
                           int64_t width)
{
  graph_tensor t = g->tensors.items[x];
  bool apart = !s->model.apply_rope_fusion;
  rope_pairs pairs = s->model.multi_latent_attention ? ROPE_PAIRS_LAST_NEIGHBOURS
                     : s->model.rotary_interleaved   ? ROPE_PAIRS_NEIGHBOURS
                                                     : ROPE_PAIRS_HALVES;
  tensor_id y = graph_tensor_like(g, name, type_of(g, x), x);
  tensor_id cosine = apart ? graph_constant(g, "cos", (dtype)t.dtype, t.shape[0], width) : 0;
  tensor_id sine = apart ? graph_constant(g, "sin", (dtype)t.dtype, t.shape[0], width) : 0;
  graph_node *n = graph_add(g, &operator_rope);
  n->flags = apart;
  const int64_t dims[] = { t.shape[0] * t.shape[1], t.shape[2], width, t.shape[1], pairs };
  memcpy(n->dims, dims, sizeof dims);
  node_input(n, x);
  node_output(n, y);
  node_output(n, cosine);
  node_output(n, sine);
  node_save(n, cosine);
  node_save(n, sine);
  return y;
}

static attention_operands query_key_value(graph *g, const settings *s, tensor_id hidden)
{
  head_counts h = heads_of(s);
  group_id group = marks_group(s, OFFLOAD_QKV_LINEAR) ? graph_group_start(g, "qkv_linear") : 0;
  linear_spec qkv = { .module = "self_attention.linear_qkv",
                      .split = LINEAR_COLUMN,
                      .inputs = s->model.hidden_size,
                      .outputs = projected_width(s, &h),
                      .bias = s->model.add_bias_linear || s->model.add_qkv_bias,
                      .norm = uses_te(s),
                      .sequence_parallel = s->parallel.sequence_parallel,
                      .user = USER_QKV };
  tensor_id mixed = linear(g, s, &qkv, hidden).output;
  if (shares_groups(s)) mixed = gathered_over_tp(g, s, mixed, COLLECTIVE_REDUCE_SCATTER);
  attention_operands a = { .length = g->tensors.items[mixed].shape[0],
                           .batch = g->tensors.items[mixed].shape[1],
                           .heads = h.queries,
                           .kv_heads = h.groups,
                           .qk_dim = h.width,
                           .v_dim = h.width };
  split_qkv(g, mixed, &h, &a);
  a.query = reshaped_query(g, &h, a.query);
  if (s->model.qk_l2_norm) {
    a.query = unscaled_norm(g, s, "self_attention.q_layernorm", a.query);
    a.key = unscaled_norm(g, s, "self_attention.k_layernorm", a.key);
  } else if (s->model.qk_layernorm) {
    a.query = head_norm(g, s, "self_attention.q_layernorm", a.query);
    a.key = head_norm(g, s, "self_attention.k_layernorm", a.key);
  }
  if (group != 0) {
    graph_group_hooks_end(g, group);
    graph_group_commit(g, group);
  }
  return a;
}

static tensor_id recomputed_core(graph *g, const settings *s, const attention_operands *a)
{
  const tensor_id inputs[] = { a->query, a->key, a->value };
  region_id region = graph_region_begin(g, REGION_CHECKPOINT, inputs, 3);
  tensor_id context = core_attention(g, s, a);
  graph_region_end(g, region, context);
  return context;
}

tensor_id core_attention_module(graph *g, const settings *s, const attention_operands *a)
{
  if (recomputes(s, RECOMPUTE_CORE_ATTN)) return recomputed_core(g, s, a);
  attention_operands given = *a;
  /* PR #1752 registers the tensors that core attention will save (af236f1118, attention.py:333). */
  if (s->offload.system == SYSTEM_megatron_pr1752)
    given.value = contiguous(g, "value_contiguous", a->value);
  group_id group = marks_group(s, OFFLOAD_CORE_ATTN) ? graph_group_start(g, "core_attn") : 0;
  tensor_id context = core_attention(g, s, &given);
  if (group != 0) {
    graph_group_hooks_end(g, group);
    graph_group_release(g, group, given.query);
    graph_group_release(g, group, given.key);
    graph_group_release(g, group, given.value);
    graph_group_commit(g, group);
  }
  return context;
}

module_output attention_projection(graph *g, const settings *s, tensor_id context)
{
  group_id group = marks_group(s, OFFLOAD_ATTN_PROJ) ? graph_group_start(g, "attn_proj") : 0;
  linear_spec projection = { .module = "self_attention.linear_proj",
                             .split = LINEAR_ROW,
                             .inputs = g->tensors.items[context].shape[2],
                             .outputs = s->model.hidden_size,
                             .bias = s->model.add_bias_linear,
                             .skip_bias_add = true,
                             .sequence_parallel = s->parallel.sequence_parallel,
                             .keeps_original = true,
                             .user = USER_PROJ };
  module_output out = linear(g, s, &projection, context);
  if (group != 0) {
    graph_group_hooks_end(g, group);
    graph_group_release(g, group, context);
    graph_group_commit(g, group);
  }
  return out;
}

module_output self_attention(graph *g, const settings *s, tensor_id hidden)
{
  if (s->model.multi_latent_attention) return mla_self_attention(g, s, hidden);
  attention_operands a = query_key_value(g, s, hidden);
  if (rotates(s)) {
    graph_site(g, "self_attention.rotary_pos_emb");
    int64_t width = (int64_t)((double)s->model.kv_channels * s->model.rotary_percent);
    a.query = rotary_embedding(g, s, "query_rotated", a.query, width);
    a.key = rotary_embedding(g, s, "key_rotated", a.key, width);
  }
  tensor_id context = core_attention_module(g, s, &a);
  module_output out = attention_projection(g, s, context);
  graph_keep(g, a.query);
  graph_keep(g, a.key);
  graph_keep(g, a.value);
  graph_keep(g, context);
  return out;
}
