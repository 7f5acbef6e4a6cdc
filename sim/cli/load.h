/*
 * From command-line options to resolved settings and a machine.
 */
#ifndef OFFSIM_SIM_CLI_LOAD_H
#define OFFSIM_SIM_CLI_LOAD_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/cli/options.h"
#include "sim/config/settings.h"
#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

enum { SETS = 256 };

/* What a run is read from; every verb that takes a configuration takes these. */
typedef struct load_options {
  const char *scenario;      /* positional argument */
  const char *megatron_args; /* --megatron-args */
  const char *hf_config;     /* --hf-config */
  const char *axolotl;       /* --axolotl */
  const char *verl;          /* --verl */
  const char *machine;       /* --machine */
  const char *sets[SETS]; /* --set, --world-size and --padded-vocab-size as key=value, in order */
  uint32_t set_count;
  bool ignore_unknown; /* --ignore-unknown */
} load_options;

#define LOAD_USAGE                                                                                 \
  "  SCENARIO.yaml              a scenario file (- reads standard input)\n"                        \
  "  --megatron-args FILE       Megatron flags: a launch script's text, or a YAML/JSON mapping\n"  \
  "  --hf-config FILE           a Hugging Face config.json: the model's shape\n"                   \
  "  --axolotl FILE             an Axolotl training YAML; beside it --hf-config of its base "      \
  "model\n"                                                                                        \
  "  --verl FILE                verl's configuration, YAML or a launch script; beside it "         \
  "--hf-config\n"                                                                                  \
  "  --world-size N             GPUs\n"                                                            \
  "  --padded-vocab-size N      rows of the embedding\n"                                           \
  "  --machine NAME|FILE        a shipped machine, or a machine file\n"                            \
  "  --set KEY=VALUE            any key of a scenario; may be repeated, comes last\n"              \
  "  --ignore-unknown           list and skip options and keys that offsim does not know\n"

/* Codes of these options for getopt_long, above all characters. */
enum {
  OPTION_MEGATRON_ARGS = 256,
  OPTION_HF_CONFIG,
  OPTION_WORLD_SIZE,
  OPTION_PADDED_VOCAB_SIZE,
  OPTION_MACHINE,
  OPTION_AXOLOTL,
  OPTION_VERL,
  OPTION_SET,
  OPTION_IGNORE_UNKNOWN,
  OPTION_OF_VERB
};

#define LOAD_LONG_OPTIONS                                                                          \
  { "megatron-args", required_argument, NULL, OPTION_MEGATRON_ARGS },                              \
      { "hf-config", required_argument, NULL, OPTION_HF_CONFIG },                                  \
      { "world-size", required_argument, NULL, OPTION_WORLD_SIZE },                                \
      { "padded-vocab-size", required_argument, NULL, OPTION_PADDED_VOCAB_SIZE },                  \
      { "axolotl", required_argument, NULL, OPTION_AXOLOTL },                                      \
      { "verl", required_argument, NULL, OPTION_VERL },                                            \
      { "machine", required_argument, NULL, OPTION_MACHINE },                                      \
      { "set", required_argument, NULL, OPTION_SET },                                              \
  {                                                                                                \
    "ignore-unknown", no_argument, NULL, OPTION_IGNORE_UNKNOWN                                     \
  }

/* How a verb's command line is read. */
typedef struct load_verb {
  const char *name;             /* "predict" */
  const struct option *options; /* LOAD_LONG_OPTIONS and the verb's own, for getopt_long */
  /* Takes one of the verb's own options: those with codes from OPTION_OF_VERB. */
  void (*take)(void *context, int code, const char *value, diag *d);
  void *context;
} load_verb;

/* Reads the arguments behind the verb (argv[0]): options in any order, one scenario. */
bool load_parse(load_options *o, const load_verb *verb, int argc, char **argv, arena *a, diag *d);

/* These options, as the first table of a verb. */
extern const option_row load_rows[];

/* Reads the arguments of a verb whose first table is load_rows for *o: options, one scenario. */
parsed load_command(load_options *o, const verb_syntax *v, int argc, char **argv, arena *a,
                    diag *d);

/* The file that says most of the configuration; "" without any. */
const char *load_name(const load_options *o);

/* Something of a configuration was given: a file, a machine, a key. */
bool load_is_given(const load_options *o);

/* Reads everything and loads the machine; the settings are as they were given, not resolved yet. */
bool load_given(const load_options *o, settings *s, const machine **m, arena *a, diag *d);

/* The same, resolved. */
bool load_settings(const load_options *o, settings *s, const machine **m, arena *a, diag *d);

/* A plan as text; `path` "-" is standard input. False after a diag error. */
bool load_plan(plan *p, const char *path, arena *a, diag *d);

#endif
