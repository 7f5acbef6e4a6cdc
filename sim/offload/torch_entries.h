/*
 * What leaves under hooks that PyTorch calls for every saved tensor (torch.autograd.graph.
 * saved_tensors_hooks): TRL's OffloadActivations (trl/models/activation_offloading.py) and
 * PyTorch's own save_on_cpu (torch/autograd/graph.py).
 */
#ifndef OFFSIM_SIM_OFFLOAD_TORCH_ENTRIES_H
#define OFFSIM_SIM_OFFLOAD_TORCH_ENTRIES_H

#include "sim/offload/shape.h"

/* OffloadActivations' min_offload_size: smaller tensors stay where they are. */
#define TRL_MIN_BYTES 1024

/* OffloadActivations: apart from small tensors, Parameters stay; so do views of them, such as the
 * transposed weight that a linear saves, if the trainer has told it where parameters lie
 * (update_model_params). */
static inline bool trl_entry_leaves(const saved_entry *e, bool parameters_registered)
{
  return !e->parameter && e->bytes >= TRL_MIN_BYTES && !(e->of_parameter && parameters_registered);
}

/* Two entries that OffloadActivations takes for one: they begin at the same element of a storage
 * and have the same type; of types, the width alone is known here. */
static inline bool trl_same_key(const saved_entry *a, const saved_entry *b)
{
  return a->slot == b->slot && a->offset_elements == b->offset_elements &&
         a->element_bytes == b->element_bytes;
}

/* A broadcast view, of which OffloadActivations copies the storage. Strides are not known here: it
 * is recognised by having more elements than its storage. */
static inline bool torch_entry_is_broadcast(const saved_entry *e)
{
  return e->bytes > e->storage_bytes;
}

/* OffloadActivations first makes a contiguous copy that begins at its storage's first element. */
static inline bool trl_entry_is_cloned(const saved_entry *e)
{
  return !torch_entry_is_broadcast(e) && (!e->contiguous || e->offset_elements != 0);
}

/* save_on_cpu: all that has elements. */
static inline bool save_on_cpu_entry_leaves(const saved_entry *e)
{
  return e->bytes > 0;
}

/* Hooks for every saved tensor: it comes back when its operator asks for it, and the first one of
 * backward also empties the stash. What that one has saved is there while the loss's backward runs,
 * and nothing else that has been copied. */
static inline bool torch_needs_at_once(const chunk_shape *c, uint32_t entry)
{
  uint32_t last = c->entry_count - 1;

  while (c->entries[last].group == 0) /* recomputations save after everything else */
    last--;
  return c->entries[entry].operator_first == c->entries[last].operator_first;
}

/* OffloadActivations with its stream, from the rules alone: by entry, whether it is copied to the
 * host, rather than staying, by itself or as a duplicate. */
const bool *trl_copied(const chunk_shape *c, const settings *s, arena *a);

#endif
