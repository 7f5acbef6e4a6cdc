/*
 * Options of MindSpeed-LLM whose meaning depends on other options. Private to sim/config/megatron/.
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_MINDSPEED_H
#define OFFSIM_SIM_CONFIG_MEGATRON_MINDSPEED_H

#include "sim/config/megatron/flags.h"

/* After all other uses are applied. False after a diag error. */
/* --noop-layers: layers without content become a layout of fewer ones. Before the uses are applied. */
bool megatron_mindspeed_leave_out(flag_use_array *uses, arena *a, diag *d);

bool megatron_mindspeed_apply(settings *s, const flag_use_array *uses, arena *a, diag *d);

#endif
