/* A scenario as YAML text: reading and printing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/config/key_table.h"
#include "sim/config/other_files.h"
#include "sim/config/settings.h"
#include "sim/text/scalar.h"
#include "sim/text/suggest.h"
#include "sim/text/yaml_text.h"

/* ---- reading ---- */

static bool known_section(const char *name)
{
  for (size_t i = 0; i < SECTION_COUNT; i++) {
    if (strcmp(section_names[i], name) == 0) {
      return true;
    }
  }
  return false;
}

static bool unknown_section(const text_node *n, diag *d)
{
  setting_key key = key_find(n->key);

  if (key != KEY_COUNT) {
    return diag_error(d, n->key_at, "%s is outside of a section; it belongs in section %s",
                      key_rows[key].name, key_rows[key].section);
  }
  const char *near = suggest_nearest(n->key, section_names, SECTION_COUNT);
  if (near != NULL) {
    return diag_error(d, n->key_at, "there is no section \"%.200s\"; did you mean %s?", n->key,
                      near);
  }
  return diag_error(d, n->key_at,
                    "there is no section \"%.200s\"; the sections are model, parallel, training, "
                    "recompute, lora, offload, machine and software",
                    n->key);
}

static bool unknown_in_section(const char *section, const text_node *n, arena *a, diag *d)
{
  setting_key elsewhere = strchr(n->key, '.') == NULL ? key_find(n->key) : KEY_COUNT;

  if (elsewhere != KEY_COUNT) {
    return diag_error(d, n->key_at, "section %s has no key %s; it belongs in section %s", section,
                      n->key, key_rows[elsewhere].section);
  }
  const char *near = key_suggest(section, n->key, a);
  if (near != NULL) {
    return diag_error(d, n->key_at, "section %s has no key \"%.200s\"; did you mean %s?", section,
                      n->key, near);
  }
  near = key_suggest(NULL, n->key, a);
  if (near != NULL) {
    return diag_error(d, n->key_at, "section %s has no key \"%.200s\"; did you mean %s.%s?",
                      section, n->key, key_rows[key_find(near)].section, near);
  }
  return diag_error(d, n->key_at, "section %s has no key \"%.200s\"", section, n->key);
}

/* A list of names as the words that settings_set_key takes; NULL after an error. */
static const char *sequence_words(const text_node *n, arena *a, diag *d)
{
  const char *words = "";

  for (uint32_t i = 0; i < n->count; i++) {
    if (!text_expect(&n->children[i], TEXT_SCALAR, d)) {
      return NULL;
    }
    words = arena_printf(a, "%s %s", words, n->children[i].text);
  }
  return words;
}

static bool read_key(settings *s, setting_key key, const text_node *n, arena *a, diag *d)
{
  const char *text = n->text;

  if (text_is_null(n)) {
    if (!settings_set_key(s, key, key_rows[key].fallback, n->at, a, d)) {
      return false;
    }
    s->given[key] = false;
    return true;
  }
  key_type type = key_rows[key].type;
  if ((type == KEY_TYPE_LIST || type == KEY_TYPE_CHOICES) && n->kind == TEXT_SEQUENCE) {
    text = sequence_words(n, a, d);
    if (text == NULL) {
      return false;
    }
  } else if (!text_expect(n, TEXT_SCALAR, d)) {
    return false;
  }
  return settings_set_key(s, key, text, n->at, a, d);
}

static bool read_section(settings *s, const text_node *section, arena *a, diag *d)
{
  if (text_is_null(section)) {
    return true;
  }
  if (!text_expect(section, TEXT_MAPPING, d)) {
    return false;
  }
  for (uint32_t i = 0; i < section->count; i++) {
    const text_node *n = &section->children[i];
    setting_key key = key_find_in(section->key, n->key);
    if (key == KEY_COUNT) {
      unknown_in_section(section->key, n, a, d);
    } else {
      read_key(s, key, n, a, d);
    }
    diag_go_on(d);
  }
  return diag_ok(d);
}

bool settings_read_scenario(settings *s, const char *path, const char *text, size_t length,
                            arena *a, diag *d)
{
  const text_node *top = text_read(a, path, text, length, d);

  if (top == NULL) {
    return false;
  }
  if (text_is_null(top)) {
    return true;
  }
  if (!text_expect(top, TEXT_MAPPING, d) || !other_files_check(top, "", d)) {
    return false;
  }
  for (uint32_t i = 0; i < top->count; i++) {
    if (!known_section(top->children[i].key)) {
      unknown_section(&top->children[i], d);
    } else {
      read_section(s, &top->children[i], a, d);
    }
    diag_go_on(d);
  }
  return diag_ok(d);
}

/* ---- printing ---- */

