/*
 * The attention functions of transformers: integrations/sdpa_attention.py, flash_attention.py, and
 * eager_attention_forward of modeling_llama.py.
 */
#include <string.h>

#include "sim/graph/sizes.h"
#include "sim/model/hf/eager.h"
#include "sim/model/hf/ulysses.h"
#include "sim/operators/hf.h"
#include "sim/operators/operators.h"
#include "sim/operators/shared.h"

static const int64_t one_number[4] = { 1, 0, 0, 0 };

static graph_node *attention_node(graph *g, const operator_kind *kind, tensor_id q, tensor_id k,
                                  tensor_id v, int64_t window)
{
  const int64_t *of_q = g->tensors.items[q].shape, *of_k = g->tensors.items[k].shape;
  graph_node *n = graph_add(g, kind);
  const int64_t dims[] = {
    of_q[0], of_q[1], of_q[2], of_k[2], of_q[3], of_k[1], g->tensors.items[v].shape[3], window
  };
  memcpy(n->dims, dims, sizeof dims);
  node_input(n, q);
  node_input(n, k);
  node_input(n, v);
  return n;
}

/* The kernels write in the layout of queries (MHA.cpp: alloc_with_matching_layout; flash_api.cpp:
 * empty_like): [b, s, heads, width] as projections have it, or [b, heads, s, width] as the rotary
 * embedding's concatenations have it. */
static tensor_id output_of(graph *g, graph_node *n, tensor_id q, tensor_id v)
{
  graph_tensor t = g->tensors.items[q];
  t.shape[3] = g->tensors.items[v].shape[3];
  tensor_id o = hf_result(g, n, "attention", (dtype)t.dtype, t.shape);
  if (t.contiguous) return o;
  const int64_t row = t.shape[1] * t.shape[3];
  const int64_t strides[] = { t.shape[2] * row, t.shape[3], row, 1 };
  graph_strides(g, o, 0, 4, t.shape, strides);
  return o;
}

static tensor_id statistics_of(graph *g, graph_node *n, tensor_id q)
{
  int64_t shape[4];
  memcpy(shape, g->tensors.items[q].shape, sizeof shape);
  shape[3] = 1;
  return hf_side_result(g, n, "logsumexp", DTYPE_FP32, shape);
}

static void save_all(graph_node *n, const tensor_id *saved, size_t count)
{
  for (size_t i = 0; i < count; i++)
    node_save(n, saved[i]);
}

static tensor_id repeated(graph *g, tensor_id x, int64_t heads);

/* A mask of bytes as a bias of the scores. */
static tensor_id mask_bias(graph *g, dtype type, tensor_id mask)
{
  graph_node *n = graph_add_of(g, &operator_hf_mask_bias, mask);
  return hf_side_result(g, n, "mask_bias", type, g->tensors.items[mask].shape);
}

/* Training without padding uses is_causal and no mask. With a mask, keys and values are repeated
 * for all heads (integrations/sdpa_attention.py: use_gqa_in_sdpa). */
static tensor_id sdpa(graph *g, const settings *s, tensor_id q, tensor_id k, tensor_id v,
                      tensor_id mask)
{
  graph_tensor of_q = g->tensors.items[q];
  tensor_id bias = 0;
  if (mask != 0) {
    k = repeated(g, k, of_q.shape[1]);
    v = repeated(g, v, of_q.shape[1]);
    bias = mask_bias(g, (dtype)of_q.dtype, mask);
  }
  graph_node *n = attention_node(g, &operator_hf_sdpa, q, k, v, 0);
  node_input(n, bias);
  n->flags = s->derived.compute_capability >= 90;
  tensor_id o = output_of(g, n, q, v), lse = statistics_of(g, n, q);
  tensor_id seed = hf_side_result(g, n, "philox_seed", DTYPE_INT64, one_number);
  tensor_id offset = hf_side_result(g, n, "philox_offset", DTYPE_INT64, one_number);
  if (!hf_needs_gradient(g, o)) return o;
  node_save(n, bias);
  const tensor_id saved[] = { k, q, v, lse, o, seed, offset };
  save_all(n, saved, 7);
  return o;
}

/* flash_attn reads, writes and saves [b, s, heads, width] (flash_attn_interface.py:
 * FlashAttnFunc), which is the layout in memory. */
