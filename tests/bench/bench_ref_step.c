/*
 * How fast the reference executor trains: processor time of a step of the small models of
 * docs/examples, all ranks of each in one thread, and the matrix products that a step has beside
 * it. The best of several steps, after the first:
 *
 *     scenario                              seconds/step   products GFLOP/step   GFLOP/s
 *
 * Kernels of such sizes hardly multiply: what takes the time is everything around it.
 * bench_ref_gemm has the products alone, and the machine's peak.
 */
#include <stdio.h>

#include "ref/exec/exec.h"
#include "sim/compile/compile.h"
#include "sim/offload/systems.h"
#include "sim/train/train.h"
#include "tests/bench/case.h"

enum { STEPS = 8 };

static const char *const scenarios[] = {
  "docs/examples/tiny-llama.yaml",
  "docs/examples/tiny-llama-hf.yaml",
  "docs/examples/tiny-deepseek.yaml",
};

/* The time that this thread had the processor: other programs run, too. */
static double processor_s(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct step_times {
  double last_s, best_s; /* when the step before ended; the shortest, 0: none yet */
} step_times;

static void note_time(void *context, uint32_t step, const train_step *s)
{
  step_times *t = context;
  double now = processor_s(), took = now - t->last_s;
  (void)s;
  if (step > 0 && (t->best_s == 0 || took < t->best_s)) t->best_s = took;
  t->last_s = now;
}

/* By kernel: is it a matrix product, whose dims begin with m n k batch (sim/plan/kernels.h)? */
enum {
  IS_GEMM = 1,
  IS_ATTENTION = 0,
  IS_MEMORY = 0,
  IS_STRIDED = 0,
  IS_MIXED = 0,
  IS_ROW_CAST = 0,
  IS_ROTARY = 0,
  IS_NORM = 0,
  IS_HOST = 0
};
static const bool is_product[] = {
#define X(id, name, class, ...) IS_##class,
  PLAN_KERNELS(X)
#undef X
};

static double product_flops(const rank_plan *r, const plan *p)
{
  double flops = 0;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    if (o->kind != OP_KERNEL) continue;
    const plan_call *c = &p->calls.items[o->arg];
    if (is_product[c->kind])
      flops += 2.0 * (double)(c->dims[0] * c->dims[1] * c->dims[2] * c->dims[3]);
  }
  return flops;
}

/* As many ranks run each stage's plan. */
static double step_flops(const settings *s, const plan *p)
{
  double flops = 0;
  for (uint32_t r = 0; r < p->rank_count; r++)
    flops += product_flops(&p->ranks[r], p);
  return flops * (double)s->parallel.world_size / p->rank_count;
}

static bool train(const train_input *in, step_times *times, arena *a, diag *d)
{
  train_result result;
  executor on_ref = ref_executor(&(ref_options){ 0 });
  train_options options = { .seed = 1,
                            .steps = STEPS,
                            .learning_rate = 1e-3,
                            .executor = &on_ref,
                            .step_done = note_time,
                            .context = times };
  return token_stream_open(&options.tokens, in->settings, NULL, 0, 1, false, d) &&
         train_run(in, &options, &result, a, d);
}

static bool measure(const char *path, arena *a, diag *d)
{
  settings s;
  compilation first, steady;
  step_times times = { 0 };
  if (read_case(&s, path, a, d) == NULL || !settings_resolve(&s, offload_conditions, a, d))
    return false;
  bool ok = compile(&first, &s, ITERATION_WARMUP, a, d);
  ok = compile(&steady, &s, ITERATION_STEADY, a, d) && ok;
  ok = ok && train(&(train_input){ &s, &first.plan, &steady.plan }, &times, a, d);
  double flops = ok ? step_flops(&s, &steady.plan) : 0;
  compilation_release(&first);
  compilation_release(&steady);
  if (!ok) return false;
  printf("%-36s  %12.4f  %20.4f  %8.2f\n", path, times.best_s, 1e-9 * flops,
         1e-9 * flops / times.best_s);
  return true;
}

int main(int argc, char **argv)
{
  size_t count = argc > 1 ? (size_t)argc - 1 : sizeof scenarios / sizeof scenarios[0];
  printf("scenario                              seconds/step  products GFLOP/step   GFLOP/s\n");
  for (size_t i = 0; i < count; i++) {
    arena a = { 0 };
    diag d = { 0 };
    if (!measure(argc > 1 ? argv[i + 1] : scenarios[i], &a, &d)) return 2;
    arena_release(&a);
  }
  return 0;
}
