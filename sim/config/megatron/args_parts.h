/*
 * The two forms of Megatron arguments: each reader collects the options that were given into `uses`
 * and passes environment variables on to settings. Private to sim/config/megatron/.
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_ARGS_PARTS_H
#define OFFSIM_SIM_CONFIG_MEGATRON_ARGS_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/megatron/args.h"
#include "sim/config/megatron/flags.h"
#include "sim/config/settings.h"
#include "sim/config/training_command.h"

typedef struct args_reader {
  settings *s;
  const char *path;
  bool ignore_unknown;
  const megatron_args_options *options;
  flag_use_array uses;
  unset_names missing; /* variables in a mapping's values that matter */
  arena *a;
  diag *d;
} args_reader;

bool megatron_shell_read(args_reader *r, const char *text, size_t length);
bool megatron_mapping_read(args_reader *r, const char *text, size_t length);

/* Option `name` is unknown. Prints a note and returns true if unknown options are ignored or it looks
 * harmless; else an error. */
bool megatron_unknown_option(const args_reader *r, const char *name, source_pos at);

#endif