static tensor_id by_position(graph *g, tensor_id x)
{
  tensor_id y = hf_transposed_view(g, g->tensors.items[x].name, x, 1);
  graph_tensor *t = &g->tensors.items[y];
  t->contiguous = view_is_contiguous(&t->view);
  if (t->contiguous) t->view = (plan_view){ 0 };
  return y;
}

/* Values narrower than keys get zeros beside them (integrations/flash_attention.py), in a tensor with
 * positions before heads. */
static tensor_id widened(graph *g, tensor_id v, int64_t width)
{
  graph_tensor t = g->tensors.items[v];
  if (t.shape[3] == width) return v;
  graph_node *n = graph_add_of(g, &operator_hf_widen, v);
  const int64_t shape[4] = { t.shape[0], t.shape[2], t.shape[1], width };
  return hf_transposed_view(g, "value", hf_result(g, n, "value_widened", (dtype)t.dtype, shape), 1);
}

static tensor_id flash(graph *g, const settings *s, tensor_id q, tensor_id k, tensor_id v,
                       tensor_id sinks)
{
  int64_t width = g->tensors.items[v].shape[3];
  v = widened(g, v, g->tensors.items[q].shape[3]);
  hf_ulysses_enter(g, s, &q, &k, &v);
  int64_t window = size_window(s, g->layer);
  graph_node *n = attention_node(g, &operator_hf_flash_attention, q, k, v, window);
  node_input(n, sinks);
  tensor_id o = output_of(g, n, q, v), lse = statistics_of(g, n, q);
  const int64_t two[4] = { 2, 0, 0, 0 };
  tensor_id state = hf_side_result(g, n, "rng_state", DTYPE_INT64, two);
  if (hf_needs_gradient(g, o)) {
    const tensor_id saved[] = {
      by_position(g, q), by_position(g, k), by_position(g, v), by_position(g, o), lse, state
    };
    save_all(n, saved, 6);
    node_save(n, sinks);
  }
  o = hf_ulysses_leave(g, s, o);
  return g->tensors.items[o].shape[3] == width ? o : hf_slice(g, "attention", o, 0, width);
}

/* ---- eager ------------------------------------------------------------------------------------
 */

/* repeat_kv: copies each key head for all its query heads. */
static tensor_id repeated(graph *g, tensor_id x, int64_t heads)
{
  graph_tensor t = g->tensors.items[x];
  if (t.shape[1] == heads) return x;
  graph_node *n = graph_add_of(g, &operator_hf_repeat, x);
  t.shape[1] = heads;
  return hf_result(g, n, "repeated", (dtype)t.dtype, t.shape);
}

/* matmul merges batch and heads. That copies an operand with positions before heads, unless there
 * is only one sequence. */
static tensor_id merged(graph *g, const char *name, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  int64_t strides[4];
  hf_strides_of(g, x, strides);
  if (t.shape[0] > 1 && strides[0] != t.shape[1] * strides[1]) x = hf_copy(g, "merged", x);
  t = g->tensors.items[x];
  const int64_t shape[] = { t.shape[0] * t.shape[1], t.shape[2], t.shape[3] };
  tensor_id y = hf_view(g, name, x, t.contiguous, shape[0], shape[1], shape[2], 0);
  if (t.view.rank > 0) graph_strides(g, y, t.offset_elements, 3, shape, t.view.strides + 1);
  return y;
}

/* [batch, m, k] by [batch, k, n]; `shape` of the result */
static tensor_id product(graph *g, const char *name, tensor_id a, tensor_id b,
                         const int64_t shape[4])
{
  const int64_t *of_a = g->tensors.items[a].shape, *of_b = g->tensors.items[b].shape;
  graph_node *n = graph_add(g, &operator_hf_matmul);
  const int64_t dims[] = { of_a[0], of_a[1], of_b[2], of_a[2] };
  memcpy(n->dims, dims, sizeof dims);
  node_input(n, a);
  node_input(n, b);
  if (hf_needs_gradient(g, a)) node_save(n, b);
  if (hf_needs_gradient(g, b)) node_save(n, a);
  return hf_result(g, n, name, type_of(g, a), shape);
}

static tensor_id softmax(graph *g, const char *name, dtype type, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add_of(g, &operator_hf_softmax, x);
  n->dims[0] = t.shape[0] * t.shape[1] * t.shape[2];
  n->dims[1] = t.shape[3];
  tensor_id y = hf_result(g, n, name, type, t.shape);
  if (hf_needs_gradient(g, y)) node_save(n, y);
  return y;
}

