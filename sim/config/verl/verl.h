/*
 * verl's configuration -> settings of its update step, of the actor or of an SFT trainer's model
 * (docs/reference/verl.md).
 *
 * A file is either YAML with the nested keys of verl's trainer, or shell text: a launch script, or
 * the overrides in it, `actor_rollout_ref.actor.strategy=fsdp2` (Hydra; `+` and `++` before a key
 * are taken too). A launch script is evaluated as bash does, never run (sim/shell/shell.h); Hydra's
 * own `${...}` are not resolved.
 *
 * The model's shape is not in the file. It comes from the config.json of model.path, which is read
 * before (hf_config.h). Every sequence is taken as long as data.max_prompt_length and
 * data.max_response_length allow, until --set seq_length says otherwise.
 *
 * Source: volcengine/verl at b178a3cd: verl/trainer/config, verl/workers/config/actor.py
 * (validation), verl/workers/fsdp_workers.py, verl/workers/megatron_workers.py, verl/workers/actor,
 * verl/trainer/fsdp_sft_trainer.py; what the other files of this folder name.
 */
#ifndef OFFSIM_SIM_CONFIG_VERL_VERL_H
#define OFFSIM_SIM_CONFIG_VERL_VERL_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/settings.h"
#include "sim/config/training_lines.h"
#include "sim/shell/shell.h"

typedef struct verl_options {
  bool ignore_unknown;   /* keys that verl does not have are listed in notes and skipped */
  shell_presets presets; /* --env and --arg, for a launch script */
  const char *lines;     /* overrides after those of the file, one a line; NULL: none */
} verl_options;

/* Reads a file; "-" is standard input. False after a diag error. */
bool verl_read(settings *s, const char *path, const verl_options *options, arena *a, diag *d);

/* The same from memory; `path` only names the text in messages and must outlive `s`. */
bool verl_parse(settings *s, const char *path, const char *text, size_t length,
                const verl_options *options, arena *a, diag *d);

/* Overrides of recomputation, offload and the micro-batch; the SFT trainers' names are the first. */
enum { VERL_NAMINGS = 2 };
training_rows verl_rows;

#endif
