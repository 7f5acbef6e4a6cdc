/*
 * The groups that Megatron's fine-grained offloading never offloads after its warm-up iteration
 * (PipelineOffloadManager.post_warmup_callback): margin, then delta, then fraction. The fourth
 * rule, of the last stage, is applied at run time by megatron.c.
 */
#ifndef OFFSIM_SIM_OFFLOAD_KEEP_RULES_H
#define OFFSIM_SIM_OFFLOAD_KEEP_RULES_H

#include "sim/offload/chunk_order.h"
#include "sim/offload/group_table.h"

/* Groups of all positions in one array: group g of position p is `base[p] + g`. */
typedef struct kept_groups {
  const uint32_t *base; /* [positions + 1] */
  bool *keep;
  bool *margin;          /* ... because of the margin, which no setting turns off */
  uint32_t margin_count; /* number of these; as many groups are prefetched */
} kept_groups;

/* Nothing is kept: the warm-up iteration. */
kept_groups keep_nothing(const group_table *t, const chunk_order *o, arena *a);

kept_groups keep_by_rules(const settings *s, uint32_t pp_rank, const group_table *t,
                          const chunk_order *o, arena *a);

#endif
