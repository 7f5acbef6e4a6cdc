/* Values and options of forks that mean something that Megatron-LM has under another name. */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_DIALECTS_H
#define OFFSIM_SIM_CONFIG_MEGATRON_DIALECTS_H

#include "sim/config/megatron/flags.h"

/* Rewrites the uses; a note names each value and what it is read as. False after a diag error. */
bool megatron_dialects_translate(flag_use_array *uses, arena *a, diag *d);

#endif
