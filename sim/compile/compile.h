/*
 * From settings to a plan: builds every chunk's graph, lowers it, and walks every rank's schedule in the
 * program order of its host thread, calling the offload policy's hooks.
 *
 * Errors: the policy's own (a defect of released code that stops the run in mode as_released), exit 2.
 */
#ifndef OFFSIM_SIM_COMPILE_COMPILE_H
#define OFFSIM_SIM_COMPILE_COMPILE_H

#include "sim/compile/lowered_ranks.h"
#include "sim/offload/policy.h"

typedef struct compilation {
  plan plan;
  iteration_kind iteration;
  bool every_turn;           /* none is copied */
  rank_shape *shapes;        /* [plan.rank_count]: what the policy saw; input of the theory */
  const char **defects;      /* [plan.rank_count]: what as_released met, NULL if nothing */
  int64_t *groups;           /* [plan.rank_count]: groups in the iteration */
  int64_t *offloaded_groups; /* [plan.rank_count]: ... that went to the host */
  /* [rank][chunk][group]: bytes that went to the host, of all micro-batches; group 0: outside of groups */
  const int64_t *const **copied_bytes;
  chunk_program ***programs; /* [rank][chunk] */
  uint32_t *copied_turns;    /* [plan.rank_count]: turns of the schedule that were not walked */
} compilation;

/* The settings are resolved. What the compilation refers to is in `a`, which must outlive it, or is the
 * settings'. False after a diag error. Release it in either case. */
bool compile(compilation *c, const settings *s, iteration_kind iteration, arena *a, diag *d);
/* The same plan, with ranks compiled side by side on up to `threads` threads. */
bool compile_in_parallel(compilation *c, const settings *s, iteration_kind iteration,
                         uint32_t threads, arena *a, diag *d);
/* The same plan, from the settings' chunks. */
bool compile_lowered(compilation *c, const settings *s, const lowered_ranks *l,
                     iteration_kind iteration, uint32_t threads, arena *a, diag *d);
/* The same plan, with every turn of the schedule walked, none copied from the one before (turns.h): what
 * tests compare with. */
bool compile_every_turn(compilation *c, const settings *s, iteration_kind iteration, arena *a,
                        diag *d);
void compilation_release(compilation *c);

/* Bytes of a GPU's memory that libraries take from the driver before the first iteration, beside PyTorch's
 * allocator. */
int64_t compile_driver_bytes(const settings *s);

/* These settings for all that have their first iteration in common with `s`: under a policy that keeps
 * nothing in it, they do not say how much stays. */
settings first_iteration_settings(const settings *s);

/* The settings of the same run without offload, for comparison: the same ones if it is such a run. */
settings settings_without_offload(const settings *s);
bool is_without_offload(const settings *s);

#endif
