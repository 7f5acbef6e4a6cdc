/*
 * The evaluator's parts. Private to sim/shell.
 *
 * Values are texts with *marks* in them: a byte 0xFF, which UTF-8 never has, and four bytes of an
 * origin's index. A mark travels with the text around it through assignments, concatenation and
 * word splitting. What examines a text takes the marks out first (plain_text), and learns whether
 * it is known.
 */
#ifndef OFFSIM_SIM_SHELL_PARTS_H
#define OFFSIM_SIM_SHELL_PARTS_H

#include "sim/base/array.h"
#include "sim/shell/shell.h"
#include "sim/shell/syntax.h"

enum {
  MARK = 0xFF,
  MARK_BYTES = 5,
  ORIGINS_MOST = 1 << 19,    /* far below what a mark can number */
  STEPS_MOST = 100000,       /* commands and expansions */
  BYTES_MOST = 96 << 20,     /* of the arena */
  TEXT_BYTES_MOST = 1 << 20, /* of one value */
  NESTING_MOST = 200,        /* of commands, calls, files */
  FILES_MOST = 64,
  VARIABLES_MOST = 4096,
  WANTED_MOST = 40, /* arguments */
  CHOICES_MOST = 16,
  COMMANDS_MOST = 4096
};

#define NO_ORIGIN UINT32_MAX

/* ---- marks ---- */

typedef enum origin_kind {
  ORIGIN_PLACE,   /* what follows was written at `at` */
  ORIGIN_UNSET,   /* nothing: variable `name` was never set */
  ORIGIN_MISSING, /* beside a word: an unset variable of which no word is left */
  ORIGIN_UNKNOWN, /* any text */
  ORIGIN_SECRET   /* `value`, which is not to be shown */
} origin_kind;

typedef struct value_origin {
  origin_kind kind;
  bool many;             /* of an array: perhaps no element, perhaps several */
  bool filled;           /* at least one character, as Slurm's job number */
  const char *name;      /* the variable that holds it, or NULL */
  const char *what;      /* as written */
  const char *directory; /* another name of the directory or file that it is, or NULL */
  const char *value;
  source_pos at;
  const char *const *alternatives;
  uint32_t alternative_count;
} value_origin;

/* A growing text in the arena. */
typedef struct text_buffer {
  char *bytes;
  size_t count, capacity;
} text_buffer;

typedef struct evaluator evaluator;

bool buffer_add(evaluator *e, text_buffer *b, const char *bytes, size_t count); /* false: a limit */
bool buffer_add_text(evaluator *e, text_buffer *b, const char *text);
const char *buffer_text(evaluator *e, const text_buffer *b);

uint32_t new_origin(evaluator *e, value_origin o);
const char *mark_text(evaluator *e, uint32_t index); /* a text that is one mark */
const char *unknown_text(evaluator *e, const char *name, const char *what, source_pos at);

/* At a mark: its origin. */
static inline bool is_mark(const char *p)
{
  return (unsigned char)*p == MARK;
}
uint32_t mark_index(const char *p);
const value_origin *mark_origin(const evaluator *e, const char *p);

/* The first unknown mark of a text, or NO_ORIGIN. */
uint32_t first_unknown(const evaluator *e, const char *text);
/* It has a character even if all its unknown parts are empty. */
bool has_character(const evaluator *e, const char *text);
/* The name of the first variable that was never set and left nothing there, or NULL. */
const char *first_unset(const evaluator *e, const char *text);

/* The text without marks; secrets are their values. NULL: something in it is unknown. */
const char *plain_text(evaluator *e, const char *text);

/* The text with no other marks than unknown ones. */
const char *with_unknown_marks(evaluator *e, const char *text);

/* All unknown marks of a text and nothing else: what an operation on it gives. */
const char *only_unknown(evaluator *e, const char *text);

/* ---- variables ---- */

typedef struct element {
  const char *key; /* of an associative array; NULL: by index */
  int64_t index;
  const char *text;
} element;

typedef enum variable_kind { VARIABLE_SCALAR, VARIABLE_ARRAY, VARIABLE_MAP } variable_kind;

