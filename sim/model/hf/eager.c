/* Appending operators of eager PyTorch to a graph. */
#include "sim/model/hf/eager.h"

#include <assert.h>
#include <string.h>

#include "sim/operators/hf.h"
#include "sim/operators/liger.h"
#include "sim/operators/lora.h"
#include "sim/operators/operators.h"

bool hf_needs_gradient(const graph *g, tensor_id t)
{
  return t != 0 && g->tensors.items[t].requires_grad;
}

static bool any_input_needs(const graph *g, const graph_node *n)
{
  for (int i = 0; i < NODE_INPUTS && n->inputs[i] != 0; i++)
    if (hf_needs_gradient(g, n->inputs[i])) return true;
  return false;
}

tensor_id hf_result(graph *g, graph_node *n, const char *name, dtype type, const int64_t shape[4])
{
  tensor_id y = graph_tensor_new(g, name, type, shape[0], shape[1], shape[2], shape[3]);
  g->tensors.items[y].requires_grad = any_input_needs(g, n);
  node_output(n, y);
  return y;
}

tensor_id hf_output_of_width(graph *g, graph_node *n, tensor_id x, int64_t width)
{
  graph_tensor t = g->tensors.items[x];
  t.shape[t.rank - 1] = width;
  return hf_result(g, n, "output", (dtype)t.dtype, t.shape);
}

tensor_id hf_side_result(graph *g, graph_node *n, const char *name, dtype type,
                         const int64_t shape[4])
{
  tensor_id y = hf_result(g, n, name, type, shape);
  g->tensors.items[y].requires_grad = false;
  return y;
}

/* The strides of a tensor, in elements. */
static void strides_of(const graph_tensor *t, int64_t strides[4])
{
  int64_t stride = 1;
  for (uint8_t i = t->rank; i-- > 0;) {
    strides[i] = t->view.rank == 0 ? stride : t->view.strides[i];
    stride *= t->shape[i];
  }
}

static void swap(int64_t *a, int64_t *b)
{
  int64_t was = *a;
  *a = *b;
  *b = was;
}

/* A result with the shape and layout of `like`. If `like` is not contiguous, plans still list the
 * elements in the order of the shape: no bytes depend on it. */
static tensor_id result_like(graph *g, graph_node *n, const char *name, dtype type, tensor_id like)
{
  graph_tensor t = g->tensors.items[like];
  tensor_id y = hf_result(g, n, name, type, t.shape);
  g->tensors.items[y].contiguous = t.contiguous;
  return y;
}

tensor_id hf_cast(graph *g, tensor_id x, dtype type)
{
  if (type_of(g, x) == type) return x;
  return result_like(g, graph_add_of(g, &operator_hf_copy, x), "converted", type, x);
}

tensor_id hf_copy(graph *g, const char *name, tensor_id x)
{
  graph_node *n = graph_add_of(g, &operator_hf_copy, x);
  return hf_result(g, n, name, type_of(g, x), g->tensors.items[x].shape);
}

tensor_id hf_copy_rows(graph *g, const char *name, tensor_id x)
{
  tensor_id y = hf_copy(g, name, x);
  g->nodes.items[g->nodes.count - 1].flags = HF_COPY_OF_ROWS;
  return y;
}

tensor_id hf_add(graph *g, tensor_id a, tensor_id b)
{
  assert(tensor_elements(g, a) == tensor_elements(g, b) || !hf_needs_gradient(g, b));
  graph_node *n = graph_add_of(g, &operator_hf_add, a);
  node_input(n, b);
  return result_like(g, n, "sum", type_of(g, a), a);
}

tensor_id hf_subtract(graph *g, tensor_id a, tensor_id b)
{
  assert(tensor_elements(g, a) == tensor_elements(g, b));
  graph_node *n = graph_add_of(g, &operator_hf_subtract, a);
  node_input(n, b);
  return result_like(g, n, "difference", type_of(g, a), a);
}

tensor_id hf_add_in_place(graph *g, tensor_id a, tensor_id b)
{
  tensor_id y = hf_add(g, a, b);
  g->tensors.items[y].base = tensor_storage(g, a);
  return y;
}

/* The larger operand, to which the other is broadcast. */
static tensor_id broadcast(const graph *g, tensor_id a, tensor_id b)
{
  uint8_t rank_a = g->tensors.items[a].rank, rank_b = g->tensors.items[b].rank;
  if (rank_a != rank_b) return rank_a > rank_b ? a : b;
  return tensor_elements(g, a) >= tensor_elements(g, b) ? a : b;
}

