/*
 * Megatron-LM's fine-grained offloading of modules with its paged stash of experts in one run, as NVIDIA's
 * DeepSeek-V3 recipes for GB300 have them. Each engine has hooks of its own around modules of its own
 * (transformer_config.py refuses offload_modules inside the experts), and sees no group of the other.
 */
#ifndef OFFSIM_SIM_OFFLOAD_STASH_BESIDE_H
#define OFFSIM_SIM_OFFLOAD_STASH_BESIDE_H

#include "sim/offload/policy.h"

extern const offload_policy stash_beside_policy;

/* The saving of both, each by its own theory. */
int64_t stash_beside_saving_bytes(const rank_shape *r, arena *a);

#endif
