/*
 * The steps of settings_resolve, in the order in which they run. Private to sim/config.
 *
 * Each returns false after a diag error. Sources: megatron/training/arguments.py (validate_args),
 * megatron/core/transformer/transformer_config.py and model_parallel_config.py (__post_init__) of
 * NVIDIA/Megatron-LM at d98e8a64, unless the place says otherwise.
 */
#ifndef OFFSIM_SIM_CONFIG_RESOLVE_PARTS_H
#define OFFSIM_SIM_CONFIG_RESOLVE_PARTS_H

#include "sim/config/key_table.h"
#include "sim/config/settings.h"

/* ---- checks ---- */

/* `holds`, or an error at `key`, or at `other` if `key` was not given. */
bool need(const settings *s, diag *d, bool holds, setting_key key, setting_key other,
          const char *format, ...) __attribute__((format(printf, 6, 7)));
/* "a is 7; it must be divisible by b (2)": two INT keys. */
bool need_multiple(const settings *s, diag *d, setting_key key, setting_key divisor);
/* An INT key that has neither a value nor a default. */
bool need_given(const settings *s, diag *d, setting_key key);

static inline bool text_is(const char *text, const char *word)
{
  for (; *text == *word && *word != '\0'; text++, word++) {
  }
  return *text == *word;
}

/* ---- pieces of text ---- */

/*
 * moe_layer_freq for `num_layers` layers: a whole number N (layers 0, N, 2N, ... are MoE) or an
 * expression of lists of 0 and 1 with + and * and brackets, such as ([0]*3+[1]*58). False after a
 * diag error: no such thing, or a list of another length.
 */
bool moe_layer_freq_parse(const settings *s, bool *layer_is_moe, diag *d);

/* pipeline_model_parallel_layout: how many virtual stages it has, or 0 after a diag error. */
int64_t pipeline_layout_stage_count(const settings *s, arena *a, diag *d);
/* The same, into `stages`: row chunk * PP + pp is stage number chunk * PP + pp of the text. */
bool pipeline_layout_parse(const settings *s, struct stage_content *stages, arena *a, diag *d);

/* ---- steps ---- */

/* What Axolotl's switch for disk offload does as released; before anything that offload.system decides. */
void resolve_axolotl_disk(settings *s, diag *d);
void resolve_checkpoint_engines(settings *s);
bool resolve_software(settings *s, arena *a, diag *d);
/* After the offload system is known. */
bool resolve_manual_offload(settings *s, arena *a, diag *d);
bool resolve_stages(settings *s, arena *a, diag *d);
void resolve_fsdp(settings *s, diag *d);
void resolve_hf(settings *s);
void resolve_verl(settings *s, diag *d);

/* ---- validation ---- */

bool validate_parallel(const settings *s, diag *d);
bool validate_model(const settings *s, diag *d);
bool validate_moe(const settings *s, diag *d);
bool validate_training(const settings *s, diag *d);
bool validate_recompute(const settings *s, diag *d);
bool validate_cuda_graphs(const settings *s, diag *d);
bool validate_offload(const settings *s, diag *d);
bool validate_checkpoint_engines(const settings *s, diag *d);
bool validate_paged_stash(const settings *s, diag *d);
bool validate_environment(const settings *s, diag *d);
bool validate_fsdp(const settings *s, diag *d);
bool validate_verl(const settings *s, diag *d);
bool validate_hf(const settings *s, diag *d);
bool validate_sizes(const settings *s, diag *d);

/* ---- notes ---- */

void note_unmodelled(const settings *s, diag *d);

#endif
