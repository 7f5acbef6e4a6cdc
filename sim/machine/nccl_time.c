#include "sim/machine/nccl_time.h"

#include <assert.h>

#include "sim/base/units.h"

/* Protocols in rows: LL, LL128, Simple. Steps relative to a ring's of LL (0.6 us by NVLink, 2.7 us by
 * network), in thousandths; bandwidth relative to the bus. */
typedef struct protocol {
  int64_t base_ns, step_permille, network_step_permille, bus_permille;
} protocol;

static const protocol rings[] = { { 6600, 1000, 1000, 385 },
                                  { 14000, 3167, 1481, 920 },
                                  { 8400, 5667, 5185, 1000 } };
static const protocol trees[] = { { 6800, 1000, 1852, 263 },
                                  { 14000, 2083, 3148, 778 },
                                  { 8400, 6667, 5185, 920 } };
enum {
  PROTOCOLS = sizeof rings / sizeof *rings,
  OWN_COPIED_PERMILLE = 363,
  OWN_REDUCED_PERMILLE = 115,
  OWN_EXCHANGED_PERMILLE = 70,
  HALF_RAMP_BYTES = 12000000
};

static int64_t log2_up(int64_t n)
{
  int64_t log = 0;
  while (INT64_C(1) << log < n)
    log++;
  return log;
}

static int64_t time_ps(const nccl_call *c, const protocol *p, int64_t steps, int64_t network_steps,
                       int64_t bytes)
{
  int64_t latency_ps = p->base_ns * PS_PER_NS + capped_mul(steps, c->step_ns * p->step_permille) +
                       capped_mul(network_steps, c->network_step_ns * p->network_step_permille);
  return capped_muldiv_up(bytes, PS_PER_US * 1000, c->bus_bytes_per_us * p->bus_permille) +
         latency_ps;
}

int64_t nccl_ramp_ps(int64_t ramp_ns, int64_t bytes)
{
  assert(ramp_ns >= 0 && bytes >= 0);
  return muldiv_i64(ramp_ns * PS_PER_NS, min_i64(bytes, CAP),
                    min_i64(bytes, CAP) + HALF_RAMP_BYTES);
}

static int64_t with_own_part(int64_t crossing_bytes, int64_t ranks, int64_t permille)
{
  assert(ranks > 1);
  return crossing_bytes + capped_muldiv_up(crossing_bytes, permille, 1000 * (ranks - 1));
}

int64_t nccl_exchanged_bytes(int64_t crossing_bytes, int64_t ranks)
{
  return with_own_part(crossing_bytes, ranks, OWN_EXCHANGED_PERMILLE);
}

/* The crossing bytes of a ring, and what the rank's own part takes of the same time. */
static int64_t ring_bytes(const nccl_call *c)
{
  int64_t permille = c->all_reduce ? OWN_REDUCED_PERMILLE : OWN_COPIED_PERMILLE;
  if (c->domains > 1) return c->crossing_bytes;
  return with_own_part(c->crossing_bytes, c->ranks, permille);
}

int64_t nccl_ps(const nccl_call *c)
{
  assert(c->ranks > 1 && c->domains >= 1 && c->domains <= c->ranks && c->bus_bytes_per_us > 0);
  int64_t ways = c->all_reduce ? 2 : 1, best = INT64_MAX;
  int64_t between = ways * (c->domains - 1), within = ways * (c->ranks - 1) - between;
  for (int i = 0; i < PROTOCOLS; i++)
    best = min_i64(best, time_ps(c, &rings[i], within, between, ring_bytes(c)));
  for (int i = 0; c->all_reduce && i < PROTOCOLS; i++)
    best = min_i64(best, time_ps(c, &trees[i], 2 * (c->ranks / c->domains - 1),
                                 2 * log2_up(c->domains), capped_mul(2, c->bytes)));
  return best + (c->domains == 1 ? nccl_ramp_ps(c->ramp_ns, c->crossing_bytes) : 0);
}
