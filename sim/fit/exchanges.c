#include <string.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/fit/parts.h"
#include "sim/machine/call_time.h"
#include "sim/machine/nccl_time.h"
#include "sim/machine/roofline.h"

/* Larger exchanges measure a rate, smaller ones the latency. */
#define RATE_BYTES    (4 * MIB)
#define LATENCY_BYTES (256 * KIB)

/* A kernel of NCCL waits for the other ranks, too. The shortest of several took least of that; one that is
 * this many times as long as expected is taken to be waiting. */
enum { LEAST_SAMPLES = 2, MOST_TIMES = 3, MILLION = 1000000 };

typedef enum exchange_kind {
  BUS_RATE,
  ALL_TO_ALL_RATE,
  MESSAGE_RATE,
  STEP_LATENCY,
  EXCHANGE_KINDS
} exchange_kind;

typedef struct shortest {
  plan_call call; /* of a message: zeros, but for its bytes */
  bool is_message;
  int64_t ps, expected_ps;
  int64_t fixed_ps; /* of both: not the rate's */
  uint32_t samples;
} shortest;

typedef struct shortest_list {
  shortest *items;
  uint32_t count, capacity;
} shortest_list;

/* One host: its links are NVLink's, whose keys these are. */
static bool is_joined(const machine *m, const plan_call *c)
{
  int64_t span = capped_mul(max_i64(1, c->group_size - 1), max_i64(1, c->group_stride)) + 1;
  return span <= machine_domain_gpus(m);
}

/* What the rate does not decide: latency, and the time in which a transfer reaches the rate. */
static int64_t fixed_ps(const machine *m, int64_t bytes)
{
  return m->nvlink.latency_ns * PS_PER_NS + nccl_ramp_ps(m->nvlink.ramp_ns, bytes);
}

static bool describe(const fit_sides *f, uint32_t op, shortest *to)
{
  const plan *p = &f->predicted->steady.plan;
  const plan_op *o = &p->ranks[f->input->rank].ops.items[op];
  *to = (shortest){ .samples = 0 };
  if (o->kind == OP_COLLECTIVE) {
    to->call = call_without_views(&p->calls.items[o->arg]);
    to->expected_ps = call_roofline_ps(f->own, &to->call);
    if (to->call.kind == COLLECTIVE_ALL_TO_ALL)
      to->fixed_ps = fixed_ps(f->own, capped_muldiv_up(to->call.bytes, to->call.group_size - 1,
                                                       max_i64(1, to->call.group_size)));
    return to->call.kind != COLLECTIVE_SHIFT && is_joined(f->own, &to->call);
  }
  const plan_message *m = &p->messages.items[o->arg];
  to->is_message = true;
  to->call.bytes = m->bytes;
  to->expected_ps = transfer_ps(f->own, m->bytes, true);
  to->fixed_ps = fixed_ps(f->own, m->bytes);
  return p->global_ranks <= machine_domain_gpus(f->own);
}

static void take(shortest_list *l, const shortest *s, int64_t ps)
{
  uint32_t i = 0;
  while (i < l->count && (l->items[i].is_message != s->is_message ||
                          memcmp(&l->items[i].call, &s->call, sizeof s->call) != 0))
    i++;
  if (i == l->count) {
    *ARRAY_PUSH(l) = *s;
    l->items[i].ps = ps;
  }
  l->items[i].ps = min_i64(l->items[i].ps, ps);
  l->items[i].samples++;
}

static exchange_kind kind_of(const shortest *s)
{
  if (s->call.bytes <= LATENCY_BYTES) return s->is_message ? EXCHANGE_KINDS : STEP_LATENCY;
  if (s->call.bytes < RATE_BYTES) return EXCHANGE_KINDS;
  if (s->is_message) return MESSAGE_RATE;
  return s->call.kind == COLLECTIVE_ALL_TO_ALL ? ALL_TO_ALL_RATE : BUS_RATE;
}

static void put(calibration *to, const machine *m, exchange_kind kind, sample_list *ppm)
{
  static const char *const keys[EXCHANGE_KINDS] = {
    [BUS_RATE] = "bus_bytes_per_us",
    [ALL_TO_ALL_RATE] = "all_to_all_bytes_per_us",
    [MESSAGE_RATE] = "one_way_bytes_per_us",
    [STEP_LATENCY] = "step_ns",
  };
  const int64_t base[EXCHANGE_KINDS] = {
    [BUS_RATE] = m->nvlink.bus_bytes_per_us,
    [ALL_TO_ALL_RATE] = m->nvlink.all_to_all_bytes_per_us,
    [MESSAGE_RATE] = m->nvlink.one_way_bytes_per_us,
    [STEP_LATENCY] = m->nvlink.step_ns,
  };
  if (ppm->count == 0 || base[kind] == 0) return;
  int64_t median = max_i64(1, sample_median(ppm));
  int64_t value = kind == STEP_LATENCY ? capped_muldiv(base[kind], median, MILLION)
                                       : capped_muldiv(base[kind], MILLION, median);
  calibration_put(to, "nvlink", keys[kind], max_i64(1, value));
}

void fit_exchanges(const fit_sides *f, fit_result *to)
{
  shortest_list all = { 0 };
  sample_list ppm[EXCHANGE_KINDS] = { { 0 } };
  for (uint32_t i = 0; i < f->matched->count; i++) {
    const match *m = &f->matched->items[i];
    const token *t = &f->matched->measured.items[m->first];
    shortest s;
    if (t->class == FIT_COMMUNICATION && describe(f, m->op, &s) && s.expected_ps > 0)
      take(&all, &s, t->ps);
  }
  for (uint32_t i = 0; i < all.count; i++) {
    const shortest *s = &all.items[i];
    bool waits = s->ps > capped_mul(MOST_TIMES, s->expected_ps);
    exchange_kind kind = kind_of(s);
    if (s->samples < LEAST_SAMPLES || waits || s->ps <= s->fixed_ps || kind == EXCHANGE_KINDS ||
        s->expected_ps <= s->fixed_ps)
      continue;
    *ARRAY_PUSH(&ppm[kind]) =
        capped_muldiv(s->ps - s->fixed_ps, MILLION, s->expected_ps - s->fixed_ps);
  }
  for (int k = 0; k < EXCHANGE_KINDS; k++) {
    put(&to->keys, f->own, (exchange_kind)k, &ppm[k]);
    ARRAY_FREE(&ppm[k]);
  }
  ARRAY_FREE(&all);
}
