/*
 * Power throttling: a GPU whose kernels would draw more power than its limit lowers its clock until
 * they do not.
 *
 *     demand(window) = base + energy of kernels and collectives / time, at full clock
 *     excess         = (2 x demand(60 ms) + demand(1 s)) / 3 / limit - 1, at least 0
 *     a kernel takes (1 + slowdown x excess) of its time at full clock
 *
 * Power falls faster than the clock, because the voltage falls with it, so the slowdown is less
 * than demand over limit. Memory has a separate clock, so kernels that wait for it are slowed less.
 *
 * Measured on H200: after a wait of 100 ms, products keep the full clock for 40 ms and have lost 15
 * percent of it after 65 ms. After an optimizer step of 30 ms, which only moves bytes, they have
 * the full clock again for as long. Without waits they lose 20 percent, with swings of a second, so
 * a longer window counts too. The iteration is assumed to repeat. A GPU that waits, for copies or
 * for other ranks, draws less power, so the times come from a simulation at full clock.
 *
 * The windows slide: both end 5 ms after the time in question, because the clock also follows what
 * a GPU draws now. So equal micro-batches whose windows hold nothing else take equal time, wherever
 * they are in the step. Over a kernel's time its energy is spread evenly.
 *
 *     power_curve c = power_curve_new(step_ps);
 *     power_curve_add(&c, stream, begin_ps, end_ps, energy_nj);  // every kernel
 *     int64_t ppm = power_curve_excess_ppm(&c, m, at_ps);
 *     power_curve_free(&c);
 */
#ifndef OFFSIM_SIM_ENGINE_POWER_H
#define OFFSIM_SIM_ENGINE_POWER_H

#include <assert.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

#define POWER_FAST_PS (60 * PS_PER_MS)
#define POWER_SLOW_PS (1000 * PS_PER_MS)
/* The presets' slowdowns were measured with windows that reach 0 to 10 ms ahead. */
#define POWER_AHEAD_PS (5 * PS_PER_MS)

/* A kernel or collective, below called a kernel. */
typedef struct power_span {
  int64_t begin_ps, end_ps, energy_nj;
  int64_t before_nj; /* energy of its stream's earlier kernels, CAP at most */
} power_span;

/* Where the windows end, and where the two begin. */
typedef enum power_edge { EDGE_END, EDGE_FAST, EDGE_SLOW, POWER_EDGES } power_edge;

/* The kernels of a stream, in order. */
typedef struct power_spans {
  power_span *items;
  uint32_t count, capacity;
  int64_t nj;                  /* energy of them all, CAP at most */
  uint32_t begun[POWER_EDGES]; /* the kernels that had begun at the time that was last asked for */
} power_spans;

typedef struct power_curve {
  int64_t length_ps;
  power_spans streams[STREAM_HOST];
  uint8_t used[STREAM_HOST]; /* streams that have kernels */
  uint32_t used_count;
} power_curve;

/* A step of this length without kernels. */
power_curve power_curve_new(int64_t length_ps);
/* A kernel within the length, after the earlier ones of its stream. */
static inline void power_curve_add(power_curve *c, plan_stream stream, int64_t begin_ps,
                                   int64_t end_ps, int64_t energy_nj)
{
  power_spans *l = &c->streams[stream];
  assert(begin_ps <= end_ps && end_ps <= c->length_ps && energy_nj >= 0 && energy_nj <= CAP);
  assert((l->count == 0 || l->items[l->count - 1].end_ps <= begin_ps) &&
         "a stream runs one kernel at a time");
  if (l->count == 0) c->used[c->used_count++] = (uint8_t)stream;
  *ARRAY_PUSH(l) = (power_span){ begin_ps, end_ps, energy_nj, l->nj };
  l->nj = min_i64(CAP, l->nj + energy_nj);
}
/* The excess at a time of the step, in parts per million; 0 without a limit. Quick if the times that
 * are asked for move little from one to the next. */
int64_t power_curve_excess_ppm(power_curve *c, const machine *m, int64_t at_ps);
/* No less than the excess at any time from one to the other. */
int64_t power_curve_most_ppm(power_curve *c, const machine *m, int64_t from_ps, int64_t to_ps);
void power_curve_free(power_curve *c);

#endif
