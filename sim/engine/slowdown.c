#include "sim/engine/slowdown.h"

#include "sim/base/units.h"
#include "sim/engine/durations.h"

enum { DIRECTIONS = 2 };

typedef struct rank_load {
  int64_t bytes[DIRECTIONS]; /* by link_direction */
  int64_t compute_ps;
} rank_load;

static int64_t operand_bytes(const rank_plan *p, uint32_t operand)
{
  return p->buffers.items[p->operands.items[operand]].bytes;
}

static rank_load load_of(const rank_plan *p, const int64_t *call_ps)
{
  rank_load load = { 0 };
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (o->kind == OP_D2H)
      load.bytes[LINK_D2H] += operand_bytes(p, o->operands + 1);
    else if (o->kind == OP_H2D)
      load.bytes[LINK_H2D] += operand_bytes(p, o->operands);
    else if (o->kind == OP_KERNEL && o->stream == STREAM_COMPUTE)
      load.compute_ps += call_ps[o->arg];
  }
  return load;
}

/* What a copy gets when every rank of the host copies both ways. */
static int64_t crowded_rate(const plan *p, const machine *m, const rank_place *places, uint32_t rank,
                            link_direction direction)
{
  host_flow flows[LINK_SHARE_FLOWS];
  uint32_t count = 0, own = 0;
  for (uint32_t r = 0; r < p->rank_count && count + DIRECTIONS <= LINK_SHARE_FLOWS; r++) {
    if (places[r].host != places[rank].host)
      continue;
    for (uint32_t d = 0; d < DIRECTIONS; d++) {
      if (r == rank && d == (uint32_t)direction)
        own = count;
      flows[count++] = (host_flow){ .gpu = places[r].gpu,
                                    .group = places[r].gpu / (uint32_t)m->host.gpus_per_group,
                                    .direction = (link_direction)d,
                                    .multiplicity = places[r].multiplicity };
    }
  }
  link_share_host(m, flows, count);
  return max_i64(1, flows[own].rate_bytes_per_us);
}

/* Permille of the compute time in which a copy of this direction runs. */
static int64_t busy_permille(const rank_load *load, link_direction direction, int64_t rate)
{
  int64_t copy_ps = muldiv_i64(load->bytes[direction], PS_PER_US, rate);
  return copy_ps >= load->compute_ps ? 1000 : muldiv_i64(copy_ps, 1000, load->compute_ps);
}

const int64_t *slowed_durations(const plan *p, const machine *m, const rank_place *places, uint32_t rank,
                                const int64_t *call_ps, arena *a)
{
  rank_load load = load_of(&p->ranks[rank], call_ps);
  if (load.bytes[LINK_D2H] + load.bytes[LINK_H2D] == 0 || load.compute_ps == 0)
    return call_ps;
  int64_t d2h = busy_permille(&load, LINK_D2H, crowded_rate(p, m, places, rank, LINK_D2H));
  int64_t h2d = busy_permille(&load, LINK_H2D, crowded_rate(p, m, places, rank, LINK_H2D));
  int64_t memory_ppm =
      d2h * m->link.memory_slowdown_d2h_permille + h2d * m->link.memory_slowdown_h2d_permille;
  int64_t product_ppm =
      d2h * m->link.gemm_slowdown_d2h_permille + h2d * m->link.gemm_slowdown_h2d_permille;
  int64_t *slowed = ARENA_ARRAY(a, int64_t, p->calls.count);
  for (uint32_t i = 0; i < p->calls.count; i++) {
    const plan_call *c = &p->calls.items[i];
    int64_t ppm = c->is_collective ? 0 : call_is_memory_bound(c) ? memory_ppm : product_ppm;
    slowed[i] = call_ps[i] + muldiv_i64(call_ps[i], ppm, 1000000);
  }
  return slowed;
}
