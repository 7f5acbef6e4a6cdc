#include "cuda/memory/host_memory.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sim/base/units.h"

void host_memory_new(host_memory *m, rank_queue *queue)
{
  assert(queue != NULL);
  *m = (host_memory){ .queue = queue,
                      .pool = pinned_pool_new(memory_event_done, queue),
                      .last_back = NO_STREAM };
}

void host_memory_release(host_memory *m)
{
  if (m->pool == NULL) return;
  for (uint32_t i = 0; i < m->blocks.count; i++)
    if (m->blocks.items[i] != NULL) (void)m->queue->driver->release_pinned(m->blocks.items[i]);
  ARRAY_FREE(&m->blocks);
  pinned_pool_delete(m->pool);
  for (uint32_t i = 0; i < m->dead.count; i++)
    free(m->dead.items[i].data);
  ARRAY_FREE(&m->dead);
}

/* ---- page-locked ----------------------------------------------------------------------------- */

static bool lock_memory(host_memory *m, int64_t bytes)
{
  void *memory = NULL;
  assert(bytes > 0);
  const char *why = m->queue->driver->allocate_pinned(&memory, bytes);
  *ARRAY_PUSH(&m->blocks) = memory;
  if (why == NULL) {
    m->locked_bytes += bytes;
    return true;
  }
  sink_refused(m->queue->sink,
               "out of page-locked memory: requested %" PRId64
               " bytes; the rank has locked %" PRId64 ": %s",
               bytes, m->locked_bytes, why);
  return false;
}

static bool take_pinned(host_memory *m, const plan_buffer *b, held_buffer *h)
{
  int64_t bytes = max_i64(max_i64(b->bytes, h->bytes), 1);
  pinned_buffer taken = b->host_key != 0 ? pinned_pool_take(m->pool, b->host_key, bytes)
                                         : pinned_alloc(m->pool, bytes);
  if (taken.locked_bytes > 0 && !lock_memory(m, taken.locked_bytes)) return false;
  assert(taken.handle < m->blocks.count && "the pool numbers blocks as it locks them");
  h->handle = taken.handle;
  h->data = m->blocks.items[taken.handle];
  assert(h->data != NULL && "a refused block ends the run");
  return true;
}

/* A buffer without a pool is reusable when the last issued copy back is done; a pool does not
 * wait. */
static void give_pinned(host_memory *m, const plan_buffer *b, const held_buffer *h)
{
  assert(h->data == m->blocks.items[h->handle]);
  if (b->host_key != 0)
    pinned_pool_give(m->pool, h->handle);
  else if (m->last_back == NO_STREAM)
    pinned_free(m->pool, h->handle);
  else
    pinned_free_after(m->pool, h->handle, memory_event_after(m->queue, m->last_back));
}

/* ---- memory that streams may still use when it is freed ------------------------------------- */

static bool is_unused(host_memory *m, dead_memory *dead)
{
  assert(dead->data != NULL && dead->count <= DEVICE_STREAMS);
  while (dead->count > 0 && memory_event_done(m->queue, dead->events[dead->count - 1]))
    dead->count--;
  return dead->count == 0;
}

static void free_unused(host_memory *m)
{
  uint32_t kept = 0;
  for (uint32_t i = 0; i < m->dead.count; i++) {
    dead_memory *dead = &m->dead.items[i];
    if (is_unused(m, dead))
      free(dead->data);
    else
      m->dead.items[kept++] = *dead;
  }
  assert(kept <= m->dead.count);
  m->dead.count = kept;
}

/* Streams with issued work on the buffer delay its reuse. */
static void give_pageable(host_memory *m, const stage *s, uint32_t buffer, void *data)
{
  dead_memory dead = { .data = data };
  assert(s->first_use[buffer + 1] - s->first_use[buffer] <= DEVICE_STREAMS);
  for (uint32_t i = s->first_use[buffer]; i < s->first_use[buffer + 1]; i++)
    if (s->uses[i].last != NO_OP)
      dead.events[dead.count++] = memory_event_after(m->queue, s->uses[i].stream);
  *ARRAY_PUSH(&m->dead) = dead;
  free_unused(m);
}

/* ---- buffers --------------------------------------------------------------------------------- */

bool host_take(host_memory *m, const plan_buffer *b, held_buffer *h)
{
  assert(h->state == NOT_HELD && class_side((buffer_class)b->purpose) == ON_HOST);
  if (b->purpose == CLASS_PINNED_HOST) return take_pinned(m, b, h);
  h->data = malloc((size_t)max_i64(h->bytes, 1));
  if (h->data == NULL)
    sink_refused(m->queue->sink, "no host memory: requested %" PRId64 " bytes", h->bytes);
  return h->data != NULL;
}

void host_give(host_memory *m, const stage *s, uint32_t buffer, const held_buffer *h)
{
  const plan_buffer *b = stage_buffer(s, buffer);
  assert(h->state == FREED && h->data != NULL && class_side((buffer_class)b->purpose) == ON_HOST);
  if (b->purpose == CLASS_PINNED_HOST)
    give_pinned(m, b, h);
  else
    give_pageable(m, s, buffer, h->data);
}

void host_memory_begin(host_memory *m)
{
  m->last_back = NO_STREAM;
  m->held_bytes = 0;
}

void host_memory_end(host_memory *m)
{
  free_unused(m);
  pinned_pool_reset(m->pool);
}
