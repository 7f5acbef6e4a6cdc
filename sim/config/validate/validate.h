/*
 * The constraints between the keys of settings, by subject; the last steps of settings_resolve.
 * Private to sim/config.
 *
 * Each returns false after a diag error. Sources: megatron/training/arguments.py (validate_args),
 * megatron/core/transformer/transformer_config.py and model_parallel_config.py (__post_init__) of
 * NVIDIA/Megatron-LM at d98e8a64, unless a comment names another source.
 */
#ifndef OFFSIM_SIM_CONFIG_VALIDATE_VALIDATE_H
#define OFFSIM_SIM_CONFIG_VALIDATE_VALIDATE_H

#include "sim/config/checks.h"

bool validate_parallel(const settings *s, diag *d);
bool validate_model(const settings *s, diag *d);
bool validate_moe(const settings *s, diag *d);
bool validate_training(const settings *s, diag *d);
bool validate_recompute(const settings *s, diag *d);
bool validate_cuda_graphs(const settings *s, diag *d);
bool validate_offload(const settings *s, settings_check *of_system, diag *d);
bool validate_checkpoint_engines(const settings *s, diag *d);
bool validate_host_experts(const settings *s, diag *d);
bool validate_paged_stash(const settings *s, diag *d);
bool validate_environment(const settings *s, diag *d);
bool validate_fsdp(const settings *s, diag *d);
bool validate_hf(const settings *s, diag *d);
bool validate_sizes(const settings *s, diag *d);

#endif
