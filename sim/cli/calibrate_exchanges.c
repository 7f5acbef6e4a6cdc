#include "sim/cli/calibrate_exchanges.h"

#include "sim/base/median.h"
#include "sim/base/units.h"
#include "sim/cli/calibrate_train.h"
#include "sim/machine/call_time.h"
#include "sim/machine/roofline.h"

enum { STEPS = 8, TIMES_FROM = 4, PAIR = 2, PPM = 1000000 };

/* What is smaller shows the latency. */
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
  const machine *machine; /* its link as measured */
  uint32_t gpus;
  sample_list ratios[RATES]; /* times measured over what the machine says, parts per million */
  model_samples collectives;
} exchange_samples;

static void add(exchange_samples *to, rate_kind kind, int64_t taken_ps, int64_t said_ps)
{
  if (taken_ps > 0 && said_ps > 0)
    *ARRAY_PUSH(&to->ratios[kind]) = muldiv_i64(taken_ps, PPM, said_ps);
}

/* ---- one step -------------------------------------------------------------------------------- */

static int64_t span_ps(const cuda_exec *e, uint32_t rank, uint32_t op)
{
  cuda_times t = cuda_exec_times(e, rank);
  return t.end_ps[op] - t.begin_ps[op];
}

/* Of two ranks: who comes last waits for nobody. One of them may do it for both; 0: neither was
 * seen. */
static int64_t shorter_ps(int64_t a, int64_t b)
{
  return a > 0 && b > 0 ? min_i64(a, b) : max_i64(a, b);
}

/* All ranks run the same plan. */
static void add_collective(exchange_samples *to, const cuda_run *run, const cuda_exec *e,
                           const plan *p, uint32_t op)
{
  plan_call call = call_without_views(&p->calls.items[p->ranks[0].ops.items[op].arg]);
  if (call.bytes < LEAST_BYTES || call.group_size != run->ranks) return;
  int64_t ps = span_ps(e, 0, op);
  for (uint32_t rank = 1; rank < run->ranks; rank++)
    ps = shorter_ps(ps, span_ps(e, rank, op));
  if (ps > 0) samples_add(&to->collectives, &call, AT_WORK, ps);
  if (run->ranks == PAIR)
    add(to, call.kind == COLLECTIVE_ALL_TO_ALL ? RATE_ALL_TO_ALL : RATE_BUS, ps,
        call_roofline_ps(to->machine, &call));
}

static uint32_t receiving_op(const plan *p, uint32_t message)
{
  const rank_plan *r = &p->ranks[p->messages.items[message].to_rank];
  uint32_t op = 0;
  while (r->ops.items[op].kind != OP_RECV || r->ops.items[op].arg != message)
    op++;
  return op;
}

/* Each rank is a stage of the pipeline. */
static void add_message(exchange_samples *to, const cuda_exec *e, const plan *p, uint32_t rank,
                        uint32_t op)
{
  uint32_t number = p->ranks[rank].ops.items[op].arg;
  const plan_message *m = &p->messages.items[number];
  if (m->bytes < LEAST_BYTES) return;
  add(to, RATE_MESSAGE,
      shorter_ps(span_ps(e, rank, op), span_ps(e, m->to_rank, receiving_op(p, number))),
      transfer_ps(to->machine, m->bytes, true));
}

static void add_copy(exchange_samples *to, const cuda_exec *e, const plan *p, uint32_t rank,
                     uint32_t op)
{
  const plan_op *o = &p->ranks[rank].ops.items[op];
  int64_t bytes = copy_host_buffer(&p->ranks[rank], o)->bytes;
  bool out = o->kind == OP_D2H;
  if (bytes >= LEAST_BYTES)
    add(to, out ? RATE_D2H : RATE_H2D, span_ps(e, rank, op), host_copy_ps(to->machine, bytes, out));
}

static bool offloads(const plan *p)
{
  for (uint32_t i = 0; i < p->ranks[0].ops.count; i++)
    if (op_is_copy((op_kind)p->ranks[0].ops.items[i].kind)) return true;
  return false;
}

/* A training that offloads does so while streams wait: it is there for its copies. */
static void take_samples(const cuda_run *run, const cuda_exec *e, uint32_t step, const plan *p,
                         void *context)
{
  (void)step;
  bool copies = offloads(p);
  for (uint32_t r = 0; r < p->rank_count; r++)
    for (uint32_t i = 0; i < p->ranks[r].ops.count; i++) {
      op_kind kind = (op_kind)p->ranks[r].ops.items[i].kind;
      if (op_is_copy(kind)) add_copy(context, e, p, r, i);
      if (kind == OP_COLLECTIVE && p->rank_count == 1) add_collective(context, run, e, p, i);
      if (kind == OP_SEND && !copies) add_message(context, e, p, r, i);
    }
}

static void set_steps(cuda_run *run, const plan *p, const machine *m)
{
  (void)p;
  (void)m;
  run->steps = STEPS;
  run->options.times_from = TIMES_FROM;
}

static bool calibrate_exchange(const calibration_model *of, void *context, diag *d)
{
  exchange_samples *samples = context;
  arena scratch = { 0 };
  cuda_run run = { .ranks = samples->gpus, .step_done = take_samples, .context = samples };
  bool ok = calibrate_train(of, samples->machine, set_steps, &run, &scratch, d);
  arena_release(&scratch);
  return ok;
}

/* ---- keys ------------------------------------------------------------------------------------ */

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

static machine with_link(const machine *m, const calibration *c)
{
  machine linked = *m;
  linked.link.d2h_bytes_per_us = calibration_find(c, "link", "d2h_bytes_per_us")->value;
  linked.link.h2d_bytes_per_us = calibration_find(c, "link", "h2d_bytes_per_us")->value;
  linked.link.d2h_latency_ns = calibration_find(c, "link", "d2h_latency_ns")->value;
  linked.link.h2d_latency_ns = calibration_find(c, "link", "h2d_latency_ns")->value;
  return linked;
}

bool calibrate_exchanges(const machine *m, sampled_calls *calls, const calibrate_beside *beside,
                         arena *a, diag *d)
{
  calibration *c = beside->to;
  machine linked = with_link(m, c);
  exchange_samples samples = { .machine = &linked,
                               .gpus = (uint32_t)calibration_find(c, "host", "gpus")->value,
                               .collectives = { .calls = { .memory = a } } };
  intern_table known = { .memory = a };
  if (samples.gpus < PAIR) return true;
  bool ok = calibrate_each(calibration_exchanges, calibrate_exchange, &samples, beside, d);
  put_rates(&samples, m, c);
  samples_take(m, &samples.collectives, &known, calls, NULL, a);
  samples_release(&samples.collectives);
  for (int i = 0; i < RATES; i++)
    ARRAY_FREE(&samples.ratios[i]);
  return ok;
}
