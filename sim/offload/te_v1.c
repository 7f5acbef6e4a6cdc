/*
 * Transformer Engine's first engine for offloading whole layers: the double buffer
 * (transformer_engine/pytorch/cpu_offload_v1.py, AsyncDoubleBufferGroupOffloadHandler).
 *
 * The first N of L layers leave, one in each window (layer_windows.h). At the end of a window
 * compute waits for the layer's copy, the layer's device memory is freed, and the next layer's copy
 * begins. Backward mirrors it: at the same layer's commit, before that layer's backward, compute
 * waits for the last reload and the next one begins.
 *
 * Because compute has waited for the copies, no stream needs to be marked, and reloads use
 * compute's memory. With double buffering they alternate between two sets of buffers that live
 * forever.
 */
#include <assert.h>
#include <inttypes.h>

#include "sim/config/checks.h"
#include "sim/offload/actions.h"
#include "sim/offload/layer_windows.h"
#include "sim/offload/systems.h"
#include "sim/offload/te_entries.h"

typedef struct engine {
  const settings *settings;
  const chunk_shape *shape;
  layer_windows windows;
  bool persistent; /* reloads use the sets below */
  bool warmup;
  device_buffer *sets[2]; /* each has the sizes of layer 0's marked tensors */
} engine;

/* The layer's first entry at or after `entry` that leaves, or the end of the layer's entries. */
static uint32_t leaving_from(const engine *x, uint32_t layer, uint32_t entry)
{
  const saved_group *g = layer_group(x->shape, layer);

  assert(entry >= g->first_entry && g->first_entry + g->entry_count <= x->shape->entry_count);
  while (entry < g->first_entry + g->entry_count && !te_v1_entry_leaves(&x->shape->entries[entry]))
    entry++;
  return entry;
}

#define FOR_EACH_LEAVING(x, layer, e)                                                              \
  for (uint32_t e = leaving_from(x, layer, layer_group(x->shape, layer)->first_entry);             \
       e < layer_group(x->shape, layer)->first_entry + layer_group(x->shape, layer)->entry_count;  \
       e = leaving_from(x, layer, e + 1))

static bool same_shape(const engine *x, uint32_t a, uint32_t b)
{
  assert(te_v1_entry_leaves(&x->shape->entries[a]) && te_v1_entry_leaves(&x->shape->entries[b]));
  const saved_entry *one = &x->shape->entries[a], *other = &x->shape->entries[b];

  return one->bytes == other->bytes && one->element_bytes == other->element_bytes;
}

/* Every layer's tensors must fit the sets, whose sizes are those of layer 0's tensors. */
static bool fits_sets(const engine *x, uint32_t layer)
{
  assert(layer < x->windows.offloaded && x->persistent);
  uint32_t model = leaving_from(x, 0, layer_group(x->shape, 0)->first_entry);
  uint32_t end = layer_group(x->shape, 0)->first_entry + layer_group(x->shape, 0)->entry_count;

  FOR_EACH_LEAVING(x, layer, e)
  {
    if (model == end || !same_shape(x, model, e)) return false;
    model = leaving_from(x, 0, model + 1);
  }
  return true;
}

static bool check_sets(const engine *x, diag *d)
{
  assert(x->persistent && x->windows.offloaded > 0);
  for (uint32_t layer = 1; layer < x->windows.offloaded; layer++)
    if (!fits_sets(x, layer))
      return diag_error(
          d, x->settings->at[KEY_offload_cpu_offloading_double_buffering],
          "cpu_offloading_double_buffering needs layers that save the same shapes; layer %d "
          "does not save what layer %d saves",
          layer_group(x->shape, layer)->layer, layer_group(x->shape, 0)->layer);
  return true;
}

/* A layer that is reloaded into the set of a later layer before that layer's backward
 * (cpu_offload_v1.py, bulk_reload_group: the set is the group's number modulo 2, even if it is in
 * use). Its reload begins before the backward of layer end[i], so all layers from there down still
 * need theirs, and layer i + 2 is the first that shares its set. UINT32_MAX: none. */
static uint32_t overwriting_layer(const engine *x)
{
  assert(x->windows.offloaded < x->windows.layers && "the last layer stays");
  for (uint32_t i = 0; i + 2 < x->windows.offloaded; i++)
    if (i + 2 <= x->windows.end[i]) return i;
  return UINT32_MAX;
}

/* No fix is known; the released code computes with overwritten data. */
static bool check_overwriting(const engine *x, diag *d)
{
  assert(x->persistent);
  uint32_t layer = overwriting_layer(x);
  bool released = x->settings->offload.mode == MODE_AS_RELEASED;

  if (layer == UINT32_MAX || released) return true;
  return diag_error(
      d, x->settings->at[KEY_offload_cpu_offloading_double_buffering],
      "cpu_offloading_double_buffering with cpu_offloading_num_layers %u: layer %d comes "
      "back into the buffers that layer %d still needs; choose num_layers - 1, or set offload.mode "
      "as_released to predict the run with that defect",
      x->windows.offloaded, layer_group(x->shape, layer)->layer,
      layer_group(x->shape, layer + 2)->layer);
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  engine *x = ARENA_NEW(a, engine);

  *x = (engine){ .settings = r->settings,
                 .shape = only_chunk(r),
                 .windows =
                     layer_windows_new(only_chunk(r)->group_count - 1,
                                       (uint32_t)r->settings->offload.cpu_offloading_num_layers, a),
                 .persistent = r->settings->offload.cpu_offloading_double_buffering,
                 .warmup = iteration == ITERATION_WARMUP };
  if (!x->persistent) return x;
  if (!check_sets(x, d) || !check_overwriting(x, d)) return NULL;
  for (int set = 0; set < 2; set++)
    x->sets[set] = ARENA_ARRAY(a, device_buffer, layer_group(x->shape, 0)->entry_count + 1);
  return x;
}

