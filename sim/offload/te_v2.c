/*
 * Transformer Engine's second engine for offloading whole layers
 * (transformer_engine/pytorch/cpu_offload.py): when layers leave and come back, and how.
 *
 * In its automatic mode (DefaultOffloadSynchronizer) the first N of L layers leave. Forward, on
 * entering layer i: the copies of layer i - 1 are issued, each of which waits only for its own
 * tensor; compute waits for the copies of layer i - (L - N), whose device memory is freed.
 * Backward, before layer i: all memory of the layer that ran before is freed, and the reload of
 * layer i - (L - 1 - N) begins; an operator waits for the tensors that it needs. So L - N layers
 * are on the device at every boundary of layers.
 *
 * In the manual mode (ManualOffloadSynchronizer) the training script calls the engine for each
 * layer. Here it does so for the layers of cpu_offloading_layers: start_offload_layer after the
 * layer's forward, release_activation_forward_gpu_memory cpu_offloading_release_after layers later,
 * start_reload_layer cpu_offloading_reload_ahead layers before its backward, both within the chunk.
 * The engine also keeps what other layers have saved.
 */
#include <assert.h>
#include <inttypes.h>

#include "sim/config/checks.h"
#include "sim/offload/actions.h"
#include "sim/offload/systems.h"
#include "sim/offload/te_entries.h"

/*
 * In either mode (OffloadableLayerState, OffloadSynchronizer). A layer is numbered within its chunk,
 * and has a separate state for every micro-batch in flight.
 *
 * One stream copies both ways. Reloads use compute's memory, so each first waits for compute.
 * Tensors with the same storage are copied once. Reloaded tensors stay until the end of their
 * layer.
 */

/*
 * A layer that moves, within one micro-batch:
 *
 *           start_offload          release            start_reload          finish_layer
 *   PRESENT --------------> LEAVING --------> ON_HOST -------------> COMING ------------> PRESENT
 *
 * PRESENT  on the device, or its backward is over
 * LEAVING  being copied; its device memory is still there
 * ON_HOST  the device reference is gone
 * COMING   being reloaded, or back
 */
typedef enum layer_state { LAYER_PRESENT, LAYER_LEAVING, LAYER_ON_HOST, LAYER_COMING } layer_state;

/* One micro-batch of one chunk, from the beginning of its forward to the end of its backward. */
typedef struct chunk_pass {
  struct chunk_pass *next_free;
  event_id *ready;     /* by entry: complete; in backward: back on the device */
  event_id *copied;    /* by layer */
  uint8_t *states;     /* by layer: layer_state */
  device_buffer *held; /* until the end of the current layer */
  uint32_t held_count;
  uint32_t backward_layer; /* the current layer, NO_LAYER: none */
  host_buffer *kept;       /* by entry: 1 + the lasting host buffer, 0 = not allocated yet */
} chunk_pass;

#define NO_LAYER UINT32_MAX

typedef struct engine {
  const rank_shape *rank;
  const bool *moves; /* by layer, of every chunk: its saved tensors may leave */
  bool manual;
  uint32_t resident, ahead; /* L - N and L - 1 - N; manual: layers ahead */
  uint32_t release_after;   /* manual */
  bool keeps_host;
  plan_stream copy_stream;
  /* by chunk and entry: the entry whose copy it shares, or itself; 0: it stays */
  uint32_t **first_of;
  chunk_pass **passes; /* by instance */
  chunk_pass **free;   /* by chunk */
  host_buffer **kept;  /* by instance, or by chunk with one stage: see chunk_pass */
  arena *memory;
} engine;

/* ---- what is where ---- */

static uint32_t first_of(const engine *x, instance_id i, uint32_t entry)
{
  assert(entry > 0 && entry < instance_chunk(x->rank, i)->entry_count);
  return x->first_of[i % x->rank->chunk_count][entry];
}

static uint32_t entries_begin(const engine *x, instance_id i, uint32_t layer)
{
  assert(layer + 1 < instance_chunk(x->rank, i)->group_count);
  return instance_group(x->rank, i, layer + 1)->first_entry;
}

