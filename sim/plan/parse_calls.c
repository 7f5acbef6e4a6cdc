#include "sim/plan/parser.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/plan/text.h"
#include "sim/plan/words.h"

#define X(id, name, ...) name,
static const char *const kernel_names[] = { PLAN_KERNELS(X) };
static const char *const collective_names[] = { PLAN_COLLECTIVES(X) };
static const char *const group_names[] = { PLAN_GROUPS(X) };
#undef X

/* ---- kernels and collectives ---------------------------------------------------------------- */

/* The type of a call; without one it is plain bytes. */
static void read_call_type(parser *p, plan_call *call)
{
  plan_word w = line_peek(&p->line);
  dtype type = word_dtype(&w);
  if (type == DTYPES) return;
  call->dtype = (uint8_t)type;
  line_word(&p->line);
}

static bool wrong_letter(parser *p, const plan_call *call, const plan_word *found)
{
  shape_letters letters = kernel_letters((kernel_kind)call->kind);
  char expected[200] = "sizes by the letters";
  size_t used = strlen(expected);
  for (uint32_t i = 0; i < letters.count; i++)
    used += (size_t)snprintf(expected + used, sizeof expected - used, " %.*s",
                             (int)letters.length[i], letters.text[i]);
  snprintf(expected + used, sizeof expected - used, ", each once, such as %.*s=64",
           (int)letters.length[0], letters.text[0]);
  return line_wrong(&p->line, found, expected);
}

/* A finite number other than 0, as printf writes it. */
static bool read_scalar(const char *text, size_t length, double *value)
{
  char copy[40];
  char *end;
  if (length == 0 || length >= sizeof copy || strchr("+-.0123456789", *text) == NULL) return false;
  memcpy(copy, text, length);
  copy[length] = '\0';
  *value = strtod(copy, &end);
  return *end == '\0' && isfinite(*value) && *value != 0;
}

/* "m=4096", "epsilon=1.0e-05" */
static bool read_dimension(parser *p, plan_call *call, const char *equals)
{
  plan_word w = line_word(&p->line);
  size_t name = (size_t)(equals - w.text), length = w.length - name - 1;
  assert(name < w.length && *equals == '=');
  shape_letters letters = kernel_letters((kernel_kind)call->kind);
  uint32_t i = 0;
  while (i < letters.count &&
         (letters.length[i] != name || memcmp(letters.text[i], w.text, name) != 0))
    i++;
  if (i < letters.dims && call->dims[i] == 0 &&
      text_number(equals + 1, length, INT64_MAX, &call->dims[i]))
    return true;
  double *scalar = i < letters.count && i >= letters.dims ? &call->scalars[i - letters.dims] : NULL;
  if (scalar != NULL && *scalar == 0 && read_scalar(equals + 1, length, scalar)) return true;
  return wrong_letter(p, call, &w);
}

bool parse_kernel(parser *p, plan_call *call)
{
  uint32_t kind;
  if (!line_choice(&p->line, "a kernel of docs/reference/plan.md", kernel_names, KERNEL_KINDS,
                   &kind))
    return false;
  assert(!call->is_collective && call->bytes == 0);
  call->kind = (uint8_t)kind;
  read_call_type(p, call);
  for (;;) {
    plan_word w = line_peek(&p->line);
    const char *equals = memchr(w.text, '=', w.length);
    if (equals == NULL) return line_bytes(&p->line, &call->bytes);
    if (!read_dimension(p, call, equals)) return false;
  }
}

static bool names_collective(const plan_word *w)
{
  for (uint32_t i = 0; i < COLLECTIVE_KINDS; i++)
    if (word_is(w, collective_names[i])) return true;
  return false;
}

bool plan_parse_call(plan_call *call, const char *text, source_pos at, const char **rest, diag *d)
{
  parser p = { .d = d, .line = { .next = text, .end = text + strlen(text), .at = at, .d = d } };
  plan_word first = line_peek(&p.line);
  memset(call, 0, sizeof *call);
  bool ok = names_collective(&first) ? parse_collective(&p, call) : parse_kernel(&p, call);
  *rest = p.line.next;
  assert(text <= *rest && *rest <= p.line.end);
  return ok;
}

/* "once 4096", or of a shift "by 1". */
static bool read_detail(parser *p, collective_kind kind, int64_t ranks, int64_t *detail)
{
  const char *word = collective_detail(kind);
  plan_word next = line_peek(&p->line);
  if (kind != COLLECTIVE_SHIFT && !word_is(&next, word)) return true;
  bool shifts = kind == COLLECTIVE_SHIFT;
  return line_expect(&p->line, word) &&
         line_number(&p->line,
                     shifts ? "a number below that of the ranks" : "the bytes of the tokens, once",
                     1, shifts ? max_i64(1, ranks - 1) : INT64_MAX, detail);
}

