/* Keys of a scenario as what a launch script of Megatron-LM gives: options, variables of its environment. */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_PASTE_H
#define OFFSIM_SIM_CONFIG_MEGATRON_PASTE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/config/settings.h"

/* Whether such a script runs the settings: not Hugging Face's modules, nor what verl's configuration says. */
bool megatron_takes_options(const settings *s);

/* Each is "" if there is none. */
typedef struct megatron_pasted {
  const char *flags;    /* to paste: variables, then options */
  const char *left_out; /* what the script must not give */
} megatron_pasted;

/* `sets`: "key=value". False: no option of Megatron-LM sets one of the keys. */
bool megatron_paste(megatron_pasted *to, const char *const *sets, uint32_t count, arena *a);

#endif
