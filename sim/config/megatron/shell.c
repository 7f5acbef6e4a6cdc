/*
 * Megatron arguments in shell text.
 *
 * The text's commands (and arrays) are read one by one. One that begins with an option is an
 * argument list. In one that runs a script, arguments follow the script and the launcher's options
 * precede it. Any other command is not about Megatron, unless it has one of Megatron's options.
 */
#include <string.h>

#include "sim/base/array.h"
#include "sim/config/environment.h"
#include "sim/config/megatron/args_parts.h"
#include "sim/text/scalar.h"
#include "sim/text/shell_words.h"

typedef struct shell_reader {
  args_reader *r;
  const shell_word *words;
  uint32_t count;
  uint32_t next;
  uint32_t end;       /* of the command that is being read */
  bool runs_script;   /* a command of the text does: others beside it are none of ours */
  int64_t node_count; /* 0 = not given as a number */
  int64_t processes_per_node;
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

/* A pipe or a redirection: no arguments follow. */
static bool is_operator(const shell_word *w)
{
  const char *text = w->text + strspn(w->text, "&12");
  return !w->quoted && (text[0] == '>' || text[0] == '<' || strcmp(w->text, "|") == 0 ||
                        strcmp(w->text, "||") == 0);
}

static bool ends_values(const shell_word *w)
{
  return is_option(w->text) || is_operator(w);
}

static bool is_script(const char *text)
{
  size_t length = strlen(text);
  return length > 3 && strcmp(text + length - 3, ".py") == 0;
}

/* --- Launcher --- */

typedef struct launcher_option {
  const char *name;
  bool takes_value;
} launcher_option;

/* torchrun's options (torch.distributed.run), which stand before the script or in a list of their
 * own. */
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

/* A plain number of at most nine digits, else 0. */
static int64_t plain_number(const char *text)
{
  int64_t number = 0;
  size_t length = strlen(text);
  if (length == 0 || length > 9 || strspn(text, "0123456789") != length) {
    return 0;
  }
  for (size_t i = 0; i < length; i++) {
    number = number * 10 + (text[i] - '0');
  }
  return number;
}

static bool more_words(const shell_reader *p)
{
  return p->next < p->end;
}

static void take_launcher_option(shell_reader *p, const launcher_option *option)
{
  const char *text = p->words[p->next++].text;
  const char *value = strchr(text, '=');
  if (value != NULL) {
    value++;
  } else if (option->takes_value && more_words(p) && !ends_values(&p->words[p->next])) {
    value = p->words[p->next++].text;
  }
  if (value != NULL && strcmp(option->name, "--nnodes") == 0) {
    p->node_count = plain_number(value);
  } else if (value != NULL && strcmp(option->name, "--nproc-per-node") == 0) {
    p->processes_per_node = plain_number(value);
    p->node_count = p->node_count > 0 ? p->node_count : 1;
  }
}

static void skip_launcher(shell_reader *p, uint32_t arguments)
{
  while (p->next < arguments) {
    const launcher_option *option = find_launcher_option(p->words[p->next].text);
    if (option != NULL) {
      take_launcher_option(p, option);
    } else {
      p->next++;
    }
  }
  p->next = arguments;
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

/* False after an error: fewer than `least` values. */
static bool take_values(shell_reader *p, const megatron_flag *flag, uint32_t least, uint32_t most,
                        flag_use *use)
{
  uint32_t first = p->next;
  while (p->next - first < most && more_words(p) && !ends_values(&p->words[p->next])) {
    p->next++;
  }
  if (p->next - first < least) {
    return diag_error(p->r->d, use->at, "%s needs %s", flag->name,
                      least == 1 ? "a value" : "three values");
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
  return flag->values != FLAG_VALUES_NONE || scalar_bool(value, &truth) ||
         diag_error(p->r->d, w->at, "%s takes no value, found \"%s\"", flag->name, value);
}

static bool take_option(shell_reader *p)
{
  const shell_word *w = &p->words[p->next];
  const launcher_option *launcher = find_launcher_option(w->text);
  if (launcher != NULL) {
    take_launcher_option(p, launcher);
    return true;
  }
  p->next++;
  size_t length = strcspn(w->text, "=");
  const char *name = arena_strndup(p->r->a, w->text, length);
  uint32_t index = megatron_flag_find(name);
  if (index == MEGATRON_FLAG_UNKNOWN || strncmp(name, "--", 2) != 0) {
    return skip_unknown(p, name, w->at);
  }
  flag_use use = { .flag = index, .value = "", .at = w->at, .value_at = w->at };
  bool taken = w->text[length] == '=' ? take_inline_value(p, w, w->text + length + 1, &use)
                                      : take_flag_values(p, &megatron_flags[index], &use);
  if (taken) {
    *ARRAY_PUSH(&p->r->uses) = use;
  }
  return taken;
}

/* --- Commands --- */

static bool unexpected(const shell_reader *p, const shell_word *w)
{
  return diag_error(p->r->d, w->at,
                    "unexpected \"%s\"; it is no option and no value of the option before it",
                    w->text);
}

/* Arguments up to the end of the command, or to a pipe or redirection. */
static bool take_arguments(shell_reader *p)
{
  bool good = true;
  while (good && more_words(p) && !is_operator(&p->words[p->next])) {
    const shell_word *w = &p->words[p->next];
    if (is_option(w->text)) {
      good = take_option(p);
    } else if (w->text[0] == '$' || w->text[0] == '\0') {
      p->next++; /* a variable is not expanded, and an empty one is nothing */
    } else {
      good = unexpected(p, w);
    }
  }
  p->next = p->end;
  return good;
}

static bool is_megatron_option(const char *text)
{
  return strncmp(text, "--", 2) == 0 && find_launcher_option(text) == NULL &&
         megatron_flag_find(text) != MEGATRON_FLAG_UNKNOWN;
}

/* Where a command's arguments begin: at once, behind its script, or at the first of Megatron's
 * options. */
static uint32_t arguments_begin(const shell_reader *p)
{
  uint32_t first_option = p->end;
  if (is_option(p->words[p->next].text)) {
    return p->next;
  }
  for (uint32_t i = p->next; i < p->end; i++) {
    const char *text = p->words[i].text;
    if (is_script(text)) {
      return i + 1;
    }
    if (first_option == p->end && is_megatron_option(text)) {
      first_option = i;
    }
  }
  return first_option;
}

/* In a mere list of arguments, a line that begins with something else is a mistake. */
static bool take_other_command(shell_reader *p)
{
  const shell_word *w = &p->words[p->next];
  p->next = p->end;
  return p->runs_script || p->r->uses.count == 0 || w->text[0] == '$' || w->text[0] == '\0' ||
         unexpected(p, w);
}

static bool take_command(shell_reader *p)
{
  p->end = p->next;
  while (p->end < p->count && p->words[p->end].command == p->words[p->next].command) {
    p->end++;
  }
  uint32_t begin = arguments_begin(p);
  if (begin == p->end && !is_script(p->words[begin - 1].text)) {
    return take_other_command(p);
  }
  skip_launcher(p, begin);
  return take_arguments(p);
}

static bool take_commands(shell_reader *p, const shell_text *text)
{
  bool good = true;
  p->words = text->words;
  p->count = text->word_count;
  p->next = 0;
  for (uint32_t i = 0; i < p->count; i++) {
    p->runs_script =
        p->runs_script || is_script(p->words[i].text) || strcmp(p->words[i].text, "-m") == 0;
  }
  while (good && p->next < p->count) {
    good = take_command(p);
  }
  return good;
}

/* A list of arguments under a name is no environment; its words stand where the name is used. */
static bool take_environment(const shell_reader *p, const shell_text *text)
{
  args_reader *r = p->r;
  bool good = true;
  bool given = false;
  for (uint32_t i = 0; good && i < text->assignment_count; i++) {
    const shell_assignment *x = &text->assignments[i];
    if (strncmp(x->value + strspn(x->value, " \t\r\n"), "--", 2) == 0) {
      continue;
    }
    good = (given || environment_given(r->s, x->at, r->a, r->d)) &&
           environment_set(r->s, x->name, x->value, x->at, r->a, r->d);
    given = true;
  }
  return good;
}

/* Where nothing else says how many processes there are. */
static bool set_world_size(const shell_reader *p)
{
  args_reader *r = p->r;
  if (p->node_count == 0 || p->processes_per_node == 0 || r->s->given[KEY_parallel_world_size]) {
    return true;
  }
  long long world_size = (long long)(p->node_count * p->processes_per_node);
  source_pos at = { .file = r->path };
  return settings_set(r->s, "parallel.world_size", arena_printf(r->a, "%lld", world_size), at, r->a,
                      r->d);
}

bool megatron_shell_read(args_reader *r, const char *text, size_t length)
{
  shell_reader p = { .r = r };
  shell_text all;
  return shell_split(r->a, r->path, text, length, &all, r->d) && take_environment(&p, &all) &&
         take_commands(&p, &all) && set_world_size(&p);
}
