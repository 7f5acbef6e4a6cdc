/* The whole: presets, the walk, what it found. */
#include <string.h>

#include "sim/shell/parts.h"
#include "sim/text/limits.h"

bool shell_presets_check(const shell_presets *presets, diag *d)
{
  static const source_pos env = { "--env", 0, 0 };
  for (uint32_t i = 0; i < presets->environment_count; i++) {
    const char *text = presets->environment[i];
    if (!text_check_bytes("--env", text, strlen(text), d)) return false;
    uint32_t length = shell_name_length(text, text + strlen(text));
    if (length == 0 || text[length] != '=')
      return diag_error(d, env, "\"%.60s\" is no assignment; write --env NAME=VALUE", text);
  }
  for (uint32_t i = 0; i < presets->argument_count; i++) {
    const char *text = presets->arguments[i];
    if (!text_check_bytes("--arg", text, strlen(text), d)) return false;
  }
  return true;
}

static bool take_presets(evaluator *e, const shell_presets *presets)
{
  static const source_pos arg = { "--arg", 0, 0 };
  if (!shell_presets_check(presets, e->d)) return false;
  for (uint32_t i = 0; i < presets->environment_count; i++) {
    const char *text = presets->environment[i];
    size_t length = strcspn(text, "=");
    variable *v = ARENA_NEW(e->a, variable);
    const char *value = text + length + 1;
    *v = (variable){ .name = arena_strndup(e->a, text, length),
                     .is_set = true,
                     .exported = true,
                     .preset = value,
                     .text = value };
    if (!put_variable(e, v)) return false;
  }
  e->arguments = ARENA_ARRAY(e->a, field, presets->argument_count + 1);
  for (uint32_t i = 0; i < presets->argument_count; i++) {
    e->arguments[i] = (field){ .text = presets->arguments[i], .at = arg, .quoted = true };
  }
  e->argument_count = presets->argument_count;
  return true;
}

/* The first word is an option: a list of arguments without its command. */
static bool is_argument_list(const char *text)
{
  for (const char *p = text;;) {
    p += strspn(p, " \t\n");
    if (*p == '\\' && p[1] == '\n') {
      p += 2;
    } else if (*p == '#') {
      p += strcspn(p, "\n");
    } else {
      return p[0] == '-' && p[1] == '-';
    }
  }
}

static bool evaluate_list(evaluator *e, const shell_source *s, shell_script *out)
{
  shell_node *all = shell_parse_list(e->a, s, e->d);
  bool good = all != NULL;
  out->is_list = true;
  for (uint32_t i = 0; good && i < all->child_count; i++) {
    shell_node *n = all->children[i];
    field_list words = { 0 };
    good = expand_words(e, n->words, n->word_count, &words) &&
           (words.count == 0 || record(e, words.items, words.count, true));
  }
  /* ${X?} ends a script; a list has nothing else that could count */
  if (!good && diag_ok(e->d)) diag_error(e->d, e->ended_at, "%s", e->ended);
  return diag_ok(e->d);
}

static bool evaluate(evaluator *e, const char *text, size_t length, const shell_presets *presets,
                     shell_script *out)
{
  size_t kept;
  const char *copy = text_lines(e, text, length, &kept);
  const shell_source *s = new_source(e, copy, kept, (source_pos){ e->file, 1, 1 }, false);
  if (!take_presets(e, presets)) return false;
  if (is_argument_list(copy)) return evaluate_list(e, s, out);
  if (!read_batch_lines(e, s, false)) return false;
  shell_node *n = shell_parse(e->a, s, e->d);
  if (n == NULL) return false;
  flow f = run_node(e, n);
  out->wanted = wanted_arguments(e, &out->wanted_at, &out->chooses);
  if (f == FLOW_EXIT && diag_ok(e->d)) {
    out->ended = e->ended;
    out->ended_at = e->ended_at;
  }
  return diag_ok(e->d) && record_lists(e, out);
}

static const char *directory_of_file(evaluator *e)
{
  return strcmp(e->file, "-") == 0 ? NULL : directory_of(e, e->file);
}

bool shell_evaluate(arena *a, const char *file, const char *text, size_t length,
                    const shell_presets *presets, shell_script *out, diag *d)
{
  *out = (shell_script){ 0 };
  if (!text_check_bytes(file, text, length, d)) return false;
  evaluator e = {
    .a = a, .d = d, .bytes_before = a->used_bytes, .file = file, .name = file, .source_name = file
  };
  e.status.origin = NO_ORIGIN;
  e.directory = directory_of_file(&e);
  e.cwd = ".";
  bool good = evaluate(&e, text, length, presets, out);
  if (good) {
    out->commands = ARENA_ARRAY(a, shell_command, e.commands.count);
    if (e.commands.count > 0)
      memcpy(out->commands, e.commands.items, e.commands.count * sizeof *out->commands);
    out->count = e.commands.count;
  }
  ARRAY_FREE(&e.commands);
  ARRAY_FREE(&e.origins);
  ARRAY_FREE(&e.functions);
  ARRAY_FREE(&e.locals);
  return good;
}
