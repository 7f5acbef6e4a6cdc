#include "traces/import/align_clocks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"

/* A collective or message of a rank; the same of all ranks have the same key and number. */
typedef struct met {
  uint32_t key, number; /* of all keys; among those of its key, from 0 */
  const real_meeting *of;
} met;

typedef struct met_list {
  met *items; /* by key, then number */
  uint32_t count;
} met_list;

typedef struct aligner {
  const real_run *const *runs;
  uint32_t count;
  met_list *lists; /* by run */
  intern_table keys;
  arena *memory;
} aligner;

/* What of the first's clock less the other's is possible. */
typedef struct bounds {
  int64_t least_ns, most_ns;
  uint32_t meetings, unmatched;
} bounds;

/* ---- what ranks have in common ---- */

static uint32_t key_of(aligner *x, const real_meeting *m)
{
  const char *text = arena_printf(x->memory, "%s|%s|%lld|%lld", m->group, m->name,
                                  (long long)m->from, (long long)m->to);
  return intern(&x->keys, text, strlen(text));
}

static int by_key(const void *left, const void *right)
{
  const met *a = left, *b = right;
  if (a->key != b->key) return a->key < b->key ? -1 : 1;
  if (a->of->begin_ns != b->of->begin_ns) return a->of->begin_ns < b->of->begin_ns ? -1 : 1;
  return (a->of > b->of) - (a->of < b->of);
}

static void list_meetings(aligner *x, uint32_t run)
{
  const real_meeting_array *from = &x->runs[run]->meetings;
  met_list *to = &x->lists[run];
  to->items = ARENA_ARRAY(x->memory, met, (size_t)from->count + 1);
  to->count = from->count;
  for (uint32_t i = 0; i < from->count; i++)
    to->items[i] = (met){ .key = key_of(x, &from->items[i]), .of = &from->items[i] };
  qsort(to->items, to->count, sizeof *to->items, by_key);
  for (uint32_t i = 1; i < to->count; i++)
    if (to->items[i].key == to->items[i - 1].key) to->items[i].number = to->items[i - 1].number + 1;
}

static uint32_t of_key(const met_list *l, uint32_t first)
{
  uint32_t i = first;
  while (i < l->count && l->items[i].key == l->items[first].key)
    i++;
  return i - first;
}

/* ---- two ranks ---- */

/* The clock that is added to `other` so that it is the one of `first`. */
static void add_bounds(bounds *b, const real_meeting *first, const real_meeting *other)
{
  bool first_sends = first->is_sender, other_sends = other->is_sender;
  if (!other_sends) /* the other's end comes after the first's begin */
    b->least_ns = max_i64(b->least_ns, first->begin_ns - other->end_ns);
  if (!first_sends) b->most_ns = min_i64(b->most_ns, first->end_ns - other->begin_ns);
  b->meetings++;
}

static bounds compare_two(const met_list *first, const met_list *other)
{
  bounds b = { .least_ns = INT64_MIN, .most_ns = INT64_MAX };
  uint32_t i = 0, j = 0;
  while (i < first->count && j < other->count) {
    uint32_t key = first->items[i].key, other_key = other->items[j].key;
    uint32_t count = of_key(first, i), other_count = of_key(other, j);
    if (key == other_key && count == other_count)
      for (uint32_t k = 0; k < count; k++)
        add_bounds(&b, first->items[i + k].of, other->items[j + k].of);
    else if (key == other_key)
      b.unmatched += count > other_count ? count - other_count : other_count - count;
    if (key <= other_key) i += count;
    if (other_key <= key) j += other_count;
  }
  return b;
}

static bool is_bounded(const bounds *b)
{
  return b->least_ns != INT64_MIN && b->most_ns != INT64_MAX;
}

static int64_t uncertainty_of(const bounds *b)
{
  int64_t length_ns = b->most_ns - b->least_ns;
  return (length_ns < 0 ? -length_ns : length_ns) / 2;
}

/* ---- all ---- */

