/*
 * The vocabulary that a tokenizer brings where no flag gives its size. Private to
 * sim/config/megatron/.
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_TOKENIZER_H
#define OFFSIM_SIM_CONFIG_MEGATRON_TOKENIZER_H

#include "sim/config/megatron/flags.h"

/* Names the tokenizer of these uses, and the size of its vocabulary if it is a published one, in
 * `s->derived`. False after a diag error: it is the tokenizer of no decoder model. */
bool megatron_tokenizer_find(settings *s, const flag_use_array *uses, arena *a, diag *d);

#endif
