/* One iteration: all ranks' host threads begin, issue, and end. */
#include <assert.h>

#include "cuda/device/clock.h"
#include "cuda/exec/state.h"
#include "cuda/measure/ranges.h"

/* ---- threads --------------------------------------------------------------------------------- */

typedef struct rank_task {
  rank_run *rank;
  void (*work)(rank_run *r, const past *before);
  const past *before;
  pthread_barrier_t *start;
} rank_task;

static void *run_task(void *task)
{
  const rank_task *t = task;
  rank_run *r = t->rank;
  char name[32];
  assert(is_here(r));
  snprintf(name, sizeof name, "rank %u", r->number);
  range_name_thread(name);
  r->sink.at = NO_OP;
  bool ok = rank_ok(r, r->driver->use(r->gpu));
  pthread_barrier_wait(t->start);
  if (ok) t->work(r, t->before);
  return NULL;
}

/* Returns when all threads have begun together: a training has its threads long before a step. */
static int64_t run_ranks(cuda_exec *e, void (*work)(rank_run *r, const past *before),
                         const past *before)
{
  uint32_t count = e->layout->rank_count;
  assert(ranks_here(e) > 0 && before != NULL);
  rank_task *tasks = ARENA_ARRAY(&e->iteration, rank_task, count);
  pthread_barrier_t start;
  pthread_barrier_init(&start, NULL, ranks_here(e) + 1);
  for (uint32_t i = 0; i < count; i++) {
    if (!is_here(&e->ranks[i])) continue;
    tasks[i] = (rank_task){ &e->ranks[i], work, &before[i], &start };
    if (pthread_create(&e->ranks[i].thread, NULL, run_task, &tasks[i]) != 0)
      die_refused("cuda: the system refuses a thread for rank %u", i);
  }
  pthread_barrier_wait(&start);
  int64_t begin_ps = clock_now_ps();
  for (uint32_t i = 0; i < count; i++)
    if (is_here(&e->ranks[i])) pthread_join(e->ranks[i].thread, NULL);
  pthread_barrier_destroy(&start);
  return begin_ps;
}

/* ---- begin ----------------------------------------------------------------------------------- */

static bool has_optimizer(const stage *s)
{
  assert(s->ops_of->marks.count <= s->ops_of->ops.count);
  for (uint32_t i = 0; i < s->ops_of->marks.count; i++)
    if (s->ops_of->marks.items[i].kind == MARK_OPTIMIZER) return true;
  return false;
}

static int64_t *times_unknown(arena *a, uint32_t count)
{
  int64_t *times = ARENA_ARRAY(a, int64_t, count);
  for (uint32_t i = 0; i < count; i++)
    times[i] = -1;
  return times;
}

static rank_curves curves_new(const cuda_exec *e, arena *a, uint32_t ops)
{
  assert(!e->options.times || e->measure != NULL || e->options.gpus == 0);
  rank_curves c = { .begin_ps = times_unknown(a, ops), .end_ps = times_unknown(a, ops) };
  if (!e->options.times) return c;
  c.live = ARENA_ARRAY(a, int64_t, ops);
  c.reserved = ARENA_ARRAY(a, int64_t, ops);
  c.host = ARENA_ARRAY(a, int64_t, ops);
  return c;
}

static void prepare_plan(cuda_exec *e, const plan *p)
{
  assert(p->rank_count > 0);
  if (e->plan == p) return;
  e->plan = p;
  e->prepared = (arena){ 0 };
  e->stages = ARENA_ARRAY(&e->prepared, stage, p->rank_count);
  for (uint32_t s = 0; s < p->rank_count; s++)
    e->stages[s] = stage_new(p, s, &e->prepared);
}

static void prepare_rank(cuda_exec *e, rank_run *r)
{
  assert(e->layout->ranks[r->number].stage < e->plan->rank_count);
  const stage *s = &e->stages[e->layout->ranks[r->number].stage];
  uint32_t ops = s->ops_of->ops.count;
  assert(r->watches.pending.count == 0 && "the last iteration has reported everything");
  r->stage = s;
  r->sink.at = NO_OP;
  r->buffers = ARENA_ARRAY(&e->iteration, held_buffer, s->ops_of->buffers.count);
  r->after_op = ARENA_ARRAY(&e->iteration, int64_t, ops);
  r->curves = curves_new(e, &e->iteration, ops);
  if (!is_here(r)) {
    watches_prepare(r);
    return;
  }
  e->with_optimizer += has_optimizer(s);
  queue_begin(&r->queue, s, &e->iteration);
  host_memory_begin(&r->host);
  if (rank_ok(r, r->driver->use(r->gpu))) device_memory_begin(&r->device);
}

static void begin_rank(rank_run *r, const past *before)
{
  assert(before->plan == NULL || before->buffers != NULL);
  if (!queue_prepare(&r->queue)) return;
  if (before->plan != r->exec->plan && !(scratch_prepare(r) && rehearse(r))) return;
  watches_prepare(r);
  if (is_going(r)) carry_residents(r, before);
  if (is_going(r))
    rank_ok(r, r->driver->fill(r->left_out, 0, sizeof *r->left_out, r->queue.inspector));
  if (is_going(r)) queue_synchronize(&r->queue);
  if (is_going(r)) rank_ok(r, r->driver->stream_synchronize(r->queue.inspector));
}