static uint32_t entries_end(const engine *x, instance_id i, uint32_t layer)
{
  uint32_t end = entries_begin(x, i, layer) + instance_group(x->rank, i, layer + 1)->entry_count;
  assert(end <= instance_chunk(x->rank, i)->entry_count);
  return end;
}

static uint32_t layer_count(const engine *x, instance_id i)
{
  assert(instance_chunk(x->rank, i)->group_count > 0 && "group 0 is none");
  return instance_chunk(x->rank, i)->group_count - 1;
}

static bool layer_moves(const engine *x, instance_id i, uint32_t layer)
{
  return layer < layer_count(x, i) && x->moves[layer];
}

static copy_form form_of(const engine *x, instance_id i, uint32_t entry)
{
  assert(te_v2_entry_leaves(instance_entry(x->rank, i, entry)));
  return te_v2_whole_storage(instance_entry(x->rank, i, entry)) ? COPY_STORAGE : COPY_VIEW;
}

/* Pipeline stages have several micro-batches in flight. The engine counts the layers of each
 * separately, so each has its own host buffers. */
static host_buffer *kept_of(engine *x, instance_id i)
{
  assert(x->keeps_host);
  bool one_stage = x->rank->settings->parallel.pipeline_model_parallel_size == 1;
  host_buffer **kept = &x->kept[one_stage ? i % x->rank->chunk_count : i];
  if (*kept == NULL)
    *kept = ARENA_ARRAY(x->memory, host_buffer, instance_chunk(x->rank, i)->entry_count);
  return *kept;
}

/* ---- the beginning ---- */

static uint32_t find_first(const engine *x, uint32_t chunk, uint32_t entry)
{
  assert(entry < x->rank->chunks[chunk].entry_count);
  const chunk_shape *c = &x->rank->chunks[chunk];
  if (!te_v2_entry_leaves(&c->entries[entry])) return 0;
  for (uint32_t e = c->groups[c->entries[entry].group].first_entry; e < entry; e++)
    if (x->first_of[chunk][e] == e && te_v2_same_copy(&c->entries[e], &c->entries[entry])) return e;
  return entry;
}

static void find_copies(engine *x, uint32_t chunk)
{
  assert(chunk < x->rank->chunk_count && x->first_of[chunk] == NULL);
  const chunk_shape *c = &x->rank->chunks[chunk];
  x->first_of[chunk] = ARENA_ARRAY(x->memory, uint32_t, c->entry_count);
  for (uint32_t e = 1; e < c->entry_count; e++) {
    uint32_t group = c->entries[e].group;
    if (group != 0 && (x->manual || x->moves[group - 1]))
      x->first_of[chunk][e] = find_first(x, chunk, e);
  }
}

static plan_stream stream_of(const settings *s)
{
  switch (s->offload.cpu_offloading_stream) {
  case OFFLOAD_STREAM_COMPUTE: return STREAM_COMPUTE;
  case OFFLOAD_STREAM_COMM: return STREAM_COMM;
  case OFFLOAD_STREAM_OWN: break;
  }
  return STREAM_D2H;
}

static void begin_manual(engine *x)
{
  assert(x->manual && x->rank->settings->derived.layer_is_offloaded != NULL);
  const struct offload_settings *o = &x->rank->settings->offload;

  x->release_after = (uint32_t)o->cpu_offloading_release_after;
  x->ahead = (uint32_t)o->cpu_offloading_reload_ahead;
  x->moves = x->rank->settings->derived.layer_is_offloaded;
  x->copy_stream = stream_of(x->rank->settings);
}

