/* Text -> tree, by recursive descent over characters: the grammar of bash that launch scripts
 * use. */
#include <assert.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/shell/syntax.h"

enum { DEPTH_LIMIT = 64, HEREDOC_LIMIT = 16 };

typedef struct heredoc {
  raw_word *body;
  const char *delimiter;
  bool strips_tabs;
} heredoc;

/* Where a substitution or arithmetic ends, by the place where it begins. `$((` may be either, so
 * without this an unfinished one would be read twice at every level. */
typedef enum end_kind { END_OF_SUBSTITUTION, END_OF_ARITHMETIC, END_KINDS } end_kind;

typedef struct known_end {
  uint32_t key; /* 0: free */
  uint32_t end; /* its offset; 0: it does not end */
} known_end;

typedef struct end_table {
  known_end *slots;
  uint32_t count, capacity;
} end_table;

typedef struct parser {
  arena *a;
  diag *d;
  const shell_source *source;
  const char *p, *end;
  int depth;
  end_table *ends;                 /* what this parser and its copies found */
  heredoc heredocs[HEREDOC_LIMIT]; /* whose bodies begin after the next newline */
  uint32_t heredoc_count;
  bool is_list; /* operators are literal */
  bool tries;   /* whether `((` is arithmetic: errors have no reader */
} parser;

/* Lists grow in the arena: nothing has to be freed after an error. */
typedef struct node_list {
  shell_node **items;
  uint32_t count, capacity;
} node_list;

typedef struct word_list {
  raw_word *items;
  uint32_t count, capacity;
} word_list;

static void *grown(arena *a, const void *items, uint32_t count, uint32_t *capacity,
                   size_t item_bytes)
{
  if (count < *capacity) return (void *)items;
  *capacity = *capacity == 0 ? 4 : *capacity * 2;
  void *more = arena_alloc(a, *capacity, item_bytes);
  if (count > 0) memcpy(more, items, count * item_bytes);
  return more;
}

#define PUSH(p, list)                                                                              \
  ((list)->items =                                                                                 \
       grown((p)->a, (list)->items, (list)->count, &(list)->capacity, sizeof *(list)->items),      \
   &(list)->items[(list)->count++])

/* ---- places ---- */

source_pos shell_place(const shell_source *s, const char *byte)
{
  assert(byte >= s->start && byte <= s->end);
  source_pos at = s->at;
  if (s->derived) return at;
  uint32_t low = 0, high = s->line_count; /* lines[low] <= byte < lines[high] */
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    *(s->lines[middle] <= byte ? &low : &high) = middle;
  }
  at.line += (int)low;
  for (const char *p = s->lines[low]; p < byte; p++) {
    at.column += ((unsigned char)*p & 0xC0) != 0x80;
  }
  return at;
}

static bool wrong(parser *p, const char *byte, const char *message)
{
  return diag_error(p->d, shell_place(p->source, byte), "%s", message);
}

static void *refused(parser *p, const char *byte, const char *message)
{
  wrong(p, byte, message);
  return NULL;
}

/* ---- characters ---- */

static char peek(const parser *p, size_t ahead)
{
  return (size_t)(p->end - p->p) > ahead ? p->p[ahead] : '\0';
}

static bool looking_at(const parser *p, const char *text)
{
  size_t length = strlen(text);
  return (size_t)(p->end - p->p) >= length && memcmp(p->p, text, length) == 0;
}

static bool ends_word(char c)
{
  return c == '\0' || strchr(" \t\n|&;()<>", c) != NULL;
}

/* skip_quotes takes what it begins. */
static bool begins_quotes(char c)
{
  return c != '\0' && strchr("'\"`$\\", c) != NULL;
}

static bool is_name_start(char c)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

uint32_t shell_name_length(const char *text, const char *end)
{
  const char *p = text;
  while (p < end && (is_name_start(*p) || (p > text && *p >= '0' && *p <= '9'))) {
    p++;
  }
  return (uint32_t)(p - text);
}

/* A backslash before a newline. */
static bool at_joined_line(const parser *p)
{
  return peek(p, 0) == '\\' && peek(p, 1) == '\n';
}

/* Blanks, joined lines and a comment; no newline. */
static void skip_blanks(parser *p)
{
  for (;;) {
    if (at_joined_line(p)) {
      p->p += 2;
    } else if (peek(p, 0) == ' ' || peek(p, 0) == '\t') {
      p->p++;
    } else if (peek(p, 0) == '#') {
      while (p->p < p->end && *p->p != '\n') {
        p->p++;
      }
    } else {
      return;
    }
  }
}

/* ---- here-documents ---- */

/* The body of one, which begins at p->p. */
static bool take_heredoc(parser *p, const heredoc *h)
{
  const char *body = p->p;
  size_t length = strlen(h->delimiter);
  while (p->p < p->end) {
    const char *line = p->p;
    const char *newline = memchr(line, '\n', (size_t)(p->end - line));
    const char *line_end = newline != NULL ? newline : p->end;
    p->p = newline != NULL ? newline + 1 : p->end;
    const char *first = line;
    while (h->strips_tabs && first < line_end && *first == '\t') {
      first++;
    }
    if ((size_t)(line_end - first) == length && memcmp(first, h->delimiter, length) == 0) {
      *h->body = (raw_word){ .start = body, .end = line, .source = p->source };
      return true;
    }
  }
  return diag_error(p->d, shell_place(p->source, h->body->start),
                    "this here-document does not end; expected a line %.100s", h->delimiter);
}

