#include "sim/load/load.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/file.h"
#include "sim/base/text.h"
#include "sim/config/axolotl/axolotl.h"
#include "sim/config/hf/hf_config.h"
#include "sim/config/key_table.h"
#include "sim/config/megatron/args.h"
#include "sim/config/verl/verl.h"
#include "sim/offload/systems.h"
#include "sim/plan/text.h"

static void add_value(const char **values, uint32_t *count, uint32_t most, const char *option,
                      const char *value, diag *d)
{
  if (*count == most)
    diag_error(d, (source_pos){ option, 0, 0 }, "given more than %u times", most);
  else
    values[(*count)++] = value;
}

static void add_set(load_options *o, const char *key_value, diag *d)
{
  add_value(o->sets, &o->set_count, SETS, "--set", key_value, d);
}

void load_take_iteration(load_options *o, const char *number, arena *a, diag *d)
{
  add_set(o, arena_printf(a, "training.iteration=%s", number), d);
}

#define OPTIONS load_options

static void take_set(void *to, const char *value, arena *a, diag *d)
{
  (void)a;
  add_set(to, value, d);
}

static void take_world_size(void *to, const char *value, arena *a, diag *d)
{
  add_set(to, arena_printf(a, "parallel.world_size=%s", value), d);
}

static void take_padded_vocab_size(void *to, const char *value, arena *a, diag *d)
{
  add_set(to, arena_printf(a, "model.padded_vocab_size=%s", value), d);
}

static void take_env(void *to, const char *value, arena *a, diag *d)
{
  load_options *o = to;
  (void)a;
  add_value(o->environment, &o->environment_count, SCRIPT_VALUES, "--env", value, d);
}

static void take_arg(void *to, const char *value, arena *a, diag *d)
{
  load_options *o = to;
  (void)a;
  add_value(o->arguments, &o->argument_count, SCRIPT_VALUES, "--arg", value, d);
}

static void take_machine_set(void *to, const char *value, arena *a, diag *d)
{
  load_options *o = to;
  (void)a;
  add_value(o->machine_sets, &o->machine_set_count, SETS, "--machine-set", value, d);
}

const option_row load_rows[] = {
  NOTE("  SCENARIO.yaml              a scenario file (- reads standard input)"),
  TEXT("megatron-args", "FILE", megatron_args,
       "Megatron flags: a launch script's text, or a YAML/JSON mapping"),
  TEXT("hf-config", "FILE", hf_config, "a Hugging Face config.json: the model's shape"),
  TEXT("axolotl", "FILE", axolotl,
       "an Axolotl training YAML; beside it --hf-config of its base model"),
  TEXT("verl", "FILE", verl,
       "verl's configuration, YAML or a launch script; beside it --hf-config"),
  TAKE("env", "NAME=VALUE", take_env,
       "a variable of the launch script's environment; may be repeated"),
  TAKE("arg", "VALUE", take_arg, "an argument of the launch script; may be repeated, in order"),
  TAKE("world-size", "N", take_world_size, "GPUs"),
  TAKE("padded-vocab-size", "N", take_padded_vocab_size, "rows of the embedding"),
  TEXT("machine", "NAME|FILE", machine, "a shipped machine, or a machine file"),
  TAKE("machine-set", "KEY=VALUE", take_machine_set,
       "a value in place of the machine's, as link.d2h_bytes_per_us=25000;\nmay be repeated"),
  TAKE("set", "KEY=VALUE", take_set, "any key of a scenario; may be repeated, comes last"),
  FLAG("ignore-unknown", ignore_unknown,
       "list and skip options and keys that offsim does not know"),
  { .name = NULL },
};

static void take_iteration(void *to, const char *value, arena *a, diag *d)
{
  load_take_iteration(to, value, a, d);
}

const option_row load_iteration_rows[] = {
  TAKE("iteration", "N", take_iteration,
       "the iteration whose batch is taken where a schedule changes it\n(default: the last)"),
  { .name = NULL },
};

