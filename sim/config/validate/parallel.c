/* Constraints among section parallel and what it divides. Sources: see validate.h. */
#include <inttypes.h>

#include "sim/config/validate/validate.h"

static bool check_tensor_parallel(const settings *s, diag *d)
{
  int64_t tp = s->parallel.tensor_model_parallel_size, groups = s->model.num_query_groups;
  setting_key tp_key = KEY_parallel_tensor_model_parallel_size;

  return need_multiple(s, d, KEY_model_num_attention_heads, tp_key) &&
         need(s, d, groups % tp == 0 || tp % groups == 0, KEY_model_num_query_groups, tp_key,
              "num_query_groups is %" PRId64
              "; it must be a multiple or a divisor of tensor_model_parallel_size (%" PRId64 ")",
              groups, tp) &&
         need_multiple(s, d, KEY_model_num_attention_heads, KEY_model_num_query_groups) &&
         need(s, d, (s->model.num_attention_heads + 2 * groups) * s->model.kv_channels % tp == 0,
              KEY_model_kv_channels, tp_key,
              "the query, key and value projection has %" PRId64
              " outputs; they must be divisible by tensor_model_parallel_size (%" PRId64 ")",
              (s->model.num_attention_heads + 2 * groups) * s->model.kv_channels, tp) &&
         need_multiple(s, d, KEY_model_padded_vocab_size, tp_key) &&
         need_multiple(s, d, KEY_model_ffn_hidden_size, tp_key);
}

static bool check_sequence(const settings *s, diag *d)
{
  int64_t tp = s->parallel.tensor_model_parallel_size, cp = s->parallel.context_parallel_size;
  int64_t seq = s->training.seq_length;

  if (uses_hf(s)) {
    return need(s, d, seq % cp == 0, KEY_training_seq_length, KEY_parallel_context_parallel_size,
                "seq_length is %" PRId64 "; it must be divisible by context_parallel_size (%" PRId64
                ")",
                seq, cp);
  }
  return need(s, d, cp == 1 || seq % (2 * cp) == 0, KEY_training_seq_length,
              KEY_parallel_context_parallel_size,
              "seq_length is %" PRId64
              "; it must be divisible by twice context_parallel_size (2 x %" PRId64 ")",
              seq, cp) &&
         need(s, d, !s->parallel.sequence_parallel || seq / cp % tp == 0, KEY_training_seq_length,
              tp > 1 ? KEY_parallel_tensor_model_parallel_size : KEY_parallel_context_parallel_size,
              "seq_length is %" PRId64 ", on each context parallel rank %" PRId64
              "; sequence_parallel needs that to be divisible by tensor_model_parallel_size "
              "(%" PRId64 ")",
              seq, seq / cp, tp);
}

/* Heads of a tensor parallel rank; each context parallel rank takes an equal share of them
 * (TransformerEngine, attention/dot_product_attention/context_parallel.py, cp_comm_type a2a). */
static bool check_exchanged_heads(const settings *s, diag *d)
{
  int64_t tp = s->parallel.tensor_model_parallel_size, cp = s->parallel.context_parallel_size;
  int64_t heads = s->model.num_attention_heads / tp, groups = s->model.num_query_groups / tp;
  int64_t key_heads = s->model.multi_latent_attention ? heads : groups < 1 ? 1 : groups;

  return need(s, d,
              !has_choice(&s->parallel.cp_comm_type, CP_A2A) ||
                  (heads % cp == 0 && key_heads % cp == 0),
              KEY_parallel_cp_comm_type, KEY_parallel_context_parallel_size,
              "cp_comm_type a2a splits the heads of a tensor parallel rank, %" PRId64
              " of queries and %" PRId64
              " of keys; both must be divisible by context_parallel_size (%" PRId64 ")",
              heads, key_heads, cp);
}

/* context_parallel.py: attn_forward_func_with_cp. */
static bool check_windows(const settings *s, diag *d)
{
  const choice_list *types = &s->parallel.cp_comm_type;

  for (int64_t layer = 0; layer < s->model.num_layers; layer++) {
    uint32_t type = types->items[types->count > 1 ? layer : 0];
    bool rings = type == CP_P2P || type == CP_A2A_P2P;
    if (!need(s, d, !rings || !s->derived.layer_slides[layer], KEY_parallel_cp_comm_type,
              s->derived.window_key,
              "cp_comm_type must be a2a or all_gather in layers with a sliding window")) {
      return false;
    }
  }
  return true;
}

