/*
 * Megatron arguments in shell text: the training command of a launch script, or a list of
 * arguments.
 *
 * Arguments follow the script; what precedes it is the launcher's (sim/shell). A command without a
 * Python script is read from its first option of Megatron-LM on, if it has some.
 */
#include <assert.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/text.h"
#include "sim/config/environment.h"
#include "sim/config/megatron/args_parts.h"
#include "sim/config/megatron/entry_points.h"
#include "sim/config/megatron/parameter_file.h"
#include "sim/config/megatron/wrappers.h"
#include "sim/config/training_command.h"
#include "sim/text/scalar.h"

/* A command with this many options of Megatron-LM trains, unless something else says what it is. */
enum { OPTIONS_LEAST = 3 };

typedef struct shell_reader {
  args_reader *r;
  const shell_word *words;
  uint32_t count;
  uint32_t next;
  hanging hanging;     /* what depends on unknown values */
  unset_names unset;   /* variables that add nothing */
  bool lacks_argument; /* a value that matters depends on an argument that is not given */
} shell_reader;

/* --- What a word looks like --- */

static bool is_digit(char c)
{
  return c >= '0' && c <= '9';
}

/* Begins with a dash and is neither a dash alone, nor a negative number, nor text with blanks. */
static bool is_option(const char *text)
{
  if (text[0] != '-' || text[1] == '\0' || strpbrk(text, " \t\n") != NULL) {
    return false;
  }
  return !is_digit(text[1]) && !(text[1] == '.' && is_digit(text[2]));
}

/* An unknown part that may hold options. */
static bool may_be_options(const shell_word *w)
{
  for (uint32_t i = 0; w->is_unknown && i < w->unknown->alternative_count; i++) {
    if (strstr(w->unknown->alternatives[i], "--") != NULL) {
      return true;
    }
  }
  return false;
}

static bool ends_values(const shell_word *w)
{
  return is_option(w->text) || may_be_options(w);
}

static bool more_words(const shell_reader *p)
{
  return p->next < p->count;
}

/* --- Launcher --- */

typedef struct launcher_option {
  const char *name;
  bool takes_value;
} launcher_option;

/* torchrun's options (torch.distributed.run), which may be in a list of arguments without their
 * launcher. */
static const launcher_option launcher_options[] = {
  { "--nnodes", true },
  { "--nproc-per-node", true },
  { "--node-rank", true },
  { "--master-addr", true },
  { "--master-port", true },
  { "--local-addr", true },
  { "--rdzv-backend", true },
  { "--rdzv-endpoint", true },
  { "--rdzv-id", true },
  { "--rdzv-conf", true },
  { "--standalone", false },
  { "--max-restarts", true },
  { "--monitor-interval", true },
  { "--start-method", true },
  { "--event-log-handler", true },
  { "--role", true },
  { "--module", false },
  { "--no-python", false },
  { "--run-path", false },
  { "--log-dir", true },
  { "--redirects", true },
  { "--tee", true },
  { "--local-ranks-filter", true },
  { "--logs-specs", true },
  { "--numa-binding", true },
  { "--signals-to-handle", true },
  { "--virtual-local-rank", false },
  { "--duplicate-stdout-filters", true },
  { "--duplicate-stderr-filters", true },
  { "-m", false },
  { "-r", true },
  { "-t", true },
};

/* Compares `length` characters of `given`, `_` read as `-`. */
static bool names_option(const char *given, size_t length, const char *name)
{
  if (strlen(name) != length) {
    return false;
  }
  for (size_t i = 0; i < length; i++) {
    if ((given[i] == '_' ? '-' : given[i]) != name[i]) {
      return false;
    }
  }
  return true;
}

static const launcher_option *find_launcher_option(const char *text)
{
  size_t length = strcspn(text, "=");
  for (size_t i = 0; i < sizeof launcher_options / sizeof launcher_options[0]; i++) {
    if (names_option(text, length, launcher_options[i].name)) {
      return &launcher_options[i];
    }
  }
  return NULL;
}

