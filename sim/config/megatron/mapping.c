/*
 * Megatron arguments in a YAML or JSON mapping.
 */
#include <string.h>

#include "sim/base/array.h"
#include "sim/config/environment.h"
#include "sim/config/foreign_messages.h"
#include "sim/config/megatron/args_parts.h"
#include "sim/config/megatron/variables.h"
#include "sim/config/other_files.h"
#include "sim/text/scalar.h"
#include "sim/text/yaml_text.h"

/* Shell quoting that survives in mappings: backslashes before | ( ) are dropped. */
static const char *without_backslashes(arena *a, const char *text)
{
  char *copy = arena_strdup(a, text);
  char *out = copy;
  while (*text != '\0') {
    size_t backslashes = strspn(text, "\\");
    char quoted = text[backslashes];
    if (backslashes > 0 && (quoted == '|' || quoted == '(' || quoted == ')')) {
      text += backslashes;
    }
    *out++ = *text++;
  }
  *out = '\0';
  return copy;
}

/* `[a b c]` and `[a, b, c]` as text: the words without brackets and commas. */
static const char *without_brackets(arena *a, const char *text)
{
  size_t length = strlen(text);
  if (length < 2 || text[0] != '[' || text[length - 1] != ']') {
    return text;
  }
  char *words = arena_strndup(a, text + 1, length - 2);
  for (char *c = words; *c != '\0'; c++) {
    *c = *c == ',' ? ' ' : *c;
  }
  return words;
}

/* The items of a list, `separator` between them. NULL after an error: an item is no scalar. */
static const char *join_items(const args_reader *r, const text_node *list, char separator)
{
  size_t length = 1;
  for (uint32_t i = 0; i < list->count; i++) {
    if (!text_expect(&list->children[i], TEXT_SCALAR, r->d)) {
      return NULL;
    }
    length += strlen(list->children[i].text) + 1;
  }
  char *joined = ARENA_ARRAY(r->a, char, length);
  char *out = joined;
  for (uint32_t i = 0; i < list->count; i++) {
    size_t item = strlen(list->children[i].text);
    memcpy(out, list->children[i].text, item);
    out += item;
    *out++ = separator;
  }
  *(out - (list->count > 0)) = '\0';
  return joined;
}

static bool takes_list(const megatron_flag *flag)
{
  return flag->values == FLAG_VALUES_SOME || flag->values == FLAG_VALUES_ANY ||
         flag->values == FLAG_VALUES_THREE || flag->values == FLAG_VALUES_FIELD;
}

/* The value as the command line would have it; NULL after an error. */
static const char *value_text(const args_reader *r, const megatron_flag *flag, const text_node *n)
{
  if (n->kind == TEXT_SEQUENCE) {
    const char *joined = join_items(r, n, takes_list(flag) ? ' ' : ',');
    if (joined == NULL || takes_list(flag) || n->count == 1) {
      return joined;
    }
    return arena_printf(r->a, "[%s]", joined); /* a list that is one value: moe-layer-freq */
  }
  const char *text = without_backslashes(r->a, n->text);
  return takes_list(flag) ? without_brackets(r->a, text) : text;
}

static bool push_use(args_reader *r, uint32_t index, const text_node *n, const char *value)
{
  *ARRAY_PUSH(&r->uses) =
      (flag_use){ .flag = index, .value = value, .at = n->key_at, .value_at = n->at };
  return true;
}

/* `method` of a product in tp_comm_overlap_cfg. */
static const text_node *method_of(const text_node *cfg, const char *product)
{
  const text_node *p = text_get(cfg, product);
  const text_node *method = p != NULL && p->kind == TEXT_MAPPING ? text_get(p, "method") : NULL;
  return method != NULL && method->kind == TEXT_SCALAR ? method : NULL;
}

/* tp_comm_overlap_cfg as Megatron Bridge's recipes have it: only the products whose sums are scattered in
 * forward have a choice of methods. */
static bool take_overlap_config(args_reader *r, const text_node *n)
{
  const text_node *proj = method_of(n, "proj_fprop"), *fc2 = method_of(n, "fc2_fprop");
  const char *word = fc2 != NULL ? fc2->text : "pipeline";
  if (strcmp(word, proj != NULL ? proj->text : "pipeline") != 0)
    diag_note(r->d, n->at,
              "proj_fprop and fc2_fprop have different methods in tp_comm_overlap_cfg; offsim "
              "takes that of fc2_fprop, %.200s",
              word);
  uint32_t method = megatron_flag_find("--tp-comm-overlap-rs-method");
  return fc2 == NULL || push_use(r, method, fc2, word);
}

