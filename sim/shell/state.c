/* What all parts of the evaluator use: its limits, its status, sources and how nodes are shown. */
#include <string.h>

#include "sim/shell/parts.h"

const char *shown_text(evaluator *e, const char *text)
{
  return make_word(e, &(field){ .text = text }).text;
}

const shell_source *new_source(evaluator *e, const char *text, size_t length, source_pos at,
                               bool derived)
{
  shell_source *s = ARENA_NEW(e->a, shell_source);
  *s = (shell_source){ .start = text, .end = text + length, .at = at, .derived = derived };
  if (derived) return s;
  uint32_t lines = 1;
  for (const char *p = text; p < s->end; p++) {
    lines += *p == '\n';
  }
  s->lines = ARENA_ARRAY(e->a, const char *, lines);
  s->lines[s->line_count++] = text;
  for (const char *p = text; p < s->end; p++) {
    if (*p == '\n') s->lines[s->line_count++] = p + 1;
  }
  return s;
}

bool take_step(evaluator *e, source_pos at)
{
  if (++e->steps > STEPS_MOST || e->origins.count > ORIGINS_MOST)
    return diag_error(e->d, at, "the script takes more than %d steps, which offsim does not follow",
                      STEPS_MOST);
  if (e->a->used_bytes - e->bytes_before > BYTES_MOST)
    return diag_error(e->d, at,
                      "the script's values take more than %d MiB, which offsim does not follow",
                      BYTES_MOST >> 20);
  return diag_ok(e->d);
}

bool end_run(evaluator *e, source_pos at, const char *why)
{
  e->ended = why;
  e->ended_at = at;
  e->ended_count++;
  return false;
}

source_pos node_place(const shell_node *n)
{
  return shell_place(n->source, n->start);
}

/* In one line, and not too long. */
const char *text_lines(evaluator *e, const char *text, size_t length, size_t *kept)
{
  char *copy = ARENA_ARRAY(e->a, char, length + 1);
  *kept = 0;
  for (size_t i = 0; i < length; i++) {
    if (text[i] != '\r' || i + 1 == length || text[i + 1] != '\n') copy[(*kept)++] = text[i];
  }
  return copy;
}

const char *raw_text(evaluator *e, const raw_word *w)
{
  return arena_strndup(e->a, w->start, (size_t)(w->end - w->start));
}

const char *node_text(evaluator *e, const shell_node *n)
{
  enum { SHOWN_MOST = 80 };
  const char *start = n->start;
  while (start < n->end && strchr(" \t\n", *start) != NULL) {
    start++;
  }
  size_t length = (size_t)(n->end - start);
  char *text = arena_strndup(e->a, start, length > SHOWN_MOST ? SHOWN_MOST : length);
  size_t used = strlen(text);
  while (used > 0 && strchr(" \t\n;", text[used - 1]) != NULL) {
    text[--used] = '\0';
  }
  for (char *p = text; *p != '\0'; p++) {
    if (*p == '\n' || *p == '\t') *p = ' ';
  }
  const char *shown = shown_text(e, text);
  return length > SHOWN_MOST ? arena_printf(e->a, "%s...", shown) : shown;
}

void set_status(evaluator *e, int number)
{
  e->status = (shell_status){ .number = number, .origin = NO_ORIGIN };
}

void set_unknown_status(evaluator *e, uint32_t origin)
{
  e->status = (shell_status){ .number = -1, .origin = origin };
}

uint32_t status_origin(evaluator *e, const char *written, source_pos at)
{
  if (e->status.origin != NO_ORIGIN) return e->status.origin;
  value_origin o = { .kind = ORIGIN_UNKNOWN, .what = written, .at = at };
  return new_origin(e, o);
}

void add_output(evaluator *e, const char *text)
{
  if (e->output != NULL) buffer_add_text(e, e->output, text);
}

void add_unknown_output(evaluator *e)
{
  if (e->output != NULL) e->output_unknown = true;
}
