#include "traces/import/align_copies.h"

#include <stdlib.h>

enum { MOST_CELLS = 1 << 24 };

/* A copy of a list, to be sorted. */
typedef struct key {
  int64_t bytes;
  uint32_t pass, index;
} key;

static int by_size(const void *left, const void *right)
{
  const key *a = left, *b = right;
  if (a->pass != b->pass) return a->pass < b->pass ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return (a->index > b->index) - (a->index < b->index);
}

typedef struct aligner {
  const copy_list *lists[SIDES];
  uint32_t *partner[SIDES]; /* by index: of the other list, or REAL_NONE */
  bool *in_order;           /* [predicted] */
  arena *memory;
} aligner;

/* Copies without a partner, by pass (unless all passes count as one), size and order. */
static key *sorted_keys(const aligner *x, int side, bool within_pass, uint32_t *count)
{
  const copy_list *l = x->lists[side];
  key *keys = ARENA_ARRAY(x->memory, key, (size_t)l->count + 1);
  *count = 0;
  for (uint32_t i = 0; i < l->count; i++)
    if (x->partner[side][i] == REAL_NONE)
      keys[(*count)++] = (key){ l->items[i].bytes, within_pass ? l->items[i].pass : 0, i };
  qsort(keys, *count, sizeof *keys, by_size);
  return keys;
}

static void pair_up(aligner *x, bool within_pass)
{
  uint32_t counts[SIDES], i = 0, j = 0;
  const key *p = sorted_keys(x, SIDE_PREDICTED, within_pass, &counts[SIDE_PREDICTED]);
  const key *m = sorted_keys(x, SIDE_MEASURED, within_pass, &counts[SIDE_MEASURED]);
  while (i < counts[SIDE_PREDICTED] && j < counts[SIDE_MEASURED]) {
    key a = p[i], b = m[j];
    a.index = b.index = 0;
    int order = by_size(&a, &b);
    if (order == 0) {
      x->partner[SIDE_PREDICTED][p[i].index] = m[j].index;
      x->partner[SIDE_MEASURED][m[j].index] = p[i].index;
    }
    i += order <= 0;
    j += order >= 0;
  }
}

/* ---- the longest common sequence of a pass ---- */

/* A pass's copies of both lists: their indexes, in order. */
typedef struct group {
  const uint32_t *index[SIDES];
  uint32_t count[SIDES];
} group;

static int64_t bytes_at(const aligner *x, const group *g, int side, uint32_t i)
{
  return x->lists[side]->items[g->index[side][i]].bytes;
}

static bool equal_at(const aligner *x, const group *g, uint32_t i, uint32_t j)
{
  return bytes_at(x, g, SIDE_PREDICTED, i) == bytes_at(x, g, SIDE_MEASURED, j);
}

static void pair_at(aligner *x, const group *g, uint32_t i, uint32_t j)
{
  uint32_t p = g->index[SIDE_PREDICTED][i], m = g->index[SIDE_MEASURED][j];
  x->partner[SIDE_PREDICTED][p] = m;
  x->partner[SIDE_MEASURED][m] = p;
  x->in_order[p] = true;
}

/* Takes the copies that both begin or end with, which most passes consist of. */
static void pair_ends(aligner *x, group *g)
{
  while (g->count[0] > 0 && g->count[1] > 0 && equal_at(x, g, 0, 0)) {
    pair_at(x, g, 0, 0);
    for (int side = 0; side < SIDES; side++) {
      g->index[side]++;
      g->count[side]--;
    }
  }
  while (g->count[0] > 0 && g->count[1] > 0 && equal_at(x, g, g->count[0] - 1, g->count[1] - 1)) {
    pair_at(x, g, g->count[0] - 1, g->count[1] - 1);
    g->count[0]--;
    g->count[1]--;
  }
}

/* By dynamic programming: longest[i][j] is of what follows i and j. */
static void pair_longest(aligner *x, const group *g)
{
  size_t rows = g->count[SIDE_PREDICTED], columns = (size_t)g->count[SIDE_MEASURED] + 1;
  arena scratch = { 0 };
  if (rows * columns > MOST_CELLS) return; /* by size alone, then */
  uint32_t *longest = ARENA_ARRAY(&scratch, uint32_t, (rows + 1) * columns);
  for (size_t i = rows; i-- > 0;)
    for (size_t j = columns - 1; j-- > 0;) {
      uint32_t down = longest[(i + 1) * columns + j], right = longest[i * columns + j + 1];
      bool equal = equal_at(x, g, (uint32_t)i, (uint32_t)j);
      uint32_t skip = down > right ? down : right, take = longest[(i + 1) * columns + j + 1] + 1;
      longest[i * columns + j] = equal && take > skip ? take : skip;
    }
  for (size_t i = 0, j = 0; i < rows && j + 1 < columns;) {
    uint32_t down = longest[(i + 1) * columns + j], right = longest[i * columns + j + 1];
    if (equal_at(x, g, (uint32_t)i, (uint32_t)j) &&
        longest[i * columns + j] == longest[(i + 1) * columns + j + 1] + 1)
      pair_at(x, g, (uint32_t)i++, (uint32_t)j++);
    else if (down >= right)
      i++;
    else
      j++;
  }
  arena_release(&scratch);
}