static bool take_newline(parser *p)
{
  assert(*p->p == '\n');
  p->p++;
  for (uint32_t i = 0; i < p->heredoc_count; i++) {
    if (!take_heredoc(p, &p->heredocs[i])) return false;
  }
  p->heredoc_count = 0;
  return true;
}

/* ---- words ---- */

static shell_node *parse_list(parser *p, const char *const *enders);
static bool skip_quotes(parser *p);

static bool skip_single(parser *p)
{
  const char *opened = p->p++;
  const char *closing = memchr(p->p, '\'', (size_t)(p->end - p->p));
  if (closing == NULL) return wrong(p, opened, "this ' does not end; expected another '");
  p->p = closing + 1;
  return true;
}

/* $'...' or `...`, at its first quote: a backslash takes the character after it along. */
static bool skip_escaped(parser *p, const char *message)
{
  const char *opened = p->p++;
  while (p->p < p->end) {
    if (*p->p == *opened) {
      p->p++;
      return true;
    }
    p->p += *p->p == '\\' && p->p + 1 < p->end ? 2 : 1;
  }
  return wrong(p, opened, message);
}

static bool skip_escaped_quotes(parser *p)
{
  return skip_escaped(p, "this ' does not end; expected another '");
}

static bool skip_backquotes(parser *p)
{
  return skip_escaped(p, "this ` does not end; expected another `");
}

static bool deeper(parser *p)
{
  if (p->depth == DEPTH_LIMIT)
    return diag_error(p->d, shell_place(p->source, p->p),
                      "nested deeper than %d levels, which offsim does not read", DEPTH_LIMIT);
  p->depth++;
  return true;
}

/* `( ... )` of arithmetic or a pattern, from the opening one. */
static bool skip_brackets(parser *p)
{
  const char *opened = p->p;
  int open = 0;
  do {
    if (p->p == p->end) return wrong(p, opened, "this ( does not end; expected a )");
    char c = *p->p;
    if (begins_quotes(c)) {
      if (!skip_quotes(p)) return false;
      continue;
    }
    open += (c == '(') - (c == ')');
    p->p++;
  } while (open > 0);
  return true;
}

/* ---- known ends ---- */

static known_end *slot_of(end_table *t, uint32_t key)
{
  uint32_t i = key * 2654435761u & (t->capacity - 1);
  while (t->slots[i].key != 0 && t->slots[i].key != key) {
    i = (i + 1) & (t->capacity - 1);
  }
  return &t->slots[i];
}

static void grow_ends(arena *a, end_table *t)
{
  end_table more = { .capacity = t->capacity == 0 ? 32 : 2 * t->capacity, .count = t->count };
  more.slots = ARENA_ARRAY(a, known_end, more.capacity);
  for (uint32_t i = 0; i < t->capacity; i++) {
    if (t->slots[i].key != 0) *slot_of(&more, t->slots[i].key) = t->slots[i];
  }
  *t = more;
}

static known_end *end_from(parser *p, const char *start, end_kind kind)
{
  end_table *t = p->ends;
  if (2 * t->count >= t->capacity) grow_ends(p->a, t);
  return slot_of(t, (uint32_t)(start - p->source->start) * END_KINDS + (uint32_t)kind + 1);
}

/* `end` may be NULL. */
static void remember_end(parser *p, const char *start, end_kind kind, const char *end)
{
  known_end *found = end_from(p, start, kind);
  p->ends->count += found->key == 0;
  found->key = (uint32_t)(start - p->source->start) * END_KINDS + (uint32_t)kind + 1;
  found->end = end != NULL ? (uint32_t)(end - p->source->start) : 0;
}

/* Where `((` at `start` is arithmetic, the byte after its `))`; else NULL. */
static const char *arithmetic_end(parser *p, const char *start)
{
  const known_end *known = end_from(p, start, END_OF_ARITHMETIC);
  if (known->key != 0) return known->end != 0 ? p->source->start + known->end : NULL;
  parser q = *p;
  diag quiet = { .quiet = true };
  q.d = &quiet;
  q.tries = true;
  q.p = start + 1;
  bool ends = skip_brackets(&q) && q.p < q.end && *q.p == ')';
  const char *end = ends ? q.p + 1 : NULL;
  remember_end(p, start, END_OF_ARITHMETIC, end);
  return end;
}

static bool skip_substitution(parser *p)
{
  static const char *const enders[] = { ")", NULL };
  const char *opened = p->p;
  known_end known = *end_from(p, opened, END_OF_SUBSTITUTION);
  /* one that does not end is read again for its message */
  if (known.key != 0 && (known.end != 0 || p->tries)) {
    if (known.end != 0) p->p = p->source->start + known.end;
    return known.end != 0;
  }
  parser q = *p;
  q.heredoc_count = 0;
  q.is_list = false;
  q.p++;
  bool good = deeper(&q) && parse_list(&q, enders) != NULL;
  if (good && peek(&q, 0) != ')') good = wrong(p, opened, "this ( does not end; expected a )");
  remember_end(p, opened, END_OF_SUBSTITUTION, good ? q.p + 1 : NULL);
  if (good) p->p = q.p + 1;
  return good;
}

