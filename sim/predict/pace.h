/*
 * How fast a rank computes at best at the clock that power allows (sim/engine/power.h): the calls of its
 * compute stream back to back, in order, and what they gain by rests.
 *
 * Between them the GPU may rest: it waits, or calls run that draw less. A window that holds the rest
 * holds less of the calls, at most what the one that draws most would draw in this time. Calls that power
 * slows and whose windows hold the same rest take at most a window and a call together. Of these calls the
 * slowdowns have at most the mean of the worst such stretch. So a rest of t in which the GPU draws p
 * makes the calls shorter by at most
 *
 *   t x slowdown x (1 + longest slowed call / window) x (most power - p) / limit
 *
 * for windows that slide, and with the mean power and slowdown of the step for windows that are the
 * step.
 *
 * The engine finds the clock again until compute is at most ENGINE_BUSIER_PPM of the step busier: bounds are
 * less by as much.
 */
#ifndef OFFSIM_SIM_PREDICT_PACE_H
#define OFFSIM_SIM_PREDICT_PACE_H

#include "sim/engine/costs.h"

typedef struct call_run {
  const machine *machine;
  const call_cost **items; /* [count], in order */
  uint32_t count;
} call_run;

/* All kernels and collectives of the rank's compute stream; `costs`: by call. */
call_run call_run_of(const rank_plan *p, const call_cost *costs, const machine *m, arena *a);

/* The calls back to back, and how much they gain by rest. */
typedef struct paced {
  int64_t before_ps, after_ps; /* of the first ones, and of the others */
  int64_t step_ps, energy_nj;  /* at full clock */
  int64_t limit_mw;            /* 0: none */
  int64_t least_excess_ppm;    /* between any two calls */
  int64_t most_mw, mean_mw;
  int64_t mean_slowdown_ppm;  /* the most that a stretch or the step has */
  int64_t slide_slowdown_ppm; /* of calls whose windows hold the same time, over a window */
} paced;

/* `before`: the number of first ones. `slowed`: by power; otherwise at full clock. */
paced pace_of(const call_run *r, uint32_t before, bool slowed);

/* What calls gain at most by time between them in which the GPU draws `mw`, in parts per million of
 * this time. */
int64_t pace_rest_ppm(const paced *p, int64_t mw);

/* The least step with the calls, whatever rests are between them: without any, or, if calls gain more by a
 * rest than it takes, with one by which they have the full clock. */
int64_t pace_least_ps(const paced *p);

/* Up to which step the windows are those of the calls back to back. */
int64_t pace_holds_ps(const paced *p);

int64_t pace_milliwatts(int64_t nj, int64_t ps);
int64_t pace_slowdown_ps(const call_cost *c);
int64_t pace_less_busier_ps(int64_t ps);

#endif