bool parse_collective(parser *p, plan_call *call)
{
  uint32_t kind, group;
  int64_t size, stride;
  if (!line_choice(&p->line, "a collective", collective_names, COLLECTIVE_KINDS, &kind))
    return false;
  read_call_type(p, call);
  if (!line_choice(&p->line, "a process group", group_names, COMM_GROUPS, &group) ||
      !line_expect(&p->line, "of") ||
      !line_number(&p->line, "the number of ranks in the group", 0, UINT32_MAX, &size) ||
      !line_expect(&p->line, "stride") ||
      !line_number(&p->line, "the distance between members of the group", 0, UINT32_MAX, &stride))
    return false;
  if (!read_detail(p, (collective_kind)kind, size, &call->dims[COLLECTIVE_DETAIL]) ||
      !line_bytes(&p->line, &call->bytes))
    return false;
  call->is_collective = 1;
  call->kind = (uint8_t)kind;
  call->group = (uint8_t)group;
  call->group_size = (uint32_t)size;
  call->group_stride = (uint32_t)stride;
  return true;
}

/* ---- views ---------------------------------------------------------------------------------- */

#define EXPECTED_VIEW                                                                              \
  "a buffer or a part of one, such as %0, %0{fp32+1024:4096x8/3072x1} or %0{bf16+8:2x4@4}"

/* The unread part of a word. */
typedef struct rest {
  const char *next, *end;
} rest;

/* Reads a number up to one of `stops`, or the end. */
static bool read_count(rest *r, const char *stops, int64_t *count)
{
  const char *from = r->next;
  assert(from <= r->end);
  while (r->next < r->end && strchr(stops, *r->next) == NULL)
    r->next++;
  return text_number(from, (size_t)(r->next - from), INT64_MAX, count);
}

static bool skip(rest *r, char sign)
{
  assert(r->next <= r->end);
  if (r->next == r->end || *r->next != sign) return false;
  r->next++;
  return true;
}

/* Elements may be in descending order: "-3072". */
static bool read_stride(rest *r, int64_t *stride)
{
  bool down = skip(r, '-');
  if (!read_count(r, "x/@", stride) || (down && *stride == 0)) return false;
  if (down) *stride = -*stride;
  assert(down == (*stride < 0));
  return true;
}

/* "4096x8", after `before`; `*count`: 0, or the required number of sizes. */
static bool read_sizes(rest *r, char before, int64_t *sizes, uint8_t *count)
{
  uint8_t found = 0;
  assert((before == ':' || before == '/') && *count <= PLAN_VIEW_DIMS);
  do {
    if (!skip(r, found == 0 ? before : 'x') || found == PLAN_VIEW_DIMS ||
        !(before == '/' ? read_stride(r, &sizes[found]) : read_count(r, "x/@", &sizes[found])))
      return false;
    found++;
  } while (r->next < r->end && *r->next == 'x');
  bool right = *count == 0 || *count == found;
  *count = found;
  return right;
}

/* Makes the view contiguous. False: its number of elements overflows int64. */
static bool without_gaps(plan_view *v)
{
  int64_t next = 1;
  assert(v->rank <= PLAN_VIEW_DIMS);
  for (int i = v->rank; i-- > 0;) {
    v->strides[i] = next;
    if (__builtin_mul_overflow(next, v->shape[i], &next)) return false;
  }
  assert(view_is_contiguous(v));
  return true;
}

/* "@4": the number of ranks. */
static bool read_turn(rest *r, uint8_t *ranks)
{
  int64_t count;
  if (!skip(r, '@') || !read_count(r, "", &count) || count < 2 || count > UINT8_MAX) return false;
  *ranks = (uint8_t)count;
  return true;
}

static bool read_view(rest *r, source_pos at, plan_view *v)
{
  const char *plus = memchr(r->next, '+', (size_t)(r->end - r->next));
  assert(v->rank == 0 && !v->whole);
  if (!skip(r, '{') || plus == NULL) return false;
  plan_word type = { r->next, (size_t)(plus - r->next), at };
  v->dtype = (uint8_t)word_dtype(&type);
  r->next = plus + 1;
  if (v->dtype == DTYPES || !read_count(r, ":", &v->offset)) return false;
  if (r->next == r->end) return true; /* one element */
  if (!read_sizes(r, ':', v->shape, &v->rank) || !without_gaps(v)) return false;
  if (r->next < r->end && *r->next == '/' && !read_sizes(r, '/', v->strides, &v->rank))
    return false;
  return r->next == r->end || (read_turn(r, &v->turned) && r->next == r->end);
}

bool parse_view(parser *p, const plan_word *text, plan_view *view)
{
  memset(view, 0, sizeof *view); /* compared as bytes */
  view->whole = text->length == 0;
  if (view->whole) return true;
  assert(text->length > 0);
  rest r = { text->text, text->text + text->length - 1 };
  if (*r.end == '}' && read_view(&r, text->at, view)) return true;
  return line_wrong(&p->line, text, EXPECTED_VIEW);
}