/* Never changed once it is in a table: tables are copied by pointer. */
typedef struct variable {
  const char *name;
  variable_kind kind;
  bool is_set; /* `declare X` and `local X` leave it unset */
  bool exported, readonly, is_integer;
  const char *preset; /* by --env: prevails over unknown values; NULL: none */
  const char *text;   /* of a scalar */
  const element *elements;
  uint32_t element_count;
} variable;

typedef struct variable_table {
  const variable **items;
  uint32_t count, capacity;
} variable_table;

/* What the table says of the name, set or not; NULL: nothing. */
const variable *find_variable(const evaluator *e, const char *name);
bool put_variable(evaluator *e, const variable *v);
void drop_variable(evaluator *e, const char *name);
/* The variable as it is, or unset, to be changed and put. */
variable *variable_copy(evaluator *e, const char *name);
bool set_scalar(evaluator *e, const char *name, const char *text, source_pos at);
variable_table copy_table(evaluator *e, const variable_table *t);
/* The value of a variable as a scalar: of an array its element 0. Never NULL; an unset one is
 * its mark. */
const char *scalar_text(evaluator *e, const char *name, source_pos at);
bool is_set_variable(evaluator *e, const char *name);
bool has_unknown_elements(const evaluator *e, const variable *v);

/* ---- evaluation ---- */

typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_RETURN, FLOW_EXIT } flow;

/* An exit status: a number, or unknown because of an origin. */
typedef struct shell_status {
  int number;      /* -1: unknown */
  uint32_t origin; /* of an unknown one; NO_ORIGIN: a foreign command's */
} shell_status;

typedef struct field {
  const char *text; /* with marks */
  source_pos at;
  bool quoted; /* at least in part: it stays even if it is empty */
} field;

typedef struct field_list {
  field *items;
  uint32_t count, capacity;
} field_list;

typedef struct function {
  const char *name;
  shell_node *body;
} function;

/* What a subshell, or a branch that may not be taken, must not change. */
typedef struct shell_state {
  variable_table variables;
  field *arguments;
  uint32_t argument_count;
  const char *cwd;
  bool errexit, nounset;
} shell_state;

/* A loop or a call: where break, continue or return lead. */
typedef struct frame {
  struct frame *outer;
  bool is_call;
  struct {
    shell_state *items;
    flow *by;
    uint32_t *origins;
    uint32_t count, capacity;
  } pending; /* states that left a branch while the other went on */
} frame;

typedef struct saved_local {
  const char *name;
  const variable *value; /* NULL: there was none */
} saved_local;

typedef struct recorded {
  shell_command *items;
  uint32_t count, capacity;
} recorded;

/* An argument of the script that is not given. */
typedef struct wanted_argument {
  bool is_read;
  source_pos at;
  const char *name; /* of the variable that takes it, or NULL */
  const char *choices[CHOICES_MOST];
  uint32_t choice_count;
} wanted_argument;

struct evaluator {
  arena *a;
  diag *d;
  size_t bytes_before; /* of the arena */
  uint64_t steps;
  int nesting, files, substitutions;
  uint32_t captures;       /* command substitutions so far */
  const char *file;        /* the script */
  const char *directory;   /* of the script; files beside it may be read */
  const char *cwd;         /* where the script is, as far as it says so; NULL: unknown */
  const char *source_name; /* BASH_SOURCE */

  struct {
    value_origin *items;
    uint32_t count, capacity;
  } origins;
  variable_table variables;
  struct {
    function *items;
    uint32_t count, capacity;
  } functions;
  uint32_t function_base; /* those before belong to a shell around this one */

  field *arguments; /* $1, $2, ... */
  uint32_t argument_count;
  const char *name; /* $0 */
  wanted_argument wanted[WANTED_MOST];

  /* of the function that runs, or NULL */
  struct {
    saved_local *items;
    uint32_t count, capacity;
  } locals;
  int calls;

  frame *frames;
  int levels; /* of break and continue, still to leave */
  shell_branch *branch;
  uint32_t condition_count;

  shell_status status;
  bool errexit, nounset;
  int tested; /* in a condition: errexit does not apply */