/* An option of the launcher's at p->next: it and its value do not count. */
static bool skip_launcher_option(shell_reader *p)
{
  const char *text = p->words[p->next].text;
  const launcher_option *option = find_launcher_option(text);
  if (option == NULL) {
    return false;
  }
  p->next++;
  if (option->takes_value && strchr(text, '=') == NULL && more_words(p) &&
      !ends_values(&p->words[p->next])) {
    p->next++;
  }
  return true;
}

/* --- Options --- */

/* The words from `first` up to `next` as one text, blanks between them. */
static const char *join_words(const shell_reader *p, uint32_t first)
{
  size_t length = 0;
  for (uint32_t i = first; i < p->next; i++) {
    length += strlen(p->words[i].text) + 1;
  }
  char *joined = ARENA_ARRAY(p->r->a, char, length + 1);
  char *out = joined;
  for (uint32_t i = first; i < p->next; i++) {
    size_t word = strlen(p->words[i].text);
    memcpy(out, p->words[i].text, word);
    out += word;
    *out++ = i + 1 < p->next ? ' ' : '\0';
  }
  return joined;
}

/* An unset variable next to the word would have given other words. */
static void take_missing(shell_reader *p, const shell_word *w)
{
  if (w->missing != NULL) {
    unset_add(&p->unset, w->missing, w->missing_at, p->r->a);
  }
}

static bool is_argument(const char *name)
{
  return name != NULL && name[0] >= '1' && name[0] <= '9';
}

/* The word is of a value that matters. */
static void look_for_arguments(shell_reader *p, const shell_word *w)
{
  p->lacks_argument = p->lacks_argument || is_argument(w->unset) || is_argument(w->missing) ||
                      (w->unknown != NULL && is_argument(w->unknown->name));
}

/* A word of a value that matters. */
static void take_dependence(shell_reader *p, const shell_word *w, const char *name)
{
  args_reader *r = p->r;
  look_for_arguments(p, w);
  if (w->unknown != NULL) {
    hanging_add(&p->hanging, w->unknown, name, r->a);
  }
  if (w->unset != NULL) {
    unset_add(&p->unset, w->unset, w->unset_at, r->a);
  }
}

/* The options among the alternatives of an unknown word. */
static void take_alternatives(shell_reader *p, const shell_word *w)
{
  args_reader *r = p->r;
  for (uint32_t i = 0; i < w->unknown->alternative_count; i++) {
    for (const char *text = w->unknown->alternatives[i]; *text != '\0';) {
      size_t length = strcspn(text, " \t\n");
      const char *word = arena_strndup(r->a, text, strcspn(text, " \t\n="));
      uint32_t index = begins_with(word, "--") ? megatron_flag_find(word) : MEGATRON_FLAG_UNKNOWN;
      if (index != MEGATRON_FLAG_UNKNOWN && megatron_flags[index].effect.kind != FLAG_IGNORED) {
        hanging_add(&p->hanging, w->unknown, megatron_flags[index].name, r->a);
      }
      text += length;
      text += strspn(text, " \t\n");
    }
  }
}

/* Every alternative is a value, and options may follow it: "old" or "new --no-load-rng". */
static bool begins_with_value(const shell_word *w)
{
  bool begins = may_be_options(w);
  for (uint32_t i = 0; begins && i < w->unknown->alternative_count; i++) {
    const char *text = w->unknown->alternatives[i];
    begins = text[strspn(text, " \t\n")] != '-' && text[strspn(text, " \t\n")] != '\0';
  }
  return begins;
}

