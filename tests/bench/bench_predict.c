/*
 * How fast a large configuration goes from settings to times and memory: DeepSeek-V3 on 16 pipeline
 * stages with 64 micro-batches, all modules offloaded, one steady iteration at the granularity of
 * kernels and tensors (tests/bench/deepseek-v3.yaml, or the scenario given). The best of several
 * runs:
 *
 *     default segments
 *     ops 2000000
 *     compile   12.3 Mop/s    162.6 ms   settings -> graph -> programs -> plan
 *     simulate  23.4 Mop/s     85.5 ms   plan -> times -> memory
 *     total                   248.1 ms
 *     memory    88 bytes/op
 *
 * Memory is what the process has reached, less what it had before the first run.
 */
#include <stdio.h>

#include "sim/compile/compile.h"
#include "sim/engine/engine.h"
#include "sim/engine/replay.h"
#include "sim/offload/systems.h"
#include "tests/bench/case.h"

enum { RUNS = 5 };

typedef struct measurement {
  double compile_s, engine_s, replay_s;
  uint64_t ops;
} measurement;

/* Every stage fills whole hosts, so its GPUs of one host represent all. */
static const rank_place *places_of(const machine *m, uint32_t ranks, arena *a)
{
  rank_place *places = ARENA_ARRAY(a, rank_place, ranks);
  for (uint32_t r = 0; r < ranks; r++)
    places[r] = (rank_place){ .host = r, .gpu = 0, .multiplicity = (uint32_t)m->host.gpus };
  return places;
}

static void replay_all(const plan *p, const timeline *t, const machine *m, const settings *s,
                       arena *a)
{
  replay_options options = { .capacity_bytes = machine_usable_bytes(m),
                             .expandable_segments = s->software.expandable_segments };
  for (uint32_t r = 0; r < p->rank_count; r++) {
    replay *one = replay_new(&options, a);
    replay_iteration(one, &p->ranks[r], &t->ranks[r]);
    replay_release(one);
  }
}

static bool measure(const settings *s, const machine *m, measurement *out, diag *d)
{
  arena a = { 0 };
  compilation c;
  timeline t;
  double start = now_s();
  bool ok = compile(&c, s, ITERATION_STEADY, &a, d);
  double compiled = now_s();
  ok = ok && simulate(&t, &c.plan, m, places_of(m, c.plan.rank_count, &a), d);
  double simulated = now_s();
  if (!ok) return false;
  replay_all(&c.plan, &t, m, s, &a);
  double replayed = now_s();
  *out = (measurement){ compiled - start, simulated - compiled, replayed - simulated, 0 };
  for (uint32_t r = 0; r < c.plan.rank_count; r++)
    out->ops += c.plan.ranks[r].ops.count;
  timeline_release(&t);
  compilation_release(&c);
  arena_release(&a);
  return true;
}

static double total_s(const measurement *m)
{
  return m->compile_s + m->engine_s + m->replay_s;
}

static void print_measurement(const measurement *m, double bytes)
{
  double ops = (double)m->ops, simulate_s = m->engine_s + m->replay_s;
  printf("ops %llu\n", (unsigned long long)m->ops);
  printf("compile  %5.1f Mop/s  %7.1f ms   settings -> graph -> programs -> plan\n",
         1e-6 * ops / m->compile_s, 1e3 * m->compile_s);
  printf("simulate %5.1f Mop/s  %7.1f ms   plan -> times (%.1f ms) -> memory (%.1f ms)\n",
         1e-6 * ops / simulate_s, 1e3 * simulate_s, 1e3 * m->engine_s, 1e3 * m->replay_s);
  printf("total                 %7.1f ms\n", 1e3 * total_s(m));
  printf("memory   %5.1f bytes/op\n", bytes / ops);
}

/* The best of several runs under one allocator setting. */
static bool bench(settings *s, const machine *m, bool expandable_segments, diag *d)
{
  measurement best = { 0 };
  double before = reached_bytes();
  s->software.expandable_segments = expandable_segments;
  for (int i = 0; i < RUNS; i++) {
    measurement one = { 0 };
    if (!measure(s, m, &one, d)) return false;
    if (i == 0 || total_s(&one) < total_s(&best)) best = one;
  }
  printf("%s segments\n", expandable_segments ? "expandable" : "default");
  print_measurement(&best, reached_bytes() - before);
  return true;
}

/* Large runs are mostly launched with expandable segments, where one of the two allocator replays
 * is a mere sum. The second figure of memory is what it needs beyond the first. */
int main(int argc, char **argv)
{
  arena a = { 0 };
  diag d = { 0 };
  settings *s = ARENA_NEW(&a, settings);
  const machine *m = read_case(s, argc > 1 ? argv[1] : "tests/bench/deepseek-v3.yaml", &a, &d);
  if (m != NULL && settings_resolve(s, offload_conditions, &a, &d) && bench(s, m, false, &d))
    bench(s, m, true, &d);
  arena_release(&a);
  return diag_finish(&d);
}
