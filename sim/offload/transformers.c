/*
 * transformers' activation checkpointing with offload: true, in activation_checkpointing_kwargs
 * or, by their older name, gradient_checkpointing_kwargs (transformers 5.17 and later:
 * PreTrainedModel._activation_checkpointing_enable in modeling_utils.py).
 *
 * Each checkpointed call of a layer runs under save_on_cpu with pinned memory. The only tensors
 * saved there are the checkpoint's inputs: what the layer itself saves is dropped, or never
 * recorded, and its recomputation runs outside. So the positional tensor, the layer's input,
 * leaves, of any size; tensors that are passed by name are kept by the call and stay.
 *
 * Both copies run on the compute stream, and nothing is prefetched. Since PyTorch 2.15 at the
 * latest, the host no longer waits for the copies out (torch/autograd/graph.py); offsim models the
 * releases in which it does.
 */
#include <assert.h>

#include "sim/offload/hidden_states.h"
#include "sim/offload/save_on_cpu.h"
#include "sim/offload/systems.h"

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  const chunk_shape **kept = ARENA_NEW(a, const chunk_shape *);
  (void)iteration;
  (void)d;

  *kept = only_chunk(r);
  return kept;
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  const chunk_shape *c = *(const chunk_shape **)state;
  assert(entry > 0 && entry < c->entry_count);

  if (is_hidden_states(c, entry)) save_on_cpu_pack(w, i, entry, c->entries[entry].contiguous);
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_HOST && "it left when it was packed");
  (void)state;

  save_on_cpu_unpack(w, i, entry);
}

/* ---- theory ---- */

/* All of them are on the host while the loss's backward runs. */
static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count);
  (void)t;

  return is_hidden_states(c, entry);
}

const offload_descriptor transformers_system = {
  .policy = {
    .begin = begin,
    .entry_ready = entry_ready,
    .unpack = unpack,
  },
  .theory = { .group_leaves = theory_every_group, .entry_leaves = theory_entry },
  .conditions = hidden_states_need_checkpoints,
  .streams = {
    .leaves = "inputs of checkpoints",
    .waits_for_copy_out = "the host, at once",
    .memory_goes = "with its last user",
    .comes_back = "on demand",
    .into_pool_of = "compute",
  },
};
