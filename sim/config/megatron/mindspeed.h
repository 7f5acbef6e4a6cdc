/*
 * Options of MindSpeed-LLM whose meaning depends on other options. Private to sim/config/megatron/.
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_MINDSPEED_H
#define OFFSIM_SIM_CONFIG_MEGATRON_MINDSPEED_H

#include "sim/config/megatron/flags.h"

/* False after a diag error. Before the uses are applied: layers without content (--noop-layers) become a
 * layout of fewer ones. */
bool megatron_mindspeed_leave_out(flag_use_array *uses, arena *a, diag *d);
/* After all other uses are applied. */
bool megatron_mindspeed_apply(settings *s, const flag_use_array *uses, arena *a, diag *d);

#endif
