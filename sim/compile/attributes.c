#include "sim/compile/attributes.h"

#include <assert.h>

static uint32_t *attribute_of(walk *w, uint32_t chunk, uint32_t number)
{
  if (w->attributes == NULL) w->attributes = ARENA_ARRAY(w->memory, operand_array, w->chunk_count);
  operand_array *of = &w->attributes[chunk];
  while (of->count <= number)
    *ARRAY_PUSH(of) = NO_BUFFER;
  return &of->items[number];
}

void attributes_set(walk *w, instance_id i, uint32_t number, uint32_t buffer)
{
  uint32_t *attribute = attribute_of(w, i % w->chunk_count, number);
  assert(buffer != NO_BUFFER);
  walk_refer(w, buffer);
  if (*attribute != NO_BUFFER) walk_drop_reference(w, *attribute);
  *attribute = buffer;
}

bool attributes_keep_one(walk *w, int64_t bytes)
{
  assert(bytes > 0);
  for (uint32_t chunk = 0; w->attributes != NULL && chunk < w->chunk_count; chunk++)
    for (uint32_t i = 0; i < w->attributes[chunk].count; i++) {
      uint32_t *attribute = &w->attributes[chunk].items[i];
      if (*attribute == NO_BUFFER || !walk_retain_of_size(w, *attribute, bytes)) continue;
      *attribute = NO_BUFFER;
      return true;
    }
  return false;
}

void attributes_end(walk *w)
{
  for (uint32_t chunk = 0; w->attributes != NULL && chunk < w->chunk_count; chunk++)
    for (uint32_t i = 0; i < w->attributes[chunk].count; i++) {
      uint32_t *attribute = &w->attributes[chunk].items[i];
      if (*attribute != NO_BUFFER) walk_drop_reference(w, *attribute);
      *attribute = NO_BUFFER;
    }
}

void attributes_release(walk *w)
{
  for (uint32_t chunk = 0; w->attributes != NULL && chunk < w->chunk_count; chunk++)
    ARRAY_FREE(&w->attributes[chunk]);
}
