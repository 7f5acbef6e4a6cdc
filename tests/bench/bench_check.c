/*
 * How long the verifier takes for DeepSeek-V3 on 16 pipeline stages, all modules offloaded
 * (tests/bench/deepseek-v3.yaml, or the scenario given), a steady iteration of all ranks, and how
 * that grows with the micro-batches:
 *
 *     micro-batches  64   ops 1670000   all 0.100 s  16.0 Mop/s    40 bytes/op   errors 0.025 s
 *
 * The best of several runs: of all findings, and of errors alone, which is what predict asks for. Memory is
 * what the process has reached beyond the compiled plans by finding all.
 */
#include <stdio.h>

#include "sim/compile/compile.h"
#include "sim/offload/systems.h"
#include "sim/verify/verify.h"
#include "tests/bench/case.h"

enum { RUNS = 5 };

typedef void verifying(verification *v, const plan *p, const plan *before, uint32_t threads,
                       arena *a);

static double verify_once(verifying *verify, const plan *p, const plan *first)
{
  arena a = { 0 };
  verification v;
  double start = now_s();
  verify(&v, p, first, 1, &a);
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

static double best_of(verifying *verify, const plan *p, const plan *first)
{
  double best = verify_once(verify, p, first);
  for (int i = 1; i < RUNS; i++) {
    double one = verify_once(verify, p, first);
    if (one < best) best = one;
  }
  return best;
}

static void measure(const plan *p, const plan *first, int64_t microbatches)
{
  double ops = (double)op_count(p), before = reached_bytes(), all = best_of(verify_plan, p, first);
  double bytes = reached_bytes() - before;
  printf("micro-batches %3lld   ops %7.0f   all %.3f s   %4.1f Mop/s   %3.0f bytes/op   "
         "errors %.3f s\n",
         (long long)microbatches, ops, all, 1e-6 * ops / all, bytes / ops,
         best_of(verify_errors, p, first));
}

static bool bench(const char *path, int64_t microbatches, diag *d)
{
  arena a = { 0 };
  settings *s = ARENA_NEW(&a, settings);
  compilation first, c;
  bool ok = read_case(s, path, &a, d) != NULL;
  if (ok) {
    int64_t all = s->training.global_batch_size;
    s->training.global_batch_size = all / 64 * microbatches;
    ok = settings_resolve(s, offload_conditions, &a, d) &&
         compile(&first, s, ITERATION_WARMUP, &a, d) && compile(&c, s, ITERATION_STEADY, &a, d);
  }
  if (ok) {
    measure(&c.plan, &first.plan, microbatches);
    compilation_release(&first);
    compilation_release(&c);
  }
  arena_release(&a);
  return ok;
}

int main(int argc, char **argv)
{
  diag d = { .quiet = true };
  const char *path = argc > 1 ? argv[1] : "tests/bench/deepseek-v3.yaml";
  for (int64_t microbatches = 8; microbatches <= 256; microbatches *= 2)
    if (!bench(path, microbatches, &d)) break;
  return diag_finish(&d);
}
