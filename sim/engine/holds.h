/*
 * Where a host thread waits because device memory was refused.
 *
 * When the driver refuses a request, PyTorch's allocator waits for the blocks that other streams
 * still use, returns its cached memory to the driver, and asks again (CUDACachingAllocator.cpp,
 * synchronize_and_free_events, release_cached_blocks). Returning memory waits for everything issued
 * to the GPU so far, and each call of the driver takes time. Which requests are refused depends on
 * the clock, so offsim alternates: a replay of a timeline (replay.h) finds the refused requests,
 * the simulation (engine.h) runs again with these holds, until no further request is refused.
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

/* Adds the holds of `found`, also by increasing `at`, whose ops have no hold yet. False: nothing
 * was added. */
bool holds_add(hold_list *l, const hold_list *found);

/* Number of holds that wait for an op. */
uint32_t holds_that_wait(const hold_list *l);

#endif
