/*
 * Megatron-LM arguments as users have them -> settings.
 *
 * A file is either shell text, a launch script or the argument list in it, or a YAML or JSON
 * mapping: bare, or with MODEL_ARGS and ENV_VARS as in Megatron-LM's own test configurations. What
 * it is, is decided by its first line that is neither blank nor a comment: `{`, `---` or `name:`
 * begin a mapping.
 *
 * Shell text is never evaluated: variables stay text, `( ) * [ ] |` are literal. What precedes the
 * script (torchrun and its options) is skipped; --nnodes times --nproc_per_node is the world size
 * where both are numbers. `export X=Y` and `X=Y` are environment; `X=(--flag value)` and `X="--flag
 * value"` are argument lists, as launch scripts collect them.
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_ARGS_H
#define OFFSIM_SIM_CONFIG_MEGATRON_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/settings.h"

typedef struct megatron_args_options {
  bool ignore_unknown; /* options that Megatron-LM does not have are listed in notes and skipped */
} megatron_args_options;

bool megatron_args_read(settings *s, const char *path, const megatron_args_options *options,
                        arena *a, diag *d);

/* The same from memory; `path` only names the text in messages and must outlive `s`. */
bool megatron_args_parse(settings *s, const char *path, const char *text, size_t length,
                         const megatron_args_options *options, arena *a, diag *d);

#endif
