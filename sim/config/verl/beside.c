/*
 * What else of verl uses the memory of the same GPUs. Only the actor's update is predicted; notes
 * name the rest.
 *
 * Sources: verl/trainer/ppo/utils.py (need_critic, need_reference_policy),
 * verl/workers/fsdp_workers.py (compute_log_prob), verl/trainer/config/rollout/rollout.yaml.
 */
#include <inttypes.h>
#include <string.h>

#include "sim/config/verl/parts.h"
#include "sim/text/scalar.h"

#define ROLLOUT "actor_rollout_ref.rollout."
#define REF     "actor_rollout_ref.ref."

static bool is_true(const verl_reader *r, const char *name)
{
  bool value;
  const verl_given *g = verl_get(r, name);

  return g != NULL && scalar_bool(g->value, &value) && value;
}

static bool has_critic(const verl_reader *r)
{
  bool estimates = strcmp(verl_text_of(r, "algorithm.adv_estimator", "gae"), "gae") == 0;

  return verl_get(r, "critic.enable") != NULL ? is_true(r, "critic.enable") : estimates;
}

/* With an adapter, the reference policy is the actor without it. */
static bool has_reference(const verl_reader *r)
{
  bool wanted = is_true(r, ACTOR "use_kl_loss") || is_true(r, "algorithm.use_kl_in_reward");
  bool adapted = strcmp(verl_text_of(r, MODEL "lora_rank", "0"), "0") != 0;
  bool leaves =
      is_true(r, REF "fsdp_config.param_offload") || is_true(r, REF "megatron.param_offload");

  return wanted && !adapted && !leaves;
}

static void note_models(const verl_reader *r)
{
  bool critic = has_critic(r), reference = has_reference(r);

  if (critic || reference) {
    diag_note(r->d, (source_pos){ r->path, 0, 0 },
              "%s%s%s on the same GPUs: only the actor's update is predicted, without their memory",
              critic ? "a critic" : "", critic && reference ? " and " : "",
              reference ? "a reference policy" : "");
  }
}

/* Sequences of a forward pass without gradients, whose logits are whole. */
static void note_log_probs(const verl_reader *r)
{
  const char *name = ROLLOUT "log_prob_micro_batch_size_per_gpu";
  const char *dynamic = ROLLOUT "log_prob_use_dynamic_bsz";
  const struct training_settings *t = &r->s->training;
  int64_t sequences;

  if (verl_get(r, name) == NULL || is_true(r, dynamic) || t->micro_batch_tokens != UNSET ||
      !verl_number(r, name, 1, 1, &sequences)) {
    return;
  }
  if (sequences > 2 * t->micro_batch_size) {
    diag_note(r->d, verl_place(r, name),
              "log-probabilities are computed for %" PRId64
              " sequences at a time, the update for %" PRId64
              ": their logits may need more memory than the update, which alone is predicted",
              sequences, t->micro_batch_size);
  }
}

void verl_note_beside(const verl_reader *r)
{
  if (r->trainer == VERL_PPO) {
    note_models(r);
    note_log_probs(r);
  }
}
