/*
 * LanguageModelEmbedding: word and position embeddings, this rank's part of the sequence, dropout
 * (Megatron-LM core/models/common/embeddings/language_model_embedding.py).
 */
#include "sim/graph/node.h"
#include "sim/model/megatron/modules.h"
#include "sim/operators/operators.h"

static bool adds_positions(const settings *s)
{
  return s->model.position_embedding_type == POSITIONS_LEARNED_ABSOLUTE;
}

/* Rows of `table` for every token: [batch, sequence, hidden]. */
static tensor_id lookup(graph *g, const settings *s, const char *name, tensor_id indices,
                        int64_t rows, bool split)
{
  graph_tensor i = g->tensors.items[indices];
  int64_t h = s->model.hidden_size;
  tensor_id table = graph_parameter(g, "weight", model_dtype(s), rows, h);
  tensor_id y = graph_tensor_new(g, name, model_dtype(s), i.shape[0], i.shape[1], h, 0);
  tensor_id masked =
      split ? graph_constant(g, "masked_input", DTYPE_INT64, i.shape[0], i.shape[1]) : 0;
  tensor_id mask = split ? graph_constant(g, "input_mask", DTYPE_BYTE, i.shape[0], i.shape[1]) : 0;
  graph_node *n = graph_add(g, &operator_embedding);
  n->flags = split;
  n->dims[0] = tensor_elements(g, indices);
  n->dims[1] = h;
  node_input(n, indices);
  node_input(n, table);
  node_output(n, y);
  node_output(n, masked);
  node_output(n, mask);
  node_save(n, split ? masked : indices);
  node_save(n, mask);
  return y;
}

static tensor_id reduced(graph *g, tensor_id x)
{
  tensor_id y = graph_tensor_like(g, "reduced", type_of(g, x), x);
  g->tensors.items[y].base = x;
  graph_node *n = graph_add_of(g, &operator_all_reduce, x);
  node_output(n, y);
  return y;
}

static tensor_id sum(graph *g, tensor_id a, tensor_id b)
{
  tensor_id y = graph_tensor_like(g, "embeddings", type_of(g, a), a);
  graph_node *n = graph_add_of(g, &operator_add, a);
  node_input(n, b);
  node_output(n, y);
  return y;
}

/* [batch, sequence, hidden] -> [sequence, batch, hidden]; with one sequence the layout is the
 * same. */
static tensor_id sequence_first(graph *g, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  bool same = t.shape[0] == 1;
  tensor_id turned =
      graph_view(g, "sequence_first", x, same, t.shape[1], t.shape[0], t.shape[2], 0);
  if (same) return turned;
  graph_strides(g, turned, t.offset_elements, 3, (int64_t[]){ t.shape[1], t.shape[0], t.shape[2] },
                (int64_t[]){ t.shape[2], t.shape[1] * t.shape[2], 1 });
  tensor_id y =
      graph_tensor_new(g, "sequence_first", (dtype)t.dtype, t.shape[1], t.shape[0], t.shape[2], 0);
  graph_node *n = graph_add_of(g, &operator_copy, turned);
  node_output(n, y);
  return y;
}

static tensor_id in_residual_type(graph *g, const settings *s, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  if (t.dtype == residual_dtype(s)) return x;
  tensor_id y = graph_tensor_like(g, "embeddings_fp32", residual_dtype(s), x);
  graph_node *n = graph_add_of(g, &operator_copy, x);
  node_output(n, y);
  return y;
}

tensor_id dropout(graph *g, const char *name, double probability, tensor_id x)
{
  if (probability <= 0) return x;
  tensor_id y = graph_tensor_like(g, name, type_of(g, x), x);
  tensor_id mask = graph_tensor_like(g, "dropout_mask", DTYPE_BYTE, x);
  g->tensors.items[mask].requires_grad = false;
  graph_node *n = graph_add(g, &operator_dropout);
  node_set_number(n, probability);
  node_input(n, x);
  node_output(n, y);
  node_output(n, mask);
  node_save(n, mask);
  return y;
}

tensor_id embedding(graph *g, const settings *s, const micro_batch *data)
{
  bool split = size_tp(s) > 1;
  bool parallel = s->parallel.sequence_parallel && split;
  bool reduce_scatters = parallel && !adds_positions(s);
  graph_site(g, "embedding.word_embeddings");
  tensor_id words =
      lookup(g, s, "word_embeddings", data->tokens, s->model.padded_vocab_size / size_tp(s), split);
  tensor_id x = words;
  if (reduce_scatters)
    x = sequence_part(g, s, "sequence_part", sequence_first(g, x), true);
  else if (split)
    x = reduced(g, x);
  if (adds_positions(s)) {
    graph_site(g, "embedding.position_embeddings");
    tensor_id positions = lookup(g, s, "position_embeddings", data->positions,
                                 s->model.max_position_embeddings, false);
    graph_site(g, "embedding");
    x = sum(g, x, positions);
    graph_keep(g, positions);
  }
  graph_site(g, "embedding");
  if (!reduce_scatters) x = sequence_first(g, x);
  x = in_residual_type(g, s, x);
  if (parallel && !reduce_scatters) x = sequence_part(g, s, "sequence_part", x, false);
  x = dropout(g, "dropped", s->model.hidden_dropout, x);
  graph_keep(g, words);
  return x;
}