/* ${...}, at the brace. */
static bool skip_parameter(parser *p, bool in_quotes)
{
  const char *opened = p->p++;
  if (!deeper(p)) return false;
  while (p->p < p->end && *p->p != '}') {
    char c = *p->p;
    if (c == '\'' && in_quotes) {
      p->p++;
    } else if (begins_quotes(c)) {
      if (!skip_quotes(p)) return false;
    } else {
      p->p++;
    }
  }
  p->depth--;
  if (p->p == p->end) return wrong(p, opened, "this { does not end; expected a }");
  p->p++;
  return true;
}

static bool skip_dollar(parser *p, bool in_quotes)
{
  p->p++;
  switch (peek(p, 0)) {
  case '(': {
    const char *end = peek(p, 1) == '(' ? arithmetic_end(p, p->p) : NULL;
    if (end == NULL) return skip_substitution(p);
    p->p = end;
    return true;
  }
  case '{': return skip_parameter(p, in_quotes);
  case '\'': return in_quotes || skip_escaped_quotes(p);
  default: return true;
  }
}

static bool skip_double(parser *p)
{
  const char *opened = p->p++;
  while (p->p < p->end) {
    switch (*p->p) {
    case '"': p->p++; return true;
    case '\\': p->p += p->p + 1 < p->end ? 2 : 1; break;
    case '`':
      if (!skip_backquotes(p)) return false;
      break;
    case '$':
      if (!skip_dollar(p, true)) return false;
      break;
    default: p->p++;
    }
  }
  return wrong(p, opened, "this \" does not end; expected another \"");
}

/* Outside double quotes. */
static bool skip_quotes(parser *p)
{
  switch (*p->p) {
  case '\'': return skip_single(p);
  case '"': return skip_double(p);
  case '`': return skip_backquotes(p);
  case '$': return skip_dollar(p, false);
  default:
    assert(*p->p == '\\');
    p->p += p->p + 1 < p->end ? 2 : 1;
    return true;
  }
}

static bool parse_word(parser *p, raw_word *w);

static bool skip_lines(parser *p)
{
  skip_blanks(p);
  while (peek(p, 0) == '\n') {
    if (!take_newline(p)) return false;
    skip_blanks(p);
  }
  return true;
}

/* ( elements ), at the bracket. */
static bool parse_array(parser *p, raw_word *w)
{
  const char *opened = p->p++;
  word_list list = { 0 };
  if (!skip_lines(p)) return false;
  while (peek(p, 0) != ')') {
    if (p->p == p->end) return wrong(p, opened, "this array does not end; expected a )");
    if (ends_word(*p->p))
      return diag_error(p->d, shell_place(p->source, p->p),
                        "unexpected \"%c\" in an array; quote it if a word has it", *p->p);
    if (!parse_word(p, PUSH(p, &list)) || !skip_lines(p)) return false;
  }
  p->p++;
  w->is_array = true;
  w->elements = list.items;
  w->element_count = list.count;
  return true;
}

/* The text so far is NAME=, NAME+= or NAME[...]=. */
static bool is_assignment_head(const char *start, const char *end)
{
  uint32_t length = shell_name_length(start, end);
  const char *p = start + length;
  if (length == 0 || p == end) return false;
  if (*p == '+') p++;
  return p + 1 == end && *p == '=';
}

const char *shell_placeholder_end(const char *p, const char *end)
{
  assert(p < end && *p == '<');
  if (p + 1 == end || !is_name_start(p[1])) return NULL;
  for (const char *c = p + 1; c < end && strchr("\n<\"'`$|;&\\", *c) == NULL; c++)
    if (*c == '>') return c[-1] == ' ' || c[-1] == '\t' ? NULL : c + 1;
  return NULL;
}

/* After `=`, or as the last word of a line: there bash reads two redirections, the second of which has no
 * target or a strange one. */
static bool at_placeholder(const parser *p, const char *word_start)
{
  if (peek(p, 0) != '<' || p->is_list) return false;
  const char *end = shell_placeholder_end(p->p, p->end);
  if (end == NULL) return false;
  if (p->p > word_start) return p->p[-1] == '=';
  while (end < p->end && (*end == ' ' || *end == '\t'))
    end++;
  return end == p->end || *end == '\n' || (*end == '\\' && end + 1 < p->end && end[1] == '\n');
}

static bool in_list_word(const parser *p, char c)
{
  return p->is_list && c != '\0' && strchr("|&()<>", c) != NULL;
}

static bool parse_word(parser *p, raw_word *w)
{
  *w = (raw_word){ .start = p->p, .source = p->source };
  if (!deeper(p)) return false;
  while (p->p < p->end) {
    char c = *p->p;
    if (at_joined_line(p)) {
      p->p += 2;
    } else if (begins_quotes(c)) {
      if (!skip_quotes(p)) return false;
    } else if (c == '(' && is_assignment_head(w->start, p->p) && !p->is_list) {
      if (!parse_array(p, w)) return false;
      break;
    } else if (c == '(' && p->p > w->start && strchr("?*+@!", p->p[-1]) && !p->is_list) {
      if (!skip_brackets(p)) return false;
    } else if ((c == '<' || c == '>') && peek(p, 1) == '(' && p->p == w->start && !p->is_list) {
      p->p++;
      if (!skip_substitution(p)) return false;
    } else if (at_placeholder(p, w->start)) {
      p->p = shell_placeholder_end(p->p, p->end);
    } else if (ends_word(c) && !in_list_word(p, c)) {
      break;
    } else {
      p->p++;
    }
  }
  p->depth--;
  w->end = p->p;
  return true;
}