static void begin_automatic(engine *x)
{
  uint32_t layers = x->rank->chunks[0].group_count - 1;
  uint32_t offloaded = (uint32_t)x->rank->settings->offload.cpu_offloading_num_layers;
  bool *moves = ARENA_ARRAY(x->memory, bool, layers);

  assert(x->rank->chunk_count == 1 && "one stage, one chunk");
  assert(offloaded < layers && "the last layer stays");
  for (uint32_t layer = 0; layer < offloaded; layer++)
    moves[layer] = true;
  x->resident = layers - offloaded;
  x->ahead = x->resident - 1;
  x->moves = moves;
  x->copy_stream = STREAM_D2H;
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  engine *x = ARENA_NEW(a, engine);
  const struct offload_settings *o = &r->settings->offload;
  size_t instances = (size_t)r->settings->derived.num_microbatches * r->chunk_count;
  (void)iteration;
  (void)d;

  *x = (engine){ .rank = r,
                 .manual = o->cpu_offloading_manual_synchronization,
                 .keeps_host = o->cpu_offloading_retain_pinned_cpu_buffers,
                 .memory = a };
  if (x->manual)
    begin_manual(x);
  else
    begin_automatic(x);
  assert(instances > 0 && (x->manual || x->ahead < x->resident));
  x->first_of = ARENA_ARRAY(a, uint32_t *, r->chunk_count);
  x->free = ARENA_ARRAY(a, chunk_pass *, r->chunk_count);
  x->passes = ARENA_ARRAY(a, chunk_pass *, instances);
  x->kept = ARENA_ARRAY(a, host_buffer *, instances);
  for (uint32_t c = 0; c < r->chunk_count; c++)
    find_copies(x, c);
  return x;
}

static chunk_pass *new_pass(engine *x, instance_id i)
{
  assert(x->passes[i] == NULL && "a micro-batch is in flight once");
  const chunk_shape *c = instance_chunk(x->rank, i);
  chunk_pass **unused = &x->free[i % x->rank->chunk_count], *p = *unused;

  if (p != NULL) {
    assert(p->held_count == 0 && p->backward_layer == NO_LAYER);
    *unused = p->next_free;
    return p;
  }
  p = ARENA_NEW(x->memory, chunk_pass);
  p->ready = ARENA_ARRAY(x->memory, event_id, c->entry_count);
  p->held = ARENA_ARRAY(x->memory, device_buffer, c->entry_count);
  p->copied = ARENA_ARRAY(x->memory, event_id, c->group_count);
  p->states = ARENA_ARRAY(x->memory, uint8_t, c->group_count);
  p->backward_layer = NO_LAYER;
  return p;
}

static chunk_pass *pass_of(engine *x, instance_id i)
{
  if (x->passes[i] == NULL) {
    x->passes[i] = new_pass(x, i);
    x->passes[i]->kept = x->keeps_host ? kept_of(x, i) : NULL;
  }
  assert(x->keeps_host == (x->passes[i]->kept != NULL));
  return x->passes[i];
}

static void become(engine *x, instance_id i, uint32_t layer, layer_state from, layer_state to)
{
  chunk_pass *p = pass_of(x, i);

  assert(layer_moves(x, i, layer) && p->states[layer] == from && "as in the diagram");
  p->states[layer] = (uint8_t)to;
}

/* ---- host buffers that stay ---- */

static host_buffer keep_host(engine *x, walk *w, instance_id i, uint32_t entry, host_buffer *kept)
{
  assert(x->keeps_host && first_of(x, i, entry) == entry);
  if (*kept == 0)
    *kept = 1 + act_own_host_buffer(w, i % x->rank->chunk_count, entry, form_of(x, i, entry));
  return *kept - 1;
}

static void keep_layer(engine *x, walk *w, instance_id i, uint32_t layer)
{
  assert(layer_moves(x, i, layer));
  host_buffer *kept = kept_of(x, i);
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++)
    if (first_of(x, i, e) == e) keep_host(x, w, i, e, &kept[e]);
}

/* A steady iteration: takes over the host buffers that the previous one kept. */
static void iteration_begin(void *state, walk *w)
{
  engine *x = state;
  uint32_t chunks = x->rank->chunk_count;
  instance_id count = (instance_id)x->rank->settings->derived.num_microbatches * chunks;
  for (instance_id i = 0; x->keeps_host && i < count; i++)
    for (uint32_t layer = 0; layer < layer_count(x, i); layer++)
      if (layer_moves(x, i, layer)) keep_layer(x, w, i, layer);
}

/* ---- how: forward ---- */

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  assert(pass_of(x, i)->backward_layer == NO_LAYER && "forward comes before backward");
  if (first_of(x, i, entry) == entry) pass_of(x, i)->ready[entry] = act_record(w, STREAM_COMPUTE);
}