/* False after an error: fewer than `least` values. */
static bool take_values(shell_reader *p, const megatron_flag *flag, uint32_t least, uint32_t most,
                        flag_use *use)
{
  uint32_t first = p->next;
  while (p->next - first < most && more_words(p) && !ends_values(&p->words[p->next])) {
    p->next++;
  }
  if (p->next - first < least && more_words(p) && begins_with_value(&p->words[p->next])) {
    take_alternatives(p, &p->words[p->next++]);
  }
  const char *missing = p->words[p->next - 1].missing;
  bool launched = flag->effect.kind == FLAG_SETS && flag->effect.key == KEY_parallel_world_size;
  if (p->next - first < least && missing != NULL && launched && !is_argument(missing)) {
    diag_note(p->r->d, use->at, "%s has no value: %s is not set, and the launcher sets it",
              flag->name, missing);
    return true;
  }
  if (p->next - first < least && megatron_flag_matters(flag) && missing != NULL) {
    look_for_arguments(p, &p->words[p->next - 1]);
    return diag_error(p->r->d, use->at, "%s has no value: %s", flag->name,
                      unset_advice(missing, p->r->a));
  }
  if (p->next - first < least && missing == NULL) {
    return diag_error(p->r->d, use->at, "%s needs %s", flag->name,
                      least == 1 ? "a value" : "three values");
  }
  for (uint32_t i = first; i < p->next && megatron_flag_matters(flag); i++) {
    take_dependence(p, &p->words[i], flag->name);
  }
  if (p->next > first) {
    use->value = join_words(p, first);
    use->value_at = p->words[first].at;
  }
  return true;
}

static bool take_flag_values(shell_reader *p, const megatron_flag *flag, flag_use *use)
{
  bool truth;
  switch (flag->values) {
  case FLAG_VALUES_NONE:
    /* wrappers write `--flag true` */
    return !more_words(p) || !scalar_bool(p->words[p->next].text, &truth) ||
           take_values(p, flag, 1, 1, use);
  case FLAG_VALUES_ONE: return take_values(p, flag, 1, 1, use);
  case FLAG_VALUES_THREE: return take_values(p, flag, 3, 3, use);
  case FLAG_VALUES_SOME: return take_values(p, flag, 1, UINT32_MAX, use);
  case FLAG_VALUES_ANY: return take_values(p, flag, 0, UINT32_MAX, use);
  case FLAG_VALUES_FIELD:
    truth = flag->type != FLAG_TYPE_FLAG ||
            (more_words(p) && scalar_bool(p->words[p->next].text, &truth));
    return !truth || take_values(p, flag, 1, 1, use);
  }
  return false;
}

static bool skip_unknown(shell_reader *p, const char *name, source_pos at)
{
  while (more_words(p) && !ends_values(&p->words[p->next])) {
    p->next++;
  }
  return megatron_unknown_option(p->r, name, at);
}

/* `--flag=value` */
static bool take_inline_value(shell_reader *p, const shell_word *w, const char *value,
                              flag_use *use)
{
  const megatron_flag *flag = &megatron_flags[use->flag];
  use->value = value;
  use->value_at.column += (int)(value - w->text);
  bool truth;
  if (megatron_flag_matters(flag)) {
    take_dependence(p, w, flag->name);
  }
  return flag->values != FLAG_VALUES_NONE || scalar_bool(value, &truth) ||
         diag_error(p->r->d, w->at, "%s takes no value, found \"%s\"", flag->name, value);
}

static bool take_option(shell_reader *p)
{
  const shell_word *w = &p->words[p->next];
  if (skip_launcher_option(p)) {
    return true;
  }
  uint32_t first = p->next++;
  size_t length = strcspn(w->text, "=");
  const char *name = arena_strndup(p->r->a, w->text, length);
  uint32_t index = megatron_flag_find(name);
  if (index == MEGATRON_FLAG_UNKNOWN || !begins_with(name, "--")) {
    return skip_unknown(p, name, w->at);
  }
  flag_use use = { .flag = index, .value = "", .at = w->at, .value_at = w->at };
  bool taken = w->text[length] == '=' ? take_inline_value(p, w, w->text + length + 1, &use)
                                      : take_flag_values(p, &megatron_flags[index], &use);
  bool without_value = *use.value == '\0' && w->missing != NULL;
  for (uint32_t i = first; i < p->next && !without_value; i++) {
    take_missing(p, &p->words[i]);
  }
  bool unknown = false; /* one error is enough: errors that follow from this text add nothing */
  for (uint32_t i = first; i < p->next; i++) {
    unknown =
        unknown || (megatron_flag_matters(&megatron_flags[index]) && p->words[i].unknown != NULL);
  }
  if (taken && !unknown && !(without_value && megatron_flags[index].values != FLAG_VALUES_NONE)) {
    *ARRAY_PUSH(&p->r->uses) = use;
  }
  return taken;
}

