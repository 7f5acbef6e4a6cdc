/* The two forms of a verl configuration: nested YAML, and overrides in shell text. */
#include <string.h>

#include "sim/base/text.h"
#include "sim/config/foreign_messages.h"
#include "sim/config/other_files.h"
#include "sim/config/training_command.h"
#include "sim/config/verl/parts.h"
#include "sim/shell/shell.h"
#include "sim/text/yaml_text.h"

/* ---- YAML ---- */

/* A list as its words; of Hydra's `defaults` also `group@package=choice`. */
static const char *joined(const verl_reader *r, const text_node *list)
{
  const char *text = "";

  for (uint32_t i = 0; i < list->count; i++) {
    const text_node *n = &list->children[i];
    const char *blank = *text == '\0' ? "" : " ";
    if (n->kind == TEXT_SCALAR) {
      text = arena_printf(r->a, "%s%s%s", text, blank, n->text);
    } else if (n->kind == TEXT_MAPPING && n->count == 1 && n->children[0].kind == TEXT_SCALAR) {
      text = arena_printf(r->a, "%s%s%s=%s", text, blank, n->children[0].key, n->children[0].text);
    }
  }
  return text;
}

static void take(verl_reader *r, const text_node *n, const char *name)
{
  const char *value = n->kind == TEXT_SEQUENCE ? joined(r, n) : text_is_null(n) ? "null" : n->text;

  *ARRAY_PUSH(&r->given) = (verl_given){
    .name = name, .said = name, .value = value, .at = n->key_at, .value_at = n->at
  };
}

/* Mappings nest no deeper than limits.h allows. */
static void take_mapping(verl_reader *r, const text_node *map, const char *prefix)
{
  for (uint32_t i = 0; i < map->count; i++) {
    const text_node *n = &map->children[i];
    const char *name = arena_printf(r->a, "%s%s", prefix, n->key);
    if (n->kind == TEXT_MAPPING) {
      take_mapping(r, n, arena_printf(r->a, "%s.", name));
    } else {
      take(r, n, name);
    }
  }
}

static bool collect_mapping(verl_reader *r, const char *text, size_t length)
{
  const char *option = r->presets.environment_count > 0 ? "--env" : "--arg";
  if (r->presets.environment_count + r->presets.argument_count > 0)
    return foreign_for_script(r->d, option, r->path);
  const text_node *top = text_read(r->a, r->path, text, length, r->d);
  if (top == NULL || !text_expect(top, TEXT_MAPPING, r->d) ||
      !other_files_check(top, "--verl", r->d)) {
    return false;
  }
  take_mapping(r, top, "");
  return true;
}

/* ---- shell text ---- */

/* Hydra's overrides have a dot in their name: a.b=c, +a.b=c. The length of the name, from *name
 * on; 0: none. */
static size_t override_name(const char *text, const char **name)
{
  *name = text + strspn(text, "+");
  size_t length = strcspn(*name, "=");

  return (*name)[0] == '-' || (*name)[length] != '=' || memchr(*name, '.', length) == NULL ? 0
                                                                                           : length;
}

/* Paths name files; offsim takes the model's shape from --hf-config. */
static bool must_be_known(const char *name)
{
  size_t length = strlen(name);

  return verl_key_matters(name) && (length < 4 || strcmp(name + length - 4, "path") != 0);
}

static bool take_word(verl_reader *r, const shell_word *word, hanging *unknown, unset_names *unset)
{
  const char *name;
  size_t length = override_name(word->text, &name);

  if (word->missing != NULL) unset_add(unset, word->missing, word->missing_at, r->a);
  if (length == 0) {
    if (word->is_unknown && word->unknown->alternative_count == 0)
      diag_note(r->d, word->at,
                "\"%.100s\" may give more overrides; it depends on %s; predicted without",
                word->text, unknown_reason(word->unknown, r->a));
    for (uint32_t i = 0; word->is_unknown && i < word->unknown->alternative_count; i++) {
      const char *text = word->unknown->alternatives[i];
      size_t given = override_name(text, &name);
      if (given > 0 && must_be_known(arena_strndup(r->a, name, given)))
        hanging_add(unknown, word->unknown, arena_strndup(r->a, name, given), r->a);
    }
    return true;
  }
  source_pos value_at = word->at;
  value_at.column += (int)(name - word->text) + (int)length + 1;
  verl_given given = { .name = arena_strndup(r->a, name, length),
                       .said = NULL,
                       .value = name + length + 1,
                       .at = word->at,
                       .value_at = value_at };
  given.said = given.name;
  if (word->unknown != NULL && must_be_known(given.name))
    hanging_add(unknown, word->unknown, given.name, r->a);
  if (word->unset != NULL && must_be_known(given.name)) {
    if (*given.value == '\0')
      return diag_error(r->d, value_at, "%s has no value: %s", given.name,
                        unset_advice(word->unset, r->a));
    unset_add(unset, word->unset, word->unset_at, r->a);
  }
  *ARRAY_PUSH(&r->given) = given;
  return true;
}