static void copy_out(engine *x, walk *w, instance_id i, uint32_t entry)
{
  assert(first_of(x, i, entry) == entry && act_place(w, i, entry) == PLACE_DEVICE);
  chunk_pass *p = pass_of(x, i);
  offload_how how = { .form = form_of(x, i, entry), .stream = x->copy_stream };
  act_wait(w, x->copy_stream, p->ready[entry]);
  if (p->kept != NULL)
    act_copy_out_into(w, i, entry, how, keep_host(x, w, i, entry, &p->kept[entry]));
  else
    act_copy_out(w, i, entry, how);
}

static void start_offload(engine *x, walk *w, instance_id i, uint32_t layer)
{
  become(x, i, layer, LAYER_PRESENT, LAYER_LEAVING);
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++) {
    uint32_t first = first_of(x, i, e);
    if (first == e)
      copy_out(x, w, i, e);
    else if (first != 0)
      act_share(w, i, e, first);
  }
  pass_of(x, i)->copied[layer] = act_record(w, x->copy_stream);
}

/* Compute waits for the copies, which must have begun. */
static void release(engine *x, walk *w, instance_id i, uint32_t layer)
{
  become(x, i, layer, LAYER_LEAVING, LAYER_ON_HOST);
  act_wait(w, STREAM_COMPUTE, pass_of(x, i)->copied[layer]);
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++)
    if (first_of(x, i, e) != 0) act_release(w, i, e);
}

/* ---- how: backward ---- */

static void start_reload(engine *x, walk *w, instance_id i, uint32_t layer)
{
  chunk_pass *p = pass_of(x, i);
  become(x, i, layer, LAYER_ON_HOST, LAYER_COMING);
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++) {
    uint32_t first = first_of(x, i, e);
    if (first == 0) continue;
    if (first != e) {
      act_share(w, i, e, first);
      p->ready[e] = p->ready[first];
      continue;
    }
    act_join(w, x->copy_stream, STREAM_COMPUTE);
    act_copy_in(w, i, e, x->copy_stream, STREAM_COMPUTE);
    p->ready[e] = act_record(w, x->copy_stream);
  }
}

/* Compute waits for the reload, which must have begun. */
static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  assert(act_place(w, i, entry) == PLACE_DEVICE && "its reload has begun");
  act_wait(w, STREAM_COMPUTE, pass_of(x, i)->ready[entry]);
}

/* ... begins; its reload has begun. */
static void begin_backward(engine *x, walk *w, instance_id i, uint32_t layer)
{
  chunk_pass *p = pass_of(x, i);
  assert(p->backward_layer == NO_LAYER && p->held_count == 0 && "one layer at a time");
  p->backward_layer = layer;
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++)
    if (first_of(x, i, e) == e) p->held[p->held_count++] = act_hold(w, i, e);
  assert(p->held_count < instance_chunk(x->rank, i)->entry_count);
}

/* Ends the backward of the current layer, if there is one. */
static void finish_layer(engine *x, walk *w, instance_id i)
{
  assert(pass_of(x, i)->held_count <= instance_chunk(x->rank, i)->entry_count);
  chunk_pass *p = pass_of(x, i);
  uint32_t layer = p->backward_layer;

  for (uint32_t k = 0; k < p->held_count; k++)
    act_let_go(w, p->held[k]);
  p->held_count = 0;
  p->backward_layer = NO_LAYER;
  if (layer == NO_LAYER || !layer_moves(x, i, layer)) return;
  become(x, i, layer, LAYER_COMING, LAYER_PRESENT);
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++)
    if (first_of(x, i, e) != 0) act_drop_host(w, i, e);
}

/* Ends a micro-batch. */
static void backward_end(void *state, walk *w, instance_id i)
{
  engine *x = state;
  assert(x->passes[i] != NULL && "its forward has run");
  chunk_pass **unused = &x->free[i % x->rank->chunk_count], *p = pass_of(x, i);

  finish_layer(x, w, i);
  p->next_free = *unused;
  *unused = p;
  x->passes[i] = NULL;
  assert(p->held_count == 0 && p->backward_layer == NO_LAYER);
}

/* ---- when: forward ---- */

