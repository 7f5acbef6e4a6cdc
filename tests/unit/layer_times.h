/* For tests of systems that move whole layers: one rank of a small model with LAYERS equal layers, and the
 * times of these on machine `ideal`. */
#ifndef OFFSIM_TESTS_UNIT_LAYER_TIMES_H
#define OFFSIM_TESTS_UNIT_LAYER_TIMES_H

#include "tests/unit/small_runs.h"

#include "sim/engine/engine.h"
#include "sim/engine/replay.h"
#include "tests/unit/small_plan.h"

enum { LAYERS = 6, FORWARD = 0, BACKWARD = 1, OUTSIDE = -1 };

static inline int32_t layer_of(const run *r, const plan_op *o)
{
  return r->plan->sites.items[o->site].layer;
}

typedef struct passes {
  int64_t begin_ps[2], end_ps[2]; /* of the layers' kernels, each pass; end: compute may go on */
  int64_t layer_ps[2][LAYERS];    /* sum of the layer's kernels */
  int64_t gather_ps;              /* kernels on the copying stream, before strided views leave */
} passes;

static inline passes passes_of(const run *r, const rank_timeline *t)
{
  passes p = { .begin_ps = { -1, -1 } };
  int pass = FORWARD;
  int32_t before = OUTSIDE;
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind == OP_MARK && r->rank->marks.items[o->arg].kind == MARK_BACKWARD) pass = BACKWARD;
    if (o->kind == OP_MARK && r->rank->marks.items[o->arg].kind == MARK_FINISH) break;
    if (o->kind == OP_KERNEL && o->stream == STREAM_D2H) p.gather_ps += op_taken_ps(t, i);
    if (o->kind != OP_KERNEL || o->stream != STREAM_COMPUTE) continue;
    int32_t layer = layer_of(r, o);
    if (layer != OUTSIDE) {
      p.layer_ps[pass][layer] += op_taken_ps(t, i);
      if (p.begin_ps[pass] < 0) p.begin_ps[pass] = op_start_ps(t, i);
    } else if (before != OUTSIDE) {
      p.end_ps[pass] = op_start_ps(t, i);
    }
    before = layer;
  }
  return p;
}

static inline passes time_at(const run *r, int64_t bytes_per_us, arena *a)
{
  timeline t;
  diag d = { 0 };
  rank_place place = { .host = 0, .gpu = 0, .multiplicity = 1 };
  machine *m = ideal_machine(a);
  m->link.d2h_bytes_per_us = m->link.h2d_bytes_per_us = bytes_per_us;
  assert_true(simulate(&t, r->plan, m, &place, &d));
  passes p = passes_of(r, &t.ranks[0]);
  timeline_release(&t);
  for (int pass = 0; pass < 2; pass++)
    for (int layer = 1; layer < LAYERS; layer++)
      assert_int_equal(p.layer_ps[pass][layer], p.layer_ps[pass][0]);
  return p;
}

#endif