/* fp32 if either is (torch.result_type). */
static dtype promoted(const graph *g, tensor_id a, tensor_id b)
{
  return type_of(g, a) == DTYPE_FP32 ? DTYPE_FP32 : type_of(g, b);
}

tensor_id hf_multiply(graph *g, tensor_id a, tensor_id b)
{
  tensor_id larger = broadcast(g, a, b);
  graph_node *n = graph_add_of(g, &operator_hf_multiply, a);
  node_input(n, b);
  if (hf_needs_gradient(g, a)) node_save(n, b);
  if (hf_needs_gradient(g, b)) node_save(n, a);
  return result_like(g, n, "product", promoted(g, a, b), larger);
}

tensor_id hf_scale(graph *g, tensor_id x, double factor)
{
  graph_node *n = graph_add_of(g, &operator_hf_scale, x);
  memcpy(&n->dims[0], &factor, sizeof factor);
  return result_like(g, n, "scaled", type_of(g, x), x);
}

tensor_id hf_plus(graph *g, tensor_id x, double number)
{
  graph_node *n = graph_add_of(g, &operator_hf_plus, x);
  node_set_number(n, number);
  return result_like(g, n, "plus", type_of(g, x), x);
}

tensor_id hf_clamp(graph *g, double limit, bool both, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add_of(g, &operator_hf_clamp, x);
  node_set_number(n, limit);
  n->flags = both;
  if (t.requires_grad) node_save(n, x);
  return hf_result(g, n, "clamped", (dtype)t.dtype, t.shape);
}

tensor_id hf_sigmoid(graph *g, tensor_id x)
{
  graph_node *n = graph_add_of(g, &operator_hf_sigmoid, x);
  tensor_id y = result_like(g, n, "sigmoid", type_of(g, x), x);
  if (hf_needs_gradient(g, y)) node_save(n, y);
  return y;
}

tensor_id hf_dropout(graph *g, double probability, tensor_id x)
{
  if (!(probability > 0)) return x;
  graph_node *n = graph_add_of(g, &operator_dropout, x);
  node_set_number(n, probability);
  tensor_id y = result_like(g, n, "dropped", type_of(g, x), x);
  tensor_id mask = hf_side_result(g, n, "dropout_mask", DTYPE_BYTE, g->tensors.items[x].shape);
  if (hf_needs_gradient(g, y)) node_save(n, mask);
  return y;
}

tensor_id hf_multiplied(graph *g, tensor_id x, double factor)
{
  return factor == 1 ? x : hf_scale(g, x, factor);
}

static activation_function gelu_of(hidden_act_choice act)
{
  return act == HIDDEN_ACT_GELU ? ACTIVATION_GELU_ERF : ACTIVATION_GELU_TANH;
}

tensor_id hf_activation(graph *g, const settings *s, tensor_id x)
{
  hidden_act_choice act = s->model.hidden_act;
  graph_tensor t = g->tensors.items[x];
  bool silu = act == HIDDEN_ACT_SILU;
  graph_node *n = graph_add_of(g, silu ? &operator_hf_silu : &operator_hf_gelu, x);
  if (!silu) n->flags = (int32_t)gelu_of(act);
  if (t.requires_grad) node_save(n, x);
  return hf_result(g, n, "activated", (dtype)t.dtype, t.shape);
}

tensor_id hf_softcap(graph *g, double cap, tensor_id x)
{
  if (cap == 0) return x;
  tensor_id small = hf_scale(g, x, 1 / cap);
  graph_node *n = graph_add_of(g, &operator_hf_tanh, small);
  tensor_id y = result_like(g, n, "tanh", type_of(g, x), x);
  if (hf_needs_gradient(g, y)) node_save(n, y);
  return hf_scale(g, y, cap);
}

/* x[..., first::step], the first `width` of them */
static tensor_id sliced(graph *g, const char *name, tensor_id x, int64_t first, int64_t width,
                        int64_t step)
{
  graph_tensor t = g->tensors.items[x];
  int64_t strides[4] = { 0 };
  assert(first >= 0 && width > 0 && first + (width - 1) * step < t.shape[t.rank - 1]);
  strides_of(&t, strides);
  graph_node *n = graph_add_of(g, &operator_hf_slice, x);
  n->dims[0] = first;
  n->dims[1] = step;
  t.shape[t.rank - 1] = width;
  strides[t.rank - 1] *= step;
  tensor_id y = hf_result(g, n, name, (dtype)t.dtype, t.shape);
  g->tensors.items[y].base = tensor_storage(g, x);
  graph_strides(g, y, t.offset_elements + first, t.rank, t.shape, strides);
  return y;
}

