/*
 * The one place that bounds products. keys.def bounds each key, but not their products. This file
 * computes the largest products of the rest of offsim once, saturating, and refuses those near the
 * limit of int64_t. The largest configuration that passes is far beyond any machine.
 */
#include <assert.h>
#include <inttypes.h>

#include "sim/base/units.h"
#include "sim/config/validate/validate.h"

/* Bytes of all parameters, and of one rank's layer for one micro-batch: sums of these have this much left. */
#define SIZE_LIMIT (INT64_MAX / 4096)
/* Bytes of all buffers of one rank in a step: the engine counts a rank's buffers up to CAP. */
#define STEP_LIMIT (CAP / 2)
#define FLOP_LIMIT (INT64_MAX / 8)

/* Ops of all ranks' plans: about 100 bytes each while a plan is built and simulated. */
#define OP_LIMIT INT64_C(200000000)
/* Ops that a layer issues in forward and backward of one micro-batch: an upper estimate. */
#define OPS_PER_LAYER 250
#define OPS_PER_STAGE 60

/* For a, b >= 0: their product or sum, or INT64_MAX. */
static int64_t times(int64_t a, int64_t b)
{
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t plus(int64_t a, int64_t b)
{
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t widest_head(const settings *s)
{
  const struct model_settings *m = &s->model;
  int64_t mla = max_i64(m->qk_head_dim + m->qk_pos_emb_head_dim, m->v_head_dim);

  return m->multi_latent_attention ? max_i64(mla, m->kv_channels) : m->kv_channels;
}

/* Elements per token of everything in a layer, all heads and the whole MLP. */
static int64_t layer_width(const settings *s)
{
  const struct model_settings *m = &s->model;
  int64_t ranks = m->q_lora_rank + m->kv_lora_rank;
  int64_t heads = times(m->num_attention_heads + 2 * m->num_query_groups, widest_head(s));
  int64_t experts = 0;

  if (m->num_experts > 0) {
    int64_t rows = times(m->moe_router_topk, (int64_t)m->moe_imbalance + 1);
    experts = times(rows, m->hidden_size + m->moe_ffn_hidden_size);
    experts = plus(experts, m->moe_shared_expert_intermediate_size);
    experts = plus(experts, m->num_experts);
  }
  return plus(plus(heads, ranks + m->hidden_size + m->ffn_hidden_size), experts);
}

static int64_t layer_parameters(const settings *s)
{
  const struct model_settings *m = &s->model;
  int64_t heads = times(m->num_attention_heads + 2 * m->num_query_groups, widest_head(s));
  int64_t ranks = m->q_lora_rank + m->kv_lora_rank;
  int64_t attention = times(2 * (m->hidden_size + ranks), plus(heads, ranks));
  int64_t dense = times(3 * m->hidden_size, m->ffn_hidden_size);
  int64_t experts = 0;

  if (m->num_experts > 0) {
    int64_t shared = m->moe_shared_expert_intermediate_size + m->num_experts;
    experts = times(times(3 * m->hidden_size, m->moe_ffn_hidden_size), m->num_experts);
    experts = plus(experts, times(3 * m->hidden_size, shared));
  }
  return plus(plus(attention, dense), experts);
}

static bool check_parameters(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  int64_t layers = m->num_layers + m->mtp_num_layers;
  int64_t rows = 2 * m->padded_vocab_size + m->max_position_embeddings;
  int64_t all = plus(times(layers, layer_parameters(s)), times(rows, m->hidden_size));

  return need(s, d, times(all, 18) <= SIZE_LIMIT, KEY_model_hidden_size, KEY_model_num_layers,
              "the model is too large: its parameters need more than %" PRId64
              " bytes; reduce num_layers, hidden_size, ffn_hidden_size, num_experts, "
              "moe_ffn_hidden_size or padded_vocab_size",
              SIZE_LIMIT / 18);
}

/* Whether some attention kernel may write the scores of every query and key. The fused kernels of cuDNN and
 * flash-attn never do; Transformer Engine has one of them unless a setting excludes cuDNN. */
static bool may_write_scores(const settings *s)
{
  if (uses_hf(s)) {
    return s->model.attn_implementation == ATTN_EAGER;
  }
  if (s->model.implementation == IMPLEMENTATION_LOCAL) {
    return !s->training.use_flash_attn;
  }
  bool fused = (s->training.bf16 || s->training.fp16) && s->software.nvte_fused_attn &&
               s->software.nvte_allow_nondeterministic_algo;
  switch (s->training.attention_backend) {
  case BACKEND_FLASH:
  case BACKEND_FUSED: return false;
  case BACKEND_UNFUSED:
  case BACKEND_LOCAL: return true;
  case BACKEND_AUTO: return !fused;
  }
  assert(0 && "attention backend out of range");
  return true;
}

/* Of one rank: its part of each sequence and its heads. Every layer counts, wherever a pipeline has it. */
static bool check_activations(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  int64_t local_length = ceil_div(s->training.seq_length, s->parallel.context_parallel_size);
  int64_t local_heads = ceil_div(m->num_attention_heads, s->parallel.tensor_model_parallel_size);
  int64_t tokens = times(s->training.micro_batch_size, local_length);
  int64_t layers = m->num_layers + m->mtp_num_layers;
  int64_t scores = times(times(tokens, s->training.seq_length), times(local_heads, 8));
  int64_t logits = times(times(tokens, m->padded_vocab_size), 16 * (1 + m->mtp_num_layers));
  int64_t layer = times(times(tokens, layer_width(s)), 64);
  bool writes = may_write_scores(s);

  layer = plus(layer, writes ? scores : 0);
  int64_t step = times(plus(times(layers, layer), logits), s->derived.num_microbatches);

  if (!need(s, d, max_i64(layer, logits) <= SIZE_LIMIT, KEY_training_seq_length,
            KEY_training_micro_batch_size,
            "the activations of a layer of one micro-batch are too large: more than %" PRId64
            " bytes on a rank; reduce seq_length, micro_batch_size, %smoe_router_topk or "
            "padded_vocab_size, or raise context_parallel_size",
            SIZE_LIMIT,
            writes ? "num_attention_heads (attention_backend writes all scores), " : "")) {
    return false;
  }
  return need(s, d, step <= STEP_LIMIT, KEY_training_global_batch_size, KEY_model_num_layers,
              "the activations of a step are too large: more than %" PRId64
              " bytes on a rank; reduce num_layers, seq_length or global_batch_size",
              STEP_LIMIT);
}

/* Of the largest kernel. */
static bool check_flops(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  int64_t tokens = times(s->training.micro_batch_size,
                         ceil_div(s->training.seq_length, s->parallel.context_parallel_size));
  int64_t heads = times(m->num_attention_heads, widest_head(s));
  int64_t attention = times(times(times(tokens, s->training.seq_length), heads), 8);
  int64_t layer = times(times(tokens, layer_parameters(s)), 2);
  int64_t logits = times(times(times(tokens, m->padded_vocab_size), m->hidden_size), 2);

  return need(s, d, max_i64(max_i64(attention, logits), layer) <= FLOP_LIMIT,
              KEY_training_seq_length, KEY_training_micro_batch_size,
              "a layer of one micro-batch has more than %" PRId64
              " FLOPs; reduce seq_length, micro_batch_size, hidden_size or padded_vocab_size",
              FLOP_LIMIT);
}

static bool check_ops(const settings *s, diag *d)
{
  int64_t layers = s->model.num_layers + s->model.mtp_num_layers;
  int64_t stages = s->parallel.pipeline_model_parallel_size * s->derived.virtual_stages;
  int64_t per_microbatch = plus(times(layers, OPS_PER_LAYER), times(stages, OPS_PER_STAGE));
  int64_t most = OP_LIMIT / per_microbatch;

  return s->derived.num_microbatches <= most ||
         diag_refused(d,
                      "a step of %" PRId64 " micro-batches through %" PRId64
                      " layers is too long to simulate; at most %" PRId64
                      " micro-batches are possible (global_batch_size / micro_batch_size / data "
                      "parallel size)",
                      s->derived.num_microbatches, layers, most);
}

/* A derived value must be within its key's bounds, because a printed scenario has to read back. */
static bool check_bounds(const settings *s, diag *d)
{
  for (setting_key key = 0; key < KEY_COUNT; key++) {
    const key_row *row = &key_rows[key];
    if (row->type != KEY_TYPE_INT) {
      continue;
    }
    int64_t value = *(const int64_t *)key_member_const(s, key);
    if (!need(s, d, value == UNSET || (value >= row->least && value <= row->most), key, key,
              "%s becomes %" PRId64 "; it must be from %" PRId64 " to %" PRId64, row->name, value,
              row->least, row->most)) {
      return false;
    }
  }
  return true;
}

bool validate_sizes(const settings *s, diag *d)
{
  return check_bounds(s, d) && check_parameters(s, d) && check_activations(s, d) &&
         check_flops(s, d) && check_ops(s, d);
}
