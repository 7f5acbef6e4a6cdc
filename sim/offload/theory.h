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
 *
 * That is where backward begins, in the loss. Where the peak sits elsewhere the ratio is not 1:
 *   - in the backward of the last layer (a small vocabulary): what its operators use is back, and
 *     what its recomputation made is there; the input of a checkpoint that moved ends with the
 *     recomputation, while one that stayed lives as long as its layer's backward
 *   - engines that fetch ahead while they hold the newest (hidden_states_reentrant: four inputs
 *     at once; selective_checkpointing: three layers' outputs) save less there
 *   - axolotl_disk saves more there: by then every file is written, and nothing is held
 */
#ifndef OFFSIM_SIM_OFFLOAD_THEORY_H
#define OFFSIM_SIM_OFFLOAD_THEORY_H

#include "sim/offload/policy.h"

/* For the system named by the settings, in steady state; 0 for "none". Working memory from `a`. */
int64_t theoretical_saving_bytes(const rank_shape *r, arena *a);

#endif
