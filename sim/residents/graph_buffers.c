#include "sim/residents/graph_buffers.h"

#include "sim/base/units.h"
#include "sim/graph/sizes.h"

static bool captures(const settings *s, cuda_graph_modules_choice module)
{
  const choice_list *modules = &s->training.cuda_graph_modules;

  return modules->count == 0 || has_choice(modules, module);
}

/* Megatron-LM core/transformer/cuda_graphs.py, _layer_is_graphable. */
static bool is_graphed(const settings *s, bool moe)
{
  if (captures(s, CAPTURE_ATTN)) return true;
  return moe ? captures(s, CAPTURE_MOE) || captures(s, CAPTURE_MOE_ROUTER)
             : captures(s, CAPTURE_MLP);
}

typedef struct graphed_layers {
  uint32_t dense, moe;
} graphed_layers;

/* MTP layers are like the last layer of the decoder. */
static graphed_layers layers_of_chunk(const static_writer *w, int64_t chunk)
{
  const settings *s = w->s;
  const struct stage_content *stage =
      &s->derived.stages[chunk * s->parallel.pipeline_model_parallel_size + w->pp_rank];
  graphed_layers found = { 0 };

  for (uint32_t i = 0; i < stage->layer_count + stage->mtp_layers; i++) {
    uint32_t layer =
        i < stage->layer_count ? stage->layers[i] : (uint32_t)(s->model.num_layers - 1);
    bool moe = s->derived.layer_is_moe[layer];
    if (!is_graphed(s, moe)) continue;
    found.moe += moe;
    found.dense += !moe;
  }
  return found;
}

/* Forwards of a chunk before the rank's first backward, including the forward of that backward's
 * micro-batch (core/pipeline_parallel/schedules.py, get_pp_rank_microbatches). */
static int64_t forwards_in_flight(const static_writer *w)
{
  const struct parallel_settings *p = &w->s->parallel;
  int64_t chunks = w->s->derived.virtual_stages, all = w->s->derived.num_microbatches * chunks;
  int64_t behind = p->pipeline_model_parallel_size - w->pp_rank - 1;

  if (chunks == 1) return min_i64(behind + 1, all);
  return min_i64(2 * behind + (chunks - 1) * p->microbatch_group_size_per_vp_stage + 1, all);
}

/* Samples of layers in flight: a buffer is reused after its layer's backward (cuda_graphs.py,
 * _get_sample_arguments). */
static int64_t samples_in_flight(const static_writer *w)
{
  int64_t chunks = w->s->derived.virtual_stages, samples = 0;
  int64_t group = chunks == 1 ? 1 : w->s->parallel.microbatch_group_size_per_vp_stage;

  for (int64_t i = 0; i < forwards_in_flight(w); i++) {
    graphed_layers layers = layers_of_chunk(w, i / group % chunks);
    samples += layers.dense + layers.moe;
  }
  return samples;
}

/* transformer_layer.py, get_layer_static_inputs: hidden states, and a mask for attention. */
static void write_inputs(static_writer *w, int64_t hidden_bytes)
{
  const settings *s = w->s;
  int64_t mask_bytes = size_sequence(s) * s->training.seq_length * s->training.micro_batch_size;

  for (int64_t i = samples_in_flight(w); i > 0; i--) {
    static_take(w, "graph_hidden_states", CLASS_WORKSPACE, DTYPE_BF16, hidden_bytes, NO_PARAMETER);
    if (captures(s, CAPTURE_ATTN))
      static_take(w, "graph_attention_mask", CLASS_WORKSPACE, DTYPE_BYTE, mask_bytes, NO_PARAMETER);
  }
}

/* One set for each kind of layer (Transformer Engine pytorch/graph.py, static_grad_outputs): a
 * dense layer's output; of a router, the residual, its tokens, probabilities and shared experts'
 * output. */
static void write_gradients(static_writer *w, int64_t hidden_bytes)
{
  const settings *s = w->s;
  graphed_layers all = { 0 };

  for (int64_t c = 0; c < s->derived.virtual_stages; c++) {
    graphed_layers layers = layers_of_chunk(w, c);
    all.dense += layers.dense;
    all.moe += layers.moe;
  }
  bool router = captures(s, CAPTURE_MOE_ROUTER) && s->training.cuda_graph_modules.count > 0;
  bool shared =
      s->model.moe_shared_expert_intermediate_size > 0 && !s->model.moe_shared_expert_overlap;
  int64_t outputs = (all.dense > 0) + (all.moe > 0 ? (router ? 2 + shared : 1) : 0);

  for (int64_t i = 0; i < outputs; i++)
    static_take(w, "graph_output_gradient", CLASS_WORKSPACE, DTYPE_BF16, hidden_bytes,
                NO_PARAMETER);
  if (all.moe > 0 && router)
    static_take(w, "graph_probs_gradient", CLASS_WORKSPACE, DTYPE_FP32,
                size_residual_sequence(s) * s->training.micro_batch_size * s->model.num_experts *
                    dtype_bytes(DTYPE_FP32),
                NO_PARAMETER);
}

void write_graph_buffers(static_writer *w)
{
  const settings *s = w->s;
  int64_t hidden_bytes = size_residual_sequence(s) * s->training.micro_batch_size *
                         s->model.hidden_size * dtype_bytes(DTYPE_BF16);

  if (s->training.cuda_graph_impl != GRAPHS_TE) return;
  write_inputs(w, hidden_bytes);
  write_gradients(w, hidden_bytes);
}