static void begin(cuda_exec *e, const plan *p)
{
  assert(!atomic_load(&e->stopped) && "no iteration may follow an error");
  uint32_t count = e->layout->rank_count;
  arena old_state = e->iteration, old_plan = { 0 };
  e->iteration = (arena){ 0 };
  past *before = ARENA_ARRAY(&e->iteration, past, count);
  for (uint32_t i = 0; i < count; i++)
    before[i] = (past){ e->plan, e->ranks[i].stage, e->ranks[i].buffers };
  if (e->plan != p) old_plan = e->prepared;
  prepare_plan(e, p);
  e->at_optimizer = e->with_optimizer = 0;
  e->left_out = 0;
  e->optimizer_passed = false;
  for (uint32_t i = 0; i < count; i++)
    prepare_rank(e, &e->ranks[i]);
  assert(e->with_optimizer <= ranks_here(e));
  (void)run_ranks(e, begin_rank, before);
  arena_release(&old_state);
  arena_release(&old_plan);
}

/* ---- on the way ------------------------------------------------------------------------------ */

static void issue_rank(rank_run *r, const past *before)
{
  assert(before->plan == NULL && "residents are there");
  (void)before;
  issue_all(r);
}

/* ---- end ------------------------------------------------------------------------------------- */

static bool is_done(cuda_exec *e)
{
  return !atomic_load(&e->stopped);
}

/* Everything that was issued has run, or will not run any more. */
static void wait_for_streams(cuda_exec *e)
{
  assert(e->exchange != NULL);
  const char *finding = exchange_end(e->exchange);
  if (finding != NULL) run_wrong(e, "%s", finding);
  for (uint32_t i = 0; i < e->layout->rank_count; i++) {
    rank_run *r = &e->ranks[i];
    r->sink.at = NO_OP;
    if (!is_here(r)) continue;
    if (rank_ok(r, r->driver->use(r->gpu))) queue_synchronize(&r->queue);
  }
}

static void take_times(rank_run *r)
{
  const measure_span *spans = measure_spans(r->exec->measure, r->number);
  assert(r->exec->measuring && spans != NULL);
  for (uint32_t i = 0; i < r->stage->ops_of->ops.count; i++) {
    if (spans[i].end_ns == 0) continue;
    assert(spans[i].begin_ns <= spans[i].end_ns);
    r->curves.begin_ps[i] = spans[i].begin_ns * PS_PER_NS;
    r->curves.end_ps[i] = spans[i].end_ns * PS_PER_NS;
  }
}

static void take_left_out(rank_run *r)
{
  int64_t count = 0;
  assert(is_here(r));
  if (rank_ok(r, r->driver->copy(&count, r->left_out, sizeof count, GPU_D2H, r->queue.inspector)) &&
      rank_ok(r, r->driver->stream_synchronize(r->queue.inspector)))
    r->exec->left_out += count;
  assert(count >= 0);
}

/* Live buffers are checked, too. */
static void look_at_survivors(rank_run *r)
{
  assert(is_here(r) && r->stage != NULL);
  for (uint32_t b = 0; b < r->stage->ops_of->buffers.count; b++)
    if (r->buffers[b].state == HELD && side_of(r->stage, b) == ON_DEVICE)
      guards_check(&r->device, r->stage, b, &r->buffers[b]);
}

static void end_rank(rank_run *r)
{
  assert(is_here(r));
  take_left_out(r);
  if (rank_ok(r, r->driver->use(r->gpu))) device_memory_end(&r->device);
  look_at_survivors(r);
  host_memory_end(&r->host);
  if (r->exec->measuring) take_times(r);
}

static void end(cuda_exec *e)
{
  assert(!e->measuring || e->measure != NULL);
  if (is_done(e) && e->measuring && !measure_collect(e->measure, e->d)) e->outcome = EXEC_REFUSED;
  for (uint32_t i = 0; i < e->layout->rank_count && is_done(e); i++)
    if (is_here(&e->ranks[i])) end_rank(&e->ranks[i]);
  spread_figures(e);
  for (uint32_t i = 0; i < e->layout->rank_count && is_done(e); i++)
    watches_tell(&e->ranks[i]);
}

/* ---- all of it ------------------------------------------------------------------------------- */

bool cuda_measures(const cuda_options *o, uint32_t step)
{
  if (!o->times || step < o->times_from) return false;
  assert(step >= o->times_from);
  if (o->times_every == 0 || (o->rests_from > 0 && step >= o->rests_from)) return true;
  return (step - o->times_from + 1) % o->times_every == 0;
}

static bool begin_measure(cuda_exec *e)
{
  assert(!e->measuring || e->measure != NULL);
  uint32_t count = e->layout->rank_count;
  uint32_t *ops = ARENA_ARRAY(&e->iteration, uint32_t, count);
  for (uint32_t i = 0; i < count; i++)
    ops[i] = e->ranks[i].stage->ops_of->ops.count;
  e->measuring = e->measure != NULL && cuda_measures(&e->options, e->step->number);
  for (uint32_t i = 0; i < count; i++)
    e->ranks[i].queue.measure = e->measuring ? e->measure : NULL;
  return !e->measuring || measure_begin(e->measure, count, ops, e->d);
}

exec_outcome cuda_exec_iteration(cuda_exec *e, const plan *p, const exec_step *step, diag *d)
{
  assert(e->outcome == EXEC_DONE && "no iteration may follow an error");
  e->d = d;
  e->step = step;
  begin(e, p);
  if (!is_done(e)) return spread_outcome(e);
  if (!exchange_begin(e->exchange, p, e->stages, d)) {
    e->outcome = EXEC_REFUSED;
    return spread_outcome(e);
  }
  if (!begin_measure(e)) {
    e->outcome = EXEC_REFUSED;
    return spread_outcome(e);
  }
  patience_begin(e->patience);
  int64_t begin_ps =
      run_ranks(e, issue_rank, ARENA_ARRAY(&e->iteration, past, e->layout->rank_count));
  wait_for_streams(e);
  e->step_ps = clock_now_ps() - begin_ps;
  assert(e->step_ps >= 0 && "time never goes back");
  patience_end(e->patience);
  end(e);
  return spread_outcome(e);
}
