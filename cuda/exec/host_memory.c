/* Host memory: page-locked blocks by the pinned pool that the simulator models, other memory by
 * malloc. */
#include <inttypes.h>
#include <stdlib.h>

#include "cuda/exec/state.h"
#include "sim/base/units.h"

void host_memory_new(rank_run *r)
{
  r->host.pool = pinned_pool_new(memory_event_done, r);
}

void host_memory_release(rank_run *r)
{
  if (r->host.pool == NULL) return;
  for (uint32_t i = 0; i < r->host.blocks.count; i++)
    if (r->host.blocks.items[i] != NULL) (void)r->driver->release_pinned(r->host.blocks.items[i]);
  ARRAY_FREE(&r->host.blocks);
  pinned_pool_delete(r->host.pool);
  for (uint32_t i = 0; i < r->host.dead.count; i++)
    free(r->host.dead.items[i].data);
  ARRAY_FREE(&r->host.dead);
}

static bool lock_memory(rank_run *r, int64_t bytes)
{
  void *memory = NULL;
  const char *why = r->driver->allocate_pinned(&memory, bytes);
  *ARRAY_PUSH(&r->host.blocks) = memory;
  if (why == NULL) {
    r->locked_bytes += bytes;
    return true;
  }
  rank_refused(r,
               "out of page-locked memory: asked for %" PRId64
               " bytes; the rank has locked %" PRId64 ": %s",
               bytes, r->locked_bytes, why);
  return false;
}

static bool take_pinned(rank_run *r, const plan_buffer *b, held_buffer *h)
{
  int64_t bytes = max_i64(max_i64(b->bytes, h->bytes), 1);
  pinned_buffer taken = b->host_key != 0 ? pinned_pool_take(r->host.pool, b->host_key, bytes)
                                         : pinned_alloc(r->host.pool, bytes);
  if (taken.locked_bytes > 0 && !lock_memory(r, taken.locked_bytes)) return false;
  h->handle = taken.handle;
  h->data = r->host.blocks.items[taken.handle];
  return true;
}

bool host_take(rank_run *r, const plan_buffer *b, held_buffer *h)
{
  if (b->purpose == CLASS_PINNED_HOST) return take_pinned(r, b, h);
  h->data = malloc((size_t)max_i64(h->bytes, 1));
  if (h->data == NULL) rank_refused(r, "no host memory: asked for %" PRId64 " bytes", h->bytes);
  return h->data != NULL;
}

/* A fresh buffer is reusable when the copy back that was issued last is done; a pool does not wait.
 */
static void give_pinned(rank_run *r, const plan_buffer *b, const held_buffer *h)
{
  if (b->host_key != 0)
    pinned_pool_give(r->host.pool, h->handle);
  else if (r->host.last_back == NO_STREAM)
    pinned_free(r->host.pool, h->handle);
  else
    pinned_free_after(r->host.pool, h->handle, memory_event_after(r, r->host.last_back));
}

/* ---- memory that streams may still use when it is freed ---------------------------------------
 */

static bool is_unused(rank_run *r, dead_memory *dead)
{
  while (dead->count > 0 && memory_event_done(r, dead->events[dead->count - 1]))
    dead->count--;
  return dead->count == 0;
}

void host_memory_poll(rank_run *r)
{
  uint32_t kept = 0;
  for (uint32_t i = 0; i < r->host.dead.count; i++) {
    dead_memory *dead = &r->host.dead.items[i];
    if (is_unused(r, dead))
      free(dead->data);
    else
      r->host.dead.items[kept++] = *dead;
  }
  r->host.dead.count = kept;
}

/* Streams that have been given something on the buffer hold it. */
static void give_pageable(rank_run *r, uint32_t buffer, void *data)
{
  const stage *s = r->stage;
  dead_memory dead = { .data = data };
  for (uint32_t i = s->first_use[buffer]; i < s->first_use[buffer + 1]; i++)
    if (s->uses[i].last != NO_OP)
      dead.events[dead.count++] = memory_event_after(r, s->uses[i].stream);
  *ARRAY_PUSH(&r->host.dead) = dead;
  host_memory_poll(r);
}

void host_give(rank_run *r, uint32_t buffer)
{
  const plan_buffer *b = stage_buffer(r->stage, buffer);
  const held_buffer *h = &r->buffers[buffer];
  if (b->purpose == CLASS_PINNED_HOST)
    give_pinned(r, b, h);
  else
    give_pageable(r, buffer, h->data);
}
