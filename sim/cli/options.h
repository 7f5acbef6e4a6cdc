/*
 * The options of a verb: one table gives what is parsed, what --help prints and what is refused.
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
 * unambiguous.
 */
#ifndef OFFSIM_SIM_CLI_OPTIONS_H
#define OFFSIM_SIM_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"

/* Takes the value of an option, NULL of one without; `to`: the table's. Errors go to the diag. */
typedef void option_take(void *to, const char *value, arena *a, diag *d);

typedef enum option_kind {
  OPTION_FLAG,   /* a bool: it was given */
  OPTION_TEXT,   /* a const char * */
  OPTION_WHOLE,  /* an int64_t from `least` to `most` */
  OPTION_REAL,   /* a double, likewise */
  OPTION_CHOICE, /* an int: which of `choices` */
  OPTION_TAKE,   /* what `take` makes of it */
  OPTION_NOTE    /* no option: lines of --help */
} option_kind;

typedef struct option_row {
  const char *name;    /* "plot-rank"; the last row of a table has NULL */
  const char *value;   /* in --help; NULL: it takes none */
  const char *meaning; /* in --help, one line or several */
  option_kind kind;
  size_t member; /* of the verb's options */
  int64_t least, most;
  option_take *take;
  char letter;         /* "-o"; 0: none */
  const char *choices; /* "fast|exact" */
} option_row;

#define OPTION(name, value, meaning, kind, member)                                                 \
  {                                                                                                \
    name, value, meaning, kind, offsetof(OPTIONS, member), 0, 0, NULL, 0, NULL                     \
  }
#define FLAG(name, member, meaning)        OPTION(name, NULL, meaning, OPTION_FLAG, member)
#define TEXT(name, value, member, meaning) OPTION(name, value, meaning, OPTION_TEXT, member)
#define WHOLE(name, value, member, least, most, meaning)                                           \
  {                                                                                                \
    name, value, meaning, OPTION_WHOLE, offsetof(OPTIONS, member), least, most, NULL, 0, NULL      \
  }
#define REAL(name, value, member, least, most, meaning)                                            \
  {                                                                                                \
    name, value, meaning, OPTION_REAL, offsetof(OPTIONS, member), least, most, NULL, 0, NULL       \
  }
#define CHOICE(name, value, member, choices, meaning)                                              \
  {                                                                                                \
    name, value, meaning, OPTION_CHOICE, offsetof(OPTIONS, member), 0, 0, NULL, 0, choices         \
  }
#define TAKE(name, value, take, meaning)                                                           \
  {                                                                                                \
    name, value, meaning, OPTION_TAKE, 0, 0, 0, take, 0, NULL                                      \
  }
#define NOTE(text)                                                                                 \
  {                                                                                                \
    "", NULL, text, OPTION_NOTE, 0, 0, 0, NULL, 0, NULL                                            \
  }

typedef struct option_table {
  const option_row *rows; /* NULL: none */
  void *to;               /* the struct whose members they set */
} option_table;

enum { OPTION_TABLES = 2 };

typedef struct verb_syntax {
  const char *name; /* "predict" */
  const char *head; /* of --help: usage and what the verb does */
  option_table tables[OPTION_TABLES];
} verb_syntax;

typedef enum parsed { PARSED, PARSED_HELP, PARSED_WRONG } parsed;

/* Reads the arguments after the verb (argv[0]): options in any order. The others then stand
 * together from argv[*rest] on. PARSED_HELP: --help was printed; PARSED_WRONG: after a diag error.
 */
parsed options_parse(const verb_syntax *v, int argc, char **argv, int *rest, arena *a, diag *d);

#endif
