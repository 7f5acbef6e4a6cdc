/*
 * From command-line options to resolved settings and a machine.
 */
#ifndef OFFSIM_SIM_LOAD_LOAD_H
#define OFFSIM_SIM_LOAD_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/config/settings.h"
#include "sim/load/options.h"
#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

enum { SETS = 256, SCRIPT_VALUES = 128 };

/* The sources of a configuration. Every verb that takes a configuration takes these options. */
typedef struct load_options {
  const char *scenario;      /* positional argument */
  const char *megatron_args; /* --megatron-args */
  const char *hf_config;     /* --hf-config */
  const char *axolotl;       /* --axolotl */
  const char *verl;          /* --verl */
  const char *machine;       /* --machine */
  const char *sets[SETS]; /* --set, --world-size and --padded-vocab-size as key=value, in order */
  uint32_t set_count;
  const char *machine_sets[SETS]; /* --machine-set, in order */
  uint32_t machine_set_count;
  const char *environment[SCRIPT_VALUES]; /* --env */
  const char *arguments[SCRIPT_VALUES];   /* --arg */
  uint32_t environment_count, argument_count;
  bool ignore_unknown; /* --ignore-unknown */
  const char *lines;   /* added to the training file of Axolotl or verl; NULL: none */
} load_options;

/* These options, as the first table of a verb. */
extern const option_row load_rows[];

/* --iteration N, as a table of its own: a verb may give that option another meaning too. */
extern const option_row load_iteration_rows[];
void load_take_iteration(load_options *o, const char *number, arena *a, diag *d);

/* Reads the arguments of a verb whose first table is load_rows for *o: options, one scenario. */
parsed load_command(load_options *o, const verb_syntax *v, int argc, char **argv, arena *a,
                    diag *d);

/* The file that has most of the configuration; a phrase if the settings are given without one. */
const char *load_name(const load_options *o);

/* Whether a part of a configuration was given: a file, a machine or a key. */
bool load_is_given(const load_options *o);

/* What --machine-set gives, as the machine's reader takes it. */
machine_changes load_machine_changes(const load_options *o);

/* Reads everything and loads the machine, which lives in the arena. The settings are not resolved yet. False
 * after a diag error. */
bool load_given(const load_options *o, settings *s, const machine **m, arena *a, diag *d);

/* If only the model's shape was given, notes what offsim assumes of the run: precision, attention,
 * optimizer. `s`: resolved. */
void load_note_assumptions(const load_options *o, const settings *s, arena *a, const diag *d);

/* The same as load_given, resolved, with these notes. */
bool load_settings(const load_options *o, settings *s, const machine **m, arena *a, diag *d);

/* A plan as text; `path` "-" is standard input. False after a diag error. */
bool load_plan(plan *p, const char *path, arena *a, diag *d);

#endif