/* A word that YAML reads back as the same text without quotes. */
static bool is_plain(const char *text)
{
  static const char *const taken[] = {
    "true", "false", "null", "yes", "no", "on", "off", "y", "n"
  };

  if (!((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z'))) {
    return false;
  }
  for (const char *t = text; *t != '\0'; t++) {
    if (!((*t >= 'a' && *t <= 'z') || (*t >= 'A' && *t <= 'Z') || (*t >= '0' && *t <= '9') ||
          strchr("_-.+/", *t) != NULL)) {
      return false;
    }
  }
  for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
    if (strcasecmp(text, taken[i]) == 0) {
      return false;
    }
  }
  return true;
}

static void print_text(const char *text, FILE *out)
{
  if (is_plain(text)) {
    fputs(text, out);
    return;
  }
  fputc('"', out);
  for (const unsigned char *t = (const unsigned char *)text; *t != '\0'; t++) {
    if (*t < 0x20 || *t == 0x7f) {
      fprintf(out, "\\x%02x", *t);
    } else {
      if (*t == '"' || *t == '\\') {
        fputc('\\', out);
      }
      fputc(*t, out);
    }
  }
  fputc('"', out);
}

static void print_list(const name_list *list, FILE *out)
{
  fputc('[', out);
  for (uint32_t i = 0; i < list->count; i++) {
    fputs(i == 0 ? "" : ", ", out);
    print_text(list->names[i], out);
  }
  fputc(']', out);
}

static void print_choices(setting_key key, const choice_list *list, FILE *out)
{
  fputc('[', out);
  for (uint32_t i = 0; i < list->count; i++) {
    fputs(i == 0 ? "" : ", ", out);
    print_text(choice_word(key, list->items[i]), out);
  }
  fputc(']', out);
}

static void print_value(const settings *s, setting_key key, FILE *out)
{
  const void *member = key_member_const(s, key);

  switch (key_rows[key].type) {
  case KEY_TYPE_INT:
    if (*(const int64_t *)member == UNSET) {
      fputs("null", out);
    } else {
      fprintf(out, "%" PRId64, *(const int64_t *)member);
    }
    break;
  case KEY_TYPE_REAL: scalar_print_double(out, *(const double *)member); break;
  case KEY_TYPE_FLAG: fputs(*(const bool *)member ? "true" : "false", out); break;
  case KEY_TYPE_TEXT: print_text(*(const char *const *)member, out); break;
  case KEY_TYPE_LIST: print_list(member, out); break;
  case KEY_TYPE_CHOICE: print_text(chosen_word(s, key), out); break;
  case KEY_TYPE_CHOICES: print_choices(key, member, out); break;
  }
}

void settings_print(const settings *s, FILE *out)
{
  const char *section = "";

  for (setting_key key = 0; key < KEY_COUNT; key++) {
    if (strcmp(section, key_rows[key].section) != 0) {
      fprintf(out, "%s%s:\n", *section == '\0' ? "" : "\n", key_rows[key].section);
      section = key_rows[key].section;
    }
    fprintf(out, "  %s: ", key_rows[key].name);
    print_value(s, key, out);
    fputc('\n', out);
  }
}

const char *settings_text(const settings *s, arena *a)
{
  char *text = NULL;
  size_t length;
  FILE *out = open_memstream(&text, &length);
  if (out == NULL) die_refused("no memory for the text of a scenario");
  settings_print(s, out);
  fclose(out);
  const char *copy = arena_strndup(a, text, length);
  free(text);
  return copy;
}

/* ---- documentation ---- */

static void document_type(const key_row *row, FILE *out)
{
  static const char *const names[] = {
    [KEY_TYPE_INT] = "whole number", [KEY_TYPE_REAL] = "number", [KEY_TYPE_FLAG] = "true or false",
    [KEY_TYPE_TEXT] = "text",        [KEY_TYPE_LIST] = "list",   [KEY_TYPE_CHOICE] = "text",
    [KEY_TYPE_CHOICES] = "list",
  };

  fputs(names[row->type], out);
  if (row->type == KEY_TYPE_INT || row->type == KEY_TYPE_REAL) {
    fprintf(out, row->most == NO_LIMIT ? ", from %" PRId64 : ", %" PRId64 " to %" PRId64,
            row->least, row->most);
  }
  if (row->words != NULL) {
    fputs(row->type == KEY_TYPE_CHOICES ? " of " : ": ", out);
    for (const char *const *word = row->words; *word != NULL; word++) {
      fputs(word == row->words ? "" : ", ", out);
      fprintf(out, **word == '\0' ? "empty" : "`%s`", *word);
    }
  }
}

/* A cell of a Markdown table, where | ends a cell. */
static void document_cell(const char *text, FILE *out)
{
  for (; *text != '\0'; text++) {
    fputs(*text == '|' ? "\\" : "", out);
    fputc(*text, out);
  }
}

static void document_default(setting_key key, FILE *out)
{
  const key_row *row = &key_rows[key];

  if (row->fallback[0] != '\0') {
    fprintf(out, " | `%s`", row->fallback);
  } else if (key_is_required(key)) {
    fputs(" | must be given", out);
  } else {
    fputs(row->type == KEY_TYPE_INT ? " | derived" : " | empty", out);
  }
}

void settings_document(FILE *out)
{
  const char *section = "";

  fputs(
      "# Scenario keys\n\n"
      "A scenario is a YAML mapping of the sections below. Names are Megatron-LM's flag names "
      "with\n"
      "underscores where Megatron has one, and so are the defaults. A key that is left out, or is\n"
      "`null`, has its default; *derived* means that it follows from other keys. On the command "
      "line\n"
      "`--set key=value` or `--set section.key=value` overrides any of them;\n"
      "`offsim predict --print-scenario` prints all of them as they were resolved.\n",
      out);
  for (setting_key key = 0; key < KEY_COUNT; key++) {
    const key_row *row = &key_rows[key];
    if (strcmp(section, row->section) != 0) {
      section = row->section;
      fprintf(out, "\n## %s\n\n| key | type | default | meaning |\n|---|---|---|---|\n", section);
    }
    fprintf(out, "| `%s` | ", row->name);
    document_type(row, out);
    document_default(key, out);
    fputs(" | ", out);
    document_cell(row->meaning, out);
    fputs(" |\n", out);
  }
}