static tensor_id probabilities_of(graph *g, const settings *s, tensor_id scores)
{
  dtype type = type_of(g, scores);
  if (s->model.attention_class == ATTENTION_LLAMA4)
    return softmax(g, "probabilities", type, scores);
  return hf_cast(g, softmax(g, "probabilities_fp32", DTYPE_FP32, scores), type);
}

/* The sink's score as one more column of each row, from which the row's maximum is subtracted; its
 * probability is dropped. */
static tensor_id probabilities_with_sinks(graph *g, tensor_id scores, tensor_id sinks)
{
  graph_tensor t = g->tensors.items[scores];
  int64_t keys = t.shape[3]++;
  graph_node *n = graph_add_of(g, &operator_hf_join_sinks, scores);
  node_input(n, sinks);
  tensor_id all = hf_result(g, n, "scores_and_sinks", (dtype)t.dtype, t.shape);
  n = graph_add_of(g, &operator_hf_less_row_max, all);
  tensor_id less = hf_result(g, n, "less_maximum", (dtype)t.dtype, t.shape);
  const int64_t column[4] = { t.shape[0], t.shape[1], t.shape[2], 1 };
  hf_side_result(g, n, "maxima", (dtype)t.dtype, column);
  tensor_id columns = hf_side_result(g, n, "maximal_columns", DTYPE_INT64, column);
  if (hf_needs_gradient(g, less)) node_save(n, columns);
  return hf_slice(g, "probabilities", softmax(g, "probabilities_of_all", (dtype)t.dtype, less), 0,
                  keys);
}

static tensor_id eager(graph *g, const settings *s, tensor_id q, tensor_id k, tensor_id v,
                       tensor_id mask, tensor_id sinks, tensor_id *probabilities)
{
  graph_tensor t = g->tensors.items[q];
  tensor_id keys = repeated(g, k, t.shape[1]), values = repeated(g, v, t.shape[1]);
  const int64_t square[4] = { t.shape[0], t.shape[1], t.shape[2], t.shape[2] };
  tensor_id turned = hf_transposed_view(g, "key_transposed", merged(g, "key_rows", keys), 1);
  tensor_id scores = product(g, "scores", merged(g, "query_rows", q), turned, square);
  scores = hf_scale(g, scores, hf_score_factor(s, t.shape[3]));
  scores = hf_add(g, hf_softcap(g, s->model.attn_logit_softcapping, scores), mask);
  tensor_id weights =
      sinks != 0 ? probabilities_with_sinks(g, scores, sinks) : probabilities_of(g, s, scores);
  weights = *probabilities = hf_dropout(g, s->model.attention_dropout, weights);
  t.shape[3] = g->tensors.items[v].shape[3];
  tensor_id o = product(g, "attention", merged(g, "weights_rows", weights),
                        merged(g, "value_rows", values), t.shape);
  graph_keep(g, keys);
  graph_keep(g, values);
  return hf_copy_rows(g, "attention_by_position", hf_transposed_view(g, "attention", o, 1));
}

tensor_id hf_attention_core(graph *g, const settings *s, tensor_id q, tensor_id k, tensor_id v,
                            tensor_id mask, tensor_id sinks, tensor_id *probabilities)
{
  graph_tensor t = g->tensors.items[q];
  int64_t width = t.shape[1] * g->tensors.items[v].shape[3];
  tensor_id o = 0;
  switch (s->model.attn_implementation) {
  case ATTN_EAGER: o = eager(g, s, q, k, v, mask, sinks, probabilities); break;
  case ATTN_SDPA: o = sdpa(g, s, q, k, v, mask); break;
  case ATTN_FLEX: /* predicted so */
  case ATTN_FLASH_2: o = flash(g, s, q, k, v, sinks); break;
  }
  bool copies = s->model.attn_implementation != ATTN_EAGER &&
                (g->tensors.items[o].contiguous || g->tensors.items[v].shape[3] != t.shape[3]);
  if (copies)
    o = hf_copy_rows(g, "attention_by_position", hf_transposed_view(g, "attention", o, 1));
  return hf_view(g, "attention_rows", o, true, t.shape[0], t.shape[2], width, 0);
}
