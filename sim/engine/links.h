/*
 * The copy engines of all GPUs and the links that they share, and the disks of their hosts, on
 * simulated time.
 *
 * Every simulated rank has one D2H and one H2D engine. An engine serves copies one after another,
 * first ready first, whatever their stream; a copy is a fixed latency followed by its bytes at a
 * rate that the copies under way on the same host share (sim/machine/link_share.h). Replicas that
 * offsim does not simulate copy the same at the same time: `multiplicity` counts them. Files work
 * the same way: each rank writes one file after another and reads one after another, at rates that
 * the ranks of its host share.
 *
 * The caller runs everything else until all of it waits, posts the copies that became ready, and
 * then asks for the next completion. That order is safe: a copy that becomes ready later waits for
 * a completion.
 */
#ifndef OFFSIM_SIM_ENGINE_LINKS_H
#define OFFSIM_SIM_ENGINE_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/machine/link_share.h"
#include "sim/machine/machine.h"

/* The place of a simulated rank's GPU. */
typedef struct rank_place {
  uint32_t domain; /* of NVLink: one host, or several */
  uint32_t host;
  uint32_t gpu;          /* within the host: the first of its replicas */
  uint32_t multiplicity; /* replicas on the host, this one included */
  bool far_memory;       /* its page-locked memory is at another socket */
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
  int64_t more_ps; /* time in addition to its latency and its bytes at the rate that it gets */
  bool pageable;   /* between device and host: the host's memory is not page-locked */
} link_copy;

/* Posts a copy that is ready. `stream` identifies it among the rank's copies: a stream has at most
 * one posted copy. */
void links_post(links *l, uint32_t rank, lane_kind kind, uint32_t stream, const link_copy *copy);

typedef struct link_event {
  uint32_t rank;
  uint32_t stream;
  bool ended;       /* else the copy's latency is over, and its bytes begin to move */
  int64_t start_ps; /* when the engine began it */
  int64_t end_ps;   /* ended */
} link_event;

/* Returns the next copy to begin or to end, by (time, rank, kind of lane). False: no copy is posted. */
bool links_next(links *l, link_event *event);

/* All that is under way or waits, as it was at a time. */
typedef struct links_state links_state;

links_state *links_state_new(const links *l, arena *a);
void links_keep(const links *l, links_state *state);
/* Whether the links will do the same as from `before` on, `by_ps` later. `since_ps`: by rank, the time from
 * which copies may be ready that are not posted yet; `before_since_ps`: ... then. */
bool links_repeat(const links *l, const links_state *before, int64_t by_ps, const int64_t *since_ps,
                  const int64_t *before_since_ps);
/* Moves all that is under way or waits to a later time. */
void links_move(links *l, int64_t by_ps);

#endif
