/*
 * The options of a verb. Parsing, --help and refusals follow from one table.
 *
 *     #define OPTIONS check_options
 *     static const option_row rows[] = {
 *       FLAG("json", json, "machine-readable result"),
 *       TEXT("plan", "FILE", plan, "a plan as offsim plan prints it"),
 *       TAKE("rank", "N", take_rank, "only this pipeline rank; may be repeated"),
 *       { .name = NULL },
 *     };
 *
 * --help and -h are options of every verb. Names may be abbreviated as long as they are
 * unambiguous. --list-options, alone, prints the table for the completion of shells: name, value and
 * meaning of each option, with tabs between them.
 */
#ifndef OFFSIM_SIM_LOAD_OPTIONS_H
#define OFFSIM_SIM_LOAD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"

/* Takes the value of an option (NULL if it has none); `to`: the table's. Errors go to the diag. */
typedef void option_take(void *to, const char *value, arena *a, diag *d);

typedef enum option_kind {
  OPTION_FLAG,   /* a bool: it was given */
  OPTION_TEXT,   /* a const char * */
  OPTION_WHOLE,  /* an int64_t from `least` to `most` */
  OPTION_REAL,   /* a double, likewise */
  OPTION_CHOICE, /* an int: which of `choices` */
  OPTION_TAKE,   /* the result of `take` */
  OPTION_NOTE    /* no option: lines of --help */
} option_kind;

typedef struct option_row {
  const char *name;    /* "plot-rank"; the last row of a table has NULL */
  const char *value;   /* in --help; NULL: it takes none */
  const char *meaning; /* in --help, one line or several */
  option_kind kind;
  size_t member; /* of the verb's options */
  int64_t least, most;
  const char *choices; /* "fast|exact" */
  option_take *take;
  char letter; /* "-o"; 0: none */
} option_row;

/* clang-format off */
#define OPTION_ROW(NAME, VALUE, MEANING, KIND) .name = NAME, .value = VALUE, .meaning = MEANING, .kind = KIND
#define MEMBER(MEMBER_NAME) .member = offsetof(OPTIONS, MEMBER_NAME)
#define FLAG(name, to, meaning) { OPTION_ROW(name, NULL, meaning, OPTION_FLAG), MEMBER(to) }
#define TEXT(name, value, to, meaning) { OPTION_ROW(name, value, meaning, OPTION_TEXT), MEMBER(to) }
#define WHOLE(name, value, to, from, up_to, meaning) \
  { OPTION_ROW(name, value, meaning, OPTION_WHOLE), MEMBER(to), .least = from, .most = up_to }
#define REAL(name, value, to, from, up_to, meaning) \
  { OPTION_ROW(name, value, meaning, OPTION_REAL), MEMBER(to), .least = from, .most = up_to }
#define CHOICE(name, value, to, of, meaning) \
  { OPTION_ROW(name, value, meaning, OPTION_CHOICE), MEMBER(to), .choices = of }
#define TAKE(name, value, by, meaning) { OPTION_ROW(name, value, meaning, OPTION_TAKE), .take = by }
#define NOTE(text) { OPTION_ROW("", NULL, text, OPTION_NOTE) }
/* clang-format on */

typedef struct option_table {
  const option_row *rows; /* NULL: none */
  void *to;               /* the struct whose members they set */
} option_table;

enum { OPTION_TABLES = 4 };

typedef struct verb_syntax {
  const char *name; /* "predict" */
  const char *head; /* of --help: usage and what the verb does */
  option_table tables[OPTION_TABLES];
} verb_syntax;

typedef enum parsed { PARSED, PARSED_HELP, PARSED_WRONG } parsed;

/* Reads the arguments after the verb (argv[0]), with options in any order. The other arguments are
 * moved to argv[*rest] and after. PARSED_HELP: --help or --list-options was printed; PARSED_WRONG:
 * after a diag error. */
parsed options_parse(const verb_syntax *v, int argc, char **argv, int *rest, arena *a, diag *d);

#endif
