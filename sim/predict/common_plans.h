/*
 * The plans of a setting, and when their ops run as long as no request for memory is refused. Settings
 * that differ in the mode of PyTorch's allocator alone have both in common: no policy sees the
 * allocator, and the engine meets it only in holds (sim/engine/holds.h).
 *
 *     common_plans c = { 0 };
 *     common_plans_compile(&c, &s, ITERATION_STEADY, &a, &d)   // what is needed, when it is needed
 *     predict_common(&p, &s, m, &c, &a, &d)                 // what is missing, too; prediction.h
 *     common_plans_release(&c)
 */
#ifndef OFFSIM_SIM_PREDICT_COMMON_PLANS_H
#define OFFSIM_SIM_PREDICT_COMMON_PLANS_H

#include "sim/compile/compile.h"
#include "sim/engine/engine.h"
#include "sim/engine/replay.h"

enum { ITERATION_KINDS = 2 };

/* A rank's replay as its first iteration leaves it, and what that came to. */
typedef struct first_replay {
  int64_t capacity_bytes;
  replay *after; /* NULL: not known */
  replay_result came_to;
  arena memory; /* of the replay */
} first_replay;

/* What a setting with these plans came to (setting_run.h). */
typedef struct known_figures {
  int64_t capacity_bytes;
  struct iteration_prediction *of; /* [ITERATION_KINDS]; NULL: not known */
  arena memory;
} known_figures;

typedef struct common_plans {
  /* By iteration_kind; without ranks: not there yet. */
  compilation compiled[ITERATION_KINDS];
  timeline times[ITERATION_KINDS];
  lowered_ranks lowered; /* from the first iteration that is compiled until the second one is, */
  bool keeps_lowered;    /* ... or as long as the plans */
  /* By software.expandable_segments. */
  first_replay *first[2]; /* [rank]; NULL: not kept */
  known_figures figures[2];
} common_plans;

/* These settings for all that have their plans in common with `s`. */
settings common_settings(const settings *s);

/* Compiles the iteration, unless it is there. False after a diag error. */
bool common_plans_compile(common_plans *c, const settings *s, iteration_kind kind, arena *a,
                          diag *d);
/* Both, on up to `threads` threads; the errors are those of the first that has any. */
bool common_plans_compile_both(common_plans *c, const settings *s, uint32_t threads, arena *a,
                               diag *d);

/* Compiles both; stops at the first that is not safe. False after a diag error, too. */
bool common_plans_are_safe(common_plans *c, const settings *s, arena *a, diag *d);

/* Takes what is lowered for other settings that have their chunks in common with these. */
void common_plans_take_lowered(common_plans *c, common_plans *from);

/* Takes the first iteration of settings that have it in common with these (first_iteration_settings), and
 * what is known of it. */
void common_plans_take_first(common_plans *c, common_plans *from);

/* Where an iteration that is still in both has the same ops, takes what is known of its times and replays;
 * if both have, the figures, too. All else of the settings is the same. */
void common_plans_take_known(common_plans *c, common_plans *from);

/* From now on the replays of the first iteration, which is compiled, and the figures are kept for other
 * settings. */
void common_plans_keep_first(common_plans *c);

/* A rank's first iteration in a device with so much memory; NULL: it is not kept. */
first_replay *common_plans_first(common_plans *c, const settings *s, int64_t capacity_bytes,
                                 uint32_t rank);

void common_plans_release(common_plans *c);

#endif
