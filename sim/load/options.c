#include "sim/load/options.h"

#include <assert.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/terminal.h"
#include "sim/base/text.h"
#include "sim/base/wrap.h"
#include "sim/config/key_table.h"
#include "sim/text/scalar.h"
#include "sim/text/suggest.h"

enum { MOST_OPTIONS = 64, FIRST_CODE = 256 };
/* Where meanings begin, how wide --help is; and on a narrower terminal. */
enum { HELP_COLUMN = 29, HELP_WIDTH = 100, NARROW_COLUMN = 6 };

/* All options of a verb in getopt's form; `help` is the only one without a row. */
typedef struct parser {
  const verb_syntax *verb;
  struct option names[MOST_OPTIONS + 1];
  const option_row *rows[MOST_OPTIONS];
  void *to[MOST_OPTIONS];
  char letters[2 * MOST_OPTIONS];
  int count;
} parser;

static void add_option(parser *p, const option_row *row, void *to)
{
  int code = FIRST_CODE + p->count;
  assert(p->count < MOST_OPTIONS);
  p->names[p->count] =
      (struct option){ row == NULL ? "help" : row->name,
                       row == NULL || row->value == NULL ? no_argument : required_argument, NULL,
                       code };
  p->rows[p->count] = row;
  p->to[p->count++] = to;
  if (row != NULL && row->letter != 0) {
    size_t length = strlen(p->letters);
    p->letters[length] = row->letter;
    if (row->value != NULL) p->letters[length + 1] = ':';
  }
}

static void collect(parser *p, const verb_syntax *v)
{
  *p = (parser){ .verb = v, .letters = ":h" };
  for (int t = 0; t < OPTION_TABLES; t++) {
    const option_row *row = v->tables[t].rows;
    for (; row != NULL && row->name != NULL; row++)
      if (row->kind != OPTION_NOTE) add_option(p, row, v->tables[t].to);
    if (t == 0) add_option(p, NULL, NULL);
  }
}

static int index_of(const parser *p, int code)
{
  if (code >= FIRST_CODE) return code - FIRST_CODE;
  int i = 0;
  while (i < p->count && (p->rows[i] == NULL || p->rows[i]->letter != code))
    i++;
  assert(i < p->count);
  return i;
}

/* ---- --help ---- */

static const char *on_one_line(const char *meaning, arena *a)
{
  char *line = arena_strdup(a, meaning);
  for (char *c = line; *c != '\0'; c++)
    if (*c == '\n') *c = ' ';
  return line;
}

/* Lines stay as they were written, or are wrapped on a narrow terminal. */
static void print_row(const option_row *row, bool narrow, arena *a)
{
  if (row->kind == OPTION_NOTE) {
    puts(row->meaning);
    return;
  }
  int column = printf("  --%s%s%s", row->name, row->value != NULL ? " " : "",
                      row->value != NULL ? row->value : "");
  assert(column < HELP_COLUMN);
  if (narrow) {
    putchar('\n');
    wrap_text(stdout, "", NARROW_COLUMN, on_one_line(row->meaning, a), " ");
    return;
  }
  printf("%*s", HELP_COLUMN - column, "");
  for (const char *c = row->meaning; *c != '\0'; c++)
    if (*c == '\n')
      printf("\n%*s", HELP_COLUMN, "");
    else
      putchar(*c);
  putchar('\n');
}

/* Usage and indented lines stay as they are; a paragraph is wrapped. */
static void print_head(const char *head, bool narrow, arena *a)
{
  while (narrow && *head != '\0') {
    size_t length = strcspn(head, "\n");
    bool is_words = length > 0 && *head != ' ' && !begins_with(head, "usage:");
    const char *end = strstr(head, "\n\n");
    while (is_words && end != NULL && head + length < end && head[length + 1] != ' ')
      length += 1 + strcspn(head + length + 1, "\n");
    const char *text = arena_strndup(a, head, length);
    wrap_text(stdout, is_words ? "" : text, 0, is_words ? on_one_line(text, a) : "", " ");
    head += length + (head[length] == '\n');
  }
  fputs(head, stdout);
}

static void print_help(const verb_syntax *v, arena *a)
{
  int columns = terminal_columns(stdout);
  bool narrow = columns > 0 && columns < HELP_WIDTH;
  print_head(v->head, narrow, a);
  for (int t = 0; t < OPTION_TABLES; t++)
    for (const option_row *row = v->tables[t].rows; row != NULL && row->name != NULL; row++)
      print_row(row, narrow, a);
}

/* ---- --list-options ---- */

/* For the completion of shells: "--on\tref|cuda\tthe meaning, on one line". */
static void list_option(const option_row *row, arena *a)
{
  const char *value = row->choices != NULL ? row->choices : row->value;
  printf("--%s\t%s\t%s\n", row->name, value != NULL ? value : "", on_one_line(row->meaning, a));
}

static void list_options(const parser *p, arena *a)
{
  static const option_row help = { .name = "help", .meaning = "usage and all options" };
  for (int i = 0; i < p->count; i++)
    list_option(p->rows[i] != NULL ? p->rows[i] : &help, a);
}

/* ---- refusals ---- */