/* --- Commands --- */

static bool unexpected(const shell_reader *p, const shell_word *w)
{
  bool split = w > p->words && w[-1].at.line == w->at.line && w[-1].at.column == w->at.column;
  return diag_error(
      p->r->d, w->at,
      "unexpected \"%.200s\"; it is no option and no value of the option before it%s", w->text,
      split ? " (bash splits it off at a blank: quote the variable or array that it comes from)"
            : "");
}

/* A template's path, "your checkpoint path", that a shell splits: Megatron-LM would refuse what
 * follows its first word, which is no part of the configuration. */
static bool stray_text(const shell_reader *p, const shell_word *option, const shell_word *w)
{
  const char *name = arena_strndup(p->r->a, option->text, strcspn(option->text, "="));
  uint32_t index = megatron_flag_find(name);
  if (index == MEGATRON_FLAG_UNKNOWN || megatron_flags[index].type != FLAG_TYPE_TEXT ||
      strchr(w->text, '=') != NULL) {
    return false;
  }
  bool changes_nothing = megatron_flags[index].effect.kind == FLAG_IGNORED;
  bool of_path =
      changes_nothing || strstr(name, "tokenizer") != NULL || strstr(name, "-file") != NULL;
  if (of_path) {
    diag_note(p->r->d, w->at,
              "\"%.100s\" follows the value of %s, and Megatron-LM would refuse it; predicted "
              "without%s",
              w->text, name,
              changes_nothing ? ", for this option changes neither memory nor time" : "");
  }
  return of_path;
}

/* --name or --name=value of Megatron-LM's. */
static bool is_megatron_option(const char *text)
{
  char name[80];
  size_t length = strcspn(text, "=");
  if (!begins_with(text, "--") || length >= sizeof name || find_launcher_option(text) != NULL) {
    return false;
  }
  memcpy(name, text, length);
  name[length] = '\0';
  return megatron_flag_find(name) != MEGATRON_FLAG_UNKNOWN;
}

/* Perhaps no words, perhaps options: unknown words are skipped, with a note. */
static void take_unknown(shell_reader *p, const shell_word *w)
{
  if (w->unknown->alternative_count > 0) {
    take_alternatives(p, w);
    return;
  }
  diag_note(p->r->d, w->at, "\"%.100s\" may give more options; it depends on %s; predicted without",
            w->text, unknown_reason(w->unknown, p->r->a));
}

/* Arguments up to the end of the command. */
static bool take_arguments(shell_reader *p)
{
  const shell_word *option = NULL;
  bool good = true, follows = false; /* words that follow an unexpected one say nothing new */
  while (more_words(p)) {
    const shell_word *w = &p->words[p->next];
    if (is_option(w->text)) {
      option = w;
      good = diag_step(p->r->d, take_option(p)) && good;
      follows = false;
      continue;
    }
    p->next++;
    if (w->is_unknown) {
      take_unknown(p, w);
    } else if (w->text[0] != '\0' && !follows) {
      bool harmless = option != NULL && stray_text(p, option, w);
      good = (harmless || diag_step(p->r->d, unexpected(p, w))) && good;
      follows = true;
    }
  }
  return good;
}

/* Where a command's arguments begin: after its script, or at the first of Megatron's options. */
static uint32_t arguments_begin(const shell_command *c)
{
  if (c->entry < c->count) {
    return c->entry + 1;
  }
  uint32_t i = 0;
  while (i < c->count && !is_option(c->words[0].text) && !is_megatron_option(c->words[i].text)) {
    i++;
  }
  return i;
}

static uint32_t count_options(const shell_command *c)
{
  uint32_t count = 0;
  for (uint32_t i = arguments_begin(c); i < c->count; i++) {
    count += is_megatron_option(c->words[i].text);
  }
  return count;
}