static void make_set(engine *x, walk *w, uint32_t set)
{
  uint32_t k = 0;

  if (!x->persistent) return;
  assert(set < 2 && x->sets[set] != NULL);
  FOR_EACH_LEAVING(x, 0, e)
  x->sets[set][k++] = act_own_buffer(w, 0, e);
  assert(k <= layer_group(x->shape, 0)->entry_count);
}

/* The first iteration allocates the sets; in later ones they are residents. */
static void iteration_begin(void *state, walk *w)
{
  engine *x = state;

  if (x->warmup) return;
  assert(x->windows.count == 0 && "no window is open between iterations");
  make_set(x, w, 0);
  make_set(x, w, 1);
}

/* ---- forward ---- */

static void copy_out(const engine *x, walk *w, instance_id i, uint32_t layer)
{
  assert(layer < x->windows.offloaded);
  FOR_EACH_LEAVING(x, layer, e)
  {
    bool contiguous = x->shape->entries[e].contiguous;
    act_copy_out(
        w, i, e,
        (offload_how){ .form = contiguous ? COPY_VIEW : COPY_GATHERED, .stream = STREAM_D2H });
  }
}

static void end_window(engine *x, walk *w, instance_id i)
{
  uint32_t left = x->windows.count++;
  assert(left < x->windows.offloaded && "windows end in order, each once");

  act_join(w, STREAM_D2H, STREAM_COMPUTE);
  act_join(w, STREAM_COMPUTE, STREAM_D2H);
  FOR_EACH_LEAVING(x, left, e)
  act_release(w, i, e);
  if (left + 1 < x->windows.offloaded) copy_out(x, w, i, left + 1);
}

static void group_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  engine *x = state;
  uint32_t layer = group - 1;

  assert(group > 0 && layer < x->windows.layers);
  if (layer == 0) {
    act_join(w, STREAM_D2H, STREAM_COMPUTE);
    if (x->warmup) make_set(x, w, 0);
    copy_out(x, w, i, 0);
  }
  if (layer_windows_end_at(&x->windows, layer)) end_window(x, w, i);
  if (layer == x->windows.layers - 1) {
    assert(x->windows.count == x->windows.offloaded && "the last layer ends the last window");
    if (x->warmup) make_set(x, w, 1);
    x->warmup = false;
  }
}

/* ---- backward ---- */

static void copy_in(const engine *x, walk *w, instance_id i, uint32_t layer)
{
  const device_buffer *own = x->sets[layer % 2];
  assert(x->persistent == (own != NULL));

  FOR_EACH_LEAVING(x, layer, e)
  {
    if (x->persistent)
      act_reload_into(w, i, e, STREAM_H2D, *own++);
    else
      act_reload(w, i, e, STREAM_H2D, STREAM_COMPUTE);
  }
}

static void group_backward_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  assert(group > 0 && group < 1 + ((const engine *)state)->windows.layers);
  engine *x = state;

  uint32_t coming = layer_windows_backward(&x->windows, w, group - 1);
  if (coming != NO_LAYER) copy_in(x, w, i, coming);
}

static const char *defects(void *state)
{
  const engine *x = state;
  assert(x->persistent == (x->sets[0] != NULL));

  return x->persistent && overwriting_layer(x) != UINT32_MAX
             ? "a layer is reloaded into buffers of a layer whose backward has not run"
             : NULL;
}

/* ---- conditions ---- */

static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_te_v1);
  return need(s, d, s->offload.cpu_offloading_num_layers > 0, KEY_offload_cpu_offloading_num_layers,
              KEY_offload_system,
              "cpu_offloading_num_layers is 0; offload system te_v1 needs a layer");
}

/* ---- comparison: all layers but one ---- */

static const char *compared_layers(const settings *given, const settings *resolved, arena *a)
{
  int64_t most = given->model.num_layers - 1;
  (void)resolved;

  if (given->offload.cpu_offloading_num_layers != 0) return NULL;
  return arena_printf(a, "%" PRId64, most < 1 ? 1 : most);
}

/* ---- theory ---- */

static bool theory_group(const offload_theory *t, uint32_t position, uint32_t group)
{
  assert(position < t->order.count && group > 0);

  return group <= t->rank->settings->offload.cpu_offloading_num_layers;
}

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count);
  (void)t;

  return te_v1_entry_leaves(&c->entries[entry]);
}

const offload_descriptor te_v1_system = {
  .policy = {
    .begin = begin,
    .iteration_begin = iteration_begin,
    .group_commit = group_commit,
    .group_backward_commit = group_backward_commit,
    .defects = defects,
  },
  .theory = { .group_leaves = theory_group, .entry_leaves = theory_entry },
  .conditions = conditions,
  .compared = { .key = KEY_offload_cpu_offloading_num_layers, .value = compared_layers },
  .streams = {
    .leaves = "what the first N layers mark",
    .waits_for_copy_out = "compute, at the end of the layer's window",
    .memory_goes = "then",
    .comes_back = "one window ahead",
    .into_pool_of = "compute",
  },
};
