/* The verdict of a prediction: does it fit, and what limits it. */
#include "sim/predict/prediction.h"

#include <assert.h>

#include "sim/base/units.h"

/* ---- does it fit? ---- */

shortage prediction_shortage(const prediction *p)
{
  shortage found = { .cause = SHORT_OF_NOTHING };
  for (uint32_t i = 0; i < p->rank_count; i++) {
    const rank_prediction *r = &p->result.ranks[i];
    assert((r->missing_bytes > 0) == r->out_of_memory);
    if (r->missing_bytes <= found.missing_bytes) continue;
    found =
        (shortage){ .cause = r->allocated_peak_bytes > p->capacity_bytes ? SHORT_BY_ALLOCATION
                                                                         : SHORT_BY_FRAGMENTATION,
                    .rank = i,
                    .missing_bytes = r->missing_bytes };
  }
  if (found.cause == SHORT_OF_NOTHING && !p->fits_host)
    found = (shortage){ .cause = SHORT_ON_HOST,
                        .missing_bytes = p->host_total_bytes - p->machine->host.memory_bytes };
  return found;
}

uint32_t prediction_fullest_rank(const prediction *p)
{
  uint32_t most = 0;
  for (uint32_t i = 1; i < p->rank_count; i++)
    if (p->result.ranks[i].reserved_peak_bytes > p->result.ranks[most].reserved_peak_bytes)
      most = i;
  return most;
}

int64_t prediction_margin_bytes(const prediction *p)
{
  assert(p->fits_device);
  return p->capacity_bytes - p->result.ranks[prediction_fullest_rank(p)].reserved_peak_bytes;
}

/* ---- the bottleneck ---- */

/* Less than this part of the step says nothing. */
enum { WORTH_TELLING = 1000 };

static int64_t exposed_ps(const rank_prediction *r)
{
  return r->exposed_d2h_ps + r->exposed_h2d_ps;
}

bottleneck prediction_bottleneck(const prediction *p)
{
  bottleneck found = { .part = STEP_COMPUTE };
  assert(p->rank_count > 0);
  const rank_prediction *ranks = p->result.ranks;
  for (uint32_t i = 1; i < p->rank_count; i++) {
    if (ranks[i].compute_busy_ps > ranks[found.rank].compute_busy_ps) found.rank = i;
    if (exposed_ps(&ranks[i]) > exposed_ps(&ranks[found.exposed_rank])) found.exposed_rank = i;
  }
  const rank_prediction *busiest = &ranks[found.rank], *exposed = &ranks[found.exposed_rank];
  int64_t parts_ps[STEP_PARTS] = { [STEP_COMPUTE] = busiest->compute_busy_ps,
                                   [STEP_D2H] = busiest->exposed_d2h_ps,
                                   [STEP_H2D] = busiest->exposed_h2d_ps,
                                   [STEP_BUBBLE] = busiest->bubble_ps };
  parts_ps[STEP_HOST] = busiest->step_ps;
  for (int i = 0; i < STEP_HOST; i++)
    parts_ps[STEP_HOST] -= parts_ps[i];
  for (int i = 1; i < STEP_PARTS; i++)
    if (parts_ps[i] > parts_ps[found.part]) found.part = (step_part)i;
  found.part_ps = parts_ps[found.part];

  int64_t added_ps = p->result.step_ps - p->baseline.step_ps;
  if (added_ps >= p->baseline.step_ps / WORTH_TELLING) found.added_ps = added_ps;
  found.exposed_part = exposed->exposed_d2h_ps > exposed->exposed_h2d_ps ? STEP_D2H : STEP_H2D;
  found.exposed_ps = max_i64(exposed->exposed_d2h_ps, exposed->exposed_h2d_ps);
  return found;
}