/* Each rank by the path of least uncertainty to the first one. */
static void find_offsets(aligner *x, rank_clock *clocks)
{
  bool *done = ARENA_ARRAY(x->memory, bool, x->count);
  clocks[0].is_known = true;
  for (;;) {
    uint32_t nearest = x->count;
    for (uint32_t i = 0; i < x->count; i++)
      if (!done[i] && clocks[i].is_known &&
          (nearest == x->count || clocks[i].uncertainty_ns < clocks[nearest].uncertainty_ns))
        nearest = i;
    if (nearest == x->count) return;
    done[nearest] = true;
    for (uint32_t i = 0; i < x->count; i++) {
      if (done[i]) continue;
      bounds b = compare_two(&x->lists[nearest], &x->lists[i]);
      if (!is_bounded(&b)) continue;
      int64_t uncertainty_ns = clocks[nearest].uncertainty_ns + uncertainty_of(&b);
      if (clocks[i].is_known && clocks[i].uncertainty_ns <= uncertainty_ns) continue;
      clocks[i] = (rank_clock){ .is_known = true,
                                .offset_ns = clocks[nearest].offset_ns + b.least_ns +
                                             (b.most_ns - b.least_ns) / 2,
                                .uncertainty_ns = uncertainty_ns,
                                .drifts = clocks[nearest].drifts || b.most_ns < b.least_ns,
                                .via = nearest,
                                .meetings = b.meetings,
                                .unmatched = b.unmatched };
    }
  }
}

static bool has(const aligner *x, const rank_clock *clocks, uint32_t run, uint32_t key,
                const uint32_t *at)
{
  return clocks[run].is_known && at[run] < x->lists[run].count &&
         x->lists[run].items[at[run]].key == key;
}

/* How often all ranks with the key have it; 0: not as often as each other, or one rank has it. */
static uint32_t common_count(const aligner *x, const rank_clock *clocks, uint32_t key,
                             const uint32_t *at)
{
  uint32_t ranks = 0, count = 0;
  for (uint32_t r = 0; r < x->count; r++) {
    if (!has(x, clocks, r, key, at)) continue;
    uint32_t here = of_key(&x->lists[r], at[r]);
    if (ranks++ > 0 && here != count) return 0;
    count = here;
  }
  return ranks > 1 ? count : 0;
}

/* Until the last of these ranks begins its part. */
static void add_waits(const aligner *x, rank_clock *clocks, uint32_t key, const uint32_t *at)
{
  uint32_t count = common_count(x, clocks, key, at);
  for (uint32_t k = 0; k < count; k++) {
    int64_t last_ns = INT64_MIN;
    for (uint32_t r = 0; r < x->count; r++)
      if (has(x, clocks, r, key, at))
        last_ns = max_i64(last_ns, x->lists[r].items[at[r] + k].of->begin_ns + clocks[r].offset_ns);
    for (uint32_t r = 0; r < x->count; r++) {
      if (!has(x, clocks, r, key, at)) continue;
      const real_meeting *m = x->lists[r].items[at[r] + k].of;
      int64_t until_ns = min_i64(last_ns - clocks[r].offset_ns, m->end_ns);
      clocks[r].wait_ns += max_i64(0, until_ns - m->begin_ns);
    }
  }
}

static void find_waits(const aligner *x, rank_clock *clocks)
{
  uint32_t *at = ARENA_ARRAY(x->memory, uint32_t, x->count);
  for (uint32_t key = 0; key < x->keys.count; key++) {
    add_waits(x, clocks, key, at);
    for (uint32_t r = 0; r < x->count; r++)
      if (at[r] < x->lists[r].count && x->lists[r].items[at[r]].key == key)
        at[r] += of_key(&x->lists[r], at[r]);
  }
}

rank_clock *align_clocks(const real_run *const *runs, uint32_t count, arena *a)
{
  arena scratch = { 0 };
  aligner x = { .runs = runs, .count = count, .keys = { .memory = &scratch }, .memory = &scratch };
  rank_clock *clocks = ARENA_ARRAY(a, rank_clock, count);
  assert(count > 0);
  x.lists = ARENA_ARRAY(&scratch, met_list, count);
  for (uint32_t i = 0; i < count; i++)
    list_meetings(&x, i);
  find_offsets(&x, clocks);
  find_waits(&x, clocks);
  arena_release(&scratch);
  return clocks;
}
