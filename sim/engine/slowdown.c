#include "sim/engine/slowdown.h"

#include "sim/base/units.h"
#include "sim/engine/power.h"
#include "sim/engine/waiting.h"
#include "sim/machine/roofline.h"

enum { PPM_OF_PERMILLE = 1000, MILLION = 1000000 };

/* ---- copies ---------------------------------------------------------------------------------- */

static uint32_t count_of(const undisturbed *u, op_kind kind)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < u->plan->ops.count; i++)
    count += u->plan->ops.items[i].kind == kind;
  return count;
}

/* Copies of one direction: one after the other, as the copy engine takes them. */
static span_list copies_of(const undisturbed *u, op_kind kind, arena *a)
{
  span_list l = { .items = ARENA_ARRAY(a, span, count_of(u, kind)) };
  for (uint32_t i = 0; i < u->plan->ops.count; i++)
    if (u->plan->ops.items[i].kind == kind)
      l.items[l.count++] = (span){ u->start_ps[i], u->end_ps[i] };
  spans_sort(&l);
  return l;
}

/* Parts per million of each kernel that meet the copies, times what these cost it. */
static bool add_copies(int64_t *ppm, const undisturbed *u, op_kind kind, const span_list *copies)
{
  bool adds = false;
  for (uint32_t i = 0; i < u->plan->ops.count && copies->count > 0; i++) {
    const plan_op *o = &u->plan->ops.items[i];
    int64_t ps = u->end_ps[i] - u->start_ps[i];
    if (o->kind != OP_KERNEL || ps == 0) continue;
    const call_cost *c = &u->costs[o->arg];
    int64_t permille = kind == OP_D2H ? c->d2h_permille : c->h2d_permille;
    int64_t meets_ps = spans_meet_ps(copies, u->start_ps[i], u->end_ps[i]);
    int64_t more = muldiv_i64(meets_ps, permille * PPM_OF_PERMILLE, ps);
    ppm[i] += more;
    adds |= more > 0;
  }
  return adds;
}

/* ---- streams that wait ------------------------------------------------------------------------ */

/* What other GPUs hold up more than that takes no longer. */
static int64_t copy_slowdown_ppm(const undisturbed *u, const machine *m, uint32_t op,
                                 const span_list *waiting)
{
  const plan_op *o = &u->plan->ops.items[op];
  bool out = o->kind == OP_D2H;
  int64_t permille =
      out ? m->link.waiting_slowdown_d2h_permille : m->link.waiting_slowdown_h2d_permille;
  int64_t taken_ps = u->end_ps[op] - u->start_ps[op];
  int64_t alone_ps = host_copy_ps(m, copy_host_buffer(u->plan, o)->bytes, out);
  if (taken_ps == 0) return 0;
  int64_t meets_ps = spans_meet_ps(waiting, u->start_ps[op], u->end_ps[op]);
  int64_t ppm = muldiv_i64(meets_ps, permille * PPM_OF_PERMILLE, taken_ps);
  int64_t more_ps = alone_ps + muldiv_i64(alone_ps, ppm, MILLION) - taken_ps;
  return more_ps > 0 ? muldiv_i64(more_ps, MILLION, alone_ps) : 0;
}

static bool add_waiting(int64_t *ppm, const undisturbed *u, const machine *m, arena *a)
{
  bool adds = false;
  span_list waiting = waiting_spans(u, a);
  for (uint32_t i = 0; i < u->plan->ops.count && waiting.count > 0; i++) {
    op_kind kind = (op_kind)u->plan->ops.items[i].kind;
    if (kind != OP_D2H && kind != OP_H2D) continue;
    ppm[i] = copy_slowdown_ppm(u, m, i, &waiting);
    adds |= ppm[i] > 0;
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
  span_list out = copies_of(u, OP_D2H, a), back = copies_of(u, OP_H2D, a);
  bool slowed = add_copies(ppm, u, OP_D2H, &out);
  slowed |= add_copies(ppm, u, OP_H2D, &back);
  if (out.count + back.count > 0) slowed |= add_waiting(ppm, u, m, a);
  slowed |= add_power(ppm, u, m, a);
  return slowed ? ppm : NULL;
}
