/*
 * Variables in a mapping's values: $NAME and ${NAME}, which a wrapper replaces by envsubst before it
 * reads the mapping. --env gives them. Private to sim/config/megatron/.
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_VARIABLES_H
#define OFFSIM_SIM_CONFIG_MEGATRON_VARIABLES_H

#include "sim/base/arena.h"
#include "sim/config/training_command.h"
#include "sim/text/yaml_text.h"

/* A copy of the value with the variables' values, of a list in each item. A variable that the presets do
 * not give stays as it is written, and `missing` takes its name. */
text_node variables_replaced(const text_node *n, const shell_presets *presets, unset_names *missing,
                             arena *a);

#endif