static bool check_context_parallel(const settings *s, diag *d)
{
  const choice_list *types = &s->parallel.cp_comm_type;
  setting_key key = KEY_parallel_cp_comm_type;

  return s->parallel.context_parallel_size == 1 || uses_hf(s) ||
         (need(s, d, types->count == 1 || types->count == s->model.num_layers, key, key,
               "cp_comm_type has %" PRIu32
               " words; it must have one, or one for each of the num_layers (%" PRId64 ")",
               types->count, s->model.num_layers) &&
          check_exchanged_heads(s, d) && check_windows(s, d));
}

static setting_key interleaving_key(const settings *s)
{
  return s->given[KEY_parallel_num_virtual_stages_per_pipeline_rank]
             ? KEY_parallel_num_virtual_stages_per_pipeline_rank
         : s->given[KEY_parallel_num_layers_per_virtual_pipeline_stage]
             ? KEY_parallel_num_layers_per_virtual_pipeline_stage
             : KEY_parallel_pipeline_model_parallel_layout;
}

/* megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving. */
static bool check_microbatch_groups(const settings *s, diag *d)
{
  int64_t pp = s->parallel.pipeline_model_parallel_size;
  int64_t group = s->parallel.microbatch_group_size_per_vp_stage;
  int64_t count = s->derived.num_microbatches, rest = count % group;
  setting_key key = KEY_parallel_microbatch_group_size_per_vp_stage;

  return need(s, d, group >= pp && group <= count, key, KEY_training_global_batch_size,
              "microbatch_group_size_per_vp_stage is %" PRId64
              "; with virtual stages it must be from pipeline_model_parallel_size (%" PRId64
              ") to the number of micro-batches (%" PRId64 ")",
              group, pp, count) &&
         need(s, d, rest == 0 || rest >= pp, key, KEY_training_global_batch_size,
              "the %" PRId64
              " micro-batches in groups of microbatch_group_size_per_vp_stage (%" PRId64
              ") leave a last group of %" PRId64
              "; it must be empty, or at least pipeline_model_parallel_size (%" PRId64 ")",
              count, group, rest, pp);
}

static bool check_interleaving(const settings *s, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  int64_t pp = p->pipeline_model_parallel_size;
  setting_key key = interleaving_key(s);

  if (s->derived.virtual_stages == 1) {
    return need(s, d, !p->overlap_param_gather_with_optimizer_step,
                KEY_parallel_overlap_param_gather_with_optimizer_step, key,
                "overlap_param_gather_with_optimizer_step needs virtual pipeline stages");
  }
  return need(s, d, pp > 1, key, KEY_parallel_pipeline_model_parallel_size,
              "there are %" PRId64 " virtual stages on a rank, but pipeline_model_parallel_size is "
              "1; it must be at least 2",
              s->derived.virtual_stages) &&
         need(
             s, d, p->overlap_p2p_comm || pp > 2, KEY_parallel_overlap_p2p_comm, key,
             "virtual stages without overlap_p2p_comm need a pipeline_model_parallel_size above 2; "
             "it is %" PRId64,
             pp) &&
         need(s, d, !p->overlap_p2p_comm_warmup_flush || p->overlap_p2p_comm,
              KEY_parallel_overlap_p2p_comm_warmup_flush, KEY_parallel_overlap_p2p_comm,
              "overlap_p2p_comm_warmup_flush needs overlap_p2p_comm") &&
         check_microbatch_groups(s, d);
}

static bool check_rank_order(const settings *s, diag *d)
{
  setting_key key = KEY_parallel_use_tp_pp_dp_mapping;

  return need(s, d,
              !s->parallel.use_tp_pp_dp_mapping || s->parallel.pipeline_model_parallel_size == 1 ||
                  s->derived.data_parallel_size * s->parallel.context_parallel_size ==
                      s->derived.expert_data_parallel_size ||
                  s->derived.data_parallel_size == s->derived.expert_data_parallel_size,
              key, key,
              "use_tp_pp_dp_mapping with a pipeline needs the same data parallel size for experts "
              "(%" PRId64 ") as for the rest (%" PRId64 ")",
              s->derived.expert_data_parallel_size, s->derived.data_parallel_size);
}

