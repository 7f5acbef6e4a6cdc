/*
 * OffloadActivations of TRL with its copying stream (trl/models/activation_offloading.py; Axolotl's
 * activation_offloading: true), descended from torchtune's.
 *
 * Forward: every saved tensor gets the next number, including those that stay. A tensor that leaves
 * is copied at once; the stash keeps its device memory. Before the copy, compute waits for the
 * copies of tensors whose numbers are lower by max_fwd_stash_size or more, and the stash drops
 * them: so compute waits for the copy of a few saved tensors ago, and when backward begins the
 * newest are still on the device.
 *
 * A tensor whose key (storage, first element, type) is remembered stays on the device. The engine
 * remembers the key of a copied tensor while the stash has it, and the key of a tensor that stays
 * as a duplicate until backward uses it. So once a tensor was saved twice within the stash, it
 * stays each further time too.
 *
 * Backward: an operator's tensors come back when it needs them, into memory of the copying stream,
 * which does not wait for compute; compute waits for the copy. The host runs ahead, so copies
 * overlap with earlier operators. After the operator an event is recorded for each tensor; when the
 * next operator with such tensors is done, the copying stream waits for these events, and the
 * memory returns to its pool. The first such operator also empties the stash: what other operators
 * saved is reloaded like everything else.
 *
 * Memory that is still referenced after the operator is marked as used by compute and released at
 * once. The code compares reference counts, and its count before the operator is one too high (the
 * reloaded tensor, and its view with the saved strides): a single reference that outlives the
 * operator goes unnoticed. An input of a non-reentrant checkpoint has two references after the
 * operator for which the region was recomputed (measured, PyTorch 2.11). Liger's activation writes
 * gradients over its saved tensors: each lives on with one reference, and when the next operator
 * has been issued its memory returns to the copying stream, which may overwrite it before compute
 * has read it. No other tensor in these models has such references. It is not reported upstream as
 * far as known; `fixed` has a fix of offsim's own, which marks memory with a single reference, too.
 *
 * The hooks are active in one training step, which covers one micro-batch; at its end the host
 * waits for both streams.
 *
 * Two modes. `fixed` has TRL PR #7195, which `as_released` lacks: a view that is not contiguous, or
 * does not begin where its storage does, is copied on the device first, and the stash has that
 * copy. As released it is made on the copying stream in that stream's memory. An operator that
 * takes it from the stash does not wait for it, and once it is freed its memory may be reused for a
 * copy back while compute still reads it. With the fix compute makes the copy, before the copying
 * stream waits for compute. (The other race fixed there, against a stream that is not PyTorch's
 * default, does not arise: compute is the default stream here.)
 *
 * Not modelled: the context covers backward too, so the hooks also see what a reentrant checkpoint
 * saves in its recomputation (a non-reentrant one sets its own hooks there).
 *
 * Not modelled: Axolotl, which found these races, makes the contiguous copies before this engine
 * sees the tensors (core/trainers/mixins/activation_checkpointing.py). There such a copy has a
 * different key, so a tensor that is also saved unchanged leaves twice instead of staying.
 */
#include <assert.h>
#include <string.h>

#include "sim/offload/actions.h"
#include "sim/offload/systems.h"
#include "sim/offload/torch_entries.h"

static const plan_stream copy_stream = STREAM_D2H;

typedef struct stashed {
  uint32_t number, entry;
  event_id copied;
  bool used; /* taken from the stash in backward */
} stashed;

/* A reloaded tensor, as long as the engine keeps it. */
typedef struct reloaded {
  device_buffer held;
  event_id used;
  bool outlives; /* another reference outlives the operator */
} reloaded;

typedef struct engine {
  const settings *settings;
  const chunk_shape *shape;
  arena *memory;
  bool as_released;
  uint32_t stash_size;
  uint32_t last_number;
  stashed *stash; /* [stash_size], oldest first */
  uint32_t stash_count;
  uint32_t *keys; /* entries whose keys are remembered, one for each key */
  uint32_t key_count;
  reloaded *now, *before; /* of the current operator, and of the last operator that had any */
  uint32_t now_count, before_count;
  bool operator_unpacks; /* the current operator has needed a tensor that had left */
  uint32_t unordered_clones;
} engine;

