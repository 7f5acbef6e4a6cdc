#include "sim/offload/te_v2_layers.h"

#include <assert.h>

#include "sim/offload/te_entries.h"

/* One micro-batch of one chunk, from the beginning of its forward to the end of its backward. */
typedef struct chunk_pass {
  struct chunk_pass *next_free;
  event_id *ready;     /* by entry: complete; in backward: back on the device */
  event_id *copied;    /* by layer */
  device_buffer *held; /* until the end of the layer under way */
  uint32_t held_count;
  uint32_t backward_layer; /* under way, NO_LAYER: none */
  host_buffer *kept;       /* by entry: 1 + the host buffer that stays, 0 = not taken yet */
} chunk_pass;

#define NO_LAYER UINT32_MAX

struct te_v2_layers {
  const rank_shape *rank;
  const bool *moves;
  bool holds_all, keeps_host;
  plan_stream copy_stream;
  uint32_t *
      *first_of; /* by chunk and entry: that whose copy it shares, itself if none; 0: it stays */
  chunk_pass **passes; /* by instance */
  chunk_pass **free;   /* by chunk */
  host_buffer **kept;  /* by instance, of one stage by chunk: see chunk_pass */
  arena *memory;
};

/* ---- what stands where ---- */

static const chunk_shape *shape_of(const te_v2_layers *x, instance_id i)
{
  return &x->rank->chunks[i % x->rank->chunk_count];
}

static uint32_t first_of(const te_v2_layers *x, instance_id i, uint32_t entry)
{
  return x->first_of[i % x->rank->chunk_count][entry];
}

static uint32_t entries_begin(const te_v2_layers *x, instance_id i, uint32_t layer)
{
  return shape_of(x, i)->groups[layer + 1].first_entry;
}

static uint32_t entries_end(const te_v2_layers *x, instance_id i, uint32_t layer)
{
  return entries_begin(x, i, layer) + shape_of(x, i)->groups[layer + 1].entry_count;
}

uint32_t te_v2_layer_count(const te_v2_layers *x, instance_id i)
{
  return shape_of(x, i)->group_count - 1;
}

bool te_v2_layer_moves(const te_v2_layers *x, instance_id i, uint32_t layer)
{
  return layer < te_v2_layer_count(x, i) && x->moves[layer];
}

static copy_form form_of(const te_v2_layers *x, instance_id i, uint32_t entry)
{
  return te_v2_whole_storage(&shape_of(x, i)->entries[entry]) ? COPY_STORAGE : COPY_VIEW;
}

/* Pipeline stages have several micro-batches in flight, each with layers of its own in the engine's
 * count, and so host buffers of its own. */
static host_buffer *kept_of(te_v2_layers *x, instance_id i)
{
  bool one_stage = x->rank->settings->parallel.pipeline_model_parallel_size == 1;
  host_buffer **kept = &x->kept[one_stage ? i % x->rank->chunk_count : i];
  if (*kept == NULL) *kept = ARENA_ARRAY(x->memory, host_buffer, shape_of(x, i)->entry_count);
  return *kept;
}

/* ---- the beginning ---- */

static uint32_t find_first(const te_v2_layers *x, uint32_t chunk, uint32_t entry)
{
  const chunk_shape *c = &x->rank->chunks[chunk];
  if (!te_v2_entry_leaves(&c->entries[entry])) return 0;
  for (uint32_t e = c->groups[c->entries[entry].group].first_entry; e < entry; e++)
    if (x->first_of[chunk][e] == e && te_v2_same_copy(&c->entries[e], &c->entries[entry])) return e;
  return entry;
}

static void find_copies(te_v2_layers *x, uint32_t chunk)
{
  const chunk_shape *c = &x->rank->chunks[chunk];
  x->first_of[chunk] = ARENA_ARRAY(x->memory, uint32_t, c->entry_count);
  for (uint32_t e = 1; e < c->entry_count; e++) {
    uint32_t group = c->entries[e].group;
    if (group != 0 && (x->holds_all || x->moves[group - 1]))
      x->first_of[chunk][e] = find_first(x, chunk, e);
  }
}

te_v2_layers *te_v2_layers_new(const rank_shape *r, const bool *moves, bool holds_all,
                               plan_stream copy_stream, arena *a)
{
  te_v2_layers *x = ARENA_NEW(a, te_v2_layers);
  size_t instances = (size_t)r->settings->derived.num_microbatches * r->chunk_count;

  *x = (te_v2_layers){ .rank = r,
                       .moves = moves,
                       .holds_all = holds_all,
                       .keeps_host = r->settings->offload.cpu_offloading_retain_pinned_cpu_buffers,
                       .copy_stream = copy_stream,
                       .memory = a };
  x->first_of = ARENA_ARRAY(a, uint32_t *, r->chunk_count);
  x->free = ARENA_ARRAY(a, chunk_pass *, r->chunk_count);
  x->passes = ARENA_ARRAY(a, chunk_pass *, instances);
  x->kept = ARENA_ARRAY(a, host_buffer *, instances);
  for (uint32_t c = 0; c < r->chunk_count; c++)
    find_copies(x, c);
  return x;
}

