/* Sizes of groups, micro-batches of a step, the pipeline. */
#include <inttypes.h>

#include "sim/base/units.h"
#include "sim/config/resolve/steps.h"

/* FSDP over one GPU shards nothing: without a size it has two GPUs, unless the batch gives the number. */
static int64_t gpus_of_fsdp(const settings *s)
{
  enum { LEAST_SHARDED = 2 };
  int64_t usual = s->training.global_batch_size == UNSET ? LEAST_SHARDED : 1;
  return s->parallel.fsdp == FSDP_NONE ? 1 : if_unset(s->parallel.fsdp_size, usual);
}

/* `dense`, `expert`: GPUs that hold one stage of the model, without and with experts. */
static bool resolve_world_size(settings *s, int64_t dense, int64_t expert, diag *d)
{
  struct parallel_settings *p = &s->parallel;
  int64_t pp = p->pipeline_model_parallel_size;
  int64_t most = key_rows[KEY_parallel_world_size].most;

  if (!need(s, d, dense <= most / pp && expert <= most / pp,
            KEY_parallel_tensor_model_parallel_size, KEY_parallel_expert_model_parallel_size,
            "the parallel sizes ask for more than %" PRId64 " GPUs", most)) {
    return false;
  }
  if (p->world_size != UNSET) {
    return true;
  }
  int64_t least = least_common_multiple(dense, expert) * pp;
  if (least <= most) {
    least = least_common_multiple(least, gpus_of_fsdp(s));
  }
  if (!need(s, d, least <= most, KEY_parallel_tensor_model_parallel_size,
            KEY_parallel_expert_model_parallel_size,
            "the parallel sizes ask for %" PRId64 " GPUs; at most %" PRId64 " are possible", least,
            most)) {
    return false;
  }
  /* the data parallel ranks, with those of context parallelism, are shared out to the instances */
  int64_t shared = p->tensor_model_parallel_size * pp;
  if (p->num_distributed_optimizer_instances <= most / shared) {
    int64_t both = least_common_multiple(least, shared * p->num_distributed_optimizer_instances);
    least = both <= most ? both : least;
  }
  p->world_size = least;
  diag_note(d, (source_pos){ 0 },
            "world_size is not given; taking the least that the other sizes allow, %" PRId64 "%s",
            p->world_size,
            gpus_of_fsdp(s) > 1 ? ": fsdp shards over more than one GPU (--world-size N sets it)"
                                : "");
  return true;
}

static bool check_world_size(const settings *s, int64_t dense, int64_t expert, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  int64_t pp = p->pipeline_model_parallel_size;
  setting_key world = KEY_parallel_world_size;

  return need(s, d, p->world_size % (dense * pp) == 0, world,
              KEY_parallel_tensor_model_parallel_size,
              "world_size is %" PRId64
              "; it must be divisible by tensor_model_parallel_size (%" PRId64
              ") x pipeline_model_parallel_size (%" PRId64 ") x context_parallel_size (%" PRId64
              ") = %" PRId64,
              p->world_size, p->tensor_model_parallel_size, pp, p->context_parallel_size,
              dense * pp) &&
         need(s, d, p->world_size % (expert * pp) == 0, world,
              KEY_parallel_expert_model_parallel_size,
              "world_size is %" PRId64
              "; it must be divisible by expert_tensor_parallel_size (%" PRId64
              ") x expert_model_parallel_size (%" PRId64
              ") x pipeline_model_parallel_size (%" PRId64 ") = %" PRId64,
              p->world_size, p->expert_tensor_parallel_size, p->expert_model_parallel_size, pp,
              expert * pp);
}

bool resolve_ranks(settings *s, diag *d)
{
  struct parallel_settings *p = &s->parallel;
  int64_t pp = p->pipeline_model_parallel_size;
  int64_t dense = p->tensor_model_parallel_size * p->context_parallel_size;

  p->expert_tensor_parallel_size =
      if_unset(p->expert_tensor_parallel_size, p->tensor_model_parallel_size);
  int64_t expert = p->expert_tensor_parallel_size * p->expert_model_parallel_size;
  if (!resolve_world_size(s, dense, expert, d) || !check_world_size(s, dense, expert, d)) {
    return false;
  }
  s->derived.data_parallel_size = p->world_size / (dense * pp);
  s->derived.expert_data_parallel_size = p->world_size / (expert * pp);
  return true;
}

