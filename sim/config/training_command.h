/*
 * Which command of a launch script trains, and messages for commands that are unknown or unknown in
 * part. Private to sim/config.
 */
#ifndef OFFSIM_SIM_CONFIG_TRAINING_COMMAND_H
#define OFFSIM_SIM_CONFIG_TRAINING_COMMAND_H

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/shell/shell.h"

/* A reader's judgement of a command. */
typedef enum command_fit {
  COMMAND_OTHER,   /* it does not concern the reader */
  COMMAND_REFUSED, /* trains, or does, something else than offsim predicts */
  COMMAND_TRAINS
} command_fit;

/* Whether a word can change the prediction. */
typedef bool (*word_matters)(const char *word);

/* The command that trains: the last one that offsim predicts, or else the last refused one; NULL
 * without an error: there is none. Others are named in a note. Two in branches that cannot be decided
 * are an error if words differ that matter; with `matters` NULL all do. */
const shell_command *training_command(const shell_script *s, const command_fit *fits,
                                      word_matters matters, arena *a, diag *d);

/* The arguments that depend on unknown parts, for one message about all: empty when zeroed. */
typedef struct hanging {
  const shell_unknown *on; /* NULL: nothing */
  const char *names;       /* "--num-layers, --hidden-size" */
} hanging;

void hanging_add(hanging *h, const shell_unknown *on, const char *name, arena *a);
/* False after a diag error if an argument depends on an unknown part. */
bool hanging_report(const hanging *h, arena *a, diag *d);

/* Why a value is not known, and how to give it: "N, which line 3 sets from $(nproc); --env
 * N=VALUE gives it". */
const char *unknown_reason(const shell_unknown *u, arena *a);

/* "--env NAME=VALUE sets it", or --arg for an argument of the script. */
const char *unset_advice(const char *name, arena *a);

/* Names of unset variables, for one note. */
typedef struct unset_names {
  const char *names;
  source_pos at;
} unset_names;

void unset_add(unset_names *u, const char *name, source_pos at, arena *a);
void unset_report(const unset_names *u, const diag *d);

/*
 * GPUs of the job, from the launcher's arguments; 0: they do not say. A factor that is unknown or no
 * number is an error, unless `given`: then the caller has the number.
 */
bool launch_world_size(const shell_command *c, bool given, int64_t *world_size, source_pos *at,
                       arena *a, diag *d);

#endif
