/* Marks in texts: what a part of a value comes from. */
#include <assert.h>
#include <string.h>

#include "sim/shell/parts.h"

/* ---- buffers ---- */

bool buffer_add(evaluator *e, text_buffer *b, const char *bytes, size_t count)
{
  if (b->count + count > TEXT_BYTES_MOST)
    return diag_error(e->d, (source_pos){ e->file, 0, 0 },
                      "a value has more than %d bytes, which offsim does not read",
                      TEXT_BYTES_MOST);
  if (b->count + count > b->capacity) {
    size_t capacity = b->capacity * 2 > b->count + count ? b->capacity * 2 : b->count + count + 24;
    char *more = ARENA_ARRAY(e->a, char, capacity);
    if (b->count > 0) memcpy(more, b->bytes, b->count);
    b->bytes = more;
    b->capacity = capacity;
  }
  if (count > 0) memcpy(b->bytes + b->count, bytes, count);
  b->count += count;
  return true;
}

bool buffer_add_text(evaluator *e, text_buffer *b, const char *text)
{
  return buffer_add(e, b, text, strlen(text));
}

const char *buffer_text(evaluator *e, const text_buffer *b)
{
  return b->count == 0 ? "" : arena_strndup(e->a, b->bytes, b->count);
}

/* ---- origins ---- */

uint32_t new_origin(evaluator *e, value_origin o)
{
  assert(e->origins.count < 1 << 24); /* take_step stops long before */
  *ARRAY_PUSH(&e->origins) = o;
  return e->origins.count - 1;
}

/* Four bytes of six bits each, none of them a character of its own. */
const char *mark_text(evaluator *e, uint32_t index)
{
  char *text = ARENA_ARRAY(e->a, char, MARK_BYTES + 1);
  text[0] = (char)MARK;
  for (int i = 1; i < MARK_BYTES; i++) {
    text[i] = (char)(0x80 | (index >> (6 * (i - 1)) & 0x3F));
  }
  return text;
}

const char *unknown_text(evaluator *e, const char *name, const char *what, source_pos at)
{
  value_origin o = { .kind = ORIGIN_UNKNOWN, .name = name, .what = what, .at = at };
  return mark_text(e, new_origin(e, o));
}

uint32_t mark_index(const char *p)
{
  assert(is_mark(p));
  uint32_t index = 0;
  for (int i = 1; i < MARK_BYTES; i++) {
    index |= ((uint32_t)(unsigned char)p[i] & 0x3F) << (6 * (i - 1));
  }
  return index;
}

const value_origin *mark_origin(const evaluator *e, const char *p)
{
  uint32_t index = mark_index(p);
  assert(index < e->origins.count);
  return &e->origins.items[index];
}

/* ---- texts ---- */

uint32_t first_unknown(const evaluator *e, const char *text)
{
  for (const char *p = strchr(text, MARK); p != NULL; p = strchr(p + MARK_BYTES, MARK)) {
    origin_kind kind = mark_origin(e, p)->kind;
    if (kind == ORIGIN_UNKNOWN) return mark_index(p);
  }
  return NO_ORIGIN;
}

bool has_character(const evaluator *e, const char *text)
{
  for (const char *p = text; *p != '\0'; p += MARK_BYTES) {
    if (!is_mark(p) || mark_origin(e, p)->filled) return true;
  }
  return false;
}

const char *first_unset(const evaluator *e, const char *text)
{
  for (const char *p = strchr(text, MARK); p != NULL; p = strchr(p + MARK_BYTES, MARK)) {
    const value_origin *o = mark_origin(e, p);
    if (o->kind == ORIGIN_UNSET || o->kind == ORIGIN_MISSING) return o->name;
  }
  return NULL;
}

const char *plain_text(evaluator *e, const char *text)
{
  if (strchr(text, MARK) == NULL) return text;
  if (first_unknown(e, text) != NO_ORIGIN) return NULL;
  text_buffer b = { 0 };
  for (const char *p = text; *p != '\0';) {
    bool added = true;
    if (is_mark(p)) {
      const value_origin *o = mark_origin(e, p);
      if (o->kind == ORIGIN_SECRET) added = buffer_add_text(e, &b, o->value);
      p += MARK_BYTES;
    } else {
      size_t length = strcspn(p, "\xFF");
      added = buffer_add(e, &b, p, length);
      p += length;
    }
    if (!added) return "";
  }
  return buffer_text(e, &b);
}

/* The unknown marks of a text, with or without what is between them. */
static const char *filtered(evaluator *e, const char *text, bool keeps_characters)
{
  text_buffer b = { 0 };
  for (const char *p = text; *p != '\0';) {
    size_t length = is_mark(p) ? MARK_BYTES : strcspn(p, "\xFF");
    bool keeps = keeps_characters;
    if (is_mark(p)) {
      origin_kind kind = mark_origin(e, p)->kind;
      keeps = kind == ORIGIN_UNKNOWN || (kind == ORIGIN_SECRET && keeps_characters);
    }
    if (keeps && !buffer_add(e, &b, p, length)) return "";
    p += length;
  }
  return buffer_text(e, &b);
}

const char *with_unknown_marks(evaluator *e, const char *text)
{
  return strchr(text, MARK) == NULL ? text : filtered(e, text, true);
}

const char *only_unknown(evaluator *e, const char *text)
{
  return filtered(e, text, false);
}

/* ---- words for readers ---- */

shell_unknown *make_unknown(evaluator *e, const value_origin *o)
{
  shell_unknown *u = ARENA_NEW(e->a, shell_unknown);
  *u = (shell_unknown){ .name = o->name,
                        .what = o->what,
                        .at = o->at,
                        .alternatives = o->alternatives,
                        .alternative_count = o->alternative_count,
                        .secret = o->kind == ORIGIN_SECRET };
  return u;
}

static void take_mark(evaluator *e, const value_origin *o, shell_word *w, text_buffer *b,
                      bool *placed)
{
  switch (o->kind) {
  case ORIGIN_PLACE:
    if (!*placed) w->at = o->at;
    break;
  case ORIGIN_UNSET:
    if (w->unset == NULL) {
      w->unset = o->name;
      w->unset_at = o->at;
    }
    break;
  case ORIGIN_MISSING:
    if (w->missing == NULL) {
      w->missing = o->name;
      w->missing_at = o->at;
    }
    break;
  case ORIGIN_UNKNOWN:
  case ORIGIN_SECRET:
    if (w->unknown == NULL) w->unknown = make_unknown(e, o);
    buffer_add_text(e, b, o->kind == ORIGIN_SECRET ? "***" : o->what);
    *placed = true;
    break;
  }
}

shell_word make_word(evaluator *e, const field *f)
{
  shell_word w = { .at = f->at };
  text_buffer b = { 0 };
  size_t characters = 0;
  bool placed = false;
  for (const char *p = f->text; *p != '\0';) {
    if (is_mark(p)) {
      take_mark(e, mark_origin(e, p), &w, &b, &placed);
      p += MARK_BYTES;
    } else {
      size_t length = strcspn(p, "\xFF");
      buffer_add(e, &b, p, length);
      characters += length;
      placed = true;
      p += length;
    }
  }
  w.text = buffer_text(e, &b);
  w.is_unknown = w.unknown != NULL && characters == 0;
  return w;
}