static int by_pass(const void *left, const void *right)
{
  const key *a = left, *b = right;
  if (a->pass != b->pass) return a->pass < b->pass ? -1 : 1;
  return (a->index > b->index) - (a->index < b->index);
}

/* The indexes of a list, pass by pass; `passes` of each. */
static uint32_t *sorted_by_pass(const aligner *x, int side, uint32_t **passes)
{
  const copy_list *l = x->lists[side];
  key *keys = ARENA_ARRAY(x->memory, key, (size_t)l->count + 1);
  uint32_t *index = ARENA_ARRAY(x->memory, uint32_t, (size_t)l->count + 1);
  *passes = ARENA_ARRAY(x->memory, uint32_t, (size_t)l->count + 1);
  for (uint32_t i = 0; i < l->count; i++)
    keys[i] = (key){ 0, l->items[i].pass, i };
  qsort(keys, l->count, sizeof *keys, by_pass);
  for (uint32_t i = 0; i < l->count; i++) {
    index[i] = keys[i].index;
    (*passes)[i] = keys[i].pass;
  }
  return index;
}

static void pair_in_order(aligner *x)
{
  uint32_t *passes[SIDES], *index[SIDES], at[SIDES] = { 0, 0 };
  for (int side = 0; side < SIDES; side++)
    index[side] = sorted_by_pass(x, side, &passes[side]);
  while (at[0] < x->lists[0]->count && at[1] < x->lists[1]->count) {
    uint32_t pass = passes[0][at[0]] < passes[1][at[1]] ? passes[0][at[0]] : passes[1][at[1]];
    group g = { .count = { 0 } };
    for (int side = 0; side < SIDES; side++) {
      g.index[side] = index[side] + at[side];
      while (at[side] < x->lists[side]->count && passes[side][at[side]] == pass) {
        at[side]++;
        g.count[side]++;
      }
    }
    pair_ends(x, &g);
    pair_longest(x, &g);
  }
}

/* ---- findings ---- */

static copy_finding finding_of(const listed_copy *p, const listed_copy *m, bool in_order)
{
  if (p->pass != m->pass) return m->pass < p->pass ? COPY_EARLY : COPY_LATE;
  return in_order ? COPY_SAME : COPY_REORDERED;
}

static void put(direction_comparison *d, const compared_copy *copy)
{
  d->copies[d->copy_count++] = *copy;
  d->found[copy->finding]++;
}

static void put_all(const aligner *x, direction_comparison *d)
{
  const copy_list *p = x->lists[SIDE_PREDICTED], *m = x->lists[SIDE_MEASURED];
  for (uint32_t i = 0; i < p->count; i++) {
    const listed_copy *from = &p->items[i];
    uint32_t j = x->partner[SIDE_PREDICTED][i];
    compared_copy copy = { .finding = COPY_MISSING,
                           .bytes = from->bytes,
                           .op = from->at,
                           .span = REAL_NONE,
                           .pass = { from->pass, REAL_NONE } };
    if (j != REAL_NONE) {
      copy.finding = finding_of(from, &m->items[j], x->in_order[i]);
      copy.span = m->items[j].at;
      copy.pass[SIDE_MEASURED] = m->items[j].pass;
      d->count[SIDE_MEASURED] += m->items[j].optional;
      d->bytes[SIDE_MEASURED] += m->items[j].optional ? m->items[j].bytes : 0;
    }
    put(d, &copy);
  }
  for (uint32_t j = 0; j < m->count; j++)
    if (x->partner[SIDE_MEASURED][j] == REAL_NONE && !m->items[j].optional)
      put(d, &(compared_copy){ .finding = COPY_ADDITIONAL,
                               .bytes = m->items[j].bytes,
                               .op = REAL_NONE,
                               .span = m->items[j].at,
                               .pass = { REAL_NONE, m->items[j].pass } });
}

void align_copies(const copy_list *predicted, const copy_list *measured, direction_comparison *d,
                  arena *a)
{
  aligner x = { .lists = { predicted, measured }, .memory = a };
  for (int side = 0; side < SIDES; side++) {
    x.partner[side] = ARENA_ARRAY(a, uint32_t, (size_t)x.lists[side]->count + 1);
    for (uint32_t i = 0; i < x.lists[side]->count; i++)
      x.partner[side][i] = REAL_NONE;
  }
  x.in_order = ARENA_ARRAY(a, bool, (size_t)predicted->count + 1);
  pair_in_order(&x);
  pair_up(&x, true);
  pair_up(&x, false);
  d->copies = ARENA_ARRAY(a, compared_copy, (size_t)predicted->count + measured->count + 1);
  put_all(&x, d);
}
