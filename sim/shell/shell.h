/*
 * Launch scripts, evaluated: the commands that a bash script would start, without starting any.
 *
 * The evaluator reads the script as bash does: assignments, quoting, parameter expansion,
 * arithmetic, arrays, conditions, loops, functions, here-documents. It executes nothing and reads
 * no file but those that the script sources or runs with bash beside itself. What it cannot know,
 * the output of `date`, whether a file exists, the home directory, is an *unknown* part of a value:
 * it travels with the value, and each word says what it depends on.
 *
 *   - An `if` or `case` that depends on an unknown is evaluated for every branch. A variable that
 *     all branches leave with the same value is known; any other keeps what is common and gets an
 *     unknown part that lists the alternatives. A branch that ends the script (`exit 1`) does not
 *     count: the run that trains goes on.
 *   - A variable that was never set expands to nothing, as in bash with an empty environment. The
 *     words remember it.
 *   - Foreign commands succeed where `&&` or `set -e` asks; elsewhere their exit status is unknown.
 *   - Software of other accelerators than NVIDIA's GPUs is not there: `python -c 'import torch_npu'`
 *     fails, and so does `npu-smi`.
 *   - Pathnames are not expanded: `*.json` stays as it is, as in an empty directory.
 */
#ifndef OFFSIM_SIM_SHELL_SHELL_H
#define OFFSIM_SIM_SHELL_SHELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"

/* What the caller knows about the run: --env NAME=VALUE, and the script's arguments, --arg VALUE. */
typedef struct shell_presets {
  const char *const *environment; /* "NAME=VALUE" */
  const char *const *arguments;   /* $1, $2, ... */
  uint32_t environment_count, argument_count;
} shell_presets;

/* Why a part of a value is not known. */
typedef struct shell_unknown {
  const char *name; /* the variable to give with --env, or NULL: no variable holds it */
  const char *what; /* "$(date +%s)", "the condition [ -f x ]" */
  source_pos at;    /* of `what` */
  const char *const
      *alternatives; /* what the branches give, blank-separated words; NULL: anything */
  uint32_t alternative_count;
  bool secret; /* the value is known, and not for print */
} shell_unknown;

typedef struct shell_word {
  const char *text; /* unknown parts as they are written in the script: "runs/$(date)" */
  source_pos at;    /* of the word, or of the assignment that it came from */
  const shell_unknown *unknown; /* its first unknown part, or NULL; unquoted, it may split */
  bool is_unknown;              /* nothing but an unknown part: perhaps no word, perhaps many */
  const char *unset;            /* a variable in it that was never set, or NULL */
  const char *missing;          /* one that was written beside it and left no word, or NULL */
  source_pos unset_at, missing_at;
} shell_word;

typedef struct shell_variable {
  const char *name;
  shell_word value; /* of an array, its first element */
  bool exported;
} shell_variable;

/* A branch that could not be decided. */
typedef struct shell_branch {
  uint32_t condition; /* the same number: branches of the same condition */
  uint32_t arm;
  const shell_unknown *why;
} shell_branch;

/* How many processes a launcher starts: words without text where nothing says so. */
typedef struct shell_launch {
  shell_word nodes;    /* torchrun --nnodes, srun -N, #SBATCH --nodes */
  shell_word per_node; /* torchrun --nproc-per-node, srun --ntasks-per-node, deepspeed --num_gpus */
  shell_word processes;      /* mpirun -n, srun -n: of all nodes */
  bool nodes_default_to_one; /* the launcher runs on one node unless an option says otherwise */
} shell_launch;

typedef struct shell_command {
  shell_word *words;
  uint32_t count;
  uint32_t entry; /* the word that names the Python script or module; `count`: none */
  bool is_module;
  source_pos at;
  shell_launch launch;
  const shell_variable *environment; /* what it would find: exported variables and `X=Y command` */
  const shell_variable *variables;   /* all, exported or not */
  uint32_t environment_count, variable_count;
  const shell_branch *branch; /* the innermost branch that could not be decided, or NULL */
} shell_command;

/* A variable with options in it, as the script leaves it: what a command would get of its words. */
typedef struct shell_list {
  const char *name;
  shell_command command;
} shell_list;

typedef struct shell_script {
  shell_command *commands; /* those that run Python, have options or overrides (a.b=c), in order */
  uint32_t count;
  shell_list *lists; /* in the order of their first assignments */
  uint32_t list_count;
  bool is_list;       /* no script: a list of arguments, a command for each line */
  const char *wanted; /* arguments that it reads and that are not given, or NULL */
  source_pos wanted_at;
  bool chooses;      /* it compares one of them with values */
  const char *ended; /* why it ended before its last line, or NULL */
  source_pos ended_at;
} shell_script;

/* False after a diag error: one of the environment is no NAME=VALUE, or bytes are no text. */
bool shell_presets_check(const shell_presets *presets, diag *d);

/* Everything in `out` lives in the arena; `file` names the text in places and must outlive it.
 * Notes go to the diag. False after a diag error: bytes that are no text, syntax that bash would
 * refuse too, what is not supported, a limit. */
bool shell_evaluate(arena *a, const char *file, const char *text, size_t length,
                    const shell_presets *presets, shell_script *out, diag *d);

#endif
