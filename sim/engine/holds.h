/*
 * Where the device's memory holds a host thread up.
 *
 * When the driver refuses a request, PyTorch's allocator waits for the blocks that other streams
 * still use, gives everything that it has cached back, and asks again (CUDACachingAllocator.cpp,
 * synchronize_and_free_events, release_cached_blocks). To give memory back waits for what the GPU
 * was given so far, and each call of the driver takes its time. When that happens depends on the
 * clock, so it is found in turns: a replay of a timeline (replay.h) says which requests were
 * refused; the simulation (engine.h) runs again with these holds; and so on until no further
 * request is refused.
 */
#ifndef OFFSIM_SIM_ENGINE_HOLDS_H
#define OFFSIM_SIM_ENGINE_HOLDS_H

#include <stdbool.h>
#include <stdint.h>

#define HOLD_FOR_NOTHING UINT32_MAX

/* The host thread does not go past op `at`, an ALLOC, before op `until` of a stream is done; then
 * it makes `driver_calls` calls of the driver. */
typedef struct host_hold {
  uint32_t at, until; /* at > until; HOLD_FOR_NOTHING: nothing has been issued */
  uint32_t driver_calls;
} host_hold;

/* The holds of one rank in one iteration, by increasing `at`. Empty when zeroed. */
typedef struct hold_list {
  host_hold *items;
  uint32_t count, capacity;
} hold_list;

/* Adds those of `found`, also by increasing `at`, that stand where none stands; false: there are
 * none. */
bool holds_add(hold_list *l, const hold_list *found);

/* How many wait for an op. */
uint32_t holds_that_wait(const hold_list *l);

#endif