/*
 * The number of micro-batches follows from the tokens of a rank, rounded up to rounds of the
 * interleaved schedule. Sequences are distributed evenly, so the largest micro-batch may exceed the
 * given tokens, as in verl (verl/utils/seqlen_balancing.py, rearrange_micro_batches). offsim takes
 * all micro-batches to be as large as that one.
 */
static bool pack_micro_batches(settings *s, diag *d)
{
  struct training_settings *t = &s->training;
  setting_key key = KEY_training_micro_batch_tokens, global = KEY_training_global_batch_size;
  int64_t dp = s->derived.data_parallel_size, tokens = t->micro_batch_tokens;
  bool interleaved = if_unset(s->parallel.num_virtual_stages_per_pipeline_rank, 1) > 1;
  int64_t round = if_unset(s->parallel.microbatch_group_size_per_vp_stage,
                           interleaved ? s->parallel.pipeline_model_parallel_size : 1);

  if (!need(s, d, t->global_batch_size != UNSET, key, global,
            "micro_batch_tokens needs global_batch_size") ||
      !need(s, d, t->global_batch_size % dp == 0, global, key,
            "global_batch_size is %" PRId64
            "; it must be divisible by the data parallel size (%" PRId64 ")",
            t->global_batch_size, dp)) {
    return false;
  }
  int64_t sequences = t->global_batch_size / dp;
  int64_t count = min_i64(sequences, round_up(ceil_div(sequences * t->seq_length, tokens), round));
  t->micro_batch_size = ceil_div(sequences, count);
  count = round_up(ceil_div(sequences, t->micro_batch_size), round);
  t->global_batch_size = count * t->micro_batch_size * dp;
  t->micro_batch_tokens = UNSET;
  return true;
}

bool resolve_microbatches(settings *s, diag *d)
{
  struct training_settings *t = &s->training;
  if (t->micro_batch_tokens != UNSET && !pack_micro_batches(s, d)) {
    return false;
  }
  int64_t dp = s->derived.data_parallel_size, per_step = t->micro_batch_size * dp;

  int64_t accumulated = if_unset(t->gradient_accumulation_steps, 1);
  t->global_batch_size = if_unset(t->global_batch_size, per_step * accumulated);
  s->derived.num_microbatches = t->global_batch_size / per_step;
  return need(s, d, t->global_batch_size % per_step == 0, KEY_training_global_batch_size,
              KEY_training_micro_batch_size,
              "global_batch_size is %" PRId64 "; it must be divisible by micro_batch_size (%" PRId64
              ") x data parallel size (%" PRId64 ") = %" PRId64,
              t->global_batch_size, t->micro_batch_size, dp, per_step) &&
         need(s, d,
              t->gradient_accumulation_steps == UNSET ||
                  t->gradient_accumulation_steps == s->derived.num_microbatches,
              KEY_training_gradient_accumulation_steps, KEY_training_global_batch_size,
              "gradient_accumulation_steps is %" PRId64 ", but global_batch_size makes %" PRId64
              " micro-batches of a step",
              t->gradient_accumulation_steps, s->derived.num_microbatches);
}

void resolve_pipeline(settings *s)
{
  struct parallel_settings *p = &s->parallel;

  p->microbatch_group_size_per_vp_stage =
      if_unset(p->microbatch_group_size_per_vp_stage, p->pipeline_model_parallel_size);
  if (s->derived.virtual_stages == 1) {
    p->overlap_p2p_comm = false;
    p->overlap_p2p_comm_warmup_flush = false;
  }
  if (p->tensor_model_parallel_size == 1) {
    p->sequence_parallel = false;
  }
}
