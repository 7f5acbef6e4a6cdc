/*
 * Multi-latent attention (DeepseekV3Attention, DeepseekV2Attention): queries from a low rank or not,
 * keys and values from another one, and one rotary key for all heads. The kernels see a head's
 * position-free and rotary parts side by side.
 */
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"
#include "sim/operators/operators.h"

typedef struct latent_widths {
  int64_t heads, still, rotary, value; /* of a head: without position, with, of its value */
} latent_widths;

static latent_widths widths_of(const settings *s)
{
  const struct model_settings *m = &s->model;
  return (latent_widths){ m->num_attention_heads, m->qk_head_dim, m->qk_pos_emb_head_dim,
                          m->v_head_dim };
}

static tensor_id linear(graph *g, const settings *s, const char *module, int64_t outputs, bool bias,
                        tensor_id x)
{
  const graph_tensor *t = &g->tensors.items[x];
  hf_linear_spec spec = { .module = module,
                          .inputs = t->shape[t->rank - 1],
                          .outputs = outputs,
                          .bias = bias,
                          .in_layer = true };
  return hf_linear(g, s, &spec, x);
}

/* [b, s, heads x width] -> [b, heads, s, width] */
static tensor_id by_head(graph *g, const char *name, tensor_id x, int64_t heads)
{
  graph_tensor t = g->tensors.items[x];
  tensor_id made = hf_view(g, name, x, true, t.shape[0], t.shape[1], heads, t.shape[2] / heads);
  return hf_transposed_view(g, name, made, 1);
}

static tensor_id query_of(graph *g, const settings *s, latent_widths w, tensor_id x)
{
  int64_t rank = s->model.q_lora_rank, outputs = w.heads * (w.still + w.rotary);
  if (rank == 0) return linear(g, s, "self_attn.q_proj", outputs, false, x);
  tensor_id low = linear(g, s, "self_attn.q_a_proj", rank, s->model.add_qkv_bias, x);
  low = hf_norm(g, s, "self_attn.q_a_layernorm", rank, low);
  return linear(g, s, "self_attn.q_b_proj", outputs, false, low);
}

/* A head's position-free and rotary columns in a new tensor. Of the keys all heads share the rotary
 * part: operator_hf_join_shared writes it into each. */
static tensor_id joined(graph *g, const char *name, const operator_kind *by, tensor_id still,
                        tensor_id rotary)
{
  graph_tensor t = g->tensors.items[still];
  graph_node *n = graph_add_of(g, by, still);
  node_input(n, rotary);
  t.shape[3] += g->tensors.items[rotary].shape[3];
  return hf_result(g, n, name, (dtype)t.dtype, t.shape);
}

/* The view of rows as one head: [b, s, width] -> [b, 1, s, width] */
static tensor_id as_one_head(graph *g, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  int64_t strides[4];
  hf_strides_of(g, x, strides);
  tensor_id y = hf_view(g, t.name, x, t.contiguous, t.shape[0], 1, t.shape[1], t.shape[2]);
  if (!t.contiguous)
    graph_strides(g, y, t.offset_elements, 4, g->tensors.items[y].shape,
                  (int64_t[]){ strides[0], strides[0], strides[1], strides[2] });
  return y;
}

/* The frame refers to query, key and value until it returns. */
tensor_id hf_latent_attention(graph *g, const settings *s, hf_shared shared, tensor_id x)
{
  latent_widths w = widths_of(s);
  int64_t rank = s->model.kv_lora_rank;
  tensor_id query[2], low[2], parts[2], probabilities = 0;
  tensor_id q = by_head(g, "query", query_of(g, s, w, x), w.heads);
  hf_split_columns(
      g, q, 2, (hf_columns[]){ { "query_still", w.still }, { "query_rotary", w.rotary } }, query);
  tensor_id compressed =
      linear(g, s, "self_attn.kv_a_proj_with_mqa", rank + w.rotary, s->model.add_qkv_bias, x);
  hf_split_columns(g, compressed, 2,
                   (hf_columns[]){ { "latent", rank }, { "key_rotary", w.rotary } }, low);
  tensor_id latent = hf_norm(g, s, "self_attn.kv_a_layernorm", rank, low[0]);
  tensor_id rotary = as_one_head(g, low[1]);
  if (shared.rotates) hf_rotate(g, s, shared, &query[1], &rotary);
  graph_site(g, "self_attn");
  tensor_id whole_query = joined(g, "query", &operator_join_columns, query[0], query[1]);
  tensor_id wide =
      linear(g, s, "self_attn.kv_b_proj", w.heads * (w.still + w.value), false, latent);
  graph_site(g, "self_attn");
  hf_split_columns(g, by_head(g, "key_value", wide, w.heads), 2,
                   (hf_columns[]){ { "key_still", w.still }, { "value", w.value } }, parts);
  tensor_id key = joined(g, "key", &operator_hf_join_shared, parts[0], rotary);
  tensor_id core =
      hf_attention_core(g, s, whole_query, key, parts[1], shared.mask, 0, &probabilities);
  tensor_id y = linear(g, s, "self_attn.o_proj", s->model.hidden_size,
                       s->model.add_bias_linear || s->model.add_attention_output_bias, core);
  graph_keep(g, whole_query);
  graph_keep(g, key);
  graph_keep(g, parts[1]);
  if (probabilities != 0) graph_keep(g, probabilities);
  return y;
}