static command_fit fit_of(const shell_command *c)
{
  const megatron_wrapper *wrapper = megatron_wrapper_of(c);
  if (wrapper != NULL) {
    return wrapper->does == NULL ? COMMAND_TRAINS : COMMAND_REFUSED;
  }
  const entry_point *known =
      c->entry < c->count ? entry_point_find(c->words[c->entry].text, c->is_module) : NULL;
  if (known != NULL) {
    return known->does == NULL ? COMMAND_TRAINS : COMMAND_REFUSED;
  }
  return count_options(c) >= OPTIONS_LEAST ? COMMAND_TRAINS : COMMAND_OTHER;
}

/* What the wrapper gives before the command's own options, so that these count. */
static bool take_defaults(const shell_reader *p, const megatron_wrapper *w, const shell_command *c)
{
  args_reader *r = p->r;
  source_pos at = c->words[0].at;
  const char *names = "";
  for (uint32_t i = 0; i < w->default_count; i++) {
    const wrapper_default *given = &w->defaults[i];
    uint32_t flag = megatron_flag_find(given->option);
    assert(flag != MEGATRON_FLAG_UNKNOWN);
    *ARRAY_PUSH(&r->uses) =
        (flag_use){ .flag = flag, .value = given->value, .at = at, .value_at = at };
    bool is_switch = strcmp(given->value, "true") == 0;
    names = arena_printf(r->a, "%s%s%s%s%s", names, i > 0 ? ", " : "", given->option,
                         is_switch ? "" : " ", is_switch ? "" : given->value);
  }
  diag_note(r->d, at,
            "%s gives these where the command does not: %s, CUDA_DEVICE_MAX_CONNECTIONS=1", w->name,
            names);
  return (r->s->given[KEY_software_environment_given] || environment_given(r->s, at, r->a, r->d)) &&
         environment_set(r->s, "CUDA_DEVICE_MAX_CONNECTIONS", "1", at, r->a, r->d);
}

/* The option that only a run of another kind has, whatever its value. */
static uint32_t refused_flag(const shell_reader *p, const shell_command *c, uint32_t i)
{
  const char *text = c->words[i].text;
  if (!is_megatron_option(text)) return MEGATRON_FLAG_UNKNOWN;
  uint32_t index = megatron_flag_find(arena_strndup(p->r->a, text, strcspn(text, "=")));
  const megatron_flag *flag = &megatron_flags[index];
  bool is_off = flag->values == FLAG_VALUES_NONE && i + 1 < c->count &&
                strcmp(c->words[i + 1].text, "false") == 0;
  bool is_refused = flag->effect.kind == FLAG_REFUSED && *flag->effect.harmless == '\0';
  return is_refused && !is_off && strchr(text, '=') == NULL ? index : MEGATRON_FLAG_UNKNOWN;
}

/* Takes such an option alone: notes on the others would hide why the run is refused. */
static bool take_refused(shell_reader *p, const shell_command *c)
{
  for (uint32_t i = arguments_begin(c); i < c->count; i++) {
    uint32_t flag = refused_flag(p, c, i);
    if (flag == MEGATRON_FLAG_UNKNOWN) continue;
    source_pos at = c->words[i].at;
    *ARRAY_PUSH(&p->r->uses) = (flag_use){ .flag = flag, .value = "", .at = at, .value_at = at };
    return true;
  }
  return false;
}

static bool take_command(shell_reader *p, const shell_command *c)
{
  args_reader *r = p->r;
  const megatron_wrapper *wrapper = megatron_wrapper_of(c);
  if (wrapper != NULL && wrapper->does != NULL) {
    return diag_error(r->d, c->words[0].at,
                      "%s %s %s; offsim predicts the training of decoder-only models",
                      wrapper->program, wrapper->verb, wrapper->does);
  }
  const char *entry = c->entry < c->count ? c->words[c->entry].text : NULL;
  const entry_point *known = entry != NULL ? entry_point_find(entry, c->is_module) : NULL;
  if (known != NULL && known->does != NULL) {
    return diag_error(r->d, c->words[c->entry].at,
                      "%.200s %s; offsim predicts the training of decoder-only models", entry,
                      known->does);
  }
  if (take_refused(p, c)) return true;
  if (entry != NULL && known == NULL) {
    diag_note(r->d, c->words[c->entry].at,
              "%.200s is not one of Megatron-LM's scripts; predicted as if it trains a GPT model "
              "with these options",
              entry);
  }
  p->words = c->words;
  p->count = c->count;
  p->next = arguments_begin(c);
  return take_arguments(p);
}