const char *shell_skip_expansion(arena *a, const shell_source *s, const char *start,
                                 const char *end, bool in_quotes, diag *d)
{
  end_table ends = { 0 };
  parser p = { .a = a, .d = d, .source = s, .p = start, .end = end, .ends = &ends };
  bool good = *start == '`' ? skip_backquotes(&p) : skip_dollar(&p, in_quotes);
  return good ? p.p : NULL;
}

/* ---- commands ---- */

static shell_node *new_node(parser *p, node_kind kind)
{
  shell_node *n = ARENA_NEW(p->a, shell_node);
  n->kind = kind;
  n->source = p->source;
  n->start = p->p;
  n->end = p->p;
  return n;
}

static shell_node *with_children(parser *p, shell_node *n, node_list list)
{
  n->children = list.items;
  n->child_count = list.count;
  n->end = p->p;
  return n;
}

/* A reserved word, unquoted, where a command may begin. */
static bool at_reserved(const parser *p, const char *word)
{
  size_t length = strlen(word);
  return looking_at(p, word) && ends_word(peek(p, length));
}

static bool take_reserved(parser *p, const char *word)
{
  bool is_here = at_reserved(p, word);
  if (is_here) p->p += strlen(word);
  return is_here;
}

static bool at_any(const parser *p, const char *const *words)
{
  for (; *words != NULL; words++) {
    bool is_operator = ends_word(**words);
    if (is_operator ? looking_at(p, *words) : at_reserved(p, *words)) return true;
  }
  return false;
}

static bool expect(parser *p, const char *word, const char *opened, const char *of)
{
  return take_reserved(p, word) ||
         diag_error(p->d, shell_place(p->source, opened), "this %s has no %s", of, word);
}

/* The delimiter of a here-document without its quotes. */
static const char *unquoted(parser *p, const raw_word *w, bool *quoted)
{
  char *text = ARENA_ARRAY(p->a, char, (size_t)(w->end - w->start) + 1);
  size_t length = 0;
  *quoted = false;
  for (const char *c = w->start; c < w->end; c++) {
    if (*c == '\'' || *c == '"' || *c == '\\')
      *quoted = true;
    else
      text[length++] = *c;
  }
  return text;
}

typedef struct redirect_list {
  redirect *items;
  uint32_t count, capacity;
} redirect_list;

/* Digits before < or >, or one of those: a redirection begins here. */
static bool at_redirect(const parser *p)
{
  size_t digits = 0;
  while (peek(p, digits) >= '0' && peek(p, digits) <= '9') {
    digits++;
  }
  char c = peek(p, digits);
  if (at_placeholder(p, p->p)) return false;
  if (c == '&' && digits == 0) return peek(p, 1) == '>';
  if (c != '<' && c != '>') return false;
  return peek(p, digits + 1) != '(';
}

static bool parse_redirect(parser *p, shell_node *n, redirect_list *list)
{
  const char *start = p->p;
  while (*p->p >= '0' && *p->p <= '9') {
    p->p++;
  }
  redirect r = { .kind = REDIRECT_FILE };
  bool other_descriptor = p->p > start && !(p->p == start + 1 && *start == '1');
  if (looking_at(p, "<<<")) {
    r.kind = REDIRECT_STRING;
    p->p += 3;
  } else if (looking_at(p, "<<")) {
    r.kind = REDIRECT_INPUT;
    p->p += 2;
    r.strips_tabs = peek(p, 0) == '-';
    p->p += r.strips_tabs;
  } else {
    static const char *const operators[] = { "&>>", "&>", ">>", ">&", ">|", "<>", "<&", "<", ">" };
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
      if (!looking_at(p, operators[i])) continue;
      r.to_stdout =
          strchr(operators[i], '>') != NULL && !other_descriptor && operators[i][0] != '<';
      p->p += strlen(operators[i]);
      break;
    }
  }
  skip_blanks(p);
  bool has_target = p->p < p->end && (!ends_word(*p->p) || *p->p == '<' || *p->p == '>');
  if (has_target && !parse_word(p, &r.word)) return false;
  if (!has_target || r.word.end == r.word.start)
    return wrong(p, start,
                 "this redirection has no target; a placeholder such as <path> needs a value");
  if (r.kind == REDIRECT_INPUT) {
    bool quoted;
    if (p->heredoc_count == HEREDOC_LIMIT)
      return wrong(p, start, "too many here-documents in one line");
    r.body = ARENA_NEW(p->a, raw_word);
    *r.body = r.word;
    p->heredocs[p->heredoc_count++] =
        (heredoc){ r.body, unquoted(p, &r.word, &quoted), r.strips_tabs };
    if (quoted) r.kind = REDIRECT_LITERAL;
  }
  *PUSH(p, list) = r;
  n->redirects = list->items;
  n->redirect_count = list->count;
  return true;
}

