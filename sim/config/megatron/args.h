/*
 * Megatron-LM arguments as users have them -> settings.
 *
 * A file is either shell text, a launch script or the argument list in it, or a YAML or JSON
 * mapping: bare, or with MODEL_ARGS and ENV_VARS as in Megatron-LM's own test configurations. What
 * it is, is decided by its first line that is neither blank nor a comment: `{`, `---` or `name:`
 * begin a mapping.
 *
 * A launch script is evaluated as bash does (sim/shell/shell.h) and never run: its training command
 * and the environment that it exports are read. Nodes times processes of the launcher are the world
 * size. A file that begins with an option is a list of arguments, in which `( ) * [ ] |` are
 * literal.
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_ARGS_H
#define OFFSIM_SIM_CONFIG_MEGATRON_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/settings.h"
#include "sim/shell/shell.h"

typedef struct megatron_args_options {
  bool ignore_unknown; /* options that Megatron-LM does not have are listed in notes and skipped */
  bool world_size_given; /* by the caller: what the launcher says does not matter */
  shell_presets presets; /* --env and --arg */
} megatron_args_options;

/* Reads a file; "-" is standard input. False after a diag error. */
bool megatron_args_read(settings *s, const char *path, const megatron_args_options *options,
                        arena *a, diag *d);

/* The same from memory; `path` only names the text in messages and must outlive `s`. */
bool megatron_args_parse(settings *s, const char *path, const char *text, size_t length,
                         const megatron_args_options *options, arena *a, diag *d);

#endif