/* --- Environment and world size --- */

/* A script exports its environment; in a list of arguments every assignment is meant for it. */
static bool take_environment(shell_reader *p, const shell_variable *list, uint32_t count)
{
  args_reader *r = p->r;
  for (uint32_t i = 0; i < count; i++) {
    const shell_word *value = &list[i].value;
    bool good = r->s->given[KEY_software_environment_given] ||
                environment_given(r->s, value->at, r->a, r->d);
    if (!good) {
      return false;
    }
    if (!environment_matters(list[i].name) || strcmp(list[i].name, "WORLD_SIZE") == 0) {
      continue;
    }
    if (value->unknown != NULL) {
      hanging_add(&p->hanging, value->unknown, list[i].name, r->a);
    } else if (!environment_set(r->s, list[i].name, value->text, value->at, r->a, r->d)) {
      return false;
    }
  }
  return true;
}

static bool set_world_size(const shell_reader *p, const shell_command *c)
{
  args_reader *r = p->r;
  int64_t world_size;
  source_pos at;
  bool given = r->options->world_size_given || r->s->given[KEY_parallel_world_size];
  const megatron_wrapper *wrapper = megatron_wrapper_of(c);
  shell_command launched = *c;
  if (wrapper != NULL) launched.launch = megatron_wrapper_launch(wrapper, c);
  if (!launch_world_size(&launched, given, &world_size, &at, r->a, r->d)) {
    return false;
  }
  return world_size == 0 ||
         settings_set(r->s, "parallel.world_size",
                      arena_printf(r->a, "%lld", (long long)world_size), at, r->a, r->d);
}

/* --- The whole --- */

/* Lines of options without a script: all of them. */
static bool take_lists(shell_reader *p, const shell_script *script)
{
  bool good = true;
  for (uint32_t i = 0; good && i < script->count; i++) {
    const shell_command *c = &script->commands[i];
    if (!is_option(c->words[0].text)) {
      good = !script->is_list || c->words[0].is_unknown || unexpected(p, &c->words[0]);
      continue;
    }
    good = take_environment(p, c->variables, c->variable_count) && take_command(p, c) &&
           set_world_size(p, c);
  }
  return good;
}

/* A line after the command that begins with an option: the line before lacks a backslash. */
static void note_lost_options(const shell_reader *p, const shell_script *script,
                              const shell_command *chosen)
{
  for (uint32_t i = 0; i < script->count; i++) {
    const shell_command *c = &script->commands[i];
    if (c > chosen && is_option(c->words[0].text)) {
      diag_note(p->r->d, c->at,
                "%.60s begins a command of its own: the line before does not end with a backslash, "
                "so bash passes none of "
                "these options on",
                c->words[0].text);
      return;
    }
  }
}

/* The wrapper's environment comes before that of the script. */
static bool take_wrapper(shell_reader *p, const shell_command *c)
{
  const megatron_wrapper *w = megatron_wrapper_of(c);
  return w == NULL || w->does != NULL || take_defaults(p, w, c);
}

/* pretrain_gpt.py gives --tokenizer-type GPT2BPETokenizer where the command does not. */
static void take_default_tokenizer(shell_reader *p, const shell_command *c)
{
  static const char *const options[] = {
    "--tokenizer-type", "--tokenizer-model", "--tokenizer-name-or-path",
    "--vocab-file",     "--vocab-size",      "--padded-vocab-size"
  };
  args_reader *r = p->r;
  bool named = c->entry == c->count || strstr(c->words[c->entry].text, "pretrain_gpt") == NULL;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    named = named || megatron_flag_last_use(&r->uses, options[i]) != NULL;
  }
  uint32_t flag = megatron_flag_find("--tokenizer-type");
  if (!named) {
    *ARRAY_PUSH(&r->uses) =
        (flag_use){ .flag = flag, .value = "GPT2BPETokenizer", .at = c->at, .value_at = c->at };
  }
}