/* true and false of a switch, a value of everything else; `false` and nothing leave an option out.
 */
static bool take_entry(args_reader *r, uint32_t index, const text_node *written)
{
  const megatron_flag *flag = &megatron_flags[index];
  unset_names missing = { 0 };
  const text_node value_node = variables_replaced(written, &r->options->presets, &missing, r->a);
  const text_node *n = &value_node;
  if (missing.names != NULL && megatron_flag_matters(flag)) {
    unset_add(&r->missing, missing.names, missing.at, r->a);
    return true;
  }
  bool truth;
  bool is_truth = n->kind == TEXT_SCALAR && scalar_bool(n->text, &truth);
  if (text_is_null(n) || flag->effect.kind == FLAG_IGNORED) {
    return true;
  }
  if (flag->values == FLAG_VALUES_NONE) {
    return text_as_bool(n, &truth, r->d) && (!truth || push_use(r, index, n, ""));
  }
  if (is_truth && flag->type == FLAG_TYPE_FLAG) {
    return push_use(r, index, n, truth ? "true" : "false");
  }
  if (is_truth && !truth) {
    return true;
  }
  if (is_truth && flag->values != FLAG_VALUES_ANY) {
    return diag_error(r->d, n->at, "%s is true; it needs a value", flag->name);
  }
  if (n->kind == TEXT_MAPPING && strcmp(flag->name, "--tp-comm-overlap-cfg") == 0)
    return take_overlap_config(r, n);
  if (n->kind == TEXT_MAPPING) {
    return diag_error(r->d, n->at, "%s is a mapping; it needs a value or a list", flag->name);
  }
  const char *value = value_text(r, flag, n);
  return value != NULL && push_use(r, index, n, value);
}

static bool means_something(const char *name)
{
  uint32_t flag = name == NULL ? MEGATRON_FLAG_UNKNOWN : megatron_flag_find(name);
  return flag != MEGATRON_FLAG_UNKNOWN && megatron_flags[flag].effect.kind != FLAG_IGNORED;
}

/* Whether a key is an option that means something, or one of the first is meant to be one. */
static bool has_option(const text_node *map, arena *a)
{
  enum { LOOKED_AT = 100 }; /* a search for near names is slow */
  for (uint32_t i = 0; i < map->count; i++) {
    if (means_something(map->children[i].key)) return true;
  }
  for (uint32_t i = 0; i < map->count && i < LOOKED_AT; i++) {
    if (means_something(megatron_flag_nearest(a, map->children[i].key))) return true;
  }
  return false;
}

static bool take_arguments(args_reader *r, const text_node *map)
{
  if (map->count > 0 && !has_option(map, r->a)) {
    return diag_error(r->d, map->children[0].key_at,
                      "none of these keys is an option of Megatron-LM; the first is \"%.200s\"",
                      map->children[0].key);
  }
  for (uint32_t i = 0; i < map->count; i++) {
    const text_node *n = &map->children[i];
    uint32_t index = megatron_flag_find(n->key);
    if (index == MEGATRON_FLAG_UNKNOWN)
      megatron_unknown_option(r, n->key, n->key_at);
    else
      take_entry(r, index, n);
    diag_go_on(r->d);
  }
  return diag_ok(r->d);
}

/* ---- FlagScale ---- */

/* FlagScale's files have options in three sections. Sections in these only sort them
 * (flagscale/runner/utils.py, flatten_dict_to_args). */
static const char *const flagscale_sections[] = { "system", "model", "data" };

static bool is_flagscale(const text_node *top)
{
  for (size_t i = 0; i < sizeof flagscale_sections / sizeof *flagscale_sections; i++) {
    const text_node *section = text_get(top, flagscale_sections[i]);
    if (section == NULL || section->kind != TEXT_MAPPING) return false;
  }
  return true;
}

static text_node *put_options(text_node *to, const text_node *section)
{
  for (uint32_t i = 0; i < section->count; i++) {
    const text_node *n = &section->children[i];
    if (n->kind == TEXT_MAPPING)
      to = put_options(to, n);
    else
      *to++ = *n;
  }
  return to;
}

