/*
 * DeepSpeed's cpu_checkpointing (deepspeed/runtime/activation_checkpointing: checkpointing.py,
 * CheckpointFunction; offload_activations.py, _ActivationOffloadEngine; at edaa7221), for a program
 * that checkpoints each decoder layer by deepspeed.checkpointing.checkpoint. transformers' Trainer
 * does not call that, so a configuration's cpu_checkpointing has no effect there.
 *
 * The checkpoint itself, not a hook, hands its first argument, the layer's input, to the engine
 * when the layer's forward has been issued; other arguments are bound by name, and stay. The engine
 * keeps the newest input and begins the copy of the one before: its stream waits for compute, which
 * waits for nothing. The input before that is freed although references to it remain: the copying
 * stream has marked its block. So when backward begins, two inputs are on the device, and the copy
 * of one of them may still be under way.
 *
 * Backward: on demand, into the memory of the same stream, which waits for nothing; the memory is
 * marked as used by compute.
 *
 * Host buffers come from a pool by shape and type, which keeps at most 64; as with hidden_states,
 * PyTorch's allocator keeps the others.
 */
#include <assert.h>

#include "sim/config/checks.h"
#include "sim/offload/hidden_states.h"
#include "sim/offload/systems.h"

static const plan_stream copy_stream = STREAM_D2H;

enum { LEFT_ON_DEVICE = 2 }; /* when backward begins: the newest, and the one being copied */

typedef struct engine {
  const chunk_shape *shape;
  uint32_t given;   /* the entry of the layer that runs, 0: none */
  uint32_t newest;  /* keep_last, 0: none */
  uint32_t stashed; /* its copy was the last to begin, 0: none */
  event_id copied;  /* ... and is done */
} engine;

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  engine *x = ARENA_NEW(a, engine);
  (void)iteration;
  (void)d;

  *x = (engine){ .shape = only_chunk(r) };
  return x;
}

/* ---- forward ---- */

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  (void)w;
  (void)i;

  if (!is_hidden_states(x->shape, entry)) return;
  assert(x->given == 0 && "checkpoints of layers do not nest");
  x->given = entry;
}

/* The caller's tensor was emptied when the engine took it over, so no frame keeps the memory. */
static void drop_stashed(const engine *x, walk *w, instance_id i)
{
  assert(act_place(w, i, x->stashed) == PLACE_DEVICE);
  act_release(w, i, x->stashed);
  act_empty_storage(w, i, x->shape->entries[x->stashed].slot, STREAM_HOST);
}

static void start_offload(engine *x, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_DEVICE && entry != x->stashed);
  if (x->stashed != 0) drop_stashed(x, w, i);
  act_join(w, copy_stream, STREAM_COMPUTE);
  act_copy_out(
      w, i, entry,
      (offload_how){
          .form = COPY_VIEW, .pooled = true, .record_stream = true, .stream = copy_stream });
  x->stashed = entry;
  x->copied = act_record(w, copy_stream);
}

static void layer_end(void *state, walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  engine *x = state;
  assert(layer >= 0 && (pass == PASS_FORWARD || x->given == 0));

  if (x->given == 0) return;
  if (x->newest != 0) start_offload(x, w, i, x->newest);
  x->newest = x->given;
  x->given = 0;
}

/* ---- backward ---- */

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  const engine *x = state;
  assert(is_hidden_states(x->shape, entry) && entry != x->newest);

  if (act_place(w, i, entry) == PLACE_DEVICE) {
    assert(entry == x->stashed && "the others were dropped");
    act_wait(w, STREAM_COMPUTE, x->copied);
    act_drop_host(w, i, entry);
    return;
  }
  act_reload(w, i, entry, copy_stream, copy_stream);
  act_join(w, STREAM_COMPUTE, copy_stream);
  act_record_stream(w, i, entry, STREAM_COMPUTE);
}

static void backward_end(void *state, walk *w, instance_id i)
{
  engine *x = state;
  (void)w;
  (void)i;

  assert(x->given == 0 && "each layer that began has ended");
  x->newest = x->stashed = 0;
}

/* ---- conditions ---- */

static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_deepspeed);
  return hidden_states_need_checkpoints(s, d) &&
         need(s, d, s->recompute.use_reentrant, KEY_recompute_use_reentrant, KEY_offload_system,
              "offload system deepspeed is modelled with its reentrant checkpoints; use_reentrant "
              "cannot be false");
}

/* ---- theory ---- */

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(t->rank->chunk_count == 1 && entry < c->entry_count);
  return is_hidden_states(c, entry) && hidden_states_newer(c, entry) >= LEFT_ON_DEVICE;
}

const offload_descriptor deepspeed_system = {
  .policy = {
    .begin = begin,
    .entry_ready = entry_ready,
    .layer_end = layer_end,
    .unpack = unpack,
    .backward_end = backward_end,
  },
  .theory = { .group_leaves = theory_every_group, .entry_leaves = theory_entry },
  .conditions = conditions,
  .compared = {
    .variants = {
      { "", KEY_recompute_use_reentrant, true },
    },
    .variant_count = 1,
  },
  .streams = {
    .leaves = "inputs of checkpoints",
    .waits_for_copy_out = "nothing",
    .memory_goes = "two layers later, marked",
    .comes_back = "on demand",
    .into_pool_of = "the copying stream",
  },
};
