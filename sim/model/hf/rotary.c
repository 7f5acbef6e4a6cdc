/* Rotary position embedding of queries and keys: apply_rotary_pos_emb of modeling_llama.py and its
 * forms in glm4, gpt_oss, deepseek_v2 and deepseek_v3. */
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"
#include "sim/operators/operators.h"

static tensor_id rotated_half(graph *g, const settings *s, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add(g, &operator_hf_rotate_half);
  n->flags = s->model.rotary_interleaved;
  node_input(n, x);
  return hf_result(g, n, "rotated_half", (dtype)t.dtype, t.shape);
}

/* With heads; in GLM 4 each column of the first half twice, a new tensor in each layer; in
 * DeepSeek-V3 the first half alone. */
static tensor_id table(graph *g, const settings *s, tensor_id of)
{
  graph_tensor t = g->tensors.items[of];
  tensor_id view = hf_view(g, t.name, of, true, t.shape[0], 1, t.shape[1], t.shape[2]);
  if (s->model.rotary_form == ROTARY_HALVES) return view;
  if (s->model.rotary_form == ROTARY_PAIRS) return hf_slice(g, t.name, view, 0, t.shape[2] / 2);
  if (!s->model.rotary_interleaved) return view;
  graph_node *n = graph_add_of(g, &operator_hf_interleaved_table, view);
  return hf_side_result(g, n, t.name, (dtype)t.dtype, g->tensors.items[view].shape);
}

/* x cos + rotate_half(x) sin */
static tensor_id rotated(graph *g, const settings *s, tensor_id x, tensor_id cosine, tensor_id sine)
{
  dtype type = type_of(g, x);
  tensor_id scaled = hf_multiply(g, x, cosine);
  tensor_id turned = hf_multiply(g, rotated_half(g, s, x), sine);
  return hf_cast(g, hf_add(g, scaled, turned), type);
}

/* The first columns of each head, rotated, beside the others in a new tensor; a slice and a copy
 * even where there are no others. */
static tensor_id rotated_part(graph *g, const settings *s, tensor_id x, tensor_id cosine,
                              tensor_id sine)
{
  graph_tensor t = g->tensors.items[x];
  int64_t all = t.shape[3], width = g->tensors.items[cosine].shape[3];
  tensor_id turned = hf_slice(g, "rotary_part", x, 0, width);
  tensor_id rest = width < all ? hf_slice(g, "other_part", x, width, all - width) : 0;
  turned = rotated(g, s, turned, cosine, sine);
  graph_node *n = graph_add_of(g, &operator_join_columns, turned);
  node_input(n, rest);
  return hf_result(g, n, t.name, (dtype)t.dtype, t.shape);
}

/* The halves of each head: neighbours in memory, or every other element. */
static void split_heads(graph *g, const settings *s, tensor_id x, tensor_id half[2])
{
  graph_tensor t = g->tensors.items[x];
  int64_t width = t.shape[3] / 2, strides[4];
  if (s->model.rotary_form == ROTARY_PAIRS) {
    for (int i = 0; i < 2; i++)
      half[i] = hf_every_other(g, i == 0 ? "even" : "odd", x, i);
    return;
  }
  hf_strides_of(g, x, strides);
  graph_node *n = graph_add_of(g, &operator_split, x);
  n->dims[0] = tensor_elements(g, x) / t.shape[3];
  t.shape[3] = width;
  for (int i = 0; i < 2; i++) {
    half[i] = hf_result(g, n, i == 0 ? "first_half" : "second_half", (dtype)t.dtype, t.shape);
    g->tensors.items[half[i]].base = tensor_storage(g, x);
    graph_strides(g, half[i], t.offset_elements + i * width, 4, t.shape, strides);
  }
}

/* x1 cos - x2 sin beside x2 cos + x1 sin, of the halves x1 and x2 */
static tensor_id rotated_halves(graph *g, const settings *s, tensor_id x, tensor_id cosine,
                                tensor_id sine)
{
  graph_tensor t = g->tensors.items[x];
  tensor_id half[2], made[2];
  split_heads(g, s, x, half);
  tensor_id scaled = hf_multiply(g, half[0], cosine);
  made[0] = hf_subtract(g, scaled, hf_multiply(g, half[1], sine));
  scaled = hf_multiply(g, half[1], cosine);
  made[1] = hf_add(g, scaled, hf_multiply(g, half[0], sine));
  graph_node *n = graph_add(g, &operator_join_columns);
  node_input(n, made[0]);
  node_input(n, made[1]);
  return hf_result(g, n, t.name, (dtype)t.dtype, t.shape);
}

/* Pairs of neighbours as complex fp32 numbers times those of the table. */
static tensor_id turned_complex(graph *g, tensor_id wide, tensor_id table)
{
  graph_tensor t = g->tensors.items[wide];
  graph_node *n = graph_add_of(g, &operator_hf_rotate_complex, wide);
  node_input(n, table);
  if (t.requires_grad) node_save(n, table);
  return hf_result(g, n, "rotated", DTYPE_FP32, t.shape);
}

static tensor_id rotated_complex(graph *g, tensor_id x, tensor_id table)
{
  dtype type = type_of(g, x);
  return hf_cast(g, turned_complex(g, hf_cast(g, x, DTYPE_FP32), table), type);
}

/* Its frame refers to both in fp32, before and after, until it returns (modeling_llama4.py:
 * apply_rotary_emb). */
void hf_rotate_by_position(graph *g, hf_shared shared, tensor_id *query, tensor_id *key)
{
  tensor_id *const both[] = { query, key };
  tensor_id wide[2], turned[2];
  dtype type = type_of(g, *query);
  graph_site(g, "self_attn.rotary");
  for (int i = 0; i < 2; i++)
    wide[i] = hf_cast(g, *both[i], DTYPE_FP32);
  for (int i = 0; i < 2; i++)
    turned[i] = turned_complex(g, wide[i], shared.cosine);
  for (int i = 0; i < 2; i++) {
    graph_keep(g, *both[i]);
    *both[i] = hf_cast(g, turned[i], type);
  }
  for (int i = 0; i < 2; i++) {
    graph_keep(g, wide[i]);
    graph_keep(g, turned[i]);
  }
}

static tensor_id rotated_by_form(graph *g, const settings *s, tensor_id x, tensor_id cosine,
                                 tensor_id sine)
{
  bool sliced = s->model.rotary_sliced || s->model.rotary_percent < 1;
  switch (s->model.rotary_form) {
  case ROTARY_HALVES:
  case ROTARY_PAIRS: return rotated_halves(g, s, x, cosine, sine);
  case ROTARY_COMPLEX: return rotated_complex(g, x, cosine);
  case ROTARY_WHOLE: break;
  }
  return sliced ? rotated_part(g, s, x, cosine, sine) : rotated(g, s, x, cosine, sine);
}

/* Its frame refers to both arguments until it returns. */
void hf_rotate(graph *g, const settings *s, hf_shared shared, tensor_id *query, tensor_id *key)
{
  graph_site(g, "self_attn.rotary");
  bool complex_form = s->model.rotary_form == ROTARY_COMPLEX;
  tensor_id cosine = complex_form ? shared.cosine : table(g, s, shared.cosine);
  tensor_id sine = complex_form ? 0 : table(g, s, shared.sine);
  tensor_id before[] = { *query, *key };
  *query = rotated_by_form(g, s, before[0], cosine, sine);
  *key = rotated_by_form(g, s, before[1], cosine, sine);
  graph_keep(g, before[0]);
  graph_keep(g, before[1]);
}
