/* LlamaForCausalLM: data, embedding, position tables, layers, head; and the loss, on one GPU. */
#include "sim/graph/sizes.h"
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"
#include "sim/operators/operators.h"

typedef struct token_data {
  tensor_id tokens, labels;
} token_data;

static token_data data_of(graph *g, const settings *s)
{
  const int64_t shape[4] = { s->training.micro_batch_size, s->training.seq_length, 0, 0 };
  graph_site(g, "data");
  graph_node *n = graph_add(g, &operator_data);
  return (token_data){ .tokens = hf_side_result(g, n, "input_ids", DTYPE_INT64, shape),
                       .labels = hf_side_result(g, n, "labels", DTYPE_INT64, shape) };
}

/* Returns [b, s, hidden]. The output needs a gradient even if the model is frozen, because
 * checkpoints require one: trainers with adapters always ensure it (enable_input_require_grads;
 * axolotl loaders/adapter.py, load_adapter). `weight`: for an output layer that shares it. */
static tensor_id embedded(graph *g, const settings *s, tensor_id tokens, tensor_id *weight)
{
  const int64_t *of = g->tensors.items[tokens].shape;
  const int64_t shape[4] = { of[0], of[1], s->model.hidden_size, 0 };
  graph_site(g, "embed_tokens");
  group_id group = offload_scope_of(s) == OFFLOAD_STEP ? graph_group_start(g, "embedding") : 0;
  *weight = hf_parameter(g, s, "weight", s->model.padded_vocab_size, s->model.hidden_size);
  graph_node *n = graph_add(g, &operator_hf_embedding);
  node_input(n, tokens);
  node_input(n, *weight);
  n->dims[0] = shape[0] * shape[1];
  n->dims[1] = s->model.hidden_size;
  tensor_id y = hf_result(g, n, "inputs_embeds", model_dtype(s), shape);
  if (hf_needs_gradient(g, *weight)) node_save(n, tokens);
  g->tensors.items[y].requires_grad = true;
  if (group != 0) {
    graph_group_hooks_end(g, group);
    graph_group_commit(g, group);
  }
  return y;
}

/* The model computes them after the embedding, without gradients. */
static hf_shared shared_of(graph *g, const settings *s)
{
  int64_t b = s->training.micro_batch_size, length = s->training.seq_length;
  hf_shared made = { 0 };
  if (s->model.position_embedding_type != POSITIONS_NONE) {
    const int64_t shape[4] = { b, length, s->model.kv_channels, 0 };
    graph_site(g, "rotary_emb");
    graph_node *n = graph_add(g, &operator_hf_rotary_tables);
    made.cosine = hf_side_result(g, n, "cos", model_dtype(s), shape);
    made.sine = hf_side_result(g, n, "sin", model_dtype(s), shape);
  }
  if (s->model.attn_implementation == ATTN_EAGER) {
    const int64_t square[4] = { b, 1, length, length };
    graph_site(g, "causal_mask");
    made.mask =
        hf_side_result(g, graph_add(g, &operator_hf_causal_mask), "mask", model_dtype(s), square);
  }
  return made;
}

/* The model's frame refers to the embedding's output and to the tensors that the layers share
 * until it returns. The training loop refers to the data (transformers trainer.py: batch_samples,
 * which keeps every micro-batch of a step; here only this one). */
graph *hf_chunk(const settings *s, arena *a)
{
  graph *g = graph_new(a);
  token_data data = data_of(g, s);
  tensor_id weight;
  tensor_id first = embedded(g, s, data.tokens, &weight), hidden = first;
  hf_shared shared = shared_of(g, s);
  for (int32_t layer = 0; layer < s->model.num_layers; layer++)
    hidden = hf_layer(g, s, shared, layer, hidden);
  bool tied = !s->model.untie_embeddings_and_output_weights;
  const tensor_id held[] = { first, shared.cosine, shared.sine, shared.mask };
  g->output = hf_head(g, s, hidden, data.labels, tied ? weight : 0, held, 4);
  g->ends_in_loss = true;
  g->tensors.items[data.tokens].callers = g->tensors.items[data.labels].callers = true;
  return g;
}
