#include <string.h>

#include "sim/plan/parser.h"

#define EXPECTED "a buffer or a part of one, such as %0 or %0{fp32+1024:4096x8/3072x1}"

/* What is left of a word. */
typedef struct rest {
  const char *next, *end;
} rest;

/* Up to one of `stops`, or the end. */
static bool read_count(rest *r, const char *stops, int64_t *count)
{
  const char *from = r->next;
  while (r->next < r->end && strchr(stops, *r->next) == NULL)
    r->next++;
  return text_number(from, (size_t)(r->next - from), INT64_MAX, count);
}

static bool skip(rest *r, char sign)
{
  if (r->next == r->end || *r->next != sign) return false;
  r->next++;
  return true;
}

/* Elements may lie in descending order: "-3072". */
static bool read_stride(rest *r, int64_t *stride)
{
  bool down = skip(r, '-');
  if (!read_count(r, "x/", stride) || (down && *stride == 0)) return false;
  if (down) *stride = -*stride;
  return true;
}

/* "4096x8", behind `before`; `*count`: 0, or how many there are to be. */
static bool read_sizes(rest *r, char before, int64_t *sizes, uint8_t *count)
{
  uint8_t found = 0;
  do {
    if (!skip(r, found == 0 ? before : 'x') || found == PLAN_VIEW_DIMS ||
        !(before == '/' ? read_stride(r, &sizes[found]) : read_count(r, "x/", &sizes[found])))
      return false;
    found++;
  } while (r->next < r->end && *r->next == 'x');
  bool right = *count == 0 || *count == found;
  *count = found;
  return right;
}

/* False: more elements than int64 counts. */
static bool without_gaps(plan_view *v)
{
  int64_t next = 1;
  for (int i = v->rank; i-- > 0;) {
    v->strides[i] = next;
    if (__builtin_mul_overflow(next, v->shape[i], &next)) return false;
  }
  return true;
}

static bool read_view(rest *r, source_pos at, plan_view *v)
{
  const char *plus = memchr(r->next, '+', (size_t)(r->end - r->next));
  if (!skip(r, '{') || plus == NULL) return false;
  plan_word type = { r->next, (size_t)(plus - r->next), at };
  v->dtype = (uint8_t)word_dtype(&type);
  r->next = plus + 1;
  if (v->dtype == DTYPES || !read_count(r, ":", &v->offset)) return false;
  if (r->next == r->end) return true; /* one element */
  if (!read_sizes(r, ':', v->shape, &v->rank) || !without_gaps(v)) return false;
  return r->next == r->end || (read_sizes(r, '/', v->strides, &v->rank) && r->next == r->end);
}

bool parse_view(parser *p, const plan_word *text, plan_view *view)
{
  memset(view, 0, sizeof *view); /* compared as bytes */
  view->whole = text->length == 0;
  if (view->whole) return true;
  rest r = { text->text, text->text + text->length - 1 };
  if (*r.end == '}' && read_view(&r, text->at, view)) return true;
  return line_wrong(&p->line, text, EXPECTED);
}