static void group_start(void *state, walk *w, instance_id i, uint32_t group)
{
  engine *x = state;
  uint32_t layer = group - 1;
  assert(group > 0 && layer < layer_count(x, i));

  if (x->manual) return;
  if (layer > 0 && layer_moves(x, i, layer - 1)) start_offload(x, w, i, layer - 1);
  if (layer >= x->resident && layer_moves(x, i, layer - x->resident))
    release(x, w, i, layer - x->resident);
}

/* Layers [from, to], in the order of forward. */
static void release_between(engine *x, walk *w, instance_id i, uint32_t from, uint32_t to)
{
  assert(from <= to && to < layer_count(x, i));
  for (uint32_t layer = from; layer <= to; layer++)
    if (layer_moves(x, i, layer)) release(x, w, i, layer);
}

static void group_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  engine *x = state;
  uint32_t layer = group - 1, after = x->release_after;
  assert(group > 0 && layer < layer_count(x, i));

  if (!x->manual) return;
  if (layer_moves(x, i, layer)) start_offload(x, w, i, layer);
  if (layer + 1 == layer_count(x, i))
    release_between(x, w, i, layer > after ? layer - after : 0, layer);
  else if (layer >= after)
    release_between(x, w, i, layer - after, layer - after);
}

/* ---- when: backward ---- */

/* Starts the reloads that are due at the layer's backward; at the last layer's, also all that are
 * further ahead. */
static void start_reloads(engine *x, walk *w, instance_id i, uint32_t layer)
{
  assert(layer < layer_count(x, i));
  bool last = layer + 1 == layer_count(x, i);
  uint32_t nearest = x->manual && last ? 0 : x->ahead;

  for (uint32_t away = nearest; away <= x->ahead && away <= layer; away++)
    if (layer_moves(x, i, layer - away)) start_reload(x, w, i, layer - away);
}

static void group_backward_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  engine *x = state;
  assert(group > 0 && group <= layer_count(x, i));

  finish_layer(x, w, i);
  start_reloads(x, w, i, group - 1);
  begin_backward(x, w, i, group - 1);
}

/* ---- conditions ---- */

static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_te_v2);
  bool brings_it = s->derived.software.transformer_engine >= SOFTWARE_VERSION(2, 10);

  return need(s, d, brings_it, KEY_offload_system, KEY_software_container,
              "offload system te_v2 needs Transformer Engine 2.10; container is \"%.100s\"",
              s->software.container);
}

/* ---- comparison: all layers but two, so that copies overlap ---- */

static const char *compared_layers(const settings *given, const settings *resolved, arena *a)
{
  int64_t most = given->model.num_layers - 2;
  (void)resolved;

  if (given->offload.cpu_offloading_num_layers != 0 ||
      given->offload.cpu_offloading_manual_synchronization)
    return NULL;
  return arena_printf(a, "%" PRId64, most < 1 ? 1 : most);
}

/* ---- theory ---- */

static bool theory_group(const offload_theory *t, uint32_t position, uint32_t group)
{
  assert(position < t->order.count && group > 0);

  const settings *s = t->rank->settings;
  if (s->offload.cpu_offloading_manual_synchronization)
    return s->derived.layer_is_offloaded[group - 1];
  return group <= s->offload.cpu_offloading_num_layers;
}

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count);
  (void)t;

  return te_v2_entry_leaves(&c->entries[entry]);
}

const offload_descriptor te_v2_system = {
  .policy = {
    .begin = begin,
    .iteration_begin = iteration_begin,
    .group_start = group_start,
    .entry_ready = entry_ready,
    .group_commit = group_commit,
    .group_backward_commit = group_backward_commit,
    .unpack = unpack,
    .backward_end = backward_end,
  },
  .theory = { .group_leaves = theory_group, .entry_leaves = theory_entry },
  .conditions = conditions,
  .compared = { .key = KEY_offload_cpu_offloading_num_layers, .value = compared_layers },
  .streams = {
    .leaves = "large tensors of the first N layers",
    .waits_for_copy_out = "compute, L - N layers later",
    .memory_goes = "then",
    .comes_back = "L - 1 - N layers ahead",
    .into_pool_of = "compute",
  },
};