static bool parse_redirects(parser *p, shell_node *n)
{
  redirect_list list = { 0 };
  skip_blanks(p);
  while (at_redirect(p)) {
    if (!parse_redirect(p, n, &list)) return false;
    skip_blanks(p);
  }
  n->end = p->p;
  return true;
}

static bool at_separator(const parser *p)
{
  return p->p == p->end || strchr("\n;|&()", *p->p) != NULL;
}

static shell_node *parse_simple(parser *p)
{
  shell_node *n = new_node(p, NODE_SIMPLE);
  word_list words = { 0 };
  redirect_list redirects = { 0 };
  for (;;) {
    skip_blanks(p);
    if (at_redirect(p)) {
      if (!parse_redirect(p, n, &redirects)) return NULL;
      continue;
    }
    bool substitution = (looking_at(p, "<(") || looking_at(p, ">("));
    if (at_separator(p) && !substitution) break;
    raw_word w;
    if (!parse_word(p, &w)) return NULL;
    assert(w.end > w.start);
    *PUSH(p, &words) = w;
    n->end = p->p;
  }
  n->words = words.items;
  n->word_count = words.count;
  if (words.count == 0 && redirects.count == 0) {
    if (p->p == p->end)
      wrong(p, p->p, "the script ends where a command is expected");
    else
      diag_error(p->d, shell_place(p->source, p->p), "unexpected \"%c\"; quote it if a word has it",
                 *p->p == '\n' ? ' ' : *p->p);
    return NULL;
  }
  return n;
}

static shell_node *parse_if(parser *p)
{
  static const char *const then[] = { "then", NULL },
                           *const ends[] = { "elif", "else", "fi", NULL },
                           *const fi[] = { "fi", NULL };
  shell_node *n = new_node(p, NODE_IF);
  node_list list = { 0 };
  const char *opened = p->p;
  p->p += strlen("if");
  for (;;) {
    shell_node *condition = parse_list(p, then);
    if (condition == NULL || !expect(p, "then", opened, "if")) return NULL;
    shell_node *body = parse_list(p, ends);
    if (body == NULL) return NULL;
    *PUSH(p, &list) = condition;
    *PUSH(p, &list) = body;
    if (!take_reserved(p, "elif")) break;
  }
  if (take_reserved(p, "else")) {
    shell_node *body = parse_list(p, fi);
    if (body == NULL) return NULL;
    *PUSH(p, &list) = body;
  }
  return expect(p, "fi", opened, "if") ? with_children(p, n, list) : NULL;
}

static shell_node *parse_body(parser *p, const char *opened, const char *of)
{
  static const char *const done[] = { "done", NULL }, *const close[] = { "}", NULL };
  skip_blanks(p);
  if (peek(p, 0) == ';') p->p++;
  if (!skip_lines(p)) return NULL;
  bool braces = take_reserved(p, "{");
  if (!braces && !expect(p, "do", opened, of)) return NULL;
  shell_node *body = parse_list(p, braces ? close : done);
  return body != NULL && expect(p, braces ? "}" : "done", opened, of) ? body : NULL;
}

static shell_node *one_child(parser *p, shell_node *n, shell_node *child)
{
  if (child == NULL) return NULL;
  node_list list = { 0 };
  *PUSH(p, &list) = child;
  return with_children(p, n, list);
}

static shell_node *two_children(parser *p, shell_node *n, shell_node *left, shell_node *right)
{
  if (right == NULL) return NULL;
  node_list list = { 0 };
  *PUSH(p, &list) = left;
  *PUSH(p, &list) = right;
  return with_children(p, n, list);
}

/* (( a; b; c )) of a for, or (( a )): its parts as raw words. */
static bool split_arithmetic(parser *p, shell_node *n, uint32_t most)
{
  const char *opened = p->p, *end = arithmetic_end(p, p->p);
  if (end == NULL) return wrong(p, opened, "this (( does not end; expected ))");
  word_list words = { 0 };
  const char *first = opened + 2;
  for (const char *c = first; c < end - 2 && most > 1; c++) {
    if (*c != ';') continue;
    *PUSH(p, &words) = (raw_word){ .start = first, .end = c, .source = p->source };
    first = c + 1;
  }
  *PUSH(p, &words) = (raw_word){ .start = first, .end = end - 2, .source = p->source };
  n->words = words.items;
  n->word_count = words.count;
  p->p = end;
  n->end = end;
  return words.count == most || wrong(p, opened, "this for needs ((first; condition; step))");
}

static shell_node *parse_for(parser *p)
{
  shell_node *n = new_node(p, NODE_FOR);
  const char *opened = p->p;
  p->p += strlen("for");
  skip_blanks(p);
  if (looking_at(p, "((")) {
    n->kind = NODE_FOR_NUMBER;
    return split_arithmetic(p, n, 3) ? one_child(p, n, parse_body(p, opened, "for")) : NULL;
  }
  word_list words = { 0 };
  if (!parse_word(p, PUSH(p, &words))) return NULL;
  if (shell_name_length(words.items[0].start, words.items[0].end) !=
          (uint32_t)(words.items[0].end - words.items[0].start) ||
      words.items[0].start == words.items[0].end)
    return refused(p, opened, "this for needs the name of a variable");
  if (!skip_lines(p)) return NULL;
  n->has_list = take_reserved(p, "in");
  if (n->has_list) {
    skip_blanks(p);
    while (!at_separator(p)) {
      if (!parse_word(p, PUSH(p, &words))) return NULL;
      if (words.items[words.count - 1].start == words.items[words.count - 1].end)
        return refused(p, p->p, "unexpected redirection in the list of a for");
      skip_blanks(p);
    }
  }
  n->words = words.items;
  n->word_count = words.count;
  return one_child(p, n, parse_body(p, opened, "for"));
}

