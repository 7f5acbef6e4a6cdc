/*
 * Kernels run slower than alone while copies use the same memory, by a few permille to a few percent
 * (sim/machine: link.*_slowdown_*; for want of power: power.h). Which kernel meets which copy is not
 * followed; every kernel of a rank gets the average over the iteration, that is, the share of its
 * compute time in which copies run: bytes over the rate that all ranks of the host leave each other,
 * at most all of it.
 */
#ifndef OFFSIM_SIM_ENGINE_SLOWDOWN_H
#define OFFSIM_SIM_ENGINE_SLOWDOWN_H

#include "sim/base/arena.h"
#include "sim/engine/durations.h"
#include "sim/plan/plan.h"

/* What a rank computes and copies in one iteration: the sum over its ops. */
typedef struct rank_load {
  int64_t d2h_bytes, h2d_bytes;
  int64_t compute_ps;     /* of the kernels on the compute stream, alone at full clock */
} rank_load;

/* Adds one op; inline because the engine goes through all ops anyway. */
static inline void load_add(rank_load *load, const rank_plan *p, const plan_op *o,
                            const call_cost *costs)
{
  if (o->kind == OP_KERNEL && o->stream == STREAM_COMPUTE)
    load->compute_ps += costs[o->arg].ps;
  if (o->kind == OP_D2H)
    load->d2h_bytes += copy_host_buffer(p, o)->bytes;
  else if (o->kind == OP_H2D)
    load->h2d_bytes += copy_host_buffer(p, o)->bytes;
}

/* By call, for rank `rank`: how long it takes under that load. */
const int64_t *slowed_durations(const plan *p, const machine *m, const rank_place *places, uint32_t rank,
                                const rank_load *load, const call_cost *costs, arena *a);

#endif
