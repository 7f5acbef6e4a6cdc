/* The two forms of a verl configuration: nested YAML, and overrides in shell text. */
#include <string.h>

#include "sim/config/verl/parts.h"
#include "sim/text/shell_words.h"
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
  const text_node *top = text_read(r->a, r->path, text, length, r->d);

  if (top == NULL || !text_expect(top, TEXT_MAPPING, r->d)) {
    return false;
  }
  take_mapping(r, top, "");
  return true;
}

/* ---- shell text ---- */

/* The variable that is all of `value`, or NULL. */
static const char *variable_of(const verl_reader *r, const char *value)
{
  size_t length = strlen(value);
  bool braces = value[0] == '$' && value[1] == '{';
  const char *name = value + (braces ? 2 : 1);
  size_t span = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

  if (value[0] != '$' || span == 0 || (size_t)(name - value) + span + braces != length ||
      (braces && name[span] != '}')) {
    return NULL;
  }
  return arena_strndup(r->a, name, span);
}

static const char *resolved(const verl_reader *r, const shell_text *t, const char *value)
{
  const char *name = variable_of(r, value);

  for (uint32_t i = t->assignment_count; name != NULL && i-- > 0;) {
    if (strcmp(t->assignments[i].name, name) == 0) {
      return t->assignments[i].value;
    }
  }
  return value;
}

/* Options of Hydra and torchrun that say what no key says, `--name=value` or `--name value`, and
 * Hydra's choice of a group, `engine=megatron`. */
static void take_option(verl_reader *r, const shell_text *t, uint32_t word)
{
  static const struct {
    const char *option, *name;
  } options[] = {
    { "--config-name", CONFIG_NAME }, { "-cn", CONFIG_NAME },        { "--nnodes", NNODES },
    { "--nproc-per-node", NPROC },    { "--nproc_per_node", NPROC }, { "engine", "engine" },
  };

  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
    const shell_word *w = &t->words[word];
    size_t length = strlen(options[i].option);
    bool inside = strncmp(w->text, options[i].option, length) == 0 && w->text[length] == '=';
    bool next = strcmp(w->text, options[i].option) == 0 && word + 1 < t->word_count;
    if (inside || next) {
      const char *value = inside ? w->text + length + 1 : t->words[word + 1].text;
      *ARRAY_PUSH(&r->given) = (verl_given){ .name = options[i].name,
                                             .said = options[i].name,
                                             .value = resolved(r, t, value),
                                             .at = w->at,
                                             .value_at = w->at };
    }
  }
}

/* An override has a dot in its name; other words are of the launcher. */
static void take_word(verl_reader *r, const shell_text *t, const shell_word *word)
{
  const char *name = word->text + strspn(word->text, "+");
  size_t length = strcspn(name, "=");

  if (name[0] == '-' || name[length] != '=' || memchr(name, '.', length) == NULL) {
    return;
  }
  source_pos value_at = word->at;
  value_at.column += (int)(name - word->text) + (int)length + 1;
  const char *key = arena_strndup(r->a, name, length);
  *ARRAY_PUSH(&r->given) = (verl_given){ .name = key,
                                         .said = key,
                                         .value = resolved(r, t, name + length + 1),
                                         .at = word->at,
                                         .value_at = value_at };
}

static bool collect_shell(verl_reader *r, const char *text, size_t length)
{
  shell_text t;

  if (!shell_split(r->a, r->path, text, length, &t, r->d)) {
    return false;
  }
  for (uint32_t i = 0; i < t.word_count; i++) {
    take_option(r, &t, i);
    take_word(r, &t, &t.words[i]);
  }
  return r->given.count > 0 ||
         diag_error(r->d, (source_pos){ r->path, 0, 0 },
                    "no key of verl in it, neither YAML nor `actor_rollout_ref.model.path=...`");
}

bool verl_collect(verl_reader *r, const char *text, size_t length)
{
  return text_looks_like_mapping(text) ? collect_mapping(r, text, length)
                                       : collect_shell(r, text, length);
}
