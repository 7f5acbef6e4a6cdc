/*
 * The fastest settings of a space that fit, and of those that are safe; or their front: settings
 * beside which no other is both as fast and as small.
 *
 *     space -> legal, different settings -> bounds -> plans -> predictions of what may be among the best
 *
 * Settings that differ in the allocator's mode alone have their plans in common
 * (sim/predict/common_plans.h): what a plan decides is decided once for them.
 *
 * The result is that of predicting every setting:
 *
 *   by memory   a setting that requests more than the device's memory in its first iteration or in a
 *               steady one does not fit;
 *   by safety   a setting whose plans `check` refuses is not among the best, whatever it takes; it is
 *               predicted only to name it, if it may be faster than the best;
 *   by time     a setting whose step bound, which all settings with the same recomputation share, is
 *               above the step of the worst of the best found so far, is not among the best; one that
 *               frameworks have is still predicted if it may be the fastest of theirs, and offsim's own
 *               are faster;
 *   by both     a setting whose step bound and requested bytes are no better than the figures of one
 *               that was found is not on the front.
 *
 * Plans are looked at in the order of their bounds, a fixed number at a time, so that neither
 * the result nor the counts depend on the number of threads and processes.
 */
#ifndef OFFSIM_SIM_TUNE_TUNE_H
#define OFFSIM_SIM_TUNE_TUNE_H

#include "sim/predict/budget_bound.h"
#include "sim/predict/prediction.h"
#include "sim/sweep/sweep.h"

typedef struct tune_request {
  const settings *given; /* as they were read */
  const settings
      *keep_all; /* what all settings are without offload and recomputation, if they differ in
                             * these and the allocator alone; NULL: they differ in more */
  const machine *machine;
  const space *space;
  uint32_t best;     /* settings to find; at least 1 */
  uint32_t threads;  /* at least 1 */
  bool allow_unsafe; /* plans that `check` refuses count too */
  bool front;        /* the front instead of the fastest; `best` does not count */
  bool exhaustive;   /* predict every setting */
} tune_request;

typedef struct tuned_setting {
  sweep_row row;
  bool unsafe;
  bool is_own; /* offsim's own: no framework has it today, or not verl, which runs it */
} tuned_setting;

/* A step must be shorter than this to be worth more memory: 1 % less than the best. */
static inline int64_t worth_ps(int64_t best_ps)
{
  return best_ps - best_ps / 100;
}

/* A setting that does not fit and is faster than worth_ps of the best. It fits in `bytes` of each GPU or each
 * host, but not in 0.001 GiB less. Others may need less. */
typedef struct larger_budget {
  tuned_setting setting; /* step_ps 0: none is known */
  int64_t bytes;         /* that PyTorch may have, or of pinned buffers */
} larger_budget;

typedef struct tuned {
  tuned_setting *items; /* the fastest first; of those that take the same time the one that
                         * reserves least, pins least, comes first in the space */
  uint32_t count;
  tuned_setting faster_unsafe; /* the fastest that is left out because it is not safe, if it is
                                * faster than all of the items; otherwise step_ps is 0 */
  tuned_setting today; /* the fastest that frameworks have, if items[0] is offsim's own; otherwise,
                        * and if none fits, step_ps is 0 */
  int64_t fastest_bound_ps;              /* no setting of the space can be faster */
  budget_bounds budget;                  /* ... and fit; 0: not known */
  larger_budget larger_gpu, larger_host; /* the other memory stays as it is */
  /* Every setting of the space is counted once. */
  uint32_t all;
  uint32_t refused;    /* by the settings' rules, or by the offload system as it was released */
  const char *refusal; /* why the rules refuse the first setting, if they refuse all; else NULL */
  uint32_t same;       /* resolves to another setting of the space */
  uint32_t too_large;  /* requests more than there is */
  int64_t least_too_large_bytes; /* of those, the least that one requests, or less */
  uint32_t too_slow;             /* by the step bound */
  uint32_t dominated;            /* by both bounds */
  uint32_t unsafe;    /* `check` finds errors in its plans; 0 if such settings are allowed */
  uint32_t predicted; /* of the safe ones */
} tuned;

/* Called now and then. `doing`: what comes before predictions; NULL: `decided` settings of `all` are
 * predicted, or left out. The rest may be left out at once. */
typedef struct tune_progress {
  void (*show)(void *context, uint32_t decided, uint32_t all, const char *doing);
  void *context;
} tune_progress;

/* All processes (sim/world) call it, and have the result. False after a diag error: a resource was
 * refused. */
bool tune(tuned *t, const tune_request *r, const tune_progress *show, arena *a, diag *d);

#endif
