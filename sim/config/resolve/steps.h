/*
 * The steps of settings_resolve, in the order in which they run. Private to sim/config.
 *
 * Each returns false after a diag error. Sources: megatron/training/arguments.py (validate_args),
 * megatron/core/transformer/transformer_config.py and model_parallel_config.py (__post_init__) of
 * NVIDIA/Megatron-LM at d98e8a64, unless a comment names another source.
 */
#ifndef OFFSIM_SIM_CONFIG_RESOLVE_STEPS_H
#define OFFSIM_SIM_CONFIG_RESOLVE_STEPS_H

#include "sim/config/checks.h"

/* ---- pieces of text ---- */

/*
 * Which of num_layers layers a key such as moe_layer_freq names: a whole number N (layers 0, N, 2N,
 * ...) or an expression of lists of 0 and 1 with + and * and brackets, such as ([0]*3+[1]*58). False after a
 * diag error: the text has neither form, or the list has another length.
 */
bool layer_pattern_parse(const settings *s, setting_key key, const char *text, bool *layers,
                         diag *d);

/* The number of virtual stages in pipeline_model_parallel_layout, or 0 after a diag error. */
int64_t pipeline_layout_stage_count(const settings *s, arena *a, diag *d);
/* The same, into `stages`: row chunk * PP + pp is stage number chunk * PP + pp of the text. */
bool pipeline_layout_parse(const settings *s, struct stage_content *stages, arena *a, diag *d);

static inline int64_t if_unset(int64_t value, int64_t otherwise)
{
  return value == UNSET ? otherwise : value;
}

/* ---- steps ---- */

/* Axolotl's switch for disk offload, as released. Runs before every step that depends on
 * offload.system. */
void resolve_axolotl_disk(settings *s, diag *d);
bool resolve_implementation(settings *s, diag *d);
bool resolve_ranks(settings *s, diag *d);
/* The batch of training.iteration where a schedule changes it; before resolve_microbatches. */
bool resolve_batch_schedule(settings *s, arena *a, diag *d);
bool resolve_microbatches(settings *s, diag *d);
bool resolve_stages(settings *s, arena *a, diag *d);
bool resolve_model(settings *s, arena *a, diag *d);
bool resolve_hf(settings *s, arena *a, diag *d);     /* a part of resolve_model */
bool resolve_window(settings *s, arena *a, diag *d); /* likewise */
void resolve_pipeline(settings *s);
void resolve_training(settings *s);
bool resolve_software(settings *s, arena *a, diag *d);
void resolve_layer_wise_layout(settings *s);
void resolve_muon(settings *s);
void resolve_state_offload(settings *s);
void resolve_offload(settings *s, arena *a, diag *d);
void resolve_fsdp(settings *s, diag *d);
void resolve_verl(settings *s, diag *d);
bool resolve_manual_offload(settings *s, arena *a, diag *d);
/* Runs after validation, when it is certain whether the schedule runs layers in parts. */
void drop_layers_in_parts(settings *s, diag *d);

/* ---- notes ---- */

void note_unmodelled(const settings *s, diag *d);
void note_idle(const settings *s, arena *a, diag *d);

#endif
