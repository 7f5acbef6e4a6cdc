/*
 * Core attention: TEDotProductAttention with each of its backends, or Megatron's
 * DotProductAttention.
 *
 * Layouts decide which tensors are copied and saved. Query, key and value are [sequence, batch,
 * heads, width]. cuDNN reads them directly if all three are contiguous or all three are slices of
 * one buffer (utils.py: get_qkv_layout); otherwise those that are not contiguous are copied.
 * flash-attn reads [batch, sequence, ...]: three copies unless the micro-batch is 1, and its
 * output is copied back.
 */
#include "sim/model/megatron/attention_core.h"

#include <string.h>

#include "sim/graph/node.h"
#include "sim/operators/operators.h"

enum { TE_MASKS_CAUSAL = SOFTWARE_VERSION(2, 0), TE_MASKS_BY_BOOLEANS = SOFTWARE_VERSION(2, 6) };

static tensor_id converted(graph *g, const char *name, tensor_id x, dtype type)
{
  tensor_id y = graph_tensor_like(g, name, type, x);
  graph_node *n = graph_add_of(g, &operator_copy, x);
  node_output(n, y);
  return y;
}

tensor_id contiguous(graph *g, const char *name, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  return t.contiguous ? x : converted(g, name, x, (dtype)t.dtype);
}

/* A view of [sequence, batch, ..] as [batch, sequence, ..]. */
static tensor_id positions_swapped(graph *g, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  const int64_t *d = t.shape, packed[4] = { d[1] * d[2] * d[3], d[2] * d[3], d[3], 1 };
  const int64_t *from = t.view.rank == 4 ? t.view.strides : packed;
  tensor_id v = graph_view(g, t.name, x, false, d[1], d[0], d[2], d[3]);
  graph_strides(g, v, t.offset_elements, 4, (const int64_t[]){ d[1], d[0], d[2], d[3] },
                (const int64_t[]){ from[1], from[0], from[2], from[3] });
  return v;
}

/* ---- context parallelism --------------------------------------------------------------------- */

/* --cp-comm-type: one for all layers, or one for each. */
static bool exchanges_by(const graph *g, const settings *s, cp_comm_type_choice type)
{
  const choice_list *types = &s->parallel.cp_comm_type;
  if (s->parallel.context_parallel_size == 1 || types->count == 0) return false;
  bool each = types->count > 1 && g->layer >= 0 && (uint32_t)g->layer < types->count;
  return types->items[each ? g->layer : 0] == type;
}

static int32_t context_flags(const graph *g, const settings *s)
{
  bool gathers = exchanges_by(g, s, CP_ALL_GATHER) || exchanges_by(g, s, CP_ALLGATHER);
  return gathers ? ATTENTION_CP_GATHER : 0;
}

static bool exchanges_heads(const graph *g, const settings *s)
{
  return exchanges_by(g, s, CP_A2A);
}