  text_buffer *output; /* of a command substitution, or NULL */
  bool output_unknown; /* something foreign printed to it */

  const char *said;  /* what it last printed, or NULL */
  const char *ended; /* why the path that trains ended */
  source_pos ended_at;
  uint32_t ended_count;

  recorded commands;
  shell_launch batch;                           /* what #SBATCH lines say */
  const char *batch_gpus, *batch_gpus_per_node; /* of each node, as a number and as written */
  const char *batch_cpus;                       /* of each task */
  bool is_batch; /* a job of Slurm's: there are such lines, or sbatch runs it */
};

/* One more step: false after a diag error at a limit. */
bool take_step(evaluator *e, source_pos at);

/* The run ends here in bash. Always false. */
bool end_run(evaluator *e, source_pos at, const char *why);

flow run_node(evaluator *e, shell_node *n);
/* A text as commands, in this shell: eval, sourced files, traps. */
flow run_text(evaluator *e, const char *text, source_pos at, const char *file);
/* A shell of its own: `bash -c`, `bash file`. Only exported variables and `arguments` reach it. */
flow run_shell(evaluator *e, const char *text, source_pos at, const char *file, const char *name,
               const field *arguments, uint32_t count);
/* The state of a branch that may not be taken, merged with that of the other: see merge.c. */
flow join_branches(evaluator *e, flow left, const shell_state *left_state, flow right,
                   uint32_t origin);
uint32_t status_origin(evaluator *e, const char *written, source_pos at);
void add_output(evaluator *e, const char *text);
void add_unknown_output(evaluator *e);

/* expand.c */
typedef enum expansion {
  EXPAND_FIELDS,  /* splits words */
  EXPAND_VALUE,   /* one text: an assignment */
  EXPAND_PATTERN, /* one text, quoted characters after a backslash */
  EXPAND_DOCUMENT /* a here-document: quotes are literal */
} expansion;

bool expand_words(evaluator *e, const raw_word *words, uint32_t count, field_list *out);
/* The characters that separate words: IFS. */
const char *separators(evaluator *e);
/* NULL: the run ended, or a diag error. */
const char *expand_text(evaluator *e, const raw_word *w, expansion how);

typedef struct builder {
  evaluator *e;
  const shell_source *source;
  expansion how;
  field_list *fields; /* of EXPAND_FIELDS */
  text_buffer text;
  bool begun; /* a character, an unknown part or quotes: there will be a field */
  bool quoted;
  bool empty_at;        /* the last "$@" had no word */
  const char *missing;  /* marks for the field to come */
  bool splits_literals; /* an unquoted default: its blanks separate words too */
  bool places;          /* marks places of what is written literally */
  source_pos at;
} builder;

/* False after a diag error, or where the run ended: what is written from `p` to `end`; a value, split into
 * fields outside quotes; the end of a field. */
bool expand_range(builder *b, const char *p, const char *end, bool in_quotes);
bool add_value(builder *b, const char *text, bool in_quotes);
bool end_field(builder *b);

/* parameter.c: ${...}, from after the brace; *p ends after the closing one. */
bool expand_parameter(builder *b, const char *p, const char *end, bool in_quotes);
/* $X and $1: the value of one name. */
bool expand_name(builder *b, const char *name, const char *written, source_pos at, bool in_quotes);

/* arguments.c: the script reads $1 and there is none; a variable takes it; a text that may be it is
 * compared with a value. */
void want_argument(evaluator *e, const char *name, source_pos at);
void name_argument(evaluator *e, const char *name, const char *text);
void offer_choice(evaluator *e, const char *text, const char *choice);
/* "$1 SIZE (7B, 13B), $2 NODES", or NULL. */
const char *wanted_arguments(evaluator *e, source_pos *at, bool *chooses);

/* braces.c: a{b,c} -> ab ac, before all other expansions. */
bool expand_braces(evaluator *e, const raw_word *w, raw_word **out, uint32_t *count);

/* arithmetic.c: the value of an expression as text, perhaps unknown. NULL after an error. */
const char *arithmetic(evaluator *e, const char *text, source_pos at);

