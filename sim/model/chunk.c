/*
 * A chunk: what one virtual stage runs for one micro-batch (Megatron-LM
 * core/models/gpt/gpt_model.py, core/transformer/transformer_block.py, pretrain_gpt.py:
 * forward_step, get_batch).
 */
#include <assert.h>

#include "sim/model/modules.h"
#include "sim/model/node.h"
#include "sim/model/operators.h"
#include "sim/model/recompute.h"

static const struct stage_content *stage_of(const settings *s, uint32_t pp_rank, uint32_t chunk)
{
  int64_t pp = s->parallel.pipeline_model_parallel_size;
  assert(pp_rank < pp && chunk < s->derived.virtual_stages);
  return &s->derived.stages[chunk * pp + pp_rank];
}

static tensor_id data_tensor(graph *g, graph_node *n, const char *name, dtype type, int64_t d1,
                             int64_t d2, int64_t batch)
{
  tensor_id t = d2 == 0 ? graph_tensor_new(g, name, type, batch, d1, 0, 0)
                        : graph_tensor_new(g, name, type, batch, 1, d1, d2);
  g->tensors.items[t].requires_grad = false;
  node_output(n, t);
  return t;
}

/* get_batch_on_this_tp_rank: the first stage gets tokens and positions, the last labels and their
 * mask, both (and no other) the attention mask; MTP needs the tokens too. */
static micro_batch batch_of(graph *g, const settings *s, const struct stage_content *stage)
{
  micro_batch data = { 0 };
  if (!stage->embedding && !stage->loss && stage->mtp_layers == 0) return data;
  graph_site(g, "data");
  int64_t batch = s->training.micro_batch_size;
  int64_t length = size_sequence(s);
  graph_node *n = graph_add(g, &operator_data);
  if (stage->embedding || stage->mtp_layers > 0) {
    data.tokens = data_tensor(g, n, "tokens", DTYPE_INT64, length, 0, batch);
    data.positions = data_tensor(g, n, "position_ids", DTYPE_INT64, length, 0, batch);
  }
  if (stage->loss || stage->mtp_layers > 0) {
    data.labels = data_tensor(g, n, "labels", DTYPE_INT64, length, 0, batch);
    data.loss_mask = data_tensor(g, n, "loss_mask", DTYPE_FP32, length, 0, batch);
  }
  if (s->training.create_attention_mask_in_dataloader)
    data.attention_mask =
        data_tensor(g, n, "attention_mask", DTYPE_BYTE, length, s->training.seq_length, batch);
  return data;
}

/* The stage's frames hold the micro-batch until the forward step is over. */
static void keep_batch(graph *g, const micro_batch *data)
{
  const tensor_id held[] = { data->tokens, data->positions, data->labels, data->loss_mask,
                             data->attention_mask };
  for (size_t i = 0; i < sizeof held / sizeof held[0]; i++)
    if (held[i] != 0) graph_keep(g, held[i]);
}

static tensor_id received(graph *g, const settings *s)
{
  graph_site(g, "pipeline");
  g->input = graph_tensor_new(g, "input", residual_dtype(s), size_residual_sequence(s),
                              s->training.micro_batch_size, s->model.hidden_size, 0);
  return g->input;
}

/* Final norm, MTP and loss of the last stage. */
static tensor_id head(graph *g, const settings *s, const struct stage_content *stage,
                      const micro_batch *data, tensor_id hidden)
{
  hidden = norm(g, s, "final_layernorm", hidden);
  tensor_id normed = hidden;
  if (stage->mtp_layers > 0) hidden = mtp_block(g, s, data, hidden, stage->mtp_layers);
  tensor_id losses = loss_of_tokens(g, s, data, hidden);
  graph_keep(g, normed);
  graph_keep(g, hidden);
  return loss_head(g, s, data, losses);
}

graph *graph_of_chunk(const settings *s, uint32_t pp_rank, uint32_t chunk, arena *a)
{
  const struct stage_content *stage = stage_of(s, pp_rank, chunk);
  graph *g = graph_new(a);
  micro_batch data = batch_of(g, s, stage);
  tensor_id hidden = stage->embedding ? embedding(g, s, &data) : received(g, s);
  tensor_id first = hidden;
  hidden = decoder_layers(g, s, stage, hidden);
  graph_keep(g, first);
  g->output = stage->loss ? head(g, s, stage, &data, hidden) : hidden;
  g->ends_in_loss = stage->loss;
  g->attention_mask = data.attention_mask;
  keep_batch(g, &data);
  return g;
}