#undef OPTIONS

parsed load_command(load_options *o, const verb_syntax *v, int argc, char **argv, arena *a, diag *d)
{
  int rest;
  assert(v->tables[0].rows == load_rows && v->tables[0].to == o);
  parsed found = options_parse(v, argc, argv, &rest, a, d);
  if (found != PARSED) return found;
  if (argc - rest > 1) {
    diag_error(d, (source_pos){ 0 }, "two scenarios are given, \"%s\" and \"%s\"; give one",
               argv[rest], argv[rest + 1]);
    return PARSED_WRONG;
  }
  if (rest < argc) o->scenario = argv[rest];
  return PARSED;
}

/* ---- files ---- */

/* Files that describe no run, known by a text at or near their beginning: their kind, and the verb that
 * reads them. */
static const struct {
  const char *text;
  bool near;
  const char *what, *takes;
} other_files[] = {
  { "#!", false, "a script", "--megatron-args FILE or --verl FILE reads a launch script" },
  { "offsim-plan", false, "a plan", "--plan FILE of predict and check takes one" },
  { "\noffsim-plan", true, "a plan", "--plan FILE of predict and check takes one" },
  { "\"traceEvents\"", true, "a profiler's trace",
    "offsim import FILE says what the run did, offsim compare SCENARIO FILE compares it with the "
    "prediction" },
  { "\"schemaVersion\"", true, "a profiler's trace",
    "offsim import FILE says what the run did, offsim compare SCENARIO FILE compares it with the "
    "prediction" },
  { "{\"format_version\"", false, "a record of a run or a prediction", "offsim compare takes two" },
  { "{\"real_run_version\"", false, "a record of a real run",
    "offsim compare SCENARIO FILE takes it" },
  { "SQLite format 3", false, "a database", "offsim import FILE reads exports of Nsight Systems" },
  { "\x80", false, "a pickle", "offsim import FILE reads memory snapshots of PyTorch" },
  { "\x1f\x8b", false, "compressed",
    "offsim import FILE reads compressed traces of profilers, offsim check FILE those of offsim "
    "record" },
};

/* A pipe can be read only once; the reader of a file reports that it cannot be opened. */
static FILE *open_to_look(const char *path)
{
  struct stat about;
  bool regular = stat(path, &about) == 0 && S_ISREG(about.st_mode);
  return regular ? fopen(path, "rb") : NULL;
}

/* False after a diag error. */
static bool check_kind(const char *path, arena *a, diag *d)
{
  enum { LOOKED_AT_BYTES = 65536 };
  char *text = ARENA_ARRAY(a, char, LOOKED_AT_BYTES + 1);
  FILE *in = open_to_look(path);
  if (in == NULL) return true;
  size_t length = fread(text, 1, LOOKED_AT_BYTES, in);
  fclose(in);
  text[length] = '\0';
  const char *dot = strrchr(path, '.');
  if (dot != NULL && strcmp(dot, ".sh") == 0) text = arena_strdup(a, other_files[0].text);
  for (size_t i = 0; i < sizeof other_files / sizeof *other_files; i++) {
    const char *found = strstr(text, other_files[i].text);
    if (found == text || (found != NULL && other_files[i].near))
      return diag_error(d, (source_pos){ path, 0, 0 }, "this is %s and no scenario; %s",
                        other_files[i].what, other_files[i].takes);
  }
  return true;
}

static bool read_scenario(settings *s, const char *path, arena *a, diag *d)
{
  size_t length;
  if (!check_kind(path, a, d)) return false;
  char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);
  return text != NULL && settings_read_scenario(s, path, text, length, a, d);
}

