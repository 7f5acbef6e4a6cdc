/* A causal language model: data, embedding, position tables, layers, head; and the loss, on one
 * GPU. With Ulysses sequence parallelism it has a part of the positions, which only attention
 * exchanges for heads. */
#include "sim/graph/sizes.h"
#include "sim/model/hf/eager.h"
#include "sim/model/hf/log_probs.h"
#include "sim/operators/hf.h"
#include "sim/operators/operators.h"

typedef struct token_data {
  tensor_id tokens, labels;
} token_data;

static token_data data_of(graph *g, const settings *s)
{
  const int64_t shape[4] = { s->training.micro_batch_size, size_sequence(s), 0, 0 };
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
  graph_node *n = graph_add_of(g, &operator_hf_embedding, tokens);
  node_input(n, *weight);
  n->dims[0] = shape[0] * shape[1];
  n->dims[1] = s->model.hidden_size;
  tensor_id y = hf_result(g, n, "inputs_embeds", model_dtype(s), shape);
  if (hf_needs_gradient(g, *weight)) node_save(n, tokens);
  g->tensors.items[y].requires_grad = true;
  y = hf_multiplied(g, y, s->model.embedding_multiplier);
  y = hf_dropout(g, s->model.embedding_dropout, y);
  if (group != 0) {
    graph_group_hooks_end(g, group);
    graph_group_commit(g, group);
  }
  return y;
}

typedef struct rotary_tables {
  tensor_id cosine, sine; /* or one of complex numbers, and 0 */
} rotary_tables;

/* Columns of a head that are rotated (int(head_dim * partial_rotary_factor)). */
static int64_t rotated_width(const settings *s)
{
  if (s->model.multi_latent_attention) return s->model.qk_pos_emb_head_dim;
  return (int64_t)((double)s->model.kv_channels * s->model.rotary_percent);
}

/* Columns of a table: each angle twice, or in gpt-oss once. */
static int64_t table_width(const settings *s)
{
  return s->model.rotary_form == ROTARY_HALVES ? rotated_width(s) / 2 : rotated_width(s);
}

/* Position ids are one row for all sequences, unless the trainer passes them, as verl does, or a
 * vision-language model computes them. */
static rotary_tables tables_of(graph *g, const settings *s, double base)
{
  bool of_each = hf_loss_is_log_probs(s) || s->model.position_embedding_type == POSITIONS_MROPE;
  int64_t rows = of_each ? s->training.micro_batch_size : 1;
  bool is_complex = s->model.rotary_form == ROTARY_COMPLEX;
  bool by_position = s->model.attention_class == ATTENTION_LLAMA4;
  const int64_t shape[4] = { rows, is_complex && !by_position ? 1 : size_sequence(s),
                             is_complex ? (by_position ? 1 : size_sequence(s)) : table_width(s),
                             is_complex ? rotated_width(s) : 0 };
  dtype type = s->model.rotary_tables_fp32 || is_complex ? DTYPE_FP32 : model_dtype(s);
  graph_site(g, "rotary_emb");
  graph_node *n = graph_add(g, &operator_hf_rotary_tables);
  node_set_number(n, base);
  if (is_complex)
    return (rotary_tables){ .cosine = hf_side_result(g, n, "freqs_cis", type, shape) };
  return (rotary_tables){ .cosine = hf_side_result(g, n, "cos", type, shape),
                          .sine = hf_side_result(g, n, "sin", type, shape) };
}

/* Eager attention adds a mask to the scores. sdpa needs one, of bytes, where is_causal does not
 * describe it (transformers masking_utils.py: sdpa_mask). */
static tensor_id mask_of(graph *g, const settings *s, int64_t window)
{
  bool eager = s->model.attn_implementation == ATTN_EAGER;
  int64_t b = s->training.micro_batch_size, length = s->training.seq_length;
  if (!eager && (window == 0 || s->model.attn_implementation != ATTN_SDPA)) return 0;
  const int64_t square[4] = { b, 1, length, length };
  graph_site(g, "causal_mask");
  graph_node *n = graph_add(g, &operator_hf_causal_mask);
  n->dims[0] = window;
  return hf_side_result(g, n, "mask", eager ? model_dtype(s) : DTYPE_BYTE, square);
}

/* What layers share: [0] those that see all keys before a query, [1] those with a sliding window
 * shorter than the sequence. The model computes it after the embedding, without gradients. */
enum { FULL, SLIDING, SHARED };

static void make_shared(graph *g, const settings *s, hf_shared shared[SHARED])
{
  bool slides = s->derived.window_is_shorter, apart = s->model.rope_local_base_freq > 0;
  bool positions = s->model.position_embedding_type != POSITIONS_NONE;
  rotary_tables all = { 0 }, local = { 0 };
  if (positions) all = local = tables_of(g, s, s->model.rotary_base);
  if (positions && apart) local = tables_of(g, s, s->model.rope_local_base_freq);
  shared[FULL] = (hf_shared){ .cosine = all.cosine, .sine = all.sine };
  shared[SLIDING] = (hf_shared){ .cosine = local.cosine, .sine = local.sine };
  shared[FULL].mask = shared[SLIDING].mask = mask_of(g, s, 0);
  if (slides) shared[SLIDING].mask = mask_of(g, s, s->derived.window_keys);
}

static hf_shared of_layer(const settings *s, const hf_shared shared[SHARED], int32_t layer)
{
  hf_shared found = shared[s->derived.layer_slides[layer] ? SLIDING : FULL];
  if (s->derived.layer_is_linear[layer]) found.mask = 0;
  found.rotates = found.cosine != 0 && s->derived.layer_rotates[layer];
  return found;
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
  hf_shared shared[SHARED];
  make_shared(g, s, shared);
  for (int32_t layer = 0; layer < s->model.num_layers; layer++)
    hidden = hf_layer(g, s, of_layer(s, shared, layer), layer, hidden);
  bool tied = !s->model.untie_embeddings_and_output_weights;
  const tensor_id held[] = { first,
                             shared[FULL].cosine,
                             shared[FULL].sine,
                             shared[FULL].mask,
                             shared[SLIDING].cosine,
                             shared[SLIDING].sine,
                             shared[SLIDING].mask };
  g->output =
      hf_head(g, s, hidden, data.labels, tied ? weight : 0, held, sizeof held / sizeof *held);
  g->ends_in_loss = true;
  g->tensors.items[data.tokens].callers = g->tensors.items[data.labels].callers = true;
  return g;
}