static chunk_pass *new_pass(te_v2_layers *x, instance_id i)
{
  const chunk_shape *c = shape_of(x, i);
  chunk_pass **unused = &x->free[i % x->rank->chunk_count], *p = *unused;

  if (p != NULL) {
    *unused = p->next_free;
    return p;
  }
  p = ARENA_NEW(x->memory, chunk_pass);
  p->ready = ARENA_ARRAY(x->memory, event_id, c->entry_count);
  p->held = ARENA_ARRAY(x->memory, device_buffer, c->entry_count);
  p->copied = ARENA_ARRAY(x->memory, event_id, c->group_count);
  p->backward_layer = NO_LAYER;
  return p;
}

static chunk_pass *pass_of(te_v2_layers *x, instance_id i)
{
  if (x->passes[i] == NULL) {
    x->passes[i] = new_pass(x, i);
    x->passes[i]->kept = x->keeps_host ? kept_of(x, i) : NULL;
  }
  return x->passes[i];
}

/* ---- host buffers that stay ---- */

static host_buffer keep_host(te_v2_layers *x, walk *w, instance_id i, uint32_t entry,
                             host_buffer *kept)
{
  if (*kept == 0)
    *kept = 1 + act_own_host_buffer(w, i % x->rank->chunk_count, entry, form_of(x, i, entry));
  return *kept - 1;
}

static void keep_layer(te_v2_layers *x, walk *w, instance_id i, uint32_t layer)
{
  host_buffer *kept = kept_of(x, i);
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++)
    if (first_of(x, i, e) == e) keep_host(x, w, i, e, &kept[e]);
}

void te_v2_layers_keep(te_v2_layers *x, walk *w)
{
  uint32_t chunks = x->rank->chunk_count;
  instance_id count = (instance_id)x->rank->settings->derived.num_microbatches * chunks;
  for (instance_id i = 0; x->keeps_host && i < count; i++)
    for (uint32_t layer = 0; layer < te_v2_layer_count(x, i); layer++)
      if (te_v2_layer_moves(x, i, layer)) keep_layer(x, w, i, layer);
}

/* ---- forward ---- */

void te_v2_entry_ready(te_v2_layers *x, walk *w, instance_id i, uint32_t entry)
{
  if (first_of(x, i, entry) == entry) pass_of(x, i)->ready[entry] = act_record(w, STREAM_COMPUTE);
}

static void copy_out(te_v2_layers *x, walk *w, instance_id i, uint32_t entry)
{
  chunk_pass *p = pass_of(x, i);
  offload_how how = { .form = form_of(x, i, entry), .stream = x->copy_stream };
  act_wait(w, x->copy_stream, p->ready[entry]);
  if (p->kept != NULL)
    act_copy_out_into(w, i, entry, how, keep_host(x, w, i, entry, &p->kept[entry]));
  else
    act_copy_out(w, i, entry, how);
}

void te_v2_start_offload(te_v2_layers *x, walk *w, instance_id i, uint32_t layer)
{
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++) {
    uint32_t first = first_of(x, i, e);
    if (first == e)
      copy_out(x, w, i, e);
    else if (first != 0)
      act_share(w, i, e, first);
  }
  pass_of(x, i)->copied[layer] = act_record(w, x->copy_stream);
}

void te_v2_release(te_v2_layers *x, walk *w, instance_id i, uint32_t layer)
{
  act_wait(w, STREAM_COMPUTE, pass_of(x, i)->copied[layer]);
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++)
    if (first_of(x, i, e) != 0) act_release(w, i, e);
}

/* ---- backward ---- */

void te_v2_start_reload(te_v2_layers *x, walk *w, instance_id i, uint32_t layer)
{
  chunk_pass *p = pass_of(x, i);
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

void te_v2_unpack(te_v2_layers *x, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_DEVICE && "its reload has begun");
  act_wait(w, STREAM_COMPUTE, pass_of(x, i)->ready[entry]);
}

void te_v2_begin_backward(te_v2_layers *x, walk *w, instance_id i, uint32_t layer)
{
  chunk_pass *p = pass_of(x, i);
  p->backward_layer = layer;
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++)
    if (first_of(x, i, e) == e) p->held[p->held_count++] = act_hold(w, i, e);
}

void te_v2_finish_layer(te_v2_layers *x, walk *w, instance_id i)
{
  chunk_pass *p = pass_of(x, i);
  uint32_t layer = p->backward_layer;

  for (uint32_t k = 0; k < p->held_count; k++)
    act_let_go(w, p->held[k]);
  p->held_count = 0;
  p->backward_layer = NO_LAYER;
  if (layer == NO_LAYER || !te_v2_layer_moves(x, i, layer)) return;
  for (uint32_t e = entries_begin(x, i, layer); e < entries_end(x, i, layer); e++)
    if (first_of(x, i, e) != 0) act_drop_host(w, i, e);
}

void te_v2_backward_end(te_v2_layers *x, walk *w, instance_id i)
{
  chunk_pass **unused = &x->free[i % x->rank->chunk_count], *p = pass_of(x, i);

  te_v2_finish_layer(x, w, i);
  p->next_free = *unused;
  *unused = p;
  x->passes[i] = NULL;
}
