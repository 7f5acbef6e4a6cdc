/*
 * Where the device's memory holds a host thread up.
 *
 * When the driver refuses a request, PyTorch's allocator waits until the marked streams have done
 * what was issued to them before the blocks that wait for them were freed
 * (CUDACachingAllocator.cpp, synchronize_and_free_events), and asks again. When that happens
 * depends on the clock, so it is found in turns: a replay of a timeline (replay.h) says which
 * requests were refused; the simulation (engine.h) runs again with these holds; and so on until no
 * further request is refused.
 */
#ifndef OFFSIM_SIM_ENGINE_HOLDS_H
#define OFFSIM_SIM_ENGINE_HOLDS_H

#include <stdbool.h>
#include <stdint.h>

/* The host thread does not go past op `at`, an ALLOC, before op `until` of a stream is done. */
typedef struct host_hold {
  uint32_t at, until; /* at > until */
} host_hold;

/* The holds of one rank in one iteration, by increasing `at`. Empty when zeroed. */
typedef struct hold_list {
  host_hold *items;
  uint32_t count, capacity;
} hold_list;

/* Adds those of `found`, also by increasing `at`, that stand where none stands; false: there are
 * none. */
bool holds_add(hold_list *l, const hold_list *found);

#endif
