/*
 * The copy engines of all GPUs and the links that they share, on simulated time.
 *
 * Every simulated rank has one D2H and one H2D engine. An engine serves copies one after another, first
 * ready first, whatever their stream; a copy is a fixed latency followed by its bytes at a rate that the
 * copies under way on the same host share (sim/machine/link_share.h). Replicas that offsim does not
 * simulate do the same at the same time: they count as `multiplicity`.
 *
 * The caller runs everything else as far as it goes, posts the copies that became ready, and then asks
 * for the next completion. That order is safe: whatever becomes ready later waits for a completion.
 */
#ifndef OFFSIM_SIM_ENGINE_LINKS_H
#define OFFSIM_SIM_ENGINE_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/machine/link_share.h"
#include "sim/machine/machine.h"

/* Where a simulated rank's GPU stands. */
typedef struct rank_place {
  uint32_t host;
  uint32_t gpu;          /* within the host: the first of its replicas */
  uint32_t multiplicity; /* replicas on the host, this one included */
} rank_place;

typedef struct links links;

links *links_new(const machine *m, const rank_place *places, uint32_t rank_count, arena *a);

/* A copy of `bytes` becomes ready at `ready_ps`; `stream` names it among those of its rank: at most one
 * copy is posted for a stream at a time. */
void links_post(links *l, uint32_t rank, link_direction direction, uint32_t stream, int64_t ready_ps,
                int64_t bytes);

typedef struct link_completion {
  uint32_t rank;
  uint32_t stream;
  int64_t start_ps; /* the engine began with it */
  int64_t end_ps;
} link_completion;

/* The next copy to end, by (time, rank, direction). False: none is posted. */
bool links_next(links *l, link_completion *done);

#endif
