/*
 * Axolotl's activation_offloading: disk, as designed (axolotl/monkeypatch/gradient_checkpointing/
 * offload_disk.py, Disco and DiskOffloadManager; the released configuration never turns it on).
 *
 * Each layer is a special checkpoint whose input goes to a file. Forward: the host thread queues
 * the tensor and goes on; 4 threads copy the queued tensors to host memory that is not page-locked
 * and write them. Their copies run on the default stream, which is also the framework's. At most 8
 * tensors are queued or being written: for the next one the host waits until the oldest is done. A
 * tensor stays on the device until its file is written; that time depends on the clock, so here it
 * is known only after the host has waited: 8 tensors stay, an upper bound.
 *
 * Backward: the host waits for the current layer's tensor: written, read, and copied back on the
 * default stream. Nothing is read ahead: the prefetch of one tensor (trigger_prefetch) chooses the
 * newest file that is left, which is the current layer's own.
 *
 * Not modelled: that prefetch. A thread reads the same file beside the host, from the system's
 * cache, and its copy is on the device until the layer's backward is over.
 *
 * The disk serves writes in order and reads in order: threads share its rate.
 */
#include <assert.h>

#include "sim/offload/actions.h"
#include "sim/offload/hidden_states.h"
#include "sim/offload/systems.h"

/* Tensors that wait for their file or are being written: twice axolotl's save_workers. */
enum { OUTSTANDING = 8 };

typedef struct saved_tensor {
  uint32_t entry;
  device_buffer source;
  event_id written;
} saved_tensor;

typedef struct manager {
  const chunk_shape *shape;
  saved_tensor *saved; /* by number */
  uint32_t count;      /* of this micro-batch */
  uint32_t waited_for; /* numbers below are known to be written */
  uint32_t left;       /* number not needed yet */
} manager;

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  manager *x = ARENA_NEW(a, manager);
  (void)iteration;
  (void)d;

  *x = (manager){ .shape = only_chunk(r) };
  x->saved = ARENA_ARRAY(a, saved_tensor, x->shape->entry_count);
  return x;
}

/* ---- forward ---- */

static void wait_until_written(manager *x, walk *w, instance_id i, uint32_t number)
{
  for (; x->waited_for <= number; x->waited_for++) {
    saved_tensor *t = &x->saved[x->waited_for];
    assert(x->waited_for < x->count);
    act_host_wait(w, t->written);
    act_let_go(w, t->source);
    act_drop_host(w, i, t->entry);
  }
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  manager *x = state;
  assert(entry > 0 && entry < x->shape->entry_count);
  saved_tensor *t = &x->saved[x->count];

  if (!is_hidden_states(x->shape, entry)) return;
  assert(x->left == x->count && x->count < x->shape->entry_count && "forward, then backward");
  if (x->count >= OUTSTANDING) wait_until_written(x, w, i, x->count - OUTSTANDING);
  act_copy_out(w, i, entry,
               (offload_how){ .form = COPY_VIEW, .pageable = true, .stream = STREAM_COMPUTE });
  *t = (saved_tensor){ .entry = entry, .source = act_hold(w, i, entry) };
  act_release(w, i, entry);
  act_join(w, STREAM_DISK_OUT, STREAM_COMPUTE);
  act_write_file(w, i, entry, STREAM_DISK_OUT);
  t->written = act_record(w, STREAM_DISK_OUT);
  x->left = ++x->count;
  assert(x->count - x->waited_for <= OUTSTANDING);
}

/* ---- backward ---- */

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  manager *x = state;
  assert(x->left > 0 && x->left <= x->count);
  uint32_t number = --x->left;
  assert(x->saved[number].entry == entry && "backward asks in reverse");

  wait_until_written(x, w, i, number);
  assert(act_place(w, i, entry) == PLACE_FILE && "the tensor is only in its file");
  act_read_file(w, i, entry, STREAM_DISK_IN);
  act_host_wait(w, act_record(w, STREAM_DISK_IN));
  act_reload(w, i, entry, STREAM_COMPUTE, STREAM_COMPUTE);
  act_drop_file(w, i, entry);
  if (number == 0) x->count = x->waited_for = 0;
}

/* ---- conditions ---- */

/* Its checkpoints may be reentrant or not, as in that system. */
static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_axolotl_disk);
  return hidden_states_reentrant_system.conditions(s, d);
}

/* ---- theory ---- */

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(t->rank->chunk_count == 1 && entry < c->entry_count);

  return is_hidden_states(c, entry) && hidden_states_newer(c, entry) >= OUTSTANDING;
}

const offload_descriptor axolotl_disk_system = {
  .policy = {
    .begin = begin,
    .entry_ready = entry_ready,
    .unpack = unpack,
  },
  .theory = { .group_leaves = theory_every_group, .entry_leaves = theory_entry },
  .conditions = conditions,
  .streams = {
    .leaves = "inputs of checkpoints, to files",
    .waits_for_copy_out = "the host, eight layers later",
    .memory_goes = "then",
    .comes_back = "on demand; the host waits for the file",
    .into_pool_of = "compute",
  },
};
