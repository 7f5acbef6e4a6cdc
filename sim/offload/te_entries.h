/*
 * The saved tensors that Transformer Engine's two offload engines move
 * (transformer_engine/pytorch/cpu_offload_v1.py: tensor_need_offloading_checker_activations;
 * cpu_offload.py: OffloadableLayerState._check_if_offload, TensorGroupProcessor).
 */
#ifndef OFFSIM_SIM_OFFLOAD_TE_ENTRIES_H
#define OFFSIM_SIM_OFFLOAD_TE_ENTRIES_H

#include "sim/offload/shape.h"

/* The second engine does not move smaller tensors. */
#define TE_V2_MIN_ELEMENTS (INT64_C(256) * 1024)

/* v1: tensors that modules have marked, of any size. A view that is not contiguous is gathered. */
static inline bool te_v1_entry_leaves(const saved_entry *e)
{
  return e->marked && !e->parameter;
}

/* v2: the storage leaves instead of a view that covers it, or whose module allows it. */
static inline bool te_v2_whole_storage(const saved_entry *e)
{
  return e->bytes == e->storage_bytes || e->base_leaves;
}

static inline bool te_v2_entry_leaves(const saved_entry *e)
{
  return !e->parameter && !e->not_offloadable && e->elements >= TE_V2_MIN_ELEMENTS &&
         (e->contiguous || e->base_leaves);
}

/* v2: two entries of a layer that are copied once. */
static inline bool te_v2_same_copy(const saved_entry *a, const saved_entry *b)
{
  assert(a->group == b->group && "the engine works layer by layer");
  bool whole = te_v2_whole_storage(a);

  return a->slot == b->slot && whole == te_v2_whole_storage(b) && (whole || a->tensor == b->tensor);
}

#endif