tensor_id hf_slice(graph *g, const char *name, tensor_id x, int64_t first, int64_t width)
{
  return sliced(g, name, x, first, width, 1);
}

tensor_id hf_every_other(graph *g, const char *name, tensor_id x, int64_t first)
{
  const graph_tensor *t = &g->tensors.items[x];
  return sliced(g, name, x, first, t->shape[t->rank - 1] / 2, 2);
}

void hf_strides_of(const graph *g, tensor_id t, int64_t strides[4])
{
  strides_of(&g->tensors.items[t], strides);
}

tensor_id hf_view(graph *g, const char *name, tensor_id x, bool contiguous, int64_t d0, int64_t d1,
                  int64_t d2, int64_t d3)
{
  return graph_view(g, name, x, contiguous, d0, d1, d2, d3);
}

tensor_id hf_transposed_view(graph *g, const char *name, tensor_id x, uint8_t first)
{
  graph_tensor t = g->tensors.items[x];
  assert(first + 1 < t.rank);
  int64_t strides[4] = { 0 };
  strides_of(&t, strides);
  swap(&t.shape[first], &t.shape[first + 1]);
  swap(&strides[first], &strides[first + 1]);
  tensor_id y = graph_view(g, name, x, false, t.shape[0], t.shape[1], t.shape[2], t.shape[3]);
  graph_strides(g, y, t.offset_elements, t.rank, t.shape, strides);
  return y;
}

tensor_id hf_transposed_weight(graph *g, tensor_id weight)
{
  assert(g->tensors.items[weight].rank == 2);
  tensor_id y = hf_transposed_view(g, "weight_transposed", weight, 0);
  g->tensors.items[y].transposed_weight = true;
  return y;
}

/* Of custom functions, save_for_backward comes after everything else. */
static bool is_custom_function(const operator_kind *kind)
{
  return kind == &operator_hf_flash_attention || kind == &operator_lora_projections ||
         kind == &operator_lora_mlp || kind == &operator_liger_glu ||
         kind == &operator_causal_conv || kind == &operator_delta_rule ||
         kind == &operator_liger_linear_cross_entropy;
}

uint16_t hf_packed_early(const graph_node *n)
{
  uint16_t early = 0;
  if (is_custom_function(n->kind)) return 0;
  for (int i = 0; i < NODE_SAVED && n->saved[i] != 0; i++) {
    bool is_result = false;
    for (int k = 0; k < NODE_OUTPUTS && n->outputs[k] != 0; k++)
      is_result = is_result || n->outputs[k] == n->saved[i];
    if (!is_result) early |= (uint16_t)(1U << i);
  }
  return early;
}

tensor_id hf_split_view(graph *g, graph_node *n, const char *name, tensor_id of, int64_t offset,
                        const int64_t shape[4])
{
  graph_tensor whole = g->tensors.items[of];
  assert(whole.rank == 3 && offset >= 0 && offset < whole.shape[2]);
  tensor_id part = hf_result(g, n, name, type_of(g, of), shape);
  graph_tensor *t = &g->tensors.items[part];
  int64_t strides[4];
  strides_of(t, strides);
  for (int i = 0; i < whole.rank - 1; i++)
    strides[i] = i == 0 ? whole.shape[1] * whole.shape[2] : whole.shape[2];
  t->base = tensor_storage(g, of);
  graph_strides(g, part, offset, t->rank, shape, strides);
  return part;
}

void hf_split_columns(graph *g, tensor_id x, uint32_t count, const hf_columns *columns,
                      tensor_id *parts)
{
  graph_tensor t = g->tensors.items[x];
  int64_t strides[4], all = t.shape[t.rank - 1], first = 0;
  strides_of(&t, strides);
  graph_node *n = graph_add_of(g, &operator_split, x);
  n->dims[0] = tensor_elements(g, x) / all;
  for (uint32_t i = 0; i < count; i++, first += columns[i - 1].width) {
    t.shape[t.rank - 1] = columns[i].width;
    parts[i] = hf_result(g, n, columns[i].name, (dtype)t.dtype, t.shape);
    g->tensors.items[parts[i]].base = tensor_storage(g, x);
    graph_strides(g, parts[i], t.offset_elements + first, t.rank, t.shape, strides);
  }
  assert(first == all);
}
