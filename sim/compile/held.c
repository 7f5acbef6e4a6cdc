#include "sim/compile/held.h"

#include <assert.h>

void held_add(walk *w, held_buffers *held, uint32_t buffer)
{
  assert(held->count < HELD_BUFFERS);
  walk_refer(w, buffer);
  held->items[held->count++] = buffer;
}

void held_release(walk *w, held_buffers *held)
{
  assert(held->count <= HELD_BUFFERS);
  for (uint32_t i = 0; i < held->count; i++)
    walk_drop_reference(w, held->items[i]);
  held->count = 0;
}

bool held_keep_one(walk *w, held_buffers *held, int64_t bytes)
{
  assert(held->count <= HELD_BUFFERS);
  for (uint32_t i = 0; i < held->count; i++) {
    if (!walk_retain_of_size(w, held->items[i], bytes)) continue;
    held->items[i] = held->items[--held->count];
    return true;
  }
  return false;
}
