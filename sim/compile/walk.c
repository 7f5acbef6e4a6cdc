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
  /* Member by member: of a copy, the CPU would have to wait for what has just been written. */
  uint32_t made = w->rank->buffers.count;
  plan_buffer *b = ARRAY_PUSH(&w->rank->buffers);
  b->bytes = bytes;
  b->tensor = tensor;
  b->mark = w->mark;
  b->purpose = (uint8_t) class;
  b->stream = (uint8_t)pool;
  b->filled = 0;
  b->host_key = 0;
  *ARRAY_PUSH(&w->references) = 1;
  walk_emit(w, OP_ALLOC, pool, made);
  return made;
}

void walk_fill(walk *w, uint32_t buffer)
{
  assert(buffer < w->rank->buffers.count);
  w->rank->buffers.items[buffer].filled = 1;
}

void walk_free(walk *w, uint32_t buffer)
{
  assert(buffer < w->references.count && !(w->references.items[buffer] & REFERENCE_EMPTIED) &&
         "a buffer is freed once");
  uint32_t marks =
      (w->references.items[buffer] & ~(uint32_t)REFERENCE_EMPTIED) >> REFERENCE_MARK_SHIFT;
  plan_stream pool = (plan_stream)w->rank->buffers.items[buffer].stream;
  if (pool == STREAM_HOST)
    walk_emit(w, OP_HOST_FREE, STREAM_HOST, buffer);
  else
    walk_emit(w, OP_FREE, pool, buffer)->operands = marks & ~(UINT32_C(1) << pool);
}

void walk_drop_reference(walk *w, uint32_t buffer)
{
  uint32_t *references = &w->references.items[buffer];
  assert((*references & REFERENCE_COUNT) != 0 && "a dropped reference existed");
  --*references;
  if ((*references & (REFERENCE_COUNT | REFERENCE_EMPTIED)) == 0) walk_free(w, buffer);
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

void walk_host_read(walk *w, plan_stream stream)
{
  act_host_read(w, act_record(w, stream));
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

instance *walk_instance(const walk *w, instance_id i)
{
  assert(w->instances[i] != NULL && "a chunk that is not in flight");
  return w->instances[i];
}

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
  made = ARENA_NEW(w->memory, instance);
  made->buffer_of = ARENA_ARRAY(w->memory, uint32_t, p->places.count);
  made->host_of = ARENA_ARRAY(w->memory, uint32_t, p->entries.count);
  made->file_of = ARENA_ARRAY(w->memory, uint32_t, p->entries.count);
  made->unpacked = ARENA_ARRAY(w->memory, bool, p->entries.count);
  made->packed_alone = ARENA_ARRAY(w->memory, bool, p->entries.count);
  made->alone = ARENA_ARRAY(w->memory, bool, p->entries.count);
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

void walk_alloc_place(walk *w, const chunk_program *p, instance *in, place_id id)
{
  const program_place *what = &p->places.items[id];
  assert(id > 0 && id < p->places.count);
  assert(in->buffer_of[id] == NO_BUFFER && "a place refers to one buffer");
  in->buffer_of[id] = walk_alloc(w, what->bytes, what->tensor, (buffer_class)what->purpose,
                                 (plan_stream)what->stream);
  if (what->filled) walk_fill(w, in->buffer_of[id]);
}