/* The options of all sections in one mapping. */
static text_node without_sections(const text_node *top, arena *a)
{
  text_node *options = ARENA_ARRAY(a, text_node, top->values), *end = options;
  for (size_t i = 0; i < sizeof flagscale_sections / sizeof *flagscale_sections; i++)
    end = put_options(end, text_get(top, flagscale_sections[i]));
  text_node flat = *top;
  flat.children = options;
  flat.count = (uint32_t)(end - options);
  return flat;
}

/* --env: what is set before the mapping's own variables. */
static bool take_presets(args_reader *r)
{
  const shell_presets *presets = &r->options->presets;
  if (!shell_presets_check(presets, r->d)) return false;
  if (presets->argument_count > 0) return foreign_for_script(r->d, "--arg", r->path);
  for (uint32_t i = 0; i < presets->environment_count; i++) {
    const char *text = presets->environment[i];
    const source_pos at = { "--env", 0, 0 };
    const char *name = arena_strndup(r->a, text, strcspn(text, "="));
    if (!environment_matters(name)) continue;
    if (!environment_given(r->s, at, r->a, r->d) ||
        !environment_set(r->s, name, strchr(text, '=') + 1, at, r->a, r->d))
      return false;
  }
  return true;
}

static bool take_environment(args_reader *r, const text_node *map)
{
  if (map == NULL) {
    return true;
  }
  if (!environment_given(r->s, map->key_at, r->a, r->d)) {
    return false;
  }
  if (text_is_null(map)) {
    return true;
  }
  if (!text_expect(map, TEXT_MAPPING, r->d)) {
    return false;
  }
  for (uint32_t i = 0; i < map->count; i++) {
    unset_names missing = { 0 };
    const text_node n = variables_replaced(&map->children[i], &r->options->presets, &missing, r->a);
    if (missing.names != NULL && environment_matters(n.key))
      unset_add(&r->missing, missing.names, missing.at, r->a);
    else if (n.kind == TEXT_SCALAR && !text_is_null(&n))
      environment_set(r->s, n.key, n.text, n.at, r->a, r->d);
    diag_go_on(r->d);
  }
  return diag_ok(r->d);
}

/* The entry called `upper`, as in Megatron's test configurations, or `lower`. */
static const text_node *get_either(const text_node *map, const char *upper, const char *lower)
{
  const text_node *n = text_get(map, upper);
  return n != NULL ? n : text_get(map, lower);
}

/* Megatron's test configurations say so where they do not train. */
static bool check_mode(const args_reader *r, const text_node *top)
{
  const text_node *mode = get_either(top, "MODE", "mode");
  return mode == NULL || strcmp(mode->text, "inference") != 0 ||
         diag_error(r->d, mode->at, "MODE is inference; offsim predicts training");
}

static bool read_top(args_reader *r, const char *text, size_t length)
{
  const text_node *top = text_read(r->a, r->path, text, length, r->d);
  if (top == NULL || !text_expect(top, TEXT_MAPPING, r->d)) {
    return false;
  }
  if (is_flagscale(top)) {
    const text_node flat = without_sections(top, r->a);
    return take_arguments(r, &flat);
  }
  const text_node *arguments = get_either(top, "MODEL_ARGS", "model_args");
  const text_node *environment = get_either(top, "ENV_VARS", "env_vars");
  if (arguments == NULL && environment == NULL) {
    return other_files_check(top, "--megatron-args", r->d) && take_arguments(r, top);
  }
  if (arguments == NULL) {
    return diag_error(r->d, environment->key_at,
                      "ENV_VARS without MODEL_ARGS: the options belong under MODEL_ARGS");
  }
  if (!check_mode(r, top)) {
    return false;
  }
  bool good = take_environment(r, environment);
  diag_go_on(r->d);
  return text_expect(arguments, TEXT_MAPPING, r->d) && take_arguments(r, arguments) && good;
}

bool megatron_mapping_read(args_reader *r, const char *text, size_t length)
{
  bool good = take_presets(r) && read_top(r, text, length);
  if (r->missing.names == NULL) return good;
  bool several = strchr(r->missing.names, ',') != NULL;
  return diag_error(r->d, r->missing.at, "%.400s %s not set; --env NAME=VALUE sets a variable",
                    r->missing.names, several ? "are" : "is");
}