static bool apply_sets(settings *s, const load_options *o, arena *a, diag *d)
{
  for (uint32_t i = 0; i < o->set_count; i++) {
    const char *equals = strchr(o->sets[i], '=');
    source_pos at = { "--set", 0, 0 };
    if (equals == NULL) {
      diag_error(d, at, "\"%s\" has no \"=\"; write --set KEY=VALUE", o->sets[i]);
      diag_go_on(d);
      continue;
    }
    const char *key = arena_strndup(a, o->sets[i], (size_t)(equals - o->sets[i]));
    settings_set(s, key, equals + 1, at, a, d);
    diag_go_on(d);
  }
  return diag_ok(d);
}

static bool files_are_given(const load_options *o)
{
  return o->scenario != NULL || o->megatron_args != NULL || o->hf_config != NULL ||
         o->axolotl != NULL || o->verl != NULL;
}

const char *load_name(const load_options *o)
{
  const char *const files[] = { o->scenario, o->megatron_args, o->axolotl, o->verl, o->hf_config };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (files[i] != NULL) return files[i];
  return "settings given one by one";
}

machine_changes load_machine_changes(const load_options *o)
{
  return (machine_changes){ o->machine_sets, o->machine_set_count };
}

bool load_is_given(const load_options *o)
{
  return files_are_given(o) || o->machine != NULL || o->set_count > 0 || o->machine_set_count > 0;
}

static shell_presets presets_of(const load_options *o)
{
  return (shell_presets){ .environment = o->environment,
                          .environment_count = o->environment_count,
                          .arguments = o->arguments,
                          .argument_count = o->argument_count };
}

static bool sets_world_size(const load_options *o)
{
  static const char key[] = "world_size=", full[] = "parallel.world_size=";
  for (uint32_t i = 0; i < o->set_count; i++) {
    if (begins_with(o->sets[i], key) || begins_with(o->sets[i], full)) return true;
  }
  return false;
}

/* They belong to a launch script. */
static bool check_script_values(const load_options *o, diag *d)
{
  bool script = o->megatron_args != NULL || o->verl != NULL;
  const char *option = o->environment_count > 0 ? "--env" : "--arg";
  return script || o->environment_count + o->argument_count == 0 ||
         diag_error(d, (source_pos){ option, 0, 0 },
                    "it is for a launch script; give one with --megatron-args or --verl");
}

/* Each of these describes a whole run. */
static bool check_files(const load_options *o, diag *d)
{
  int runs = (o->megatron_args != NULL) + (o->axolotl != NULL) + (o->verl != NULL);
  if (!files_are_given(o) && o->set_count == 0)
    return diag_error(
        d, (source_pos){ 0 },
        "no scenario is given: name a file, or give --megatron-args FILE, --axolotl FILE, "
        "--verl FILE or --hf-config FILE (docs/examples has some; --help lists all "
        "options)");
  return runs <= 1 || diag_error(d, (source_pos){ 0 },
                                 "give one of --megatron-args, --axolotl and --verl: each "
                                 "describes a whole run");
}

/* Only a model's config.json describes the run. */
static bool is_model_alone(const load_options *o)
{
  return o->hf_config != NULL && o->megatron_args == NULL && o->axolotl == NULL &&
         o->verl == NULL && o->scenario == NULL;
}

/* Bandwidths to another socket are in few machine files. */
static bool check_pinned_memory(const settings *s, const machine *m, diag *d)
{
  if (s->machine.pinned_memory == PINNED_NEAR) return true;
  if (m->link.far_d2h_bytes_per_us > 0 && m->link.far_h2d_bytes_per_us > 0) return true;
  return diag_error(d, s->at[KEY_machine_pinned_memory],
                    "machine.pinned_memory is far, but machine %s does not have "
                    "link.far_d2h_bytes_per_us and link.far_h2d_bytes_per_us",
                    m->name);
}

