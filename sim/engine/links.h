/*
 * The copy engines of all GPUs and the links that they share, and the disks of their hosts, on
 * simulated time.
 *
 * Every simulated rank has one D2H and one H2D engine. An engine serves copies one after another, first
 * ready first, whatever their stream; a copy is a fixed latency followed by its bytes at a rate that the
 * copies under way on the same host share (sim/machine/link_share.h). Replicas that offsim does not
 * simulate do the same at the same time: they count as `multiplicity`. Files are served likewise: each
 * rank writes one after another and reads one after another, at rates that the ranks of its host share.
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

typedef enum lane_kind {
  LANE_D2H,
  LANE_H2D,
  LANE_DISK_WRITE,
  LANE_DISK_READ,
  LANE_KINDS
} lane_kind;

typedef struct link_copy {
  int64_t ready_ps;
  int64_t bytes;
  int64_t
      more_ps;   /* what it takes longer than its latency and its bytes at the rate that it gets */
  bool pageable; /* between device and host: the host's memory is not page-locked */
} link_copy;

/* A copy becomes ready; `stream` names it among those of its rank: at most one copy is posted for a
 * stream at a time. */
void links_post(links *l, uint32_t rank, lane_kind kind, uint32_t stream, const link_copy *copy);

typedef struct link_completion {
  uint32_t rank;
  uint32_t stream;
  int64_t start_ps; /* the engine began with it */
  int64_t end_ps;
} link_completion;

/* The next copy to end, by (time, rank, kind of lane). False: none is posted. */
bool links_next(links *l, link_completion *done);

#endif