static shell_node *parse_while(parser *p, node_kind kind, const char *word)
{
  static const char *const enders[] = { "do", NULL };
  shell_node *n = new_node(p, kind);
  const char *opened = p->p;
  p->p += strlen(word);
  shell_node *condition = parse_list(p, enders);
  if (condition == NULL) return NULL;
  return two_children(p, n, condition, parse_body(p, opened, word));
}

typedef struct arm_list {
  case_arm *items;
  uint32_t count, capacity;
} arm_list;

static bool parse_arm(parser *p, case_arm *arm)
{
  static const char *const enders[] = { ";;&", ";;", ";&", "esac", NULL };
  const char *opened = p->p;
  word_list patterns = { 0 };
  if (peek(p, 0) == '(') p->p++;
  for (;;) {
    skip_blanks(p);
    raw_word *w = PUSH(p, &patterns);
    if (!parse_word(p, w)) return false;
    if (w->start == w->end) return wrong(p, opened, "a pattern of this case is missing");
    skip_blanks(p);
    if (peek(p, 0) != '|') break;
    p->p++;
  }
  if (peek(p, 0) != ')') return wrong(p, opened, "this pattern of a case has no )");
  p->p++;
  *arm = (case_arm){ .patterns = patterns.items, .pattern_count = patterns.count, .ends = ';' };
  arm->body = parse_list(p, enders);
  if (arm->body == NULL) return false;
  if (looking_at(p, ";;&")) {
    arm->ends = '|';
    p->p += 3;
  } else if (looking_at(p, ";;") || looking_at(p, ";&")) {
    arm->ends = p->p[1] == '&' ? '&' : ';';
    p->p += 2;
  }
  return skip_lines(p);
}

static shell_node *parse_case(parser *p)
{
  shell_node *n = new_node(p, NODE_CASE);
  const char *opened = p->p;
  p->p += strlen("case");
  skip_blanks(p);
  n->words = ARENA_ARRAY(p->a, raw_word, 1);
  n->word_count = 1;
  if (!parse_word(p, &n->words[0]) || !skip_lines(p) || !expect(p, "in", opened, "case") ||
      !skip_lines(p))
    return NULL;
  arm_list arms = { 0 };
  while (!at_reserved(p, "esac")) {
    if (p->p == p->end) break;
    if (!parse_arm(p, PUSH(p, &arms))) return NULL;
  }
  n->arms = arms.items;
  n->arm_count = arms.count;
  if (!expect(p, "esac", opened, "case")) return NULL;
  n->end = p->p;
  return n;
}

static shell_node *parse_compound(parser *p);

static shell_node *parse_function(parser *p)
{
  shell_node *n = new_node(p, NODE_FUNCTION);
  if (take_reserved(p, "function")) skip_blanks(p);
  n->words = ARENA_ARRAY(p->a, raw_word, 1);
  n->word_count = 1;
  const char *opened = p->p;
  while (!ends_word(peek(p, 0))) {
    p->p++;
  }
  n->words[0] = (raw_word){ .start = opened, .end = p->p, .source = p->source };
  skip_blanks(p);
  if (peek(p, 0) == '(') {
    p->p++;
    skip_blanks(p);
    if (peek(p, 0) != ')') return refused(p, opened, "this function has no ()");
    p->p++;
  }
  if (!skip_lines(p)) return NULL;
  shell_node *body = parse_compound(p);
  if (body == NULL && diag_ok(p->d)) wrong(p, opened, "this function has no body");
  return one_child(p, n, body);
}

static size_t blanks_at(const parser *p)
{
  size_t count = 0;
  while (peek(p, count) == ' ' || peek(p, count) == '\t')
    count++;
  return count;
}

/* NAME ( ): a function is defined. */
static bool at_function(const parser *p)
{
  if (at_reserved(p, "function")) return true;
  parser q = *p;
  while (!ends_word(peek(&q, 0)) && strchr("'\"`$\\=", *q.p) == NULL) {
    q.p++;
  }
  if (q.p == p->p) return false;
  q.p += blanks_at(&q);
  if (peek(&q, 0) != '(') return false;
  q.p++;
  q.p += blanks_at(&q);
  return peek(&q, 0) == ')';
}

static shell_node *bracketed(parser *p, node_kind kind, const char *open, const char *close)
{
  const char *const enders[] = { close, NULL };
  shell_node *n = new_node(p, kind);
  const char *opened = p->p;
  p->p += strlen(open);
  shell_node *body = parse_list(p, enders);
  if (body == NULL) return NULL;
  if (!looking_at(p, close)) {
    diag_error(p->d, shell_place(p->source, opened), "this %s does not end; expected a %s", open,
               close);
    return NULL;
  }
  p->p += strlen(close);
  return one_child(p, n, body);
}

/* ---- [[ ]] ---- */

