/*
 * The device and host memory of a rank while it runs a plan: the plan's allocations drive the
 * allocators of sim/memory.
 *
 * A block marked by record_stream is free when the marked stream has done what was issued to it before the
 * free. Four measures, never mixed (docs/00-map.md): requested follows from the plan alone; allocated ends
 * with the free, live and reserved with the wait. What a block's unsplit tail has, and so all but requested,
 * depends on where blocks lie, and that on when others are free.
 *
 * A replay covers several iterations of one rank: the second begins with what the first leaves, in
 * the same order.
 */
#ifndef OFFSIM_SIM_ENGINE_REPLAY_H
#define OFFSIM_SIM_ENGINE_REPLAY_H

#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/engine/engine.h"
#include "sim/engine/holds.h"
#include "sim/engine/memory_ops.h"

typedef struct replay_options {
  int64_t capacity_bytes; /* device memory for the framework */
  bool expandable_segments;
} replay_options;

/* One iteration's figures, in bytes. After a request for which memory ran out, buffers have no blocks. */
typedef struct replay_result {
  int64_t requested_peak_bytes; /* of all buffers */
  int64_t allocated_peak_bytes;
  uint32_t allocated_peak_op;    /* the ALLOC that reached the peak */
  int64_t allocated_start_bytes; /* before the first op */
  int64_t allocated_end_bytes;   /* after the last: static */
  int64_t live_peak_bytes;
  int64_t reserved_peak_bytes;
  int64_t host_exact_peak_bytes; /* pinned, as requested */
  int64_t host_pow2_peak_bytes;  /* pinned, as page-locked: powers of two */
  bool out_of_memory;            /* the capacity was too small even after waiting for every copy */
  /* Requests that the driver refused at first, and its calls after each; valid until the next
   * call. */
  const hold_list *refused;
} replay_result;

typedef struct replay replay;

/* Whether a replay comes to the same with both times of a plan, but for the ops that its refused requests
 * wait for: no request has moved past the end of an op that a block waits for. */
bool replay_is_same(const memory_ops *m, const rank_timeline *a, const rank_timeline *b);

/* Whether a freed block waits for a stream, or a host buffer for a copy. Else no figure depends on times. */
bool replay_needs_times(const rank_plan *p);

replay *replay_new(const replay_options *o, arena *a);
/* In the same state, from where each goes its own way; it keeps no curve. */
replay *replay_copy(const replay *r, arena *a);
void replay_release(replay *r);

/* Runs one iteration of a rank. `t` may be NULL: then freed blocks wait for nothing, as in a plan that needs
 * no times. */
replay_result replay_iteration(replay *r, const rank_plan *p, const rank_timeline *t);
/* The same for several replays of a plan, which share the list of its ops. */
replay_result replay_ops(replay *r, const memory_ops *m, const rank_timeline *t);

/* Requests that the driver refused in the last iteration, as replay_result has them. */
const hold_list *replay_refused(const replay *r);

/* The iteration before once more, with the same plan and times; its allocated bytes are not drawn. Only
 * replay_again may follow. */
replay_result replay_again(replay *r, const rank_timeline *t);

/* Memory after each op, in program order: for plots and traces. Without times, `allocated_bytes` alone. */
typedef struct memory_curve {
  int64_t *allocated_bytes; /* [ops.count] */
  int64_t *live_bytes;      /* [ops.count] */
  int64_t *reserved_bytes;  /* [ops.count] */
} memory_curve;

/* Later iterations write their curve to `curve`; NULL: to nowhere. */
void replay_keep_curve(replay *r, memory_curve *curve);

/* The modules of a plan's sites. */
typedef struct plan_modules {
  const char **names; /* [count], each once */
  uint32_t *of_site;  /* by site: index of its module */
  uint32_t count;
} plan_modules;

plan_modules plan_modules_of(const plan *p, arena *a);

/* Requested bytes, rounded to 512, of one module and class that live after an op. */
typedef struct replay_holding {
  const char *module; /* of plan_site; "" outside the modules */
  uint8_t purpose;    /* buffer_class */
  uint32_t buffers;
  int64_t bytes;
} replay_holding;

/* What is alive after an op of a rank of the plan, most bytes first, one row for all layers of a module;
 * memory from `a`. */
const replay_holding *replay_holdings(const plan *p, const plan_modules *modules,
                                      const memory_ops *m, uint32_t at_op, uint32_t *count,
                                      arena *a);

#endif
