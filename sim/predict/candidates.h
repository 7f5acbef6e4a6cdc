/*
 * Settings to try in place of those that were given: what is set, as --set takes it. sim/predict/comparison.h
 * tries systems, sim/predict/suggestions.h whatever may save memory.
 */
#ifndef OFFSIM_SIM_PREDICT_CANDIDATES_H
#define OFFSIM_SIM_PREDICT_CANDIDATES_H

#include "sim/config/settings.h"

enum { CANDIDATE_SETS = 24 };
typedef struct candidate {
  const char *name; /* "trl unregistered, full recompute": no other candidate has it */
  const char *sets[CANDIDATE_SETS]; /* "offload.system=trl" */
  uint32_t set_count;
  uint32_t order; /* among the candidates */
  /* Of a comparison of systems. */
  system_choice system;
  recompute_granularity_choice recompute;
} candidate;

/* One set more; texts are copied. */
void candidate_set(candidate *c, const char *key, const char *value, arena *a);

/* Every offload system with its variants, the one without offload first. A system gets what moves
 * most, which its descriptor says, where nothing was given for it. */
const candidate *candidates_of_systems(const settings *given, const settings *resolved,
                                       uint32_t *count, arena *a);

/* Why its system cannot work on this model whatever else is set; NULL: it may. */
const char *candidate_is_for_others(const settings *resolved, const candidate *c, arena *a);

/* The settings that were given with the candidate's, resolved; `option` is where messages say they
 * stand. False after a diag error. */
bool candidate_settings(settings *s, const settings *given, const candidate *c, const char *option,
                        arena *a, diag *d);

/* The first error's text without its place: a candidate is in no file. */
const char *candidate_refusal(const diag *d, arena *a);

/* Called before each prediction. */
typedef void candidate_progress(uint32_t done, uint32_t all, const char *name);

#endif