static bool exchanges_by_ring(const graph *g, const settings *s)
{
  return s->parallel.context_parallel_size > 1 && !exchanges_heads(g, s) &&
         context_flags(g, s) == 0;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Query, key and value of one shape take turns, head by head, in one buffer. */
static bool takes_turns(const graph *g, const attention_operands *a)
{
  const tensor_id all[] = { a->query, a->key, a->value };
  const graph_tensor *q = &g->tensors.items[a->query];
  for (int i = 0; i < 3; i++) {
    const graph_tensor *t = &g->tensors.items[all[i]];
    if (tensor_storage(g, all[i]) != tensor_storage(g, a->query) ||
        t->offset_elements != i * q->shape[3] || t->view.rank != q->view.rank ||
        memcmp(t->shape, q->shape, sizeof t->shape) != 0 ||
        memcmp(t->view.strides, q->view.strides, sizeof t->view.strides) != 0)
      return false;
  }
  return true;
}

static void make_contiguous(graph *g, attention_operands *a)
{
  a->query = contiguous(g, "query_contiguous", a->query);
  a->key = contiguous(g, "key_contiguous", a->key);
  a->value = contiguous(g, "value_contiguous", a->value);
}

/* Transformer Engine (attention/dot_product_attention/utils.py, get_qkv_layout) keeps such slices
 * and makes everything else contiguous: with several query heads for a key, the shapes differ. */
static bool settle_layout(graph *g, attention_operands *a)
{
  if (takes_turns(g, a)) return true;
  make_contiguous(g, a);
  return false;
}

/* ---- the whole sequence ---------------------------------------------------------------------- */

static tensor_id exchanged(graph *g, const char *name, tensor_id x, int64_t length, int64_t heads)
{
  graph_tensor t = g->tensors.items[x];
  tensor_id y = graph_tensor_new(g, name, (dtype)t.dtype, length, t.shape[1], heads, t.shape[3]);
  graph_node *n = graph_add_of(g, &operator_exchange_heads, x);
  node_output(n, y);
  return y;
}

/* The kernel's operands: with all-to-all, the whole sequence and a part of the heads. */
static attention_operands with_whole_sequence(graph *g, const settings *s, attention_operands a)
{
  if (!exchanges_heads(g, s)) return a;
  int64_t cp = s->parallel.context_parallel_size;
  a.length *= cp;
  a.heads /= cp;
  a.kv_heads = a.kv_heads < cp ? 1 : a.kv_heads / cp;
  a.query = exchanged(g, "query_exchanged", a.query, a.length, a.heads);
  a.key = exchanged(g, "key_exchanged", a.key, a.length, a.kv_heads);
  a.value = exchanged(g, "value_exchanged", a.value, a.length, a.kv_heads);
  return a;
}

/* ---- the core in one kernel ------------------------------------------------------------------ */

/* The ring saves keys and values as one tensor, which it makes (sim/operators/attention.c). */
static void save_joined(graph *g, graph_node *n, const attention_operands *a,
                        const tensor_id saved[6])
{
  int64_t elements = tensor_elements(g, a->key) + tensor_elements(g, a->value);
  tensor_id kv = graph_constant(g, "key_value", type_of(g, a->key), elements, 0);
  node_output(n, kv);
  node_save(n, saved[0]);
  node_save(n, kv);
  for (int i = 3; i < 6; i++)
    node_save(n, saved[i]);
}

static graph_node *core_node(graph *g, const settings *s, const attention_operands *a, tensor_id o)
{
  int64_t cp = exchanges_heads(g, s) ? 1 : s->parallel.context_parallel_size;
  tensor_id lse = graph_tensor_new(g, "softmax_lse", DTYPE_FP32, a->batch, a->heads, a->length, 0);
  tensor_id rng = graph_constant(g, "rng_state", DTYPE_INT64, 2, 0);
  g->tensors.items[lse].requires_grad = false;
  graph_node *n = graph_add(g, &operator_attention);
  const int64_t dims[NODE_DIMS] = {
    a->batch, a->heads, a->length,   a->length * cp,          a->qk_dim,
    a->v_dim, cp,       a->kv_heads, size_window(s, g->layer)
  };
  for (int i = 0; i < NODE_DIMS; i++)
    n->dims[i] = dims[i];
  const tensor_id saved[] = { a->query, a->key, a->value, o, lse, rng };
  for (int i = 0; i < 3; i++)
    node_input(n, saved[i]);
  for (int i = 3; i < 6; i++)
    node_output(n, saved[i]);
  if (exchanges_by_ring(g, s)) {
    save_joined(g, n, a, saved);
    return n;
  }
  for (int i = 0; i < 6; i++)
    node_save(n, saved[i]);
  return n;
}

static tensor_id merged_heads(graph *g, const attention_operands *a, tensor_id o)
{
  return graph_view(g, "context", o, true, a->length, a->batch, a->heads * a->v_dim, 0);
}

static tensor_id fused(graph *g, const settings *s, attention_operands a)
{
  bool joined = settle_layout(g, &a);
  if (exchanges_by_ring(g, s)) make_contiguous(g, &a); /* backends.py: FusedAttention.forward */
  attention_operands local = a;
  a = with_whole_sequence(g, s, a);
  tensor_id o =
      graph_tensor_new(g, "attention_output", model_dtype(s), a.length, a.batch, a.heads, a.v_dim);
  graph_node *n = core_node(g, s, &a, o);
  bool sliced = joined && takes_turns(g, &a);
  n->flags = context_flags(g, s) | (sliced ? ATTENTION_JOINED_GRADIENT : 0);
  if (a.length != local.length)
    o = exchanged(g, "attention_output_exchanged", o, local.length, local.heads);
  return merged_heads(g, &local, o);
}

/* [sequence, batch, ..] <-> [batch, sequence, ..]; with one sequence both have the same layout. */
static tensor_id swapped(graph *g, const char *name, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  bool same = t.contiguous && (t.shape[0] == 1 || t.shape[1] == 1);
  if (same) return graph_view(g, name, x, true, t.shape[1], t.shape[0], t.shape[2], t.shape[3]);
  tensor_id from = positions_swapped(g, x);
  tensor_id y =
      graph_tensor_new(g, name, (dtype)t.dtype, t.shape[1], t.shape[0], t.shape[2], t.shape[3]);
  graph_node *n = graph_add_of(g, &operator_copy, from);
  node_output(n, y);
  return y;
}

static tensor_id flash(graph *g, const settings *s, attention_operands a)
{
  settle_layout(g, &a);
  attention_operands local = a;
  a = with_whole_sequence(g, s, a);
  a.query = swapped(g, "query_bshd", a.query);
  a.key = swapped(g, "key_bshd", a.key);
  a.value = swapped(g, "value_bshd", a.value);
  tensor_id o =
      graph_tensor_new(g, "attention_output", model_dtype(s), a.batch, a.length, a.heads, a.v_dim);
  graph_node *n = core_node(g, s, &a, o);
  n->flags = ATTENTION_FLASH | context_flags(g, s);
  o = swapped(g, "attention_output_sbhd", o);
  if (a.length != local.length)
    o = exchanged(g, "attention_output_exchanged", o, local.length, local.heads);
  return merged_heads(g, &local, o);
}

/* ---- products and softmax -------------------------------------------------------------------- */

static tensor_id matmul(graph *g, const char *name, tensor_id x, tensor_id y, const int64_t dims[4],
                        int32_t flags)
{
  dtype type = type_of(g, x);
  tensor_id c = graph_tensor_new(g, name, type, dims[0], dims[1], dims[2], 0);
  graph_node *n = graph_add(g, &operator_batched_matmul);
  n->structured = true;
  n->flags = flags;
  for (int i = 0; i < 4; i++)
    n->dims[i] = dims[i];
  node_input(n, x);
  node_input(n, y);
  node_output(n, c);
  node_save(n, x);
  node_save(n, y);
  return c;
}

/* Repeats shared keys and values for every query head of their group. */
static tensor_id repeated(graph *g, const char *name, const attention_operands *a, tensor_id x)
{
  if (a->kv_heads == a->heads) return x;
  graph_tensor t = g->tensors.items[x];
  tensor_id y =
      graph_tensor_new(g, name, (dtype)t.dtype, t.shape[0], t.shape[1], a->heads, t.shape[3]);
  graph_node *n = graph_add_of(g, &operator_repeat, x);
  node_output(n, y);
  return y;
}

static tensor_id softmax(graph *g, const attention_operands *a, tensor_id x, int32_t flags)
{
  graph_tensor t = g->tensors.items[x];
  tensor_id y = graph_tensor_like(g, "attention_probs", type_of(g, x), x);
  graph_node *n = graph_add(g, &operator_softmax);
  n->flags = flags;
  const int64_t dims[] = { a->batch * a->heads * a->length, t.shape[2], a->length, a->qk_dim };
  memcpy(n->dims, dims, sizeof dims);
  node_input(n, x);
  node_output(n, y);
  node_save(n, y);
  return y;
}

/* is_kernel_available of TE's FusedScaleMaskSoftmax (dot_product_attention/softmax.py, 296) and of
 * Megatron's (core/fusions/fused_softmax.py, 238). */
static bool kernel_is_available(const settings *s, const attention_operands *a)
{
  int64_t keys = a->length;
  bool fits = uses_te(s) ? keys > 16 && keys < 16384 && keys % 8 == 0
                         : keys > 16 && keys <= 4096 && keys % 4 == 0;
  return (s->training.bf16 || s->training.fp16) && s->model.masked_softmax_fusion && fits &&
         (a->batch * a->heads) % 4 == 0;
}

/* The fused kernel's backward is in place (TE pytorch/csrc/extensions/softmax.cpp; APEX
 * csrc/megatron/scaled_upper_triang_masked_softmax.h). Without it: fp32 scores, their masked copy, softmax,
 * and back. The softmax kernel scales and masks in either case. */
static tensor_id probabilities(graph *g, const settings *s, const attention_operands *a,
                               tensor_id scores)
{
  if (kernel_is_available(s, a)) return softmax(g, a, scores, SOFTMAX_IN_PLACE);
  dtype type = model_dtype(s);
  bool fp32 = type != DTYPE_FP32 && (uses_te(s) || s->model.attention_softmax_in_fp32 ||
                                     s->model.apply_query_key_layer_scaling);
  tensor_id x = fp32 ? converted(g, "scores_fp32", scores, DTYPE_FP32) : scores;
  tensor_id masked = converted(g, "masked_scores", x, fp32 ? DTYPE_FP32 : type);
  graph_keep(g, masked);
  tensor_id probs = softmax(g, a, masked, 0);
  return fp32 ? converted(g, "attention_probs_half", probs, type) : probs;
}

/* A rank has some heads of each sequence. */
static tensor_id dropped_probabilities(graph *g, const settings *s, const attention_operands *a,
                                       tensor_id probs)
{
  tensor_id y = dropout(g, "dropped_probs", s->model.attention_dropout, probs);
  if (y != probs) g->nodes.items[g->nodes.count - 1].dims[1] = a->batch;
  return y;
}

/* A view of [batch x heads, sequence, width] as [sequence, batch, heads, width]. */
static tensor_id positions_first(graph *g, const attention_operands *a, tensor_id context)
{
  int64_t row = a->v_dim, head = a->length * row;
  tensor_id v =
      graph_view(g, "context_by_head", context, false, a->length, a->batch, a->heads, a->v_dim);
  graph_strides(g, v, 0, 4, (const int64_t[]){ a->length, a->batch, a->heads, a->v_dim },
                (const int64_t[]){ row, a->heads * head, head, 1 });
  return v;
}

/* TE makes it for each call, since 2.0 also for causal attention, whose softmax kernel does not take it. 0:
 * none. */
static tensor_id attention_mask(graph *g, const settings *s, int64_t queries, int64_t keys)
{
  int engine = s->derived.software.transformer_engine;
  if (engine < TE_MASKS_CAUSAL) return 0;
  tensor_id mask = graph_tensor_new(g, "causal_mask", DTYPE_BYTE, queries, keys, 0, 0);
  graph_node *n = graph_add(g, &operator_attention_mask);
  n->flags = engine < TE_MASKS_BY_BOOLEANS ? ATTENTION_MASK_BY_WHERE : 0;
  node_output(n, mask);
  return mask;
}

static tensor_id by_parts(graph *g, const settings *s, attention_operands a, bool te)
{
  int64_t keys = a.length;
  int64_t slices = a.batch * a.heads;
  if (te) settle_layout(g, &a);
  tensor_id mask = te ? attention_mask(g, s, a.length, keys) : 0;
  a.key = repeated(g, "key_repeated", &a, a.key);
  a.value = repeated(g, "value_repeated", &a, a.value);
  tensor_id scores =
      matmul(g, "scores", a.query, a.key, (const int64_t[]){ slices, a.length, keys, a.qk_dim },
             MATMUL_TRANSPOSED | (te ? MATMUL_BADDBMM : 0));
  tensor_id probs = probabilities(g, s, &a, scores);
  tensor_id dropped = dropped_probabilities(g, s, &a, probs);
  tensor_id context = matmul(g, "context_by_head", dropped, a.value,
                             (const int64_t[]){ slices, a.length, a.v_dim, keys }, 0);
  tensor_id from = positions_first(g, &a, context);
  tensor_id by_sequence =
      graph_tensor_new(g, "context_sbhd", model_dtype(s), a.length, a.batch, a.heads, a.v_dim);
  graph_node *n = graph_add_of(g, &operator_copy, from);
  node_output(n, by_sequence);
  if (mask != 0) graph_keep(g, mask);
  graph_keep(g, scores);
  graph_keep(g, dropped);
  graph_keep(g, a.key);
  graph_keep(g, a.value);
  return merged_heads(g, &a, by_sequence);
}

tensor_id core_attention(graph *g, const settings *s, const attention_operands *operands)
{
  graph_site(g, "self_attention.core_attention");
  bool slides = layer_slides(s, g->layer);
  switch (attention_backend_of(s, operands->qk_dim, operands->v_dim, slides)) {
  case ATTENTION_BACKEND_FUSED: return fused(g, s, *operands);
  case ATTENTION_BACKEND_FLASH: return flash(g, s, *operands);
  case ATTENTION_BACKEND_UNFUSED: return by_parts(g, s, *operands, true);
  case ATTENTION_BACKEND_LOCAL: return by_parts(g, s, *operands, false);
  }
  return 0;
}
