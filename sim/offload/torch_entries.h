/*
 * The tensors that leave under hooks that PyTorch calls for every saved tensor
 * (torch.autograd.graph. saved_tensors_hooks): TRL's OffloadActivations
 * (trl/models/activation_offloading.py) and PyTorch's own save_on_cpu (torch/autograd/graph.py).
 */
#ifndef OFFSIM_SIM_OFFLOAD_TORCH_ENTRIES_H
#define OFFSIM_SIM_OFFLOAD_TORCH_ENTRIES_H

#include "sim/offload/shape.h"

/* OffloadActivations' min_offload_size: smaller tensors stay. */
#define TRL_MIN_BYTES 1024

/* OffloadActivations: besides small tensors, Parameters stay; so do views of them, such as the
 * transposed weight that a linear saves, if the trainer has registered the parameters' storages
 * (update_model_params). */
static inline bool trl_entry_leaves(const saved_entry *e, bool parameters_registered)
{
  return !e->parameter && e->bytes >= TRL_MIN_BYTES && !(e->of_parameter && parameters_registered);
}

/* A broadcast view, whose storage OffloadActivations copies. Strides are not known here: such a
 * view has more elements than its storage. */
static inline bool torch_entry_is_broadcast(const saved_entry *e)
{
  return e->bytes > e->storage_bytes;
}

/* OffloadActivations first makes a contiguous copy that begins at its storage's first element. */
static inline bool trl_entry_is_cloned(const saved_entry *e)
{
  return !torch_entry_is_broadcast(e) && (!e->contiguous || e->offset_elements != 0);
}

/* save_on_cpu: every tensor with elements. */
static inline bool save_on_cpu_entry_leaves(const saved_entry *e)
{
  return e->bytes > 0;
}

/* Hooks for every saved tensor: it comes back when its operator needs it, and backward's first
 * operator with saved tensors also empties the stash. Of all copied tensors, only that operator's
 * are on the device while the loss's backward runs. */
static inline bool torch_needs_at_once(const chunk_shape *c, uint32_t entry)
{
  uint32_t last = c->entry_count - 1;

  while (c->entries[last].group == 0) /* recomputations save after all other operators */
    last--;
  return c->entries[entry].operator_first == c->entries[last].operator_first;
}

/* OffloadActivations with its stream, from the rules: by entry, whether it is copied to the host;
 * else it stays, because of its own properties or as a duplicate. */
const bool *trl_copied(const chunk_shape *c, const settings *s, arena *a);

#endif
