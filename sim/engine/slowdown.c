#include "sim/engine/slowdown.h"

#include <stdlib.h>

#include "sim/base/units.h"
#include "sim/engine/power.h"

enum { PPM_OF_PERMILLE = 1000 };

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct span {
  int64_t begin_ps, end_ps;
} span;

/* Copies of one direction: one after the other, as the copy engine takes them. */
typedef struct span_list {
  span *items;
  uint32_t count;
} span_list;

static int by_begin(const void *left, const void *right)
{
  const span *a = left, *b = right;
  return (a->begin_ps > b->begin_ps) - (a->begin_ps < b->begin_ps);
}

static uint32_t count_of(const undisturbed *u, op_kind kind)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < u->plan->ops.count; i++)
    count += u->plan->ops.items[i].kind == kind;
  return count;
}

static span_list copies_of(const undisturbed *u, op_kind kind, arena *a)
{
  span_list l = { .items = ARENA_ARRAY(a, span, count_of(u, kind)) };
  for (uint32_t i = 0; i < u->plan->ops.count; i++)
    if (u->plan->ops.items[i].kind == kind)
      l.items[l.count++] = (span){ u->start_ps[i], u->end_ps[i] };
  if (l.count > 0) qsort(l.items, l.count, sizeof *l.items, by_begin);
  return l;
}

/* The first one that is not over at a time. */
static uint32_t first_after(const span_list *l, int64_t at_ps)
{
  uint32_t low = 0, high = l->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (l->items[middle].end_ps > at_ps)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static int64_t meets_ps(const span_list *l, int64_t begin_ps, int64_t end_ps)
{
  int64_t ps = 0;
  for (uint32_t i = first_after(l, begin_ps); i < l->count && l->items[i].begin_ps < end_ps; i++)
    ps += min_i64(end_ps, l->items[i].end_ps) - max_i64(begin_ps, l->items[i].begin_ps);
  return ps;
}

/* Parts per million of each kernel that meet the copies, times what these cost it. */
static bool add_copies(int64_t *ppm, const undisturbed *u, op_kind kind, arena *a)
{
  bool adds = false;
  span_list l = copies_of(u, kind, a);
  for (uint32_t i = 0; i < u->plan->ops.count && l.count > 0; i++) {
    const plan_op *o = &u->plan->ops.items[i];
    int64_t ps = u->end_ps[i] - u->start_ps[i];
    if (o->kind != OP_KERNEL || ps == 0) continue;
    const call_cost *c = &u->costs[o->arg];
    int64_t permille = kind == OP_D2H ? c->d2h_permille : c->h2d_permille;
    int64_t more =
        muldiv_i64(meets_ps(&l, u->start_ps[i], u->end_ps[i]), permille * PPM_OF_PERMILLE, ps);
    ppm[i] += more;
    adds |= more > 0;
  }
  return adds;
}

/* ---- power ----------------------------------------------------------------------------------- */

static bool add_power(int64_t *ppm, const undisturbed *u, const machine *m, arena *a)
{
  const op_array *ops = &u->plan->ops;
  power_curve curve;
  if (m->gpu.power_limit_w == 0) return false;
  power_curve_new(&curve, u->step_ps, a);
  for (uint32_t i = 0; i < ops->count; i++)
    if (ops->items[i].kind == OP_KERNEL)
      power_curve_add(&curve, u->start_ps[i], u->end_ps[i],
                      u->costs[ops->items[i].arg].energy_nj);
  if (!power_curve_settle(&curve, m)) return false;
  for (uint32_t i = 0; i < ops->count; i++)
    if (ops->items[i].kind == OP_KERNEL)
      ppm[i] += muldiv_i64(power_curve_excess_ppm(&curve, u->start_ps[i]),
                           u->costs[ops->items[i].arg].power_permille, 1000);
  return true;
}

const int64_t *slowdown_ppm(const undisturbed *u, const machine *m, arena *a)
{
  int64_t *ppm = ARENA_ARRAY(a, int64_t, u->plan->ops.count);
  bool out = add_copies(ppm, u, OP_D2H, a), back = add_copies(ppm, u, OP_H2D, a);
  return add_power(ppm, u, m, a) || out || back ? ppm : NULL;
}
