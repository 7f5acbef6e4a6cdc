/* Times of measured calls, and estimates for other calls (call_time.h). */
#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/machine/call_time.h"

enum { NEIGHBOURS = 4, FINE = 256 /* parts of an octave */, MILLION = 1000000 };

/* log2 of n >= 1 in parts of an octave: exact at powers of two, linear between them. */
static int64_t log2_of(int64_t n)
{
  int octave = 0;
  assert(n >= 1);
  while (n >> octave > 1)
    octave++;
  int64_t power = INT64_C(1) << octave;
  return octave * FINE + muldiv_i64(n - power, FINE, power);
}

static int64_t gap(int64_t a, int64_t b)
{
  int64_t d = log2_of(min_i64(a, CAP) + 1) - log2_of(min_i64(b, CAP) + 1);
  return d < 0 ? -d : d;
}

/* Scalars that differ count as two octaves: another layout, another function. */
static int64_t scalar_gap(double a, double b)
{
  return a == b ? 0 : 2 * FINE;
}

static bool same_kind(const plan_call *a, const plan_call *b)
{
  return a->is_collective == b->is_collective && a->kind == b->kind && a->dtype == b->dtype;
}

/* 0: the two calls cost the same. */
static int64_t distance(const plan_call *a, const plan_call *b)
{
  int64_t sum = gap(a->bytes, b->bytes) + gap(a->group_size, b->group_size) +
                gap(a->group_stride, b->group_stride);
  for (int i = 0; i < PLAN_DIMS; i++)
    sum += gap(a->dims[i], b->dims[i]);
  for (int i = 0; i < PLAN_SCALARS; i++)
    sum += scalar_gap(a->scalars[i], b->scalars[i]);
  return sum;
}

typedef struct neighbour {
  const measured_call *call;
  int64_t distance;
} neighbour;

/* Finds the nearest calls, in ascending order; equally near ones in the order of the file. */
static uint32_t find_neighbours(const measured_calls *all, const plan_call *c,
                                neighbour found[NEIGHBOURS])
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < all->count; i++) {
    if (!same_kind(&all->items[i].call, c)) continue;
    neighbour n = { &all->items[i], distance(&all->items[i].call, c) };
    uint32_t at = count;
    while (at > 0 && found[at - 1].distance > n.distance)
      at--;
    if (at == NEIGHBOURS) continue;
    if (count < NEIGHBOURS) count++;
    memmove(&found[at + 1], &found[at], (count - at - 1) * sizeof *found);
    found[at] = n;
  }
  return count;
}

/* The neighbours' means: ratio of measured to roofline time in parts per million, and slowdown. */
typedef struct correction {
  int64_t ppm, slowdown_permille;
} correction;

/* Only for distances above 0: a call at distance 0 is the call itself. */
static int64_t weight_of(const neighbour *n)
{
  assert(n->distance > 0);
  return max_i64(1, (INT64_C(1) << 40) / (n->distance * n->distance));
}

static correction correction_of(const neighbour *n, uint32_t count)
{
  int64_t weights = 0;
  correction sum = { 0, 0 };
  assert(count > 0 && count <= NEIGHBOURS);
  for (uint32_t i = 0; i < count; i++)
    weights += weight_of(&n[i]);
  for (uint32_t i = 0; i < count; i++) {
    const measured_call *c = n[i].call;
    sum.ppm +=
        capped_muldiv(capped_muldiv(c->ps, MILLION, c->roofline_ps), weight_of(&n[i]), weights);
    sum.slowdown_permille += muldiv_i64(c->slowdown_permille, weight_of(&n[i]), weights);
  }
  return sum;
}

call_time call_time_of(const machine *m, const plan_call *c)
{
  neighbour near[NEIGHBOURS];
  call_time time = { call_roofline_ps(m, c), call_slowdown_permille(m, c) };
  uint32_t count = m->measured == NULL ? 0 : find_neighbours(m->measured, c, near);
  if (count == 0 || time.ps == 0) return time;
  if (near[0].distance == 0)
    return (call_time){ near[0].call->ps, near[0].call->slowdown_permille };
  correction by = correction_of(near, count);
  return (call_time){ capped_muldiv(time.ps, by.ppm, MILLION), by.slowdown_permille };
}