/* pattern.c */
bool pattern_matches(const char *pattern, const char *text);
bool pattern_matches_part(const char *pattern, const char *text, size_t length);
bool has_extended_pattern(const char *pattern);

/* conditions.c: [ ], test and a leaf of [[ ]]. The words follow the command's name. */
void test_words(evaluator *e, const field *words, uint32_t count, source_pos at,
                const char *written);
bool test_leaf(evaluator *e, shell_node *n); /* false: the run ended */

/* probes.c: the command asks for software of another accelerator than NVIDIA's GPUs, and fails. */
bool finds_no_accelerator(evaluator *e, const field *words, uint32_t count);

/* builtins.c: true and *out where `name` is one. */
bool run_builtin(evaluator *e, shell_node *n, const char *name, const field_list *words, flow *out);
bool is_declaration(const char *name);
flow run_declaration(evaluator *e, shell_node *n, const char *name, const raw_word *words,
                     uint32_t count);
typedef enum file_use { FILE_SOURCED, FILE_RUN, FILE_SUBMITTED } file_use;
bool source_file(evaluator *e, const char *path, const field *arguments, uint32_t count,
                 source_pos at, file_use use, flow *out);

/* assign.c: NAME=value and what is like it. */
bool is_assignment(const raw_word *w);
bool assign_word(evaluator *e, const raw_word *w);
const char *assigned_name(evaluator *e, const raw_word *w);

/* printing.c */
bool print_echo(evaluator *e, const field *words, uint32_t count, text_buffer *out);
bool print_formatted(evaluator *e, const field *words, uint32_t count, text_buffer *out);

/* processes.c */
const char *base_name(const char *path);
/* The name under which a launcher's options are listed; NULL: no launcher. */
const char *launcher_of(const char *text);
/* The option at words[i], if it is one of this launcher's. */
void take_launch_option(const shell_word *words, uint32_t count, uint32_t i, const char *launcher,
                        shell_launch *launch);
/* #SBATCH lines: what Slurm gives to the job. `submitted`: it is one even without such lines. */
bool read_batch_lines(evaluator *e, const shell_source *s, bool submitted);

/* launch.c */
flow run_external(evaluator *e, shell_node *n, const field_list *words);
bool record(evaluator *e, const field *words, uint32_t count, bool always);
/* The lists of `out`. */
bool record_lists(evaluator *e, shell_script *out);

/* merge.c */
shell_state take_state(evaluator *e); /* a copy */
void put_state(evaluator *e, const shell_state *s);
bool merge_state(evaluator *e, const shell_state *other, uint32_t origin);
/* What differs from `before` becomes unknown. */
bool forget_changes(evaluator *e, const shell_state *before, uint32_t origin, bool *changed);
const char *shown_text(evaluator *e, const char *text); /* unknown parts as they are written */

/* A path that offsim could open: unknown parts with another name are replaced by it. NULL:
 * unknown. */
const char *path_of(evaluator *e, const char *text);
const char *directory_of(evaluator *e, const char *path);
const char *joined_path(evaluator *e, const char *directory, const char *path);
const char *unknown_path(evaluator *e, const char *what, source_pos at, const char *path);
const shell_source *new_source(evaluator *e, const char *text, size_t length, source_pos at,
                               bool derived);

/* What a command substitution prints, trailing newlines removed; NULL: the run ended. */
const char *captured(evaluator *e, shell_node *n, const char *written, source_pos at);

shell_unknown *make_unknown(evaluator *e, const value_origin *o);
/* A word as readers see it. */
shell_word make_word(evaluator *e, const field *f);

source_pos node_place(const shell_node *n);
const char *node_text(evaluator *e, const shell_node *n); /* cut, for a message */
const char *raw_text(evaluator *e, const raw_word *w);    /* as it is written */
/* Without \r before newlines: a script from another system means the same. */
const char *text_lines(evaluator *e, const char *text, size_t length, size_t *kept);
void set_status(evaluator *e, int number);
void set_unknown_status(evaluator *e, uint32_t origin);

#endif