static uint32_t count_overrides(const shell_command *c)
{
  static const char *const parts[] = { "actor_rollout_ref.", "data.",   "trainer.",
                                       "algorithm.",         "critic.", "model." };
  uint32_t count = 0;

  for (uint32_t i = 0; i < c->count; i++) {
    const char *name;
    for (size_t j = 0;
         override_name(c->words[i].text, &name) > 0 && j < sizeof parts / sizeof *parts; j++) {
      count += begins_with(name, parts[j]);
    }
  }
  return count;
}

static command_fit fit_of(const shell_command *c)
{
  bool own_module = c->entry < c->count && begins_with(c->words[c->entry].text, "verl.");

  return count_overrides(c) >= (own_module ? 1 : 2) && c->entry < c->count ? COMMAND_TRAINS
                                                                           : COMMAND_OTHER;
}

/* Options of Hydra and torchrun that say what no key says, `--name=value` or `--name value`, and
 * Hydra's choice of a group, `engine=megatron` or `model_engine=megatron`. */
static void take_option(verl_reader *r, const shell_command *c, uint32_t word)
{
  static const struct {
    const char *option, *name;
  } options[] = {
    { "--config-name", CONFIG_NAME },   { "-cn", CONFIG_NAME },        { "--nnodes", NNODES },
    { "--nproc-per-node", NPROC },      { "--nproc_per_node", NPROC }, { "engine", "engine" },
    { "model_engine", "model_engine" },
  };

  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
    const shell_word *w = &c->words[word];
    size_t length = strlen(options[i].option);
    bool inside = strncmp(w->text, options[i].option, length) == 0 && w->text[length] == '=';
    bool next = strcmp(w->text, options[i].option) == 0 && word + 1 < c->count;
    if (inside || next) {
      const char *value = inside ? w->text + length + 1 : c->words[word + 1].text;
      *ARRAY_PUSH(&r->given) = (verl_given){ .name = options[i].name,
                                             .said = options[i].name,
                                             .value = value,
                                             .at = w->at,
                                             .value_at = w->at };
    }
  }
}

static bool take_command(verl_reader *r, const shell_command *c, hanging *unknown,
                         unset_names *unset)
{
  for (uint32_t i = 0; i < c->count; i++) {
    take_option(r, c, i);
    if (!take_word(r, &c->words[i], unknown, unset)) return false;
  }
  return true;
}

/* Overrides of keys that offsim does not read can differ. */
static bool word_is_decisive(const char *word)
{
  const char *name;
  char key[256];
  size_t length = override_name(word, &name);

  if (length == 0 || length >= sizeof key) return true;
  memcpy(key, name, length);
  key[length] = '\0';
  return verl_key_is_decisive(key);
}

/* The training command, or all lines of overrides where there is none. */
static bool take_script(verl_reader *r, const shell_script *s, hanging *unknown, unset_names *unset)
{
  command_fit *fits = ARENA_ARRAY(r->a, command_fit, s->count + 1);

  for (uint32_t i = 0; i < s->count; i++) {
    fits[i] = fit_of(&s->commands[i]);
  }
  const shell_command *c = training_command(s, fits, word_is_decisive, r->a, r->d);
  if (c != NULL) return take_command(r, c, unknown, unset);
  for (uint32_t i = 0; i < s->count; i++) {
    const char *name;
    bool overrides = override_name(s->commands[i].words[0].text, &name) > 0;
    if (overrides && !take_command(r, &s->commands[i], unknown, unset)) return false;
  }
  return diag_ok(r->d);
}

static bool collect_shell(verl_reader *r, const char *text, size_t length)
{
  shell_script s;
  hanging unknown = { 0 };
  unset_names unset = { 0 };

  if (!shell_evaluate(r->a, r->path, text, length, &r->presets, &s, r->d) ||
      !take_script(r, &s, &unknown, &unset)) {
    return false;
  }
  if (r->given.count == 0)
    return diag_error(r->d, (source_pos){ r->path, 0, 0 },
                      "no key of verl in it, neither YAML nor `actor_rollout_ref.model.path=...`");
  if (!hanging_report(&unknown, r->a, r->d)) return false;
  unset_report(&unset, r->d);
  return true;
}

static void add_lines(verl_reader *r, const char *lines)
{
  while (*lines != '\0') {
    const char *name, *line = arena_strndup(r->a, lines, strcspn(lines, "\n"));
    size_t length = override_name(line, &name);
    source_pos at = { r->path, 0, 0 };
    name = arena_strndup(r->a, name, length);
    *ARRAY_PUSH(&r->given) = (verl_given){
      .name = name, .said = name, .value = strchr(line, '=') + 1, .at = at, .value_at = at
    };
    lines += strlen(line);
    lines += *lines == '\n';
  }
}

bool verl_collect(verl_reader *r, const char *text, size_t length, const char *lines)
{
  bool good = text_looks_like_mapping(text) ? collect_mapping(r, text, length)
                                            : collect_shell(r, text, length);
  if (good && lines != NULL) add_lines(r, lines);
  return good;
}
