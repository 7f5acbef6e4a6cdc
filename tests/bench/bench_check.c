/*
 * How long the verifier takes for DeepSeek-V3 on 16 pipeline stages, all modules offloaded
 * (tests/bench/deepseek-v3.yaml, or the scenario given), a steady iteration of all ranks, and how
 * that grows with the micro-batches:
 *
 *     micro-batches 64   ops 2000000   0.210 s   9.5 Mop/s   150 bytes/op
 *
 * The best of several runs. Memory is what the process has reached beyond the compiled plan.
 */
#include <stdio.h>

#include "sim/compile/compile.h"
#include "sim/offload/systems.h"
#include "sim/verify/verify.h"
#include "tests/bench/case.h"

enum { RUNS = 5 };

static double verify_once(const plan *p)
{
  arena a = { 0 };
  verification v;
  double start = now_s();
  verify_plan(&v, p, NULL, 1, &a);
  double taken = now_s() - start;
  verification_release(&v);
  arena_release(&a);
  return taken;
}

static uint64_t op_count(const plan *p)
{
  uint64_t ops = 0;
  for (uint32_t r = 0; r < p->rank_count; r++)
    ops += p->ranks[r].ops.count;
  return ops;
}

static void measure(const plan *p, int64_t microbatches)
{
  double before = reached_bytes(), best = verify_once(p);
  for (int i = 1; i < RUNS; i++) {
    double one = verify_once(p);
    if (one < best) best = one;
  }
  double ops = (double)op_count(p);
  printf("micro-batches %2lld   ops %7.0f   %.3f s   %4.1f Mop/s   %3.0f bytes/op\n",
         (long long)microbatches, ops, best, 1e-6 * ops / best, (reached_bytes() - before) / ops);
}

static bool bench(const char *path, int64_t microbatches, diag *d)
{
  arena a = { 0 };
  settings *s = ARENA_NEW(&a, settings);
  compilation c;
  bool ok = read_case(s, path, &a, d) != NULL;
  if (ok) {
    int64_t all = s->training.global_batch_size;
    s->training.global_batch_size = all / 64 * microbatches;
    ok = settings_resolve(s, offload_conditions, &a, d) && compile(&c, s, ITERATION_STEADY, &a, d);
  }
  if (ok) {
    measure(&c.plan, microbatches);
    compilation_release(&c);
  }
  arena_release(&a);
  return ok;
}

int main(int argc, char **argv)
{
  diag d = { .quiet = true };
  const char *path = argc > 1 ? argv[1] : "tests/bench/deepseek-v3.yaml";
  for (int64_t microbatches = 8; microbatches <= 64; microbatches *= 2)
    if (!bench(path, microbatches, &d)) break;
  return diag_finish(&d);
}
