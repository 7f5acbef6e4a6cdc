/* The software of the run, and what follows from its age. */
#include "sim/config/megatron_releases.h"
#include "sim/config/resolve/steps.h"

/* megatron/training/determinism.py sets these if they are not set. */
static void resolve_determinism(settings *s, arena *a)
{
  if (!s->training.deterministic_mode) {
    return;
  }
  if (!s->given[KEY_software_nvte_allow_nondeterministic_algo]) {
    s->software.nvte_allow_nondeterministic_algo = false;
  }
  if (s->software.cublas_workspace_config[0] == '\0') {
    s->software.cublas_workspace_config = arena_strdup(a, ":4096:8");
  }
}

/* A day decides the version, and a version the day; without both it is the newest code. */
static bool resolve_megatron(settings *s, diag *d)
{
  setting_key key = KEY_software_megatron_day, version = KEY_software_megatron;
  const char *text = s->software.megatron_day;
  int day;

  if (text[0] == '\0') {
    s->derived.megatron_day = megatron_version_day(s->software.megatron);
    return true;
  }
  if (!need(s, d, software_day_of(text, &day), key, key,
            "megatron_day is \"%.200s\"; it must be a day, such as 2026-05-30", text)) {
    return false;
  }
  uint32_t on_day = megatron_version_on(day);
  s->derived.megatron_day = day;
  if (!need(s, d, !s->given[version] || s->software.megatron == on_day, key, version,
            "megatron_day is %s, when main had the offloading of %s, and megatron is %s; leave one "
            "of the two out",
            text, key_rows[version].words[on_day], chosen_word(s, version))) {
    return false;
  }
  s->software.megatron = (megatron_choice)on_day;
  return true;
}

/* Whether Megatron-LM is older than `day`; without its day, whether the image is older than that month. */
static bool megatron_is_older_than(const settings *s, int day)
{
  software_release image = s->derived.software;
  int month = 100 * image.year + image.month;

  return s->derived.megatron_day > 0 ? s->derived.megatron_day < day : month < day / 100;
}

bool resolve_software(settings *s, arena *a, diag *d)
{
  setting_key key = KEY_software_container;

  resolve_determinism(s, a);
  if (!resolve_megatron(s, d) ||
      !need(s, d, software_release_of(s->software.container, &s->derived.software), key, key,
            "container is \"%.200s\"; it must be the name of a PyTorch image with its month, such "
            "as pytorch:25.09-py3",
            s->software.container)) {
    return false;
  }
  software_take_engine_of_megatron(&s->derived.software, s->derived.megatron_day);
  s->derived.weighs_expert_outputs =
      !uses_hf(s) && megatron_is_older_than(s, 20250409);                /* 26596307 */
  s->derived.shares_placeholders = !megatron_is_older_than(s, 20250801); /* e7c55de9 */
  s->derived.copies_recomputed = megatron_is_older_than(s, 20260311);    /* f5440349 */
  return true;
}

/* Megatron-LM has had the layout since 21 May 2026 (#4771), as the default. Without the day, the
 * image decides. */
void resolve_layer_wise_layout(settings *s)
{
  setting_key key = KEY_parallel_use_layer_wise_param_layout;
  bool dated = s->derived.megatron_day > 0 || s->given[KEY_software_container];

  if (!s->given[key] && dated && megatron_is_older_than(s, 20260521)) {
    s->parallel.use_layer_wise_param_layout = false;
  }
  s->derived.layer_wise_layout =
      s->derived.layer_wise_optimizer && s->parallel.use_layer_wise_param_layout;
}

/* The default was blockwise until 21 August 2026 (Megatron-LM #6380). */
void resolve_muon(settings *s)
{
  bool older = s->derived.megatron_day > 0 ? s->derived.megatron_day < 20260821
                                           : s->software.megatron != MEGATRON_MAIN_2026_08;

  if (older && !s->given[KEY_training_muon_tp_mode]) {
    s->training.muon_tp_mode = MUON_BLOCKWISE;
  }
}

/* Megatron-LM's branch dev replaced its OptimizerStateOffloader on 18 August 2026 (#6244), and kept the flag.
 * A fraction of 0 installs nothing. */
void resolve_state_offload(settings *s)
{
  struct training_settings *t = &s->training;
  int day = s->derived.megatron_day;

  if (t->offload_optimizer_states && !uses_hf(s) && (day == 0 || day >= 20260818)) {
    t->offload_optimizer_states = false;
    t->chunked_optimizer_state_offload = true;
    s->at[KEY_training_chunked_optimizer_state_offload] =
        s->at[KEY_training_offload_optimizer_states];
  }
  if (t->optimizer_state_offload_fraction == 0) {
    t->chunked_optimizer_state_offload = false;
  }
}
