#include "sim/predict/common_plans.h"

#include <assert.h>
#include <string.h>

#include "sim/base/memory.h"
#include "sim/base/parallel.h"
#include "sim/verify/verify.h"

settings common_settings(const settings *s)
{
  settings common = *s;
  common.software.expandable_segments = false;
  return common;
}

/* ---- compile ---- */

static bool is_compiled(const common_plans *c, iteration_kind kind)
{
  assert((unsigned)kind < ITERATION_KINDS);
  return c->compiled[kind].plan.rank_count > 0;
}

static void begin_compiling(common_plans *c, const settings *s, uint32_t threads)
{
  if (c->lowered.rank_count == 0) c->lowered = lower_ranks(s, threads);
}

static void end_compiling(common_plans *c)
{
  if (is_compiled(c, ITERATION_WARMUP) && is_compiled(c, ITERATION_STEADY) && !c->keeps_lowered)
    lowered_ranks_release(&c->lowered);
}

bool common_plans_compile(common_plans *c, const settings *s, iteration_kind kind, arena *a,
                          diag *d)
{
  if (is_compiled(c, kind)) return true;
  begin_compiling(c, s, 1);
  bool ok = compile_lowered(&c->compiled[kind], s, &c->lowered, kind, 1, a, d);
  end_compiling(c);
  return ok;
}

typedef struct compiling {
  common_plans *to;
  const settings *settings;
  uint32_t threads; /* for an iteration */
  arena memory[ITERATION_KINDS];
  diag errors[ITERATION_KINDS];
} compiling;

static void compile_iteration(void *context, uint32_t kind)
{
  compiling *x = context;
  if (!is_compiled(x->to, (iteration_kind)kind))
    compile_lowered(&x->to->compiled[kind], x->settings, &x->to->lowered, (iteration_kind)kind,
                    x->threads, &x->memory[kind], &x->errors[kind]);
}

bool common_plans_compile_both(common_plans *c, const settings *s, uint32_t threads, arena *a,
                               diag *d)
{
  compiling x = { .to = c, .settings = s };
  if (is_compiled(c, ITERATION_WARMUP) && is_compiled(c, ITERATION_STEADY)) return true;
  x.threads = (threads + ITERATION_KINDS - 1) / ITERATION_KINDS;
  for (int kind = 0; kind < ITERATION_KINDS; kind++)
    x.errors[kind].quiet = d->quiet;
  begin_compiling(c, s, threads);
  parallel_for(ITERATION_KINDS, threads, compile_iteration, &x);
  end_compiling(c);
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    arena_take(a, &x.memory[kind]);
    if (diag_ok(d) && !diag_ok(&x.errors[kind])) *d = x.errors[kind];
  }
  return diag_ok(d);
}

bool common_plans_are_safe(common_plans *c, const settings *s, arena *a, diag *d)
{
  const plan *first = &c->compiled[ITERATION_WARMUP].plan;
  const plan *steady = &c->compiled[ITERATION_STEADY].plan;
  return common_plans_compile(c, s, ITERATION_WARMUP, a, d) && plan_is_safe(first, NULL) &&
         common_plans_compile(c, s, ITERATION_STEADY, a, d) && plan_is_safe(steady, first);
}

/* ---- what others know ---- */

void common_plans_take_lowered(common_plans *c, common_plans *from)
{
  assert(c->lowered.rank_count == 0 && "nothing is lowered yet");
  c->lowered = from->lowered;
  from->lowered = (lowered_ranks){ 0 };
}

static void take_known_of(common_plans *c, common_plans *from, iteration_kind kind)
{
  assert(c->times[kind].rank_count == 0 && "nothing is known yet");
  c->times[kind] = from->times[kind];
  from->times[kind] = (timeline){ 0 };
  if (kind != ITERATION_WARMUP) return;
  assert(c->first[0] == NULL && c->first[1] == NULL);
  memcpy(c->first, from->first, sizeof c->first);
  memset(from->first, 0, sizeof from->first);
}

void common_plans_take_first(common_plans *c, common_plans *from)
{
  assert(!is_compiled(c, ITERATION_WARMUP) && is_compiled(from, ITERATION_WARMUP));
  c->compiled[ITERATION_WARMUP] = from->compiled[ITERATION_WARMUP];
  from->compiled[ITERATION_WARMUP] = (compilation){ 0 };
  take_known_of(c, from, ITERATION_WARMUP);
}

void common_plans_take_known(common_plans *c, common_plans *from)
{
  bool same = true;
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    if (!is_compiled(from, (iteration_kind)kind)) continue; /* taken */
    if (plan_is_same(&c->compiled[kind].plan, &from->compiled[kind].plan))
      take_known_of(c, from, (iteration_kind)kind);
    else
      same = false;
  }
  if (!same) return;
  memcpy(c->figures, from->figures, sizeof c->figures);
  memset(from->figures, 0, sizeof from->figures);
}

void common_plans_keep_first(common_plans *c)
{
  uint32_t ranks = c->compiled[ITERATION_WARMUP].plan.rank_count;
  assert(ranks > 0);
  for (int mode = 0; mode < 2; mode++)
    if (c->first[mode] == NULL) c->first[mode] = memory_zeroed(ranks, sizeof **c->first);
}

first_replay *common_plans_first(common_plans *c, const settings *s, int64_t capacity_bytes,
                                 uint32_t rank)
{
  first_replay *first = c->first[s->software.expandable_segments];
  assert(rank < c->compiled[ITERATION_WARMUP].plan.rank_count);
  if (first == NULL) return NULL;
  if (first[rank].after == NULL) first[rank].capacity_bytes = capacity_bytes;
  return first[rank].capacity_bytes == capacity_bytes ? &first[rank] : NULL;
}

static void first_release(first_replay *first, uint32_t ranks)
{
  for (uint32_t i = 0; first != NULL && i < ranks; i++) {
    first_replay *f = &first[i];
    if (f->after != NULL) replay_release(f->after);
    arena_release(&f->memory);
  }
  memory_return(first);
}

void common_plans_release(common_plans *c)
{
  for (int i = 0; i < 2; i++)
    first_release(c->first[i], c->compiled[ITERATION_WARMUP].plan.rank_count);
  for (int i = 0; i < 2; i++)
    arena_release(&c->figures[i].memory);
  lowered_ranks_release(&c->lowered);
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    timeline_release(&c->times[kind]);
    compilation_release(&c->compiled[kind]);
  }
  *c = (common_plans){ 0 };
}