static shell_node *parse_test_or(parser *p);

/* The right side of =~ up to a blank outside brackets. */
static bool parse_regex(parser *p, raw_word *w)
{
  *w = (raw_word){ .start = p->p, .source = p->source };
  int open = 0;
  while (p->p < p->end && (open > 0 || strchr(" \t\n", *p->p) == NULL)) {
    char c = *p->p;
    if (c == '\n') break;
    if (begins_quotes(c)) {
      if (!skip_quotes(p)) return false;
      continue;
    }
    open += (c == '(') - (c == ')');
    p->p++;
  }
  w->end = p->p;
  return true;
}

static bool at_test_end(const parser *p)
{
  return p->p == p->end || at_reserved(p, "]]") || looking_at(p, "&&") || looking_at(p, "||") ||
         *p->p == ')';
}

static shell_node *parse_test_leaf(parser *p)
{
  if (!skip_lines(p)) return NULL;
  shell_node *n = new_node(p, NODE_TEST);
  if (peek(p, 0) == '!' && ends_word(peek(p, 1))) {
    if (!deeper(p)) return NULL;
    p->p++;
    n->kind = NODE_NOT;
    n = one_child(p, n, parse_test_leaf(p));
    p->depth--;
    return n;
  }
  if (peek(p, 0) == '(') {
    const char *opened = p->p++;
    if (!deeper(p)) return NULL;
    shell_node *inner = parse_test_or(p);
    p->depth--;
    if (inner == NULL) return NULL;
    if (!skip_lines(p)) return NULL;
    if (peek(p, 0) != ')') {
      wrong(p, opened, "this ( does not end; expected a )");
      return NULL;
    }
    p->p++;
    return inner;
  }
  word_list words = { 0 };
  for (;;) {
    skip_blanks(p);
    if (at_test_end(p) || peek(p, 0) == '\n') break;
    raw_word *w = PUSH(p, &words);
    bool after_match = words.count == 3 && words.items[1].end - words.items[1].start == 2 &&
                       memcmp(words.items[1].start, "=~", 2) == 0;
    if (after_match) {
      if (!parse_regex(p, w)) return NULL;
    } else if (*p->p == '<' || *p->p == '>') {
      *w = (raw_word){ .start = p->p, .end = p->p + 1, .source = p->source };
      p->p++;
    } else if (!parse_word(p, w)) {
      return NULL;
    }
    if (w->start == w->end) return refused(p, p->p, "unexpected character in [[ ]]");
  }
  n->words = words.items;
  n->word_count = words.count;
  n->end = p->p;
  if (words.count == 0 || words.count > 3)
    return refused(p, n->start, "this is no condition of [[ ]]");
  return n;
}

static shell_node *joined(parser *p, node_kind kind, shell_node *left, shell_node *right)
{
  shell_node *n = new_node(p, kind);
  n->start = left->start;
  return two_children(p, n, left, right);
}

static shell_node *parse_test_and(parser *p)
{
  shell_node *n = parse_test_leaf(p);
  while (n != NULL && skip_lines(p) && looking_at(p, "&&")) {
    p->p += 2;
    n = joined(p, NODE_AND, n, parse_test_leaf(p));
  }
  return n;
}

static shell_node *parse_test_or(parser *p)
{
  shell_node *n = parse_test_and(p);
  while (n != NULL && skip_lines(p) && looking_at(p, "||")) {
    p->p += 2;
    n = joined(p, NODE_OR, n, parse_test_and(p));
  }
  return n;
}

static shell_node *parse_test(parser *p)
{
  const char *opened = p->p;
  p->p += 2;
  shell_node *n = parse_test_or(p);
  if (n == NULL || !skip_lines(p)) return NULL;
  if (!at_reserved(p, "]]")) {
    wrong(p, opened, "this [[ does not end; expected ]]");
    return NULL;
  }
  p->p += 2;
  /* a node of its own, so that redirections and its text are the whole's */
  shell_node *whole = new_node(p, NODE_GROUP);
  whole->start = opened;
  return one_child(p, whole, n);
}

/* ---- what is put together ---- */

/* NULL without an error: no compound command begins here. */
static shell_node *parse_compound_only(parser *p)
{
  if (at_reserved(p, "if")) return parse_if(p);
  if (at_reserved(p, "for")) return parse_for(p);
  if (at_reserved(p, "while")) return parse_while(p, NODE_WHILE, "while");
  if (at_reserved(p, "until")) return parse_while(p, NODE_UNTIL, "until");
  if (at_reserved(p, "case")) return parse_case(p);
  if (at_reserved(p, "{")) return bracketed(p, NODE_GROUP, "{", "}");
  if (at_reserved(p, "[[")) return parse_test(p);
  if (at_reserved(p, "select")) {
    wrong(p, p->p,
          "select asks the user, which offsim does not read; write the choice in its place");
    return NULL;
  }
  if (looking_at(p, "((") && arithmetic_end(p, p->p) != NULL) {
    shell_node *n = new_node(p, NODE_NUMBER);
    return split_arithmetic(p, n, 1) ? n : NULL;
  }
  if (peek(p, 0) == '(') return bracketed(p, NODE_SUBSHELL, "(", ")");
  return NULL;
}