bool load_given(const load_options *o, settings *s, const machine **m, arena *a, diag *d)
{
  if (!check_files(o, d) || !check_script_values(o, d)) return false;
  settings_init(s, a);
  megatron_args_options options = { .ignore_unknown = o->ignore_unknown,
                                    .world_size_given = sets_world_size(o),
                                    .presets = presets_of(o) };
  hf_config_facts facts = { 0 };
  axolotl_options axolotl = { .ignore_unknown = o->ignore_unknown, .lines = o->lines };
  verl_options verl = { .ignore_unknown = o->ignore_unknown,
                        .presets = presets_of(o),
                        .lines = o->lines };
  /* each file reports its own errors */
  if (o->hf_config != NULL) hf_config_read(s, o->hf_config, &facts, a, d);
  diag_go_on(d);
  if (o->megatron_args != NULL) megatron_args_read(s, o->megatron_args, &options, a, d);
  diag_go_on(d);
  if (o->axolotl != NULL) axolotl_read(s, o->axolotl, &axolotl, a, d);
  diag_go_on(d);
  if (o->verl != NULL) verl_read(s, o->verl, &verl, a, d);
  diag_go_on(d);
  if (o->scenario != NULL) read_scenario(s, o->scenario, a, d);
  diag_go_on(d);
  if (o->machine != NULL)
    settings_set(s, "machine.name", o->machine, (source_pos){ "--machine", 0, 0 }, a, d);
  diag_go_on(d);
  apply_sets(s, o, a, d);
  if (!diag_ok(d)) return false;
  if (is_model_alone(o) && !hf_config_assume(s, &facts, a, d)) return false;
  const machine_changes changes = load_machine_changes(o);
  *m = machine_load_at(a, s->machine.name, s->at[KEY_machine_name], &changes, d);
  if (*m == NULL) return false;
  s->derived.compute_capability = (int)(*m)->gpu.compute_capability;
  return check_pinned_memory(s, *m, d);
}

static const char *assumed_value(const settings *s, setting_key key, arena *a)
{
  const void *value = key_member_const(s, key);
  switch (key_rows[key].type) {
  case KEY_TYPE_FLAG: return *(const bool *)value ? "true" : "false";
  case KEY_TYPE_CHOICE: return chosen_word(s, key);
  case KEY_TYPE_INT: return arena_printf(a, "%" PRId64, *(const int64_t *)value);
  case KEY_TYPE_REAL:
  case KEY_TYPE_TEXT:
  case KEY_TYPE_LIST:
  case KEY_TYPE_CHOICES: break;
  }
  assert(0 && "no key that is assumed");
  return "";
}

void load_note_assumptions(const load_options *o, const settings *s, arena *a, const diag *d)
{
  const setting_key keys[] = { KEY_model_implementation,
                               KEY_training_bf16,
                               uses_hf(s) ? KEY_model_attn_implementation
                                          : KEY_training_attention_backend,
                               KEY_training_optimizer,
                               KEY_training_seq_length,
                               KEY_training_micro_batch_size };
  const char *assumed = "";
  if (!is_model_alone(o)) return;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!s->given[keys[i]])
      assumed = arena_printf(a, "%s %s=%s", assumed, key_rows[keys[i]].name,
                             assumed_value(s, keys[i], a));
  if (*assumed == '\0') return;
  bool sixteen = s->training.bf16 || s->training.fp16;
  diag_note(d, (source_pos){ o->hf_config, 0, 0 },
            "the file describes the model alone, and training in %s is predicted; assumed unless "
            "--set gives them:%s",
            sixteen ? s->training.bf16 ? "bf16" : "fp16" : "fp32", assumed);
}

bool load_settings(const load_options *o, settings *s, const machine **m, arena *a, diag *d)
{
  if (!load_given(o, s, m, a, d) || !settings_resolve(s, offload_conditions, a, d)) return false;
  load_note_assumptions(o, s, a, d);
  return true;
}

bool load_plan(plan *p, const char *path, arena *a, diag *d)
{
  size_t length;
  const char *text = file_read(a, path, PLAN_TEXT_LIMIT_BYTES, &length, d);
  return text != NULL && plan_parse(p, path, text, length, a, d);
}
