/*
 * A chunk: what one virtual stage runs for one micro-batch (Megatron-LM
 * core/models/gpt/gpt_model.py, core/transformer/transformer_block.py, pretrain_gpt.py:
 * forward_step, get_batch).
 */
#include "sim/model/chunk.h"

#include <assert.h>

#include "sim/graph/node.h"
#include "sim/graph/parts.h"
#include "sim/model/hf/hf.h"
#include "sim/model/megatron/modules.h"
#include "sim/model/megatron/recompute.h"
#include "sim/operators/operators.h"

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

static void list_batch(const micro_batch *data, tensor_id list[BATCH_TENSORS])
{
  list[BATCH_TOKENS] = data->tokens;
  list[BATCH_POSITIONS] = data->positions;
  list[BATCH_LABELS] = data->labels;
  list[BATCH_LOSS_MASK] = data->loss_mask;
  list[BATCH_MASK] = data->attention_mask;
}

/* The stage's Python frames refer to the micro-batch until the forward step ends. */
static void keep_batch(graph *g, const micro_batch *data)
{
  tensor_id held[BATCH_TENSORS];
  list_batch(data, held);
  for (int i = 0; i < BATCH_TENSORS; i++)
    if (held[i] != 0) graph_keep(g, held[i]);
}

/* model_chunk_schedule_plan.py: the state that the parts share refers to the micro-batch until
 * backward ends. */
static void keep_for_parts(graph *g, const micro_batch *data)
{
  tensor_id held[BATCH_TENSORS];
  list_batch(data, held);
  for (int i = 0; i < BATCH_TENSORS; i++)
    part_output(g, held[i]);
}

static tensor_id received(graph *g, const settings *s, uint32_t pp_rank, uint32_t chunk)
{
  graph_site(g, "pipeline");
  g->input =
      graph_tensor_new(g, "input", residual_dtype(s), size_received_sequence(s, pp_rank, chunk),
                       s->training.micro_batch_size, s->model.hidden_size, 0);
  return g->input;
}

static void begin_postprocess(graph *g, const settings *s, tensor_id hidden)
{
  part_output(g, hidden);
  part_begin(g, s, PART_POSTPROCESS);
}

/* On a stage without layers, the final norm runs with the output layer. */
static bool norm_begins_postprocess(const settings *s, const struct stage_content *stage)
{
  return stage->layer_count == 0 && stage_has_final_norm(s, stage);
}

static tensor_id decoder(graph *g, const settings *s, const struct stage_content *stage,
                         tensor_id hidden)
{
  hidden = decoder_layers(g, s, stage, hidden);
  if (!stage_has_final_norm(s, stage)) return hidden;
  if (norm_begins_postprocess(s, stage)) begin_postprocess(g, s, hidden);
  return norm(g, s, "final_layernorm", hidden);
}

/* The losses of multi-token prediction and of the model. */
static tensor_id head(graph *g, const settings *s, const struct stage_content *stage,
                      const micro_batch *data, tensor_id hidden)
{
  if (!norm_begins_postprocess(s, stage)) begin_postprocess(g, s, hidden);
  if (s->model.mtp_num_layers > 0) hidden = mtp_losses(g, s, data, hidden);
  tensor_id losses = loss_of_tokens(g, s, data, hidden);
  graph_keep(g, hidden);
  return loss_head(g, s, data, losses);
}

graph *graph_of_chunk(const settings *s, uint32_t pp_rank, uint32_t chunk, arena *a)
{
  if (uses_hf(s)) return hf_chunk(s, a);
  const struct stage_content *stage = stage_of(s, pp_rank, chunk);
  graph *g = graph_new(a);
  part_begin(g, s, PART_PREPROCESS);
  micro_batch data = batch_of(g, s, stage);
  tensor_id hidden = stage->embedding ? embedding(g, s, &data) : received(g, s, pp_rank, chunk);
  keep_for_parts(g, &data);
  tensor_id first = hidden;
  tensor_id decoded = hidden = decoder(g, s, stage, hidden);
  if (runs_in_parts(s)) graph_keep(g, first);
  if (stage->mtp_layers > 0) hidden = mtp_block(g, s, &data, hidden, stage->mtp_layers);
  g->output = stage->loss ? head(g, s, stage, &data, hidden) : hidden;
  /* GPTModel.forward refers to both until it returns (decoder_input, hidden_states). */
  if (!runs_in_parts(s)) graph_keep(g, first);
  graph_keep(g, decoded);
  g->ends_in_loss = stage->loss;
  list_batch(&data, g->batch);
  keep_batch(g, &data);
  return g;
}