/* "--num-layers" is the key num_layers, which --set gives; NULL: it is no key, or the verb has no --set. */
static const char *key_of_option(const parser *p, const char *written, arena *a)
{
  char *name = arena_strdup(a, written + strspn(written, "-"));
  bool sets = false;
  for (int i = 0; i < p->count; i++)
    sets = sets || strcmp(p->names[i].name, "set") == 0;
  for (char *c = name; *c != '\0'; c++)
    if (*c == '-') *c = '_';
  return sets && key_find(name) < KEY_COUNT ? name : NULL;
}

static void refuse_unknown(const parser *p, const char *written, arena *a, diag *d)
{
  const char *names[MOST_OPTIONS], *key = key_of_option(p, written, a);
  for (int i = 0; i < p->count; i++)
    names[i] = p->names[i].name;
  const char *near = suggest_nearest(written + strspn(written, "-"), names, (size_t)p->count);
  if (key != NULL)
    diag_error(d, (source_pos){ 0 }, "there is no option \"%s\"; did you mean --set %s=VALUE?",
               written, key);
  else if (near != NULL)
    diag_error(d, (source_pos){ 0 }, "there is no option \"%s\"; did you mean --%s?", written,
               near);
  else
    diag_error(d, (source_pos){ 0 }, "there is no option \"%s\"; offsim %s --help lists them",
               written, p->verb->name);
}

/* `argument`: as it was written, "--machine=x". */
static void refuse(const parser *p, int code, const char *argument, arena *a, diag *d)
{
  const char *written = arena_strndup(a, argument, strcspn(argument, "="));
  bool letter = optopt > 0 && optopt < FIRST_CODE;
  if (code == ':')
    diag_error(d, (source_pos){ 0 }, "option %s needs a value", written);
  else if (optopt >= FIRST_CODE)
    diag_error(d, (source_pos){ 0 }, "option %s takes no value", written);
  else
    refuse_unknown(p, letter ? arena_printf(a, "-%c", optopt) : written, a, d);
}

/* ---- parsing ---- */

static void take_whole(const option_row *row, const char *value, int64_t *to, arena *a, diag *d)
{
  int64_t number;
  const source_pos at = { arena_printf(a, "--%s", row->name), 0, 0 };
  if (scalar_i64(value, &number) && number >= row->least && number <= row->most)
    *to = number;
  else if (row->most == INT64_MAX && row->least == 0)
    diag_error(d, at, "\"%s\" is not a whole number", value);
  else if (row->most == INT64_MAX)
    diag_error(d, at, "\"%s\": expected a whole number, at least %" PRId64, value, row->least);
  else
    diag_error(d, at, "\"%s\": expected a whole number from %" PRId64 " to %" PRId64, value,
               row->least, row->most);
}

static void take_real(const option_row *row, const char *value, double *to, arena *a, diag *d)
{
  double number;
  if (scalar_double(value, &number) && number >= (double)row->least && number <= (double)row->most)
    *to = number;
  else
    diag_error(d, (source_pos){ arena_printf(a, "--%s", row->name), 0, 0 },
               "\"%s\": expected %s, a number from %" PRId64 " to %" PRId64, value, row->value,
               row->least, row->most);
}

/* "fast|exact": "exact" is 1. */
static void take_choice(const option_row *row, const char *value, int *to, arena *a, diag *d)
{
  const char *choice = row->choices, *expected = "";
  for (int i = 0; *choice != '\0'; i++) {
    size_t length = strcspn(choice, "|");
    if (strlen(value) == length && memcmp(value, choice, length) == 0) {
      *to = i;
      return;
    }
    expected = arena_printf(a, "%s%s%.*s", expected, i > 0 ? " or " : "", (int)length, choice);
    choice += length + (choice[length] == '|');
  }
  diag_error(d, (source_pos){ arena_printf(a, "--%s", row->name), 0, 0 }, "\"%s\": expected %s",
             value, expected);
}

static void take(const option_row *row, void *to, const char *value, arena *a, diag *d)
{
  char *member = (char *)to + row->member;
  assert((value != NULL) == (row->value != NULL));
  switch (row->kind) {
  case OPTION_FLAG: *(bool *)(void *)member = true; break;
  case OPTION_TEXT: *(const char **)(void *)member = value; break;
  case OPTION_WHOLE: take_whole(row, value, (int64_t *)(void *)member, a, d); break;
  case OPTION_REAL: take_real(row, value, (double *)(void *)member, a, d); break;
  case OPTION_CHOICE: take_choice(row, value, (int *)(void *)member, a, d); break;
  case OPTION_TAKE: row->take(to, value, a, d); break;
  case OPTION_NOTE: assert(0 && "a note is no option"); break;
  }
}

parsed options_parse(const verb_syntax *v, int argc, char **argv, int *rest, arena *a, diag *d)
{
  parser p;
  bool help = false;
  collect(&p, v);
  if (argc == 2 && strcmp(argv[1], "--list-options") == 0) {
    list_options(&p, a);
    return PARSED_HELP;
  }
  opterr = 0;
  optind = 1;
  for (int code; (code = getopt_long(argc, argv, p.letters, p.names, NULL)) != -1;) {
    if (code == '?' || code == ':') {
      refuse(&p, code, argv[optind - 1], a, d);
      return PARSED_WRONG;
    }
    int i = code == 'h' ? -1 : index_of(&p, code);
    if (i < 0 || p.rows[i] == NULL)
      help = true;
    else
      take(p.rows[i], p.to[i], optarg, a, d);
  }
  *rest = optind;
  if (!diag_ok(d)) return PARSED_WRONG;
  if (help) print_help(v, a);
  return help ? PARSED_HELP : PARSED;
}