static bool check_distributed_optimizer(const settings *s, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  int64_t instances = p->num_distributed_optimizer_instances;
  int64_t dp = s->derived.data_parallel_size * p->context_parallel_size;
  int64_t expert_dp = s->derived.expert_data_parallel_size;
  setting_key key = KEY_parallel_num_distributed_optimizer_instances;

  return need(s, d, dp % instances == 0, key, KEY_parallel_world_size,
              "num_distributed_optimizer_instances is %" PRId64
              "; the data parallel size with context parallelism (%" PRId64
              ") must be divisible by it",
              instances, dp) &&
         need(s, d, expert_dp % instances == 0, key, KEY_parallel_world_size,
              "num_distributed_optimizer_instances is %" PRId64
              "; the experts' data parallel size (%" PRId64 ") must be divisible by it",
              instances, expert_dp);
}

static bool check_overlaps(const settings *s, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  setting_key gather = KEY_parallel_overlap_param_gather;
  setting_key step = KEY_parallel_overlap_param_gather_with_optimizer_step;

  return need(s, d,
              !p->overlap_param_gather || p->use_distributed_optimizer || p->use_megatron_fsdp ||
                  s->derived.layer_wise_optimizer,
              gather, gather,
              "overlap_param_gather needs use_distributed_optimizer or use_megatron_fsdp") &&
         need(s, d, !p->overlap_param_gather || p->overlap_grad_reduce, gather,
              KEY_parallel_overlap_grad_reduce, "overlap_param_gather needs overlap_grad_reduce") &&
         need(s, d, !p->overlap_param_gather_with_optimizer_step || p->use_distributed_optimizer,
              step, step,
              "overlap_param_gather_with_optimizer_step needs use_distributed_optimizer") &&
         need(s, d, !p->overlap_param_gather_with_optimizer_step || p->overlap_param_gather, step,
              gather, "overlap_param_gather_with_optimizer_step needs overlap_param_gather");
}

/* megatron/training/arguments.py, validate_args; Transformer Engine pytorch/module/base.py, initialize_ub and
 * fill_userbuffers_buffer_for_all_gather; pytorch/module/linear.py. */
static bool check_user_buffers(const settings *s, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  const struct training_settings *t = &s->training;
  enum { MOST_RANKS = 32, PIPELINE_PARTS = 4 };
  setting_key key = KEY_parallel_tp_comm_overlap, tp = KEY_parallel_tensor_model_parallel_size;
  bool in_fp8 = t->fp8_format != FP8_FORMAT_NONE;

  return !p->tp_comm_overlap || uses_hf(s) ||
         (need(s, d, p->sequence_parallel && p->tensor_model_parallel_size > 1, key,
               KEY_parallel_sequence_parallel,
               "tp_comm_overlap needs sequence_parallel, with a tensor_model_parallel_size above "
               "1") &&
          need(s, d, p->tensor_model_parallel_size <= MOST_RANKS, key, tp,
               "tp_comm_overlap works with a tensor_model_parallel_size of at most %d",
               MOST_RANKS) &&
          need(s, d, s->model.hidden_size % PIPELINE_PARTS == 0, key, KEY_model_hidden_size,
               "tp_comm_overlap needs a hidden_size that is divisible by %d", PIPELINE_PARTS) &&
          need(s, d, !in_fp8 || t->fp8_recipe != FP8_RECIPE_BLOCKWISE, key, KEY_training_fp8_recipe,
               "tp_comm_overlap does not work with fp8_recipe blockwise: user buffers do not take "
               "its tensors") &&
          need(s, d, !t->delay_wgrad_compute || !p->tp_comm_bulk_wgrad, key,
               KEY_training_delay_wgrad_compute,
               "delay_wgrad_compute does not work with tp_comm_bulk_wgrad of tp_comm_overlap"));
}

bool validate_parallel(const settings *s, diag *d)
{
  return check_tensor_parallel(s, d) && check_sequence(s, d) && check_context_parallel(s, d) &&
         check_interleaving(s, d) && check_rank_order(s, d) && check_distributed_optimizer(s, d) &&
         check_overlaps(s, d) && check_user_buffers(s, d);
}
