/*
 * verl's activation offload for FSDP (verl/utils/activation_offload.py): the schedule of
 * Transformer Engine's double buffer (te_v1.c), where each layer but the last has a window of one
 * layer.
 *
 * At the commit of layer i + 1 compute waits for layer i's copy, and layer i's memory is freed;
 * layer i + 1's copy begins and can hide under layer i + 2. In backward, before layer i + 1,
 * compute waits for its reload, and the reload of layer i begins. So at most two layers are on the
 * device, besides the last one.
 *
 * Unlike in Transformer Engine, everything that a layer saves leaves except its parameters; a
 * tensor saved twice is one copy; and reloads are allocated while the copying stream is current, so
 * from its memory, without a mark for compute: the join at the next commit keeps them safe.
 *
 * Two modes. `as_released`: if a tensor is saved twice, as two views that begin at the same place,
 * the first is copied in the order of its dimensions, and the second gets that copy in its own
 * shape (bulk_reload_group: `.view(shape)`). If the two have different strides, the second's
 * elements are then in the wrong order. That happens to attention's output, which torch's fused
 * kernel saves by head and the projection after it by token (flash_attn saves it by token too).
 * `fixed` copies the storage unchanged, of which both are views.
 */
#include <assert.h>

#include "sim/config/checks.h"
#include "sim/offload/actions.h"
#include "sim/offload/layer_windows.h"
#include "sim/offload/systems.h"
#include "sim/offload/verl_entries.h"

typedef struct engine {
  const settings *settings;
  const chunk_shape *shape;
  layer_windows windows;
  uint32_t *first_of; /* by entry: the entry with which it is copied, maybe itself; 0 = it stays */
  bool *as_it_lies;   /* by entry: other entries view the storage of this copy with other strides */
  bool idle;          /* the model has too few layers */
} engine;

static uint32_t entries_end(const engine *x, uint32_t layer)
{
  assert(layer < x->windows.layers);
  return layer_group(x->shape, layer)->first_entry + layer_group(x->shape, layer)->entry_count;
}

/* Each entry views the first one's copy in its own shape: they must have equally many elements. */
static bool find_copy(const engine *x, uint32_t layer, uint32_t entry, diag *d)
{
  const saved_entry *entries = x->shape->entries;
  uint32_t first = layer_group(x->shape, layer)->first_entry;

  if (!verl_entry_leaves(&entries[entry])) return true;
  while (first < entry &&
         (x->first_of[first] != first || !is_same_start(&entries[first], &entries[entry])))
    first++;
  assert(first <= entry && entry < x->shape->entry_count);
  x->first_of[entry] = first;
  if (entries[first].view != entries[entry].view)
    x->as_it_lies[first] = x->settings->offload.mode != MODE_AS_RELEASED;
  return entries[first].elements == entries[entry].elements ||
         diag_error(d, x->settings->at[KEY_offload_system],
                    "offload system verl: layer %d saves two views that begin at the same place of "
                    "one tensor and differ in size; verl treats them as one tensor, and fails when "
                    "it reloads them",
                    layer_group(x->shape, layer)->layer);
}

static bool find_copies(const engine *x, diag *d)
{
  assert(x->windows.offloaded < x->windows.layers && "the last layer stays");
  for (uint32_t layer = 0; layer < x->windows.offloaded; layer++)
    for (uint32_t e = layer_group(x->shape, layer)->first_entry; e < entries_end(x, layer); e++)
      if (!find_copy(x, layer, e, d)) return false;
  return true;
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  engine *x = ARENA_NEW(a, engine);
  uint32_t layers = only_chunk(r)->group_count - 1;
  uint32_t offloaded = verl_offloaded_layers(layers);
  (void)iteration;

  *x = (engine){ .settings = r->settings, .shape = only_chunk(r), .idle = offloaded == 0 };
  if (x->idle) return x;
  x->windows = layer_windows_new(layers, offloaded, a);
  x->first_of = ARENA_ARRAY(a, uint32_t, x->shape->entry_count);
  x->as_it_lies = ARENA_ARRAY(a, bool, x->shape->entry_count);
  return find_copies(x, d) ? x : NULL;
}

