/*
 * What fine_grained_activation_offloading needs of the other settings: its part of
 * megatron/core/transformer/transformer_config.py (__post_init__) and
 * megatron/training/arguments.py (validate_args).
 */
#ifndef OFFSIM_SIM_OFFLOAD_MEGATRON_CONDITIONS_H
#define OFFSIM_SIM_OFFLOAD_MEGATRON_CONDITIONS_H

#include "sim/base/diag.h"
#include "sim/config/settings.h"

/* Reports the first condition that resolved settings do not meet, at its key; false: there is one. */
bool megatron_conditions(const settings *s, diag *d);

#endif
