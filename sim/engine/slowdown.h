/*
 * What lengthens kernels beyond their time alone at full clock:
 *
 *   copies   that run at the same time use the same memory: a few permille to a few percent
 *            (sim/machine: link.*_slowdown_*), for the part of the kernel during which they run;
 *   collectives  by NVLink run on the same multiprocessors (sim/machine: nvlink.*_slowdown_*), and so
 *            does compute slow them, for the part of the time during which both run;
 *   power    throttling: the excess at that time (power.h) times the call's slowdown;
 *
 *   compute  has the multiprocessors: the GPU gives them to a kernel of another stream when it has given
 *            them to all blocks of the kernels before. Counted for kernels between copies, which
 *            keep a copy waiting;
 *
 * and what lengthens copies beyond their bytes at the link's rate: streams that wait.
 *
 * It seems that the GPU polls an event for which a stream waits. One such stream does no harm. If a
 * second stream other than compute has work too (it waits itself, or is in an exchange whose other
 * side is not ready), copies between GPU and host get slower, on H200 by 10 percent to the host and
 * 3 percent back, as long as that lasts. In pipelines with virtual stages and overlapped exchanges
 * that is nearly always so. docs/08-real-gpu.md describes the measurement.
 *
 * All of them come from a simulation without slowdowns. A lower clock makes kernels longer and copies not, so
 * compute may wait less for copies than at full clock: then it is busier, and draws more power, than
 * that simulation says. If so, the excess is found again from the slowed times, less what power adds to
 * compute's kernels (slowdown_follow).
 */
#ifndef OFFSIM_SIM_ENGINE_SLOWDOWN_H
#define OFFSIM_SIM_ENGINE_SLOWDOWN_H

#include "sim/base/arena.h"
#include "sim/engine/costs.h"
#include "sim/engine/op_times.h"
#include "sim/plan/plan.h"

/*
 * Turns of a rank that are all the same: on each stream that has ops in them, those from first[stream] to
 * `times` x `ops` further in the rank began and ended `ps` later than the ops `ops` before. Of other streams,
 * `first` is the first op after the turns, or beyond all ops; those before had ended by others_ps.
 */
typedef struct equal_turns {
  uint32_t streams; /* that have ops in the turns, a bit each */
  uint32_t first[STREAM_HOST];
  uint32_t ops, times; /* times == 0: there are none */
  int64_t ps;
  int64_t others_ps;
} equal_turns;

/*
 * Ops of equal turns that slowdown.c leaves out: on each stream `ops`, whole turns, from first[stream] on,
 * which is beyond all ops for streams without ops in the turns. What runs after them counts as `ps` earlier.
 */
typedef struct turn_cut {
  uint32_t first[STREAM_HOST];
  uint32_t lowest, highest; /* of `first`, within the rank; beyond all ops: nothing is left out */
  uint32_t ops;
  uint32_t turn; /* ops of a turn */
  int64_t ps;
} turn_cut;

/* A rank and its ops' times, in an iteration of step_ps. */
typedef struct rank_times {
  const plan *of;
  const rank_plan *plan;
  const call_cost *costs; /* by call */
  const op_times *ops;
  int64_t step_ps;
  const equal_turns *turns; /* NULL: not known */
  turn_cut cut;             /* turn_cut_of; .ops == 0: nothing is left out */
} rank_times;

/* In parts per million of an op's time alone (kernels: call_cost.ps, copies: host_copy_ps), by the row of the
 * op. */
typedef struct slowdown {
  int64_t *ppm;       /* all of it; NULL: no op is slowed */
  int64_t *power_ppm; /* the part of it that power throttling adds; NULL: it adds nothing */
  turn_cut cut;
} slowdown;

/* The row of an op of a stream: if it is left out, the row of its place in the last turn that is not. */
static inline uint32_t slowdown_row(const turn_cut *c, const rank_plan *p, uint32_t op)
{
  if (op < c->lowest) return op;
  if (op >= c->highest + c->ops) return op - c->ops;
  uint32_t first = c->first[p->ops.items[op].stream];
  if (op < first) return op;
  return op - first >= c->ops ? op - c->ops : first - c->turn + (op - first) % c->turn;
}

static inline int64_t slowdown_ppm(const slowdown *s, const rank_plan *p, uint32_t op)
{
  return s->ppm[slowdown_row(&s->cut, p, op)];
}

/* What may be left out of the rank. */
turn_cut turn_cut_of(const rank_times *u);

/* `u`: times without slowdowns. */
slowdown slowdown_at_full_clock(const rank_times *u, const machine *m, arena *a);

/* Replaces the part of power throttling. `slowed`: the times that `s` led to. `a` lives as long as `s`. */
void slowdown_follow(slowdown *s, const rank_times *slowed, const machine *m, arena *a);

#endif
