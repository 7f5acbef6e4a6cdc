/*
 * Programs that start Megatron-LM with options and defaults of their own. Private to
 * sim/config/megatron/.
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_WRAPPERS_H
#define OFFSIM_SIM_CONFIG_MEGATRON_WRAPPERS_H

#include <stdint.h>

#include "sim/shell/shell.h"

/* What the wrapper gives where the command does not. */
typedef struct wrapper_default {
  const char *option, *value;
} wrapper_default;

typedef struct megatron_wrapper {
  const char *program, *verb; /* the first two words of the command */
  const char *does;           /* what offsim does not predict; NULL: it trains */
  const char *name;           /* "ms-swift" */
  const wrapper_default *defaults;
  uint32_t default_count;
  const char *per_node, *nodes; /* environment variables with the numbers of processes and nodes */
} megatron_wrapper;

/* NULL: the command is no wrapper's. */
const megatron_wrapper *megatron_wrapper_of(const shell_command *c);

/* How many processes it starts: what the environment says, or else what the launcher says. */
shell_launch megatron_wrapper_launch(const megatron_wrapper *w, const shell_command *c);

#endif
