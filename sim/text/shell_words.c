#include "sim/text/shell_words.h"

#include <assert.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/text/limits.h"

/* A byte of a word. Only a plain one, outside quotes and without backslash, can mean anything. */
typedef struct word_byte {
  char ch;
  bool plain;
  source_pos at;
} word_byte;

/* What a reference to a variable stands for: nothing for an array, whose words were given where it
 * was defined, and for an argument list its words. */
typedef struct variable {
  const char *name;
  bool is_array;
  shell_word *words;
  uint32_t word_count;
} variable;

/* A machine with one character of sight; `word` collects the current word. */
typedef struct splitter {
  arena *arena;
  diag *diag;
  const char *next, *end;
  source_pos at; /* of `next` */

  struct {
    word_byte *items;
    uint32_t count, capacity;
  } word;
  source_pos word_at;
  bool in_word, quoted;

  bool at_command_start; /* no word of this command was seen: X=Y is environment */
  bool after_export;
  bool in_array;
  source_pos array_at;
  uint32_t command;

  struct {
    shell_word *items;
    uint32_t count, capacity;
  } words;
  struct {
    shell_assignment *items;
    uint32_t count, capacity;
  } assignments;
  struct {
    variable *items;
    uint32_t count, capacity;
  } variables;
} splitter;

/* ---- characters ---- */

static bool at_end(const splitter *s)
{
  return s->next == s->end;
}

/* Columns count characters: bytes that continue one do not count. */
static char take(splitter *s)
{
  assert(!at_end(s));
  char ch = *s->next++;
  if (ch == '\n') {
    s->at.line++;
    s->at.column = 1;
  } else if (at_end(s) || ((unsigned char)*s->next & 0xC0) != 0x80) {
    s->at.column++;
  }
  return ch;
}

static char peek(const splitter *s, size_t ahead)
{
  return (size_t)(s->end - s->next) > ahead ? s->next[ahead] : '\0';
}

static bool is_blank(char ch)
{
  return ch == ' ' || ch == '\t' || ch == '\r' || ch == '\n';
}

static void begin_word(splitter *s)
{
  if (s->in_word) return;
  s->in_word = true;
  s->quoted = false;
  s->word_at = s->at;
  s->word.count = 0;
}

static void append(splitter *s, char ch, bool plain, source_pos at)
{
  *ARRAY_PUSH(&s->word) = (word_byte){ ch, plain, at };
}

/* ---- words ---- */

static bool is_name_character(char ch, bool first)
{
  bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_';
  return letter || (!first && ch >= '0' && ch <= '9');
}

static bool plain_at(const splitter *s, uint32_t index, char ch)
{
  return index < s->word.count && s->word.items[index].plain && s->word.items[index].ch == ch;
}

/* Bytes of NAME in a word `NAME=...` or `NAME+=...`; 0 when the word is none. */
static uint32_t assigned_name_length(const splitter *s)
{
  uint32_t i = 0;
  while (i < s->word.count && s->word.items[i].plain &&
         is_name_character(s->word.items[i].ch, i == 0)) {
    i++;
  }
  return plain_at(s, i + plain_at(s, i, '+'), '=') ? i : 0;
}

static uint32_t assigned_value_start(const splitter *s, uint32_t name_length)
{
  return name_length + plain_at(s, name_length, '+') + 1;
}

/* `)` at the end, plain, without a `(` of its own in the word. */
static bool closes_array(const splitter *s)
{
  if (s->word.count == 0 || !plain_at(s, s->word.count - 1, ')')) return false;
  int open = 0;
  for (uint32_t i = 0; i < s->word.count; i++) {
    open += plain_at(s, i, '(') - plain_at(s, i, ')');
  }
  return open < 0;
}

static bool word_is(const splitter *s, const char *text)
{
  if (s->quoted || s->word.count != strlen(text)) return false;
  for (uint32_t i = 0; i < s->word.count; i++) {
    if (s->word.items[i].ch != text[i]) return false;
  }
  return true;
}

static char *word_text(splitter *s, uint32_t from, uint32_t to)
{
  char *text = ARENA_ARRAY(s->arena, char, to - from + 1);
  for (uint32_t i = from; i < to; i++) {
    text[i - from] = s->word.items[i].ch;
  }
  return text;
}

