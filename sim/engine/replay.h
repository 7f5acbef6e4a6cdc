/*
 * Which device and host memory a rank holds while it runs a plan: the allocators of sim/memory, driven
 * by the plan's allocations.
 *
 * Two replays side by side (DESIGN: four measures, never mixed):
 *   program order   requested and allocated: blocks come back when their last reference dies
 *   on the clock    live and reserved: a block marked by record_stream comes back when the marked stream
 *                   has done what was issued to it before the free
 *
 * A replay goes through several iterations of one rank: what the first leaves behind is what the second
 * begins with, in the same order.
 */
#ifndef OFFSIM_SIM_ENGINE_REPLAY_H
#define OFFSIM_SIM_ENGINE_REPLAY_H

#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/engine/engine.h"
#include "sim/engine/holds.h"

typedef struct replay_options {
  int64_t capacity_bytes; /* what the framework can have; the program-order replay has no limit */
  bool expandable_segments;
} replay_options;

/* One iteration's figures, in bytes. */
typedef struct replay_result {
  int64_t requested_peak_bytes;
  int64_t allocated_peak_bytes;
  uint32_t allocated_peak_op;    /* the ALLOC that reached it */
  int64_t allocated_start_bytes; /* before the first op */
  int64_t allocated_end_bytes;   /* after the last: static */
  int64_t live_peak_bytes;
  int64_t reserved_peak_bytes;
  int64_t host_exact_peak_bytes; /* pinned, as asked for */
  int64_t host_pow2_peak_bytes;  /* pinned, as page-locked */
  bool out_of_memory;            /* the capacity was not enough even after waiting for every copy */
  /* Requests that the driver refused at first, and what it gives behind one; until the next call. */
  const hold_list *refused;
} replay_result;

typedef struct replay replay;

replay *replay_new(const replay_options *o, arena *a);
void replay_release(replay *r);

/* Runs one iteration of a rank. `t` may be NULL: then only the program-order figures are filled. */
replay_result replay_iteration(replay *r, const rank_plan *p, const rank_timeline *t);

/* Memory after each op, in program order: for plots and traces. */
typedef struct memory_curve {
  int64_t *allocated_bytes; /* [ops.count] */
  int64_t *live_bytes;      /* [ops.count] */
  int64_t *reserved_bytes;  /* [ops.count] */
} memory_curve;

/* The iterations from here on write their curve there; NULL: to nowhere. */
void replay_keep_curve(replay *r, memory_curve *curve);

/* Requested bytes, rounded to 512, of one module and class that live after an op. */
typedef struct replay_holding {
  const char *module; /* of plan_site; "" outside the modules */
  uint8_t purpose;    /* buffer_class */
  uint32_t buffers;
  int64_t bytes;
} replay_holding;

/* What lives after an op, the most bytes first, all layers of a module together; in `a`. */
const replay_holding *replay_holdings(const plan *p, uint32_t rank, uint32_t at_op, uint32_t *count,
                                      arena *a);

#endif
