#include "sim/calibrate/calibrate.h"

#include <assert.h>

#include "sim/base/median.h"
#include "sim/base/units.h"
#include "sim/calibrate/trainings.h"
#include "sim/machine/call_time.h"
#include "sim/machine/roofline.h"

enum { STEPS = 8, TIMES_FROM = 4, PAIR = 2, PPM = 1000000 };

/* Smaller transfers measure the latency. */
#define LEAST_BYTES (16 * MIB)

typedef enum rate_kind {
  RATE_BUS,
  RATE_ALL_TO_ALL,
  RATE_MESSAGE,
  RATE_D2H,
  RATE_H2D,
  RATES
} rate_kind;

typedef struct exchange_samples {
  const calibration_bench *bench;
  const machine *machine; /* with its measured link */
  uint32_t gpus;
  sample_list ratios[RATES]; /* measured time over the machine's time, parts per million */
  model_samples collectives;
} exchange_samples;

static void add(exchange_samples *to, rate_kind kind, int64_t taken_ps, int64_t said_ps)
{
  if (taken_ps > 0 && said_ps > 0)
    *ARRAY_PUSH(&to->ratios[kind]) = muldiv_i64(taken_ps, PPM, said_ps);
}

/* ---- one step ---- */

static int64_t span_ps(const measured_step *s, uint32_t rank, uint32_t op)
{
  assert(rank < s->ranks);
  return s->times[rank].end_ps[op] - s->times[rank].begin_ps[op];
}

/* The shorter of two ranks' times: the rank that comes last does not wait. One rank's time may be
 * missing; 0: both are. */
static int64_t shorter_ps(int64_t a, int64_t b)
{
  return a > 0 && b > 0 ? min_i64(a, b) : max_i64(a, b);
}

/* For a training in which all ranks run the same plan. */
static void add_collective(exchange_samples *to, const measured_step *s, uint32_t op)
{
  const plan *p = s->plan;
  assert(p->rank_count == 1);
  plan_call call = call_without_views(&p->calls.items[p->ranks[0].ops.items[op].arg]);
  if (call.bytes < LEAST_BYTES || call.group_size != s->ranks) return;
  int64_t ps = span_ps(s, 0, op);
  for (uint32_t rank = 1; rank < s->ranks; rank++)
    ps = shorter_ps(ps, span_ps(s, rank, op));
  if (ps > 0) samples_add(&to->collectives, &call, AT_WORK, ps);
  if (s->ranks == PAIR && call.kind != COLLECTIVE_SHIFT)
    add(to, call.kind == COLLECTIVE_ALL_TO_ALL ? RATE_ALL_TO_ALL : RATE_BUS, ps,
        call_roofline_ps(to->machine, &call));
}

static uint32_t receiving_op(const plan *p, uint32_t message)
{
  const rank_plan *r = &p->ranks[p->messages.items[message].to_rank];
  uint32_t op = 0;
  assert(p->messages.items[message].to_rank < p->rank_count);
  while (r->ops.items[op].kind != OP_RECV || r->ops.items[op].arg != message)
    op++;
  assert(op < r->ops.count);
  return op;
}

/* For a training in which each rank is a pipeline stage. */
static void add_message(exchange_samples *to, const measured_step *s, uint32_t rank, uint32_t op)
{
  const plan *p = s->plan;
  uint32_t number = p->ranks[rank].ops.items[op].arg;
  const plan_message *m = &p->messages.items[number];
  if (m->bytes < LEAST_BYTES) return;
  add(to, RATE_MESSAGE,
      shorter_ps(span_ps(s, rank, op), span_ps(s, m->to_rank, receiving_op(p, number))),
      transfer_ps(to->machine, m->bytes, true));
}

static void add_copy(exchange_samples *to, const measured_step *s, uint32_t rank, uint32_t op)
{
  const rank_plan *r = &s->plan->ranks[rank];
  const plan_op *o = &r->ops.items[op];
  int64_t bytes = copy_bytes(s->plan, r, o);
  bool out = o->kind == OP_D2H;
  assert(op_is_copy((op_kind)o->kind));
  if (bytes >= LEAST_BYTES)
    add(to, out ? RATE_D2H : RATE_H2D, span_ps(s, rank, op), host_copy_ps(to->machine, bytes, out));
}

