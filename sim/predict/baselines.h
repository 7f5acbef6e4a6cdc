/*
 * Runs without offload that several settings have in common. Which run a setting has beside it follows
 * from its keys, so what one thread has found serves all others, and no row
 * depends on who found it.
 */
#ifndef OFFSIM_SIM_PREDICT_BASELINES_H
#define OFFSIM_SIM_PREDICT_BASELINES_H

#include <xxhash.h>

#include "sim/predict/prediction.h"

/* Of the keys of resolved settings: 128 bits, so that no two of a space are equal by chance. */
XXH128_hash_t settings_digest(const settings *s);

typedef struct baselines baselines;

/* Of one machine. Threads may share it. From `a`; release it too. */
baselines *baselines_new(arena *a);
void baselines_release(baselines *b);

/* The run's step and its ranks' two allocated peaks, the other figures 0, with ranks from `a`. False: it is
 * not known yet. */
bool baselines_find(baselines *b, XXH128_hash_t run, iteration_prediction *found, uint32_t ranks,
                    arena *a);
void baselines_add(baselines *b, XXH128_hash_t run, const iteration_prediction *is, uint32_t ranks);

/* `predict` on one thread with nothing else asked for. The run without offload comes from `known`, or gets
 * there; only the figures that are known of it are filled. `common`: as for predict_common, and no saving is
 * theoretical; NULL: the setting shares its plans with no other. */
bool predict_beside(prediction *p, const settings *s, const machine *m, baselines *known,
                    common_plans *common, arena *a, diag *d);

#endif
