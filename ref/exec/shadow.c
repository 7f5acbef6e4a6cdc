#include "ref/exec/shadow.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/exec/runs.h"

enum { WORD_BITS = 64 };

static int64_t words_of(int64_t bytes)
{
  assert(bytes >= 0);
  return (bytes + WORD_BITS - 1) / WORD_BITS;
}

bool shadow_new(shadow *s, int64_t bytes)
{
  assert(bytes >= 0);
  *s = (shadow){ .bytes = bytes };
  s->bits = calloc((size_t)words_of(bytes) + 1, sizeof *s->bits);
  return s->bits != NULL;
}

void shadow_release(shadow *s)
{
  assert(s->set <= s->bytes && (s->bits != NULL || s->set == 0));
  free(s->bits);
  *s = (shadow){ 0 };
}

void shadow_clear(shadow *s)
{
  assert(s->set >= 0 && s->set <= s->bytes);
  memset(s->bits, 0, (size_t)words_of(s->bytes) * sizeof *s->bits);
  s->set = 0;
}

/* Bits from .. to of one word, both in 0 .. 64. */
static uint64_t mask_of(int64_t from, int64_t to)
{
  assert(from >= 0 && from <= to && to <= WORD_BITS);
  uint64_t below = to == WORD_BITS ? UINT64_MAX : (UINT64_C(1) << to) - 1;
  return below & ~((UINT64_C(1) << from) - 1);
}

void shadow_mark(shadow *s, int64_t from, int64_t bytes)
{
  assert(from >= 0 && bytes >= 0 && from + bytes <= s->bytes);
  if (s->set == s->bytes) return;
  for (int64_t at = from, end = from + bytes; at < end;) {
    int64_t word = at / WORD_BITS, stop = min_i64(end, (word + 1) * WORD_BITS);
    uint64_t more = mask_of(at % WORD_BITS, stop - word * WORD_BITS) & ~s->bits[word];
    s->bits[word] |= more;
    s->set += __builtin_popcountll(more);
    at = stop;
  }
  assert(s->set <= s->bytes);
}

/* The first unwritten byte of the range; -1: there is none. */
static int64_t first_unwritten(const shadow *s, int64_t from, int64_t bytes)
{
  assert(from >= 0 && bytes >= 0 && from + bytes <= s->bytes);
  if (s->set == s->bytes) return -1;
  for (int64_t at = from, end = from + bytes; at < end;) {
    int64_t word = at / WORD_BITS, stop = min_i64(end, (word + 1) * WORD_BITS);
    uint64_t missing = mask_of(at % WORD_BITS, stop - word * WORD_BITS) & ~s->bits[word];
    if (missing != 0) return word * WORD_BITS + __builtin_ctzll(missing);
    at = stop;
  }
  return -1;
}

void shadow_mark_view(shadow *s, const plan_view *v)
{
  assert(v->offset >= 0 && v->rank <= PLAN_VIEW_DIMS);
  if (s->set == s->bytes) return;
  int64_t size = dtype_bytes((dtype)v->dtype), at;
  for (view_runs w = runs_of(v); runs_next(&w, &at);)
    shadow_mark(s, at * size, w.length * size);
}

int64_t shadow_first_unwritten_of(const shadow *s, const plan_view *v)
{
  if (s->set == s->bytes) return -1;
  int64_t size = dtype_bytes((dtype)v->dtype), at;
  for (view_runs w = runs_of(v); runs_next(&w, &at);) {
    int64_t byte = first_unwritten(s, at * size, w.length * size);
    assert(byte < 0 || (byte >= at * size && byte < (at + w.length) * size));
    if (byte >= 0) return byte / size;
  }
  return -1;
}
