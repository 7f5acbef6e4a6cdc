/*
 * Checks of settings, for the steps that resolve and validate them and the conditions of offload systems.
 */
#ifndef OFFSIM_SIM_CONFIG_CHECKS_H
#define OFFSIM_SIM_CONFIG_CHECKS_H

#include "sim/config/key_table.h"
#include "sim/config/settings.h"

/* `holds`, or an error at `key`, or at `other` if `key` was not given. */
bool need(const settings *s, diag *d, bool holds, setting_key key, setting_key other,
          const char *format, ...) __attribute__((format(printf, 6, 7)));
/* "a is 7; it must be divisible by b (2)": two INT keys. */
bool need_multiple(const settings *s, diag *d, setting_key key, setting_key divisor);
/* An INT key that has neither a value nor a default. */
bool need_given(const settings *s, diag *d, setting_key key);

/* ---- offload systems that work on checkpoints ---- */

/* These systems have reentrant checkpoints of their own. */
static inline bool is_reentrant_engine(const settings *s)
{
  return s->offload.system == SYSTEM_hidden_states_reentrant ||
         s->offload.system == SYSTEM_axolotl_disk || s->offload.system == SYSTEM_deepspeed;
}

static inline bool is_selective_engine(const settings *s)
{
  return s->offload.system == SYSTEM_selective_checkpointing;
}

#endif
