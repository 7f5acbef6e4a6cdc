/*
 * The tree of a script. Words keep their source text; expand.c reads it when they are needed.
 * Private to sim/shell.
 */
#ifndef OFFSIM_SIM_SHELL_SYNTAX_H
#define OFFSIM_SIM_SHELL_SYNTAX_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"

/* A text that is parsed: a file, or what `eval` and `bash -c` are given, which has one place. */
typedef struct shell_source {
  const char *start, *end;
  source_pos at;      /* of the first byte */
  bool derived;       /* every byte is at `at` */
  const char **lines; /* where each line begins */
  uint32_t line_count;
} shell_source;

source_pos shell_place(const shell_source *s, const char *byte);

typedef struct raw_word raw_word;

struct raw_word {
  const char *start, *end;
  const shell_source *source;
  bool is_array; /* NAME=( elements ) */
  raw_word *elements;
  uint32_t element_count;
};

typedef enum redirect_kind {
  REDIRECT_FILE,    /* < > >> &> and copies of descriptors */
  REDIRECT_INPUT,   /* <<EOF */
  REDIRECT_LITERAL, /* <<'EOF' */
  REDIRECT_STRING   /* <<< word */
} redirect_kind;

typedef struct redirect {
  redirect_kind kind;
  bool strips_tabs; /* <<- */
  bool to_stdout;   /* a redirection of standard output */
  raw_word word;    /* the target */
  raw_word *body;   /* of a here-document */
} redirect;

typedef enum node_kind {
  NODE_SIMPLE,     /* words: assignments, name, arguments */
  NODE_SEQUENCE,   /* children */
  NODE_AND,        /* two children */
  NODE_OR,         /* two children */
  NODE_NOT,        /* one child */
  NODE_PIPE,       /* children */
  NODE_IF,         /* children: condition, then, condition, then, ..., perhaps else */
  NODE_FOR,        /* words: name, items; has_list: `in` was given. One child */
  NODE_FOR_NUMBER, /* words: three expressions. One child */
  NODE_WHILE,      /* children: condition, body */
  NODE_UNTIL,
  NODE_CASE,     /* words: subject; arms */
  NODE_FUNCTION, /* words: name; one child */
  NODE_GROUP,    /* { } */
  NODE_SUBSHELL, /* ( ) */
  NODE_NUMBER,   /* (( )): words: the expression */
  NODE_TEST      /* a leaf of [[ ]]: words */
} node_kind;

typedef struct shell_node shell_node;

typedef struct case_arm {
  raw_word *patterns;
  uint32_t pattern_count;
  shell_node *body;
  char ends; /* ';' for ;;  '&' for ;&  '|' for ;;& */
} case_arm;

struct shell_node {
  node_kind kind;
  const shell_source *source;
  const char *start, *end; /* its text */
  raw_word *words;
  uint32_t word_count;
  redirect *redirects;
  uint32_t redirect_count;
  shell_node **children;
  uint32_t child_count;
  case_arm *arms;
  uint32_t arm_count;
  bool has_list;
  bool background;
};

/* The whole text as a sequence; NULL after a diag error. */
shell_node *shell_parse(arena *a, const shell_source *s, diag *d);

/* The list in `$(list)`: from `start` to the `)` that ends it, where *end then points. NULL after a diag
 * error. */
shell_node *shell_parse_substitution(arena *a, const shell_source *s, const char *start,
                                     const char **end, diag *d);

/* The text as lines of words: blanks separate them, # begins a comment, all but newlines and `;`
 * is literal. NULL after a diag error. */
shell_node *shell_parse_list(arena *a, const shell_source *s, diag *d);

/* After a `$` or a backquote at `p`: the end of the expansion that begins there; p + 1 where
 * none does. NULL after a diag error. */
const char *shell_skip_expansion(arena *a, const shell_source *s, const char *p, const char *end,
                                 bool in_quotes, diag *d);

/* At a `<` that is not quoted: the end of a placeholder such as <path to data>, in whose place the
 * reader of the script is to write a value; NULL: none begins there. */
const char *shell_placeholder_end(const char *p, const char *end);

/* Bytes of NAME in a text that begins with NAME. */
uint32_t shell_name_length(const char *text, const char *end);

#endif