/* ---- forward ---- */

static copy_form form_of(const engine *x, uint32_t entry)
{
  assert(x->first_of[entry] == entry && "others share its copy");
  if (x->as_it_lies[entry]) return COPY_STORAGE;
  return x->shape->entries[entry].contiguous ? COPY_VIEW : COPY_GATHERED;
}

static void copy_out(const engine *x, walk *w, instance_id i, uint32_t layer)
{
  for (uint32_t e = layer_group(x->shape, layer)->first_entry; e < entries_end(x, layer); e++) {
    if (x->first_of[e] == 0) continue;
    assert(x->first_of[e] <= e && x->first_of[x->first_of[e]] == x->first_of[e]);
    if (x->first_of[e] != e) {
      act_share(w, i, e, x->first_of[e]);
      continue;
    }
    act_copy_out(w, i, e, (offload_how){ .form = form_of(x, e), .stream = STREAM_D2H });
  }
}

static void release(const engine *x, walk *w, instance_id i, uint32_t layer)
{
  assert(layer < x->windows.offloaded);
  for (uint32_t e = layer_group(x->shape, layer)->first_entry; e < entries_end(x, layer); e++)
    if (x->first_of[e] != 0) act_release(w, i, e);
}

static void end_window(engine *x, walk *w, instance_id i)
{
  uint32_t left = x->windows.count++;
  assert(left < x->windows.offloaded && "windows end in order, each once");

  act_join(w, STREAM_D2H, STREAM_COMPUTE);
  act_join(w, STREAM_COMPUTE, STREAM_D2H);
  release(x, w, i, left);
  if (left + 1 < x->windows.offloaded) copy_out(x, w, i, left + 1);
}

static void group_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  engine *x = state;
  uint32_t layer = group - 1;

  if (x->idle) return;
  assert(group > 0 && layer < x->windows.layers);
  if (layer == 0) {
    act_join(w, STREAM_D2H, STREAM_COMPUTE);
    copy_out(x, w, i, 0);
  }
  if (layer_windows_end_at(&x->windows, layer)) end_window(x, w, i);
}

/* ---- backward ---- */

static void copy_in(const engine *x, walk *w, instance_id i, uint32_t layer)
{
  assert(layer < x->windows.offloaded);
  for (uint32_t e = layer_group(x->shape, layer)->first_entry; e < entries_end(x, layer); e++) {
    if (x->first_of[e] == 0) continue;
    if (x->first_of[e] == e)
      act_copy_in(w, i, e, STREAM_H2D, STREAM_H2D);
    else
      act_share(w, i, e, x->first_of[e]);
    act_drop_host(w, i, e);
  }
}

static void group_backward_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  engine *x = state;

  if (x->idle) return;
  assert(group > 0 && group <= x->windows.layers);
  uint32_t coming = layer_windows_backward(&x->windows, w, group - 1);
  if (coming != NO_LAYER) copy_in(x, w, i, coming);
}

/* ---- conditions ---- */

static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_verl);
  return need(s, d, s->parallel.fsdp != FSDP_NONE, KEY_offload_system, KEY_parallel_fsdp,
              "offload system verl needs parallel.fsdp fsdp or fsdp2");
}

/* ---- theory ---- */

static bool theory_group(const offload_theory *t, uint32_t position, uint32_t group)
{
  assert(group > 0 && group <= t->table.chunks[chunk_at(&t->order, position)].count);
  const chunk_shape *c = &t->rank->chunks[chunk_at(&t->order, position)];

  return group <= verl_offloaded_layers(c->group_count - 1);
}

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count);
  (void)t;

  return verl_entry_leaves(&c->entries[entry]);
}

const offload_descriptor verl_system = {
  .policy = {
    .begin = begin,
    .group_commit = group_commit,
    .group_backward_commit = group_backward_commit,
  },
  .theory = { .group_leaves = theory_group, .entry_leaves = theory_entry },
  .conditions = conditions,
  .streams = {
    .leaves = "every saved tensor of all layers but the last",
    .waits_for_copy_out = "compute, one layer later",
    .memory_goes = "then",
    .comes_back = "one layer ahead",
    .into_pool_of = "the copying stream",
  },
};