static bool offloads(const plan *p)
{
  for (uint32_t i = 0; i < p->ranks[0].ops.count; i++)
    if (op_is_copy((op_kind)p->ranks[0].ops.items[i].kind)) return true;
  return false;
}

/* A training that offloads copies while streams wait: only its copies are samples. */
static void take_samples(const calibration_run *run, const measured_step *s)
{
  exchange_samples *to = run->context;
  const plan *p = s->plan;
  bool copies = offloads(p);
  for (uint32_t r = 0; r < p->rank_count; r++)
    for (uint32_t i = 0; i < p->ranks[r].ops.count; i++) {
      op_kind kind = (op_kind)p->ranks[r].ops.items[i].kind;
      if (op_is_copy(kind)) add_copy(to, s, r, i);
      if (kind == OP_COLLECTIVE && p->rank_count == 1) add_collective(to, s, i);
      if (kind == OP_SEND && !copies) add_message(to, s, r, i);
    }
}

static void set_steps(calibration_run *run, const plan *p, const machine *m)
{
  (void)p;
  (void)m;
  run->steps = STEPS;
  run->times_from = TIMES_FROM;
}

static bool calibrate_exchange(const calibration_model *of, void *context, diag *d)
{
  exchange_samples *samples = context;
  arena scratch = { 0 };
  calibration_run run = { .ranks = samples->gpus, .step_done = take_samples, .context = samples };
  bool ok = calibrate_train(samples->bench, of, samples->machine, set_steps, &run, &scratch, d);
  arena_release(&scratch);
  return ok;
}

/* ---- keys ---- */

static void put_rate(calibration *c, const char *key, int64_t said, sample_list *ratios)
{
  if (ratios->count == 0) return;
  int64_t ratio = sample_median(ratios);
  calibration_put(c, "nvlink", key, max_i64(1, muldiv_i64(said, PPM, max_i64(1, ratio))));
}

static void put_slowdown(calibration *c, const char *key, sample_list *ratios)
{
  if (ratios->count == 0) return;
  int64_t more_ppm = sample_median(ratios) - PPM;
  calibration_put(c, "link", key, max_i64(0, more_ppm / (PPM / 1000)));
}

static void put_rates(exchange_samples *s, const machine *m, calibration *c)
{
  put_rate(c, "bus_bytes_per_us", m->nvlink.bus_bytes_per_us, &s->ratios[RATE_BUS]);
  put_rate(c, "all_to_all_bytes_per_us", m->nvlink.all_to_all_bytes_per_us,
           &s->ratios[RATE_ALL_TO_ALL]);
  put_rate(c, "one_way_bytes_per_us", m->nvlink.one_way_bytes_per_us, &s->ratios[RATE_MESSAGE]);
  put_slowdown(c, "waiting_slowdown_d2h_permille", &s->ratios[RATE_D2H]);
  put_slowdown(c, "waiting_slowdown_h2d_permille", &s->ratios[RATE_H2D]);
}

static int64_t measured(const calibration *c, const char *section, const char *key)
{
  const calibrated_value *v = calibration_find(c, section, key);
  assert(v != NULL && "copies are measured before trainings");
  return v->value;
}

static machine with_link(const machine *m, const calibration *c)
{
  machine linked = *m;
  linked.link.d2h_bytes_per_us = measured(c, "link", "d2h_bytes_per_us");
  linked.link.h2d_bytes_per_us = measured(c, "link", "h2d_bytes_per_us");
  linked.link.d2h_latency_ns = measured(c, "link", "d2h_latency_ns");
  linked.link.h2d_latency_ns = measured(c, "link", "h2d_latency_ns");
  return linked;
}

bool calibrate_exchanges(const calibration_bench *b, const machine *m, sampled_calls *calls,
                         arena *a, diag *d)
{
  machine linked = with_link(m, b->to);
  exchange_samples samples = { .bench = b,
                               .machine = &linked,
                               .gpus = (uint32_t)measured(b->to, "host", "gpus"),
                               .collectives = { .calls = { .memory = a } } };
  intern_table known = { .memory = a };
  if (samples.gpus < PAIR) return true;
  bool ok = calibrate_each(b, calibration_exchanges, calibrate_exchange, &samples, d);
  put_rates(&samples, m, b->to);
  samples_take(m, &samples.collectives, &known, calls, NULL, a);
  samples_release(&samples.collectives);
  for (int i = 0; i < RATES; i++)
    ARRAY_FREE(&samples.ratios[i]);
  return ok;
}
