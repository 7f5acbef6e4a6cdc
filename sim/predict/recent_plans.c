#include "sim/predict/recent_plans.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/diag.h"
#include "sim/predict/baselines.h"

/* Larger plans are not kept: at 60 bytes an op with its times, a thread's last run has at most 60 MB. */
enum { MOST_OPS = 1000000 };

struct recent_plans {
  pthread_mutex_t lock;
  recent_run **runs; /* [most], those kept last at the end */
  uint32_t count, most;
};

recent_run *recent_run_new(void)
{
  recent_run *run = calloc(1, sizeof *run);
  if (run == NULL) die_refused("no memory for the plans of a setting");
  return run;
}

static void discard(recent_run *run)
{
  if (run == NULL) return;
  common_plans_release(&run->plans);
  arena_release(&run->first_memory);
  arena_release(&run->memory);
  free(run);
}

recent_plans *recent_plans_new(uint32_t most, arena *a)
{
  recent_plans *r = ARENA_NEW(a, recent_plans);
  assert(most > 0);
  *r = (recent_plans){ .runs = ARENA_ARRAY(a, recent_run *, most), .most = most };
  pthread_mutex_init(&r->lock, NULL);
  return r;
}

void recent_plans_release(recent_plans *r)
{
  for (uint32_t i = 0; i < r->count; i++)
    discard(r->runs[i]);
  pthread_mutex_destroy(&r->lock);
}

/* The run leaves the list. */
static recent_run *take_at(recent_plans *r, uint32_t i)
{
  assert(i < r->count);
  recent_run *run = r->runs[i];
  memmove(&r->runs[i], &r->runs[i + 1], (--r->count - i) * sizeof *r->runs);
  return run;
}

/* What both runs have in common. */
typedef enum likeness { NOTHING, BESIDE, CHUNKS, FIRST, PLANS } likeness;

static likeness likeness_of(const recent_run *a, const recent_run *b)
{
  if (XXH128_isEqual(a->common, b->common)) return PLANS;
  if (XXH128_isEqual(a->first, b->first)) return FIRST;
  if (XXH128_isEqual(a->lowered, b->lowered)) return CHUNKS;
  return XXH128_isEqual(a->beside, b->beside) ? BESIDE : NOTHING;
}

/* The last one of those that have most in common with this one; NULL: none has anything. */
static recent_run *take_like(recent_plans *r, const recent_run *own)
{
  likeness most = NOTHING;
  uint32_t at = 0;
  pthread_mutex_lock(&r->lock);
  for (uint32_t i = r->count; i-- > 0;) {
    likeness found = likeness_of(r->runs[i], own);
    if (found <= most) continue;
    most = found;
    at = i;
  }
  recent_run *like = most == NOTHING ? NULL : take_at(r, at);
  pthread_mutex_unlock(&r->lock);
  return like;
}

static void put_last(recent_plans *r, recent_run *run)
{
  pthread_mutex_lock(&r->lock);
  recent_run *oldest = r->count == r->most ? take_at(r, 0) : NULL;
  r->runs[r->count++] = run;
  pthread_mutex_unlock(&r->lock);
  discard(oldest);
}

static bool compile_both(recent_run *run)
{
  diag quiet = { .quiet = true };
  bool ok =
      common_plans_compile(&run->plans, &run->settings, ITERATION_WARMUP, &run->first_memory,
                           &quiet) &&
      common_plans_compile(&run->plans, &run->settings, ITERATION_STEADY, &run->memory, &quiet);
  if (!ok) common_plans_release(&run->plans);
  return ok;
}

static void take_first(recent_run *run, recent_run *from)
{
  common_plans_take_first(&run->plans, &from->plans);
  run->first_memory = from->first_memory;
  from->first_memory = (arena){ 0 };
}

recent_run *recent_plans_find(recent_plans *r, recent_run *own)
{
  settings common = common_settings(&own->settings), first = first_iteration_settings(&common);
  settings lowered = lowered_settings(&common), beside = settings_without_offload(&common);
  own->common = settings_digest(&common);
  own->first = settings_digest(&first);
  own->lowered = settings_digest(&lowered);
  own->beside = settings_digest(&beside);
  recent_run *like = take_like(r, own);
  likeness has = like == NULL ? NOTHING : likeness_of(like, own);
  if (has == PLANS) return like;
  own->plans.keeps_lowered = true;
  if (has >= CHUNKS) common_plans_take_lowered(&own->plans, &like->plans);
  if (has == FIRST) take_first(own, like);
  bool compiled = compile_both(own);
  if (compiled && like != NULL) common_plans_take_known(&own->plans, &like->plans);
  if (compiled) common_plans_keep_first(&own->plans);
  discard(like);
  return compiled ? own : NULL;
}

static uint64_t ops_of(const common_plans *plans)
{
  uint64_t ops = 0;
  for (int kind = 0; kind < ITERATION_KINDS; kind++)
    for (uint32_t i = 0; i < plans->compiled[kind].plan.rank_count; i++)
      ops += plans->compiled[kind].plan.ranks[i].ops.count;
  return ops;
}

void recent_plans_keep(recent_plans *r, recent_run *own, recent_run *found, bool useful)
{
  if (found != own) discard(own);
  if (found == NULL) return;
  if (useful && ops_of(&found->plans) <= MOST_OPS)
    put_last(r, found);
  else
    discard(found);
}