/* A wrapper takes the shape from the model that it is given by name, or by its checkpoint. */
static bool check_wrappers_model(const args_reader *r, const shell_command *c)
{
  static const char *const options[] = { "--model", "--load", "--mcore-model", "--num-layers" };
  const megatron_wrapper *w = megatron_wrapper_of(c);
  const flag_use *named = NULL;
  for (size_t i = 0; named == NULL && i < sizeof options / sizeof *options; i++) {
    uint32_t flag = megatron_flag_find(options[i]);
    named = flag != MEGATRON_FLAG_UNKNOWN ? megatron_flag_last_use(&r->uses, options[i]) : NULL;
  }
  if (w == NULL || !diag_ok(r->d) || r->s->given[KEY_model_num_layers] ||
      megatron_flag_last_use(&r->uses, "--num-layers") != NULL)
    return true;
  return diag_error(r->d, named != NULL ? named->value_at : c->at,
                    "%s takes the model's shape from %.200s, which is not read; give its "
                    "config.json with --hf-config FILE",
                    w->name, named != NULL ? named->value : "the model's own files");
}

/* The command that trains, or the list of a file of parameters. */
static bool take_training(shell_reader *p, const shell_script *script, const shell_command *c)
{
  args_reader *r = p->r;
  bool good = take_wrapper(p, c) && take_environment(p, c->environment, c->environment_count) &&
              take_command(p, c) && set_world_size(p, c) && hanging_report(&p->hanging, r->a, r->d);
  if (good && megatron_wrapper_of(c) == NULL) {
    take_default_tokenizer(p, c);
  }
  good = good && check_wrappers_model(r, c);
  look_for_arguments(p, &c->launch.nodes);
  look_for_arguments(p, &c->launch.per_node);
  look_for_arguments(p, &c->launch.processes);
  bool shapeless = megatron_wrapper_of(c) == NULL &&
                   megatron_flag_last_use(&r->uses, "--num-layers") == NULL &&
                   !r->s->given[KEY_model_num_layers];
  if (script->wanted != NULL && (p->lacks_argument || script->chooses) && (!good || shapeless)) {
    diag_forget(r->d);
    return diag_error(r->d, script->wanted_at,
                      "the script needs arguments that are not given: %.800s; give --arg VALUE for "
                      "each, in this order",
                      script->wanted);
  }
  return good;
}

/* No command trains: lines of options count, else what a file of parameters assigns. */
static bool take_options(shell_reader *p, const shell_script *script)
{
  args_reader *r = p->r;
  bool has_lines = script->is_list;
  for (uint32_t i = 0; i < script->count; i++) {
    has_lines = has_lines || is_option(script->commands[i].words[0].text);
  }
  if (has_lines) return take_lists(p, script);
  const shell_command *c = parameter_file_options(script, r->a, r->d);
  return diag_ok(r->d) && (c == NULL || take_training(p, script, c));
}

static bool take_script(shell_reader *p, const shell_script *script)
{
  args_reader *r = p->r;
  command_fit *fits = ARENA_ARRAY(r->a, command_fit, script->count + 1);
  for (uint32_t i = 0; i < script->count; i++) {
    fits[i] =
        is_option(script->commands[i].words[0].text) ? COMMAND_OTHER : fit_of(&script->commands[i]);
  }
  const shell_command *c = training_command(script, fits, NULL, r->a, r->d);
  if (c == NULL) {
    return diag_ok(r->d) && take_options(p, script);
  }
  note_lost_options(p, script, c);
  return fits[c - script->commands] == COMMAND_REFUSED ? take_command(p, c)
                                                       : take_training(p, script, c);
}

bool megatron_shell_read(args_reader *r, const char *text, size_t length)
{
  shell_reader p = { .r = r };
  shell_script script;
  if (!shell_evaluate(r->a, r->path, text, length, &r->options->presets, &script, r->d) ||
      !take_script(&p, &script) || !hanging_report(&p.hanging, r->a, r->d)) {
    return false;
  }
  unset_report(&p.unset, r->d);
  return true;
}
