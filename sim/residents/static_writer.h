/* How the parts of static memory record their allocations; see static_buffers.h. */
#ifndef OFFSIM_SIM_RESIDENTS_STATIC_WRITER_H
#define OFFSIM_SIM_RESIDENTS_STATIC_WRITER_H

#include <assert.h>

#include "sim/base/array.h"
#include "sim/residents/static_buffers.h"

typedef struct static_allocation_array {
  static_allocation *items;
  uint32_t count, capacity;
} static_allocation_array;

typedef struct static_event_array {
  static_event *items;
  uint32_t count, capacity;
} static_event_array;

typedef struct static_writer {
  const settings *s;
  arena *names;
  int compute_capability;
  uint32_t pp_rank;
  static_phase phase;
  static_allocation_array allocations;
  static_event_array events;
  parameter_list parameters;
  gradient_buffer_list buffers;
} static_writer;

/* Returns the handle; `owner` is the parameter that it belongs to. For 0 bytes it records
 * nothing and returns UINT32_MAX. */
static inline uint32_t static_take(static_writer *w, const char *name, buffer_class class,
                                   dtype type, int64_t bytes, uint32_t owner)
{
  assert(name != NULL && class < BUFFER_CLASSES && type < DTYPES && bytes >= 0);
  if (bytes == 0) return UINT32_MAX;
  *ARRAY_PUSH(&w->allocations) = (static_allocation){ .name = name,
                                                      .purpose = (uint8_t) class,
                                                      .phase = (uint8_t)w->phase,
                                                      .type = (uint8_t)type,
                                                      .bytes = bytes,
                                                      .parameter = owner,
                                                      .buffer = NO_PARAMETER };
  uint32_t id = w->allocations.count - 1;
  *ARRAY_PUSH(&w->events) = (static_event){ id, false };
  return id;
}

/* Copies the list into the arena and frees the writer's arrays. */
static_allocation_list static_writer_finish(static_writer *w, arena *a);

static inline void static_give_back(static_writer *w, uint32_t id)
{
  if (id == UINT32_MAX) return;
  assert(id < w->allocations.count && (w->allocations.items[id].purpose == CLASS_TRANSIENT ||
                                       w->allocations.items[id].purpose == CLASS_PINNED_HOST));
  *ARRAY_PUSH(&w->events) = (static_event){ id, true };
}

#endif