static shell_node *parse_compound(parser *p)
{
  if (!deeper(p)) return NULL;
  shell_node *n = parse_compound_only(p);
  p->depth--;
  return n != NULL && parse_redirects(p, n) ? n : NULL;
}

static shell_node *parse_command(parser *p)
{
  static const char *const misplaced[] = { "then", "elif", "else", "fi", "do",
                                           "done", "esac", "}",    "in", NULL };
  skip_blanks(p);
  if (at_function(p)) {
    if (!deeper(p)) return NULL;
    shell_node *n = parse_function(p);
    p->depth--;
    return n;
  }
  shell_node *n = parse_compound(p);
  if (n != NULL || !diag_ok(p->d)) return n;
  if (at_any(p, misplaced)) {
    wrong(p, p->p, "unexpected reserved word; nothing before it begins what it belongs to");
    return NULL;
  }
  return parse_simple(p);
}

static shell_node *parse_pipeline(parser *p)
{
  skip_blanks(p);
  if (take_reserved(p, "time")) {
    skip_blanks(p);
    take_reserved(p, "-p");
    skip_blanks(p);
  }
  if (peek(p, 0) == '!' && ends_word(peek(p, 1))) {
    shell_node *n = new_node(p, NODE_NOT);
    p->p++;
    if (!deeper(p)) return NULL;
    n = one_child(p, n, parse_pipeline(p));
    p->depth--;
    return n;
  }
  shell_node *first = parse_command(p);
  if (first == NULL) return NULL;
  node_list list = { 0 };
  *PUSH(p, &list) = first;
  skip_blanks(p);
  while (peek(p, 0) == '|' && peek(p, 1) != '|') {
    p->p += 1 + (peek(p, 1) == '&');
    if (!skip_lines(p)) return NULL;
    shell_node *next = parse_command(p);
    if (next == NULL) return NULL;
    *PUSH(p, &list) = next;
    skip_blanks(p);
  }
  if (list.count == 1) return first;
  shell_node *n = new_node(p, NODE_PIPE);
  n->start = first->start;
  return with_children(p, n, list);
}

static shell_node *parse_and_or(parser *p)
{
  shell_node *n = parse_pipeline(p);
  while (n != NULL) {
    skip_blanks(p);
    bool both = looking_at(p, "&&");
    if (!both && !looking_at(p, "||")) break;
    p->p += 2;
    if (!skip_lines(p)) return NULL;
    n = joined(p, both ? NODE_AND : NODE_OR, n, parse_pipeline(p));
  }
  return n;
}

/* Commands up to the end or to one of `enders`, which is not taken. */
static shell_node *parse_list(parser *p, const char *const *enders)
{
  shell_node *n = new_node(p, NODE_SEQUENCE);
  node_list list = { 0 };
  for (;;) {
    if (!skip_lines(p)) return NULL;
    if (p->p == p->end || at_any(p, enders)) return with_children(p, n, list);
    shell_node *command = parse_and_or(p);
    if (command == NULL) return NULL;
    *PUSH(p, &list) = command;
    skip_blanks(p);
    if (p->p == p->end || at_any(p, enders)) continue;
    if (*p->p == ';' || (*p->p == '&' && peek(p, 1) != '&')) {
      command->background = *p->p == '&';
      p->p++;
    } else if (*p->p != '\n') {
      diag_error(p->d, shell_place(p->source, p->p), "unexpected \"%c\"; quote it if a word has it",
                 *p->p);
      return NULL;
    }
  }
}

shell_node *shell_parse(arena *a, const shell_source *s, diag *d)
{
  static const char *const none[] = { NULL };
  end_table ends = { 0 };
  parser p = { .a = a, .d = d, .source = s, .p = s->start, .end = s->end, .ends = &ends };
  shell_node *n = parse_list(&p, none);
  if (n == NULL || p.heredoc_count == 0) return n;
  diag_error(d, shell_place(s, p.end), "the here-document has no body; expected a line %.100s",
             p.heredocs[0].delimiter);
  return NULL;
}

shell_node *shell_parse_substitution(arena *a, const shell_source *s, const char *start,
                                     const char **end, diag *d)
{
  static const char *const enders[] = { ")", NULL };
  end_table ends = { 0 };
  parser p = { .a = a, .d = d, .source = s, .p = start, .end = s->end, .ends = &ends };
  shell_node *n = parse_list(&p, enders);
  *end = p.p;
  return n;
}

shell_node *shell_parse_list(arena *a, const shell_source *s, diag *d)
{
  end_table ends = { 0 };
  parser p = {
    .a = a, .d = d, .source = s, .p = s->start, .end = s->end, .ends = &ends, .is_list = true
  };
  shell_node *all = new_node(&p, NODE_SEQUENCE);
  node_list lines = { 0 };
  while (p.p < p.end) {
    shell_node *n = new_node(&p, NODE_SIMPLE);
    word_list words = { 0 };
    for (skip_blanks(&p); p.p < p.end && *p.p != '\n' && *p.p != ';'; skip_blanks(&p)) {
      if (!parse_word(&p, PUSH(&p, &words))) return NULL;
    }
    if (p.p < p.end) p.p++;
    n->words = words.items;
    n->word_count = words.count;
    if (words.count > 0) *PUSH(&p, &lines) = n;
  }
  return with_children(&p, all, lines);
}
