/*
 * What a trace says of an op of a plan.
 */
#ifndef OFFSIM_TRACES_RECORD_PLAN_H
#define OFFSIM_TRACES_RECORD_PLAN_H

#include "sim/plan/plan.h"
#include "traces/record.h"

/* Texts and phases of a plan's ops, found once; in its arena. */
typedef struct plan_describer {
  const plan *plan;
  const char **calls; /* [plan.calls.count], NULL: not yet asked for */
  uint32_t **marks;   /* [rank][op] */
  arena *memory;
} plan_describer;

plan_describer plan_describer_new(const plan *p, arena *a);

/* Traces tell the ops that move or compute data. */
bool trace_tells(const plan_op *o);

/* Fills all that the plan knows; `to->step`, times and bytes are left alone, `to->rank` is the
 * plan's. `outputs`: TRACE_OUTPUTS, unknown contents. */
void describe_op(plan_describer *t, uint32_t rank, uint32_t op, trace_op *to,
                 trace_output *outputs);

#endif