/* ---- variables ---- */

static bool refers_to(const char *text, const variable *v)
{
  const char *const *forms = v->is_array ? (const char *const[]){ "${%s[@]}", "${%s[*]}" }
                                         : (const char *const[]){ "$%s", "${%s}" };
  for (int i = 0; i < 2; i++) {
    const char *name = strstr(forms[i], "%s");
    size_t before = (size_t)(name - forms[i]), length = strlen(v->name);
    if (strncmp(text, forms[i], before) == 0 && strncmp(text + before, v->name, length) == 0 &&
        strcmp(text + before + length, name + 2) == 0) {
      return true;
    }
  }
  return false;
}

/* The last definition counts. */
static variable *referred_variable(const splitter *s, const char *text)
{
  if (*text != '$') return NULL;
  for (uint32_t i = s->variables.count; i > 0; i--) {
    if (refers_to(text, &s->variables.items[i - 1])) return &s->variables.items[i - 1];
  }
  return NULL;
}

/* A list's words are given once: repeating flags changes nothing, and repeating long lists has no
 * end. */
static void emit_word(splitter *s)
{
  const char *text = word_text(s, 0, s->word.count);
  variable *v = referred_variable(s, text);
  if (!v) {
    *ARRAY_PUSH(&s->words) = (shell_word){ text, s->word_at, s->command, s->quoted };
    return;
  }
  for (uint32_t i = 0; i < v->word_count; i++) {
    shell_word word = v->words[i];
    word.command = s->command;
    *ARRAY_PUSH(&s->words) = word;
  }
  v->word_count = 0;
}

/* Room for the words of a value: each but the last needs a blank. */
static void split_value(splitter *s, uint32_t start, variable *list)
{
  list->words = ARENA_ARRAY(s->arena, shell_word, (s->word.count - start) / 2 + 1);
  uint32_t i = start;
  while (i < s->word.count) {
    uint32_t first = i;
    while (i < s->word.count && !is_blank(s->word.items[i].ch)) {
      i++;
    }
    if (i > first) {
      list->words[list->word_count++] =
          (shell_word){ word_text(s, first, i), s->word.items[first].at, 0, false };
    }
    i++;
  }
}

/* X="--a 1 --b": a list of arguments, for the place where $X stands. */
static void remember_list(splitter *s, const char *name, uint32_t start)
{
  variable list = { .name = name };
  split_value(s, start, &list);
  bool has_arguments = list.word_count > 0 && strncmp(list.words[0].text, "--", 2) == 0;
  if (has_arguments) *ARRAY_PUSH(&s->variables) = list;
}

static void end_command(splitter *s)
{
  if (s->in_array) return;
  s->at_command_start = true;
  s->after_export = false;
  s->command++;
}

static void end_array_word(splitter *s)
{
  bool closes = closes_array(s);
  if (closes) s->word.count--;
  if (s->word.count > 0 || s->quoted) emit_word(s);
  if (!closes) return;
  s->in_array = false;
  end_command(s);
}

/* `X=(`: the rest of the word is the array's first. */
static void begin_array(splitter *s, const char *name, uint32_t skipped)
{
  *ARRAY_PUSH(&s->variables) = (variable){ .name = name, .is_array = true };
  end_command(s);
  s->in_array = true;
  s->array_at = s->word_at;
  s->word.count -= skipped;
  memmove(s->word.items, s->word.items + skipped, s->word.count * sizeof *s->word.items);
  if (s->word.count > 0) s->word_at = s->word.items[0].at;
  end_array_word(s);
}

static void assign(splitter *s, uint32_t name_length)
{
  const char *name = word_text(s, 0, name_length);
  uint32_t start = assigned_value_start(s, name_length);
  if (plain_at(s, start, '(')) {
    begin_array(s, name, start + 1);
    return;
  }
  if (!s->after_export) remember_list(s, name, start);
  *ARRAY_PUSH(&s->assignments) =
      (shell_assignment){ name, word_text(s, start, s->word.count), s->word_at };
}

