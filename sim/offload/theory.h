/*
 * What offloading must save, from the schedule and the sizes of groups alone: no plan, no engine.
 * The simulated saving is compared with it (R = simulated / theoretical).
 *
 *   sum over the chunks in flight at the rank's first backward
 *     of the storages that die because their groups are on the host
 *
 * Groups that margin, delta, fraction and the rule of the last stage keep do not count. A storage
 * dies if each of its saved references left with a group, or if a group that left empties it. It
 * does not count if it would not have been there anyway (emptied and recomputed), or if the
 * schedule holds it (the input that a chunk received).
 */
#ifndef OFFSIM_SIM_OFFLOAD_THEORY_H
#define OFFSIM_SIM_OFFLOAD_THEORY_H

#include "sim/offload/policy.h"

/* For the system named by the settings, in steady state; 0 for "none". Working memory from `a`. */
int64_t theoretical_saving_bytes(const rank_shape *r, arena *a);

#endif
