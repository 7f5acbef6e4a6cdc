#include "sim/compile/walk.h"

#include <assert.h>
#include <string.h>

/* ---- ops and buffers --------------------------------------------------------------------------- */

uint32_t walk_new_buffer(walk *w, plan_buffer description)
{
  assert(description.bytes >= 0 && description.tensor < w->plan->tensors.count);
  *ARRAY_PUSH(&w->rank->buffers) = description;
  *ARRAY_PUSH(&w->references) = 1;
  assert(w->references.count == w->rank->buffers.count);
  return w->rank->buffers.count - 1;
}

uint32_t walk_resident(walk *w, plan_buffer description)
{
  assert(w->rank->residents == w->rank->buffers.count && "residents come before everything else");
  assert(description.mark == 0);
  w->rank->residents++;
  return walk_new_buffer(w, description);
}

uint32_t walk_alloc(walk *w, int64_t bytes, uint32_t tensor, buffer_class class, plan_stream pool)
{
  assert(pool < STREAM_HOST && class < BUFFER_CLASSES);
  assert(bytes >= 0 && tensor < w->plan->tensors.count);
  return walk_take(w, bytes, tensor, (uint8_t) class, (uint8_t)pool, 0);
}

uint32_t walk_alloc_matrix(walk *w, const char *name, dtype type, int64_t rows, int64_t columns)
{
  assert(rows > 0 && columns > 0);
  *ARRAY_PUSH(&w->plan->tensors) =
      (plan_tensor){ .name = name, .dtype = (uint8_t)type, .rank = 2, .shape = { rows, columns } };
  return walk_alloc(w, rows * columns * dtype_bytes(type), w->plan->tensors.count - 1,
                    CLASS_TRANSIENT, STREAM_COMPUTE);
}

void walk_fill(walk *w, uint32_t buffer)
{
  assert(buffer < w->rank->buffers.count);
  w->rank->buffers.items[buffer].filled = 1;
}

void walk_retain(walk *w, uint32_t buffer)
{
  assert(buffer < w->rank->buffers.count);
  w->rank->buffers.items[buffer].purpose = CLASS_RETAINED;
  *ARRAY_PUSH(&w->retained) = buffer;
}

bool walk_retain_of_size(walk *w, uint32_t buffer, int64_t bytes)
{
  assert(walk_references(w, buffer) > 0 && bytes > 0);
  bool retains = w->rank->buffers.items[buffer].bytes == bytes &&
                 (w->references.items[buffer] & REFERENCE_EMPTIED) == 0;
  if (retains) walk_retain(w, buffer);
  return retains;
}

void walk_mark_stream(walk *w, uint32_t buffer, plan_stream stream)
{
  uint32_t bit = REFERENCE_MARK_SHIFT + (uint32_t)walk_stream(w, stream);
  assert(walk_stream(w, stream) < STREAM_HOST &&
         (w->references.items[buffer] & REFERENCE_COUNT) != 0);
  w->references.items[buffer] |= UINT32_C(1) << bit;
}

void walk_host_sync(walk *w, plan_stream stream)
{
  act_host_wait(w, act_record(w, stream));
}

void walk_device_sync(walk *w)
{
  assert(w->stream == STREAM_COMPUTE && "no part runs");
  /* Copies come last, so they are blamed only for the wait that remains when everything else is
   * done. */
  static const plan_stream streams[] = { STREAM_COMPUTE, STREAM_COMM, STREAM_PREVIOUS,
                                         STREAM_NEXT,    STREAM_D2H,  STREAM_H2D };
  for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++)
    walk_host_sync(w, streams[i]);
  if (w->settings->parallel.overlap_moe_expert_parallel_comm) walk_host_sync(w, STREAM_A2A);
  if (stashes_experts(w->settings)) walk_host_sync(w, STREAM_PACK);
  if (!keeps_experts_on_host(w->settings)) return;
  walk_host_sync(w, STREAM_WEIGHTS);
  walk_host_sync(w, STREAM_WEIGHTS_ODD);
}

void walk_host_read(walk *w)
{
  act_host_read(w, act_record(w, STREAM_COMPUTE));
}

void walk_begin_mark(walk *w, mark_kind kind, uint32_t microbatch, uint32_t chunk)
{
  assert(kind < MARK_KINDS && chunk < w->chunk_count);
  *ARRAY_PUSH(&w->rank->marks) =
      (plan_mark){ .kind = (uint8_t)kind, .microbatch = microbatch, .chunk = chunk };
  w->mark = w->rank->marks.count - 1;
  walk_emit(w, OP_MARK, STREAM_HOST, w->mark);
}

void walk_mark(walk *w, mark_kind direction, instance_id i)
{
  assert(direction == MARK_FORWARD || direction == MARK_BACKWARD);
  const plan_mark *now = &w->rank->marks.items[w->mark];
  uint32_t microbatch = i / w->chunk_count, chunk = i % w->chunk_count;
  if (now->kind != direction || now->microbatch != microbatch || now->chunk != chunk)
    walk_begin_mark(w, direction, microbatch, chunk);
}

/* ---- instances --------------------------------------------------------------------------------- */

static instance *new_instance(walk *w, uint32_t chunk)
{
  assert(chunk < w->chunk_count);
  const chunk_program *p = w->programs[chunk];
  instance *made = w->free_instances[chunk];
  if (made != NULL) {
    assert(made->weight_of == w->weight_of[chunk] && made->gradient_of == w->gradient_of[chunk]);
    w->free_instances[chunk] = made->next_free;
    memset(made->packed_alone, 0, p->entries.count * sizeof *made->packed_alone);
    memset(made->alone, 0, p->entries.count * sizeof *made->alone);
    return made;
  }
  arena *a = &w->of_instances;
  made = ARENA_NEW(a, instance);
  made->buffer_of = ARENA_ARRAY(a, uint32_t, p->places.count);
  made->host_of = ARENA_ARRAY(a, uint32_t, p->entries.count);
  made->file_of = ARENA_ARRAY(a, uint32_t, p->entries.count);
  made->unpacked = ARENA_ARRAY(a, bool, p->entries.count);
  made->packed_alone = ARENA_ARRAY(a, bool, p->entries.count);
  made->alone = ARENA_ARRAY(a, bool, p->entries.count);
  made->weight_of = w->weight_of[chunk];
  made->gradient_of = w->gradient_of[chunk];
  memset(made->buffer_of, 0xff, p->places.count * sizeof *made->buffer_of);
  memset(made->host_of, 0xff, p->entries.count * sizeof *made->host_of);
  memset(made->file_of, 0xff, p->entries.count * sizeof *made->file_of);
  return made;
}

instance *walk_open_instance(walk *w, instance_id i)
{
  assert(i < (uint64_t)w->settings->derived.num_microbatches * w->chunk_count);
  if (w->instances[i] == NULL) w->instances[i] = new_instance(w, i % w->chunk_count);
  return w->instances[i];
}

void walk_drop_place(walk *w, instance_id i, place_id p)
{
  if (p != 0) walk_drop(w, walk_instance(w, i), p);
}

/* After its last send an instance refers to nothing, so another micro-batch reuses its arrays. */
void walk_close_instance(walk *w, instance_id i)
{
  instance *in = walk_instance(w, i);
#ifdef OFFSIM_VALIDATE_PLANS
  for (uint32_t p = 0; p < walk_program(w, i)->places.count; p++)
    assert(in->buffer_of[p] == NO_BUFFER && "a closed instance refers to nothing");
#endif
  in->next_free = w->free_instances[i % w->chunk_count];
  w->free_instances[i % w->chunk_count] = in;
  w->instances[i] = NULL;
}