static void end_word(splitter *s)
{
  if (!s->in_word) return;
  s->in_word = false;
  if (s->in_array) {
    end_array_word(s);
    return;
  }
  if (word_is(s, "&") || word_is(s, "&&")) {
    end_command(s);
    return;
  }
  uint32_t name_length = s->at_command_start || s->after_export ? assigned_name_length(s) : 0;
  if (name_length > 0) {
    assign(s, name_length);
  } else if (s->at_command_start && word_is(s, "export")) {
    s->after_export = true;
  } else if (!s->after_export) {
    emit_word(s);
    s->at_command_start = false;
  }
}

/* ---- quotes, backslashes, comments ---- */

static bool take_single_quotes(splitter *s, source_pos opened)
{
  while (!at_end(s)) {
    source_pos at = s->at;
    char ch = take(s);
    if (ch == '\'') return true;
    append(s, ch, false, at);
  }
  return diag_error(s->diag, opened, "this ' does not end; expected another '");
}

static bool take_double_quotes(splitter *s, source_pos opened)
{
  while (!at_end(s)) {
    source_pos at = s->at;
    char ch = take(s);
    if (ch == '"') return true;
    if (ch == '\\' && !at_end(s) && strchr("\\\"$`\n", *s->next)) {
      ch = take(s);
      if (ch == '\n') continue;
    }
    append(s, ch, false, at);
  }
  return diag_error(s->diag, opened, "this \" does not end; expected another \"");
}

/* The backslash was taken. Before a line's end it vanishes with it, also where the line ends with
 * \r\n. */
static void take_escaped(splitter *s)
{
  if (peek(s, 0) == '\r' && peek(s, 1) == '\n') take(s);
  if (at_end(s)) return;
  if (*s->next == '\n') {
    take(s);
    return;
  }
  source_pos at = s->at;
  append(s, take(s), false, at);
}

static void skip_comment(splitter *s)
{
  while (!at_end(s) && *s->next != '\n') {
    take(s);
  }
}

/* A backslash before a line's end does not make a word. */
static bool joins_lines(const splitter *s)
{
  return peek(s, 1) == '\n' || (peek(s, 1) == '\r' && peek(s, 2) == '\n');
}

static bool take_word_character(splitter *s)
{
  source_pos at = s->at;
  if (peek(s, 0) != '\\' || !joins_lines(s)) begin_word(s);
  char ch = take(s);
  switch (ch) {
  case '\'': s->quoted = true; return take_single_quotes(s, at);
  case '"': s->quoted = true; return take_double_quotes(s, at);
  case '\\': take_escaped(s); return true;
  default: append(s, ch, true, at); return true;
  }
}

static bool take_one(splitter *s)
{
  char ch = *s->next;
  if (is_blank(ch) || ch == ';') {
    end_word(s);
    take(s);
    if (ch == '\n' || ch == ';') end_command(s);
    return true;
  }
  if (ch == '#' && !s->in_word) {
    skip_comment(s);
    return true;
  }
  return take_word_character(s);
}

static bool split_all(splitter *s)
{
  while (!at_end(s)) {
    if (!take_one(s)) return false;
  }
  end_word(s);
  if (!s->in_array) return true;
  return diag_error(s->diag, s->array_at, "this array does not end; expected a )");
}

/* ---- the whole ---- */

static void hand_over(splitter *s, shell_text *out)
{
  *out = (shell_text){ .words = ARENA_ARRAY(s->arena, shell_word, s->words.count),
                       .assignments = ARENA_ARRAY(s->arena, shell_assignment, s->assignments.count),
                       .word_count = s->words.count,
                       .assignment_count = s->assignments.count };
  for (uint32_t i = 0; i < s->words.count; i++) {
    out->words[i] = s->words.items[i];
  }
  for (uint32_t i = 0; i < s->assignments.count; i++) {
    out->assignments[i] = s->assignments.items[i];
  }
}

bool shell_split(arena *a, const char *file, const char *text, size_t length, shell_text *out,
                 diag *d)
{
  if (!text_check_bytes(file, text, length, d)) return false;
  splitter s = { .arena = a,
                 .diag = d,
                 .next = text,
                 .end = text + length,
                 .at = { file, 1, 1 },
                 .at_command_start = true };
  bool good = split_all(&s);
  if (good) hand_over(&s, out);
  ARRAY_FREE(&s.word);
  ARRAY_FREE(&s.words);
  ARRAY_FREE(&s.assignments);
  ARRAY_FREE(&s.variables);
  return good;
}