static const saved_entry *entry_of(const engine *x, uint32_t entry)
{
  assert(entry > 0 && entry < x->shape->entry_count);
  return &x->shape->entries[entry];
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  engine *x = ARENA_NEW(a, engine);
  uint32_t entries = only_chunk(r)->entry_count;
  (void)iteration;
  (void)d;

  *x = (engine){ .settings = r->settings,
                 .shape = only_chunk(r),
                 .memory = a,
                 .as_released = r->settings->offload.mode == MODE_AS_RELEASED,
                 .stash_size = (uint32_t)r->settings->offload.max_fwd_stash_size };
  x->stash = ARENA_ARRAY(a, stashed, x->stash_size);
  x->keys = ARENA_ARRAY(a, uint32_t, entries);
  x->now = ARENA_ARRAY(a, reloaded, entries);
  x->before = ARENA_ARRAY(a, reloaded, entries);
  return x;
}

/* ---- keys ---- */

/* Index of the key of `entry`, key_count if it is not remembered. */
static uint32_t find_key(const engine *x, uint32_t entry)
{
  assert(x->key_count < x->shape->entry_count && "one key for each entry at most");
  uint32_t k = 0;

  while (k < x->key_count && !is_same_start(entry_of(x, x->keys[k]), entry_of(x, entry)))
    k++;
  return k;
}

/* Forgets the key, unless a later tensor has taken it over. */
static void forget_key(engine *x, uint32_t entry)
{
  uint32_t k = find_key(x, entry);
  assert(k <= x->key_count);

  if (k < x->key_count && x->keys[k] == entry) x->keys[k] = x->keys[--x->key_count];
}

/* ---- forward ---- */

static void forward_begin(void *state, walk *w, instance_id i)
{
  engine *x = state;
  (void)w;
  (void)i;

  assert(x->stash_count == 0 && x->before_count == 0 && "the step before is complete");
  x->last_number = x->key_count = 0;
}

/* Compute waits for the copies of the `count` oldest tensors of the stash, which drops them. */
static void empty_stash(engine *x, walk *w, instance_id i, uint32_t count)
{
  assert(count <= x->stash_count);
  for (uint32_t k = 0; k < count; k++) {
    act_wait(w, STREAM_COMPUTE, x->stash[k].copied);
    if (!x->stash[k].used) act_release(w, i, x->stash[k].entry);
    forget_key(x, x->stash[k].entry);
  }
  x->stash_count -= count;
  memmove(x->stash, x->stash + count, x->stash_count * sizeof *x->stash);
}

static uint32_t count_old(const engine *x)
{
  assert(x->stash_count == 0 || x->stash[x->stash_count - 1].number < x->last_number);
  uint32_t count = 0;

  while (count < x->stash_count && x->stash[count].number + x->stash_size <= x->last_number)
    count++;
  return count;
}

static void copy_out(engine *x, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_DEVICE && "packed once");
  const saved_entry *e = entry_of(x, entry);
  bool cloned = trl_entry_is_cloned(e);
  copy_form form = torch_entry_is_broadcast(e) ? COPY_STORAGE : COPY_VIEW;

  if (cloned && !x->as_released) act_clone(w, i, entry, STREAM_COMPUTE);
  act_join(w, copy_stream, STREAM_COMPUTE);
  if (cloned && x->as_released) {
    act_clone(w, i, entry, copy_stream);
    x->unordered_clones++;
  }
  act_copy_out(w, i, entry, (offload_how){ .form = form, .stream = copy_stream });
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  uint32_t key = find_key(x, entry);

  assert(key <= x->key_count && x->key_count < x->shape->entry_count);
  x->last_number++;
  if (key < x->key_count) {
    x->keys[key] = entry;
    return;
  }
  if (!trl_entry_leaves(entry_of(x, entry), x->settings->offload.trl_params_registered)) return;
  empty_stash(x, w, i, count_old(x));
  copy_out(x, w, i, entry);
  assert(x->stash_count < x->stash_size && "the stash has dropped the old ones");
  x->stash[x->stash_count++] =
      (stashed){ .number = x->last_number, .entry = entry, .copied = act_record(w, copy_stream) };
  x->keys[x->key_count++] = entry;
}

/* ---- backward ---- */

static bool take_from_stash(engine *x, uint32_t entry)
{
  assert(x->stash_count <= x->stash_size);
  for (uint32_t k = 0; k < x->stash_count; k++)
    if (x->stash[k].entry == entry) return x->stash[k].used = true;
  return false;
}

static bool outlives_operator(const engine *x, uint32_t entry)
{
  return entry_of(x, entry)->checkpoint_input && !x->settings->recompute.use_reentrant;
}

static void bring_back(engine *x, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_HOST && x->now_count < x->shape->entry_count);
  bool outlives = outlives_operator(x, entry);

  act_copy_in(w, i, entry, copy_stream, copy_stream);
  act_join(w, STREAM_COMPUTE, copy_stream);
  if (outlives) act_record_stream(w, i, entry, STREAM_COMPUTE);
  x->now[x->now_count++] = (reloaded){ .held = act_hold(w, i, entry), .outlives = outlives };
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  assert(act_place(w, i, entry) != PLACE_NONE && x->last_number > 0);

  x->operator_unpacks = true;
  if (!take_from_stash(x, entry)) bring_back(x, w, i, entry);
  act_drop_host(w, i, entry);
  forget_key(x, entry);
}

/* Releases what the previous operator reloaded; at the end, what the last one did. */
static void let_go(engine *x, walk *w)
{
  assert(x->before_count < x->shape->entry_count);
  for (uint32_t k = 0; k < x->before_count; k++) {
    act_wait(w, copy_stream, x->before[k].used);
    act_let_go(w, x->before[k].held);
  }
  x->before_count = 0;
}

/* The engine keeps what the operator reloaded until the next such operator is done. */
static void finish_operator(engine *x, walk *w)
{
  uint32_t kept = 0;

  for (uint32_t k = 0; k < x->now_count; k++) {
    reloaded it = x->now[k];
    if (!x->as_released && !it.outlives && act_others_refer(w, it.held)) {
      it.outlives = true;
      act_mark_held(w, it.held, STREAM_COMPUTE);
    }
    if (it.outlives) {
      act_let_go(w, it.held);
    } else {
      it.used = act_record(w, STREAM_COMPUTE);
      x->now[kept++] = it;
    }
  }
  assert(kept <= x->now_count);
  x->now_count = kept;
}

static void node_backward_end(void *state, walk *w, instance_id i, uint32_t first_entry,
                              uint32_t count)
{
  assert(first_entry > 0 && count > 0);
  engine *x = state;
  reloaded *now = x->now;

  if (!x->operator_unpacks) return;
  x->operator_unpacks = false;
  finish_operator(x, w);
  empty_stash(x, w, i, x->stash_count);
  let_go(x, w);
  assert(x->stash_count == 0 && x->before_count == 0);
  x->now = x->before;
  x->before = now;
  x->before_count = x->now_count;
  x->now_count = 0;
}

static void backward_end(void *state, walk *w, instance_id i)
{
  engine *x = state;
  (void)i;

  assert(x->stash_count == 0 && x->now_count == 0 && "the first operator has emptied the stash");
  let_go(x, w);
  act_host_wait(w, act_record(w, STREAM_COMPUTE));
  act_host_wait(w, act_record(w, copy_stream));
}

/* ---- report ---- */

static const char *defects(void *state)
{
  const engine *x = state;

  if (x->unordered_clones == 0) return NULL;
  assert(x->as_released && "the fix orders every clone");
  return arena_printf(x->memory,
                      "%u saved views are made contiguous on the copying stream, in its memory: "
                      "backward may read one before it is written, or after its memory has been "
                      "reused (fixed by TRL PR #7195)",
                      x->unordered_clones);
}

/* ---- theory ---- */

static void theory_prepare(offload_theory *t, arena *a)
{
  assert(t->found == NULL);
  t->found = trl_copied(only_chunk(t->rank), t->rank->settings, a);
}

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(t->found != NULL && entry < c->entry_count);
  const bool *copied = t->found;

  return copied[entry] && !torch_needs_at_once(c, entry);
}

const offload_descriptor trl_system = {
  .policy = {
    .begin = begin,
    .forward_begin = forward_begin,
    .entry_ready = entry_ready,
    .unpack = unpack,
    .node_backward_end = node_backward_end,
    .backward_end = backward_end,
    .defects = defects,
  },
  .theory = {
    .group_leaves = theory_every_group,
    .entry_leaves = theory_entry,
    .prepare = theory_prepare,
  },
  .compared = {
    .variants = {
      { "", KEY_offload_trl_params_registered, true },
      { " unregistered", KEY_offload_trl_params_registered, false },
    },
    .variant_count = 2,
  },
  .streams = {
    .leaves = "the same, once each",
    .waits_for_copy_out = "compute, five saved tensors later",
    .memory_goes = "then",
    .comes_back = "on demand, as far as the host runs ahead",
    .into_pool_of = "the copying stream",
  },
};
