#include "tests/unit/exchange_bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ref/exec/exec.h"
#include "sim/exec/call.h"
#include "sim/exec/stage.h"
#include "sim/plan/text.h"

enum { SCRATCH_BYTES = 1 << 16, MOST_OPERANDS = 8 };

typedef struct bench_rank {
  struct bench *bench;
  uint32_t number;
  pthread_t thread;
  gpu_stream *streams[DEVICE_STREAMS];
  gpu_event **events;
  void **buffers, *scratch[DEVICE_STREAMS];
  uint64_t random;
} bench_rank;

typedef struct bench {
  const bench_setup *setup;
  const gpu_driver *driver;
  arena *a;
  plan plan;
  stage stages[BENCH_STAGES];
  exec_rank ranks[BENCH_RANKS];
  exec_members groups[COMM_GROUPS][BENCH_RANKS], pipelines[BENCH_RANKS];
  uint32_t by_stage[BENCH_RANKS][BENCH_RANKS], by_pipeline[BENCH_RANKS][BENCH_RANKS],
      all[BENCH_RANKS], gpu_of[BENCH_RANKS], count;
  exec_layout layout;
  exchange *exchange;
  bench_rank of[BENCH_RANKS];
  pthread_mutex_t lock;
  const char *wrong; /* the first */
} bench;

static const exec_step step = { 0 };

static void is_wrong(bench *b, const char *why)
{
  if (why == NULL) return;
  pthread_mutex_lock(&b->lock);
  if (b->wrong == NULL) b->wrong = why;
  pthread_mutex_unlock(&b->lock);
  if (b->exchange != NULL) exchange_stop(b->exchange);
}

/* ---- who ------------------------------------------------------------------------------------- */

static void lay_out(bench *b)
{
  uint32_t width = b->setup->width, stages = b->setup->stages;
  b->count = stages * width;
  b->layout = (exec_layout){ b->count, b->ranks, { NULL }, b->pipelines };
  for (uint32_t r = 0; r < b->count; r++) {
    uint32_t s = r / width, i = r % width;
    b->all[r] = b->by_stage[s][i] = b->by_pipeline[i][s] = r;
    b->ranks[r] = (exec_rank){ .global = r, .stage = s };
    b->ranks[r].group[GROUP_ETP] = (exec_position){ 0, 1 };
    b->groups[GROUP_TP][r] = (exec_members){ b->by_stage[s], width };
    b->groups[GROUP_EDP][r] = (exec_members){ b->by_pipeline[i], stages };
    b->groups[GROUP_WORLD][r] = (exec_members){ b->all, b->count };
    b->pipelines[r] = (exec_members){ b->by_pipeline[i], stages };
    b->gpu_of[r] = b->setup->gpus == 0 ? 0 : r * b->setup->gpus / b->count;
  }
  b->layout.groups[GROUP_TP] = b->groups[GROUP_TP];
  b->layout.groups[GROUP_EDP] = b->groups[GROUP_EDP];
  b->layout.groups[GROUP_WORLD] = b->groups[GROUP_WORLD];
}

/* ---- what buffers hold at first -------------------------------------------------------------- */

static uint32_t number_of(uint32_t rank, uint32_t buffer, int64_t i)
{
  uint32_t x = rank * 7919u + buffer * 104729u + (uint32_t)i * 2654435761u;
  x ^= x >> 15;
  return x * 2246822519u >> 20; /* 12 bits */
}

static bool fill(void *context, uint32_t rank, uint32_t buffer, void *data, int64_t bytes)
{
  const bench *b = context;
  const stage *s = &b->stages[b->ranks[rank].stage];
  dtype type = (dtype)s->plan->tensors.items[stage_buffer(s, buffer)->tensor].dtype;
  for (int64_t i = 0; i < bytes / dtype_bytes(type); i++) {
    float x = ((float)number_of(rank, buffer, i) - 2000) / 2048;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (type == DTYPE_BF16)
      ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    else
      ((uint32_t *)data)[i] = bits;
  }
  return true;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static const char *fill_buffer(bench_rank *r, uint32_t buffer, int64_t bytes)
{
  const gpu_driver *g = r->bench->driver;
  void *pinned;
  const char *failure = g->allocate_pinned(&pinned, bytes);
  if (failure != NULL) return failure;
  (void)fill(r->bench, r->number, buffer, pinned, bytes);
  failure = g->copy(r->buffers[buffer], pinned, bytes, GPU_H2D, r->streams[STREAM_COMPUTE]);
  if (failure == NULL) failure = g->stream_synchronize(r->streams[STREAM_COMPUTE]);
  return failure != NULL ? failure : g->release_pinned(pinned);
}

static const char *rank_begin(bench_rank *r)
{
  const gpu_driver *g = r->bench->driver;
  const stage *s = &r->bench->stages[r->bench->ranks[r->number].stage];
  const char *failure = g->use(r->bench->gpu_of[r->number]);
  r->events = ARENA_ARRAY(r->bench->a, gpu_event *, s->ops_of->events);
  r->buffers = ARENA_ARRAY(r->bench->a, void *, s->ops_of->buffers.count);
  for (uint32_t i = 0; i < DEVICE_STREAMS && failure == NULL; i++) {
    if (i != STREAM_COMPUTE && s->first[i] == NO_OP) continue;
    failure = g->stream_new(&r->streams[i]);
    if (failure == NULL) failure = g->allocate(&r->scratch[i], SCRATCH_BYTES);
  }
  for (uint32_t i = 0; i < s->ops_of->events && failure == NULL; i++)
    failure = g->event_new(&r->events[i]);
  for (uint32_t i = 0; i < s->ops_of->buffers.count && failure == NULL; i++) {
    failure = g->allocate(&r->buffers[i], s->bytes[i]);
    if (failure == NULL) failure = fill_buffer(r, i, s->bytes[i]);
  }
  return failure;
}

static void rank_end(bench_rank *r)
{
  const gpu_driver *g = r->bench->driver;
  const stage *s = &r->bench->stages[r->bench->ranks[r->number].stage];
  is_wrong(r->bench, g->use(r->bench->gpu_of[r->number]));
  for (uint32_t i = 0; i < s->ops_of->buffers.count; i++)
    is_wrong(r->bench, g->release(r->buffers[i]));
  for (uint32_t i = 0; i < s->ops_of->events; i++)
    g->event_delete(r->events[i]);
  for (uint32_t i = 0; i < DEVICE_STREAMS; i++) {
    if (r->streams[i] == NULL) continue;
    is_wrong(r->bench, g->release(r->scratch[i]));
    g->stream_delete(r->streams[i]);
  }
}

/* ---- ops ------------------------------------------------------------------------------------- */

static void pause_a_little(void *context)
{
  (void)context;
  nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static uint32_t draw(bench_rank *r, uint32_t below)
{
  r->random = r->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(r->random >> 33) % below;
}

static void jitter(bench_rank *r, gpu_stream *stream)
{
  if (r->bench->setup->jitter == 0) return;
  if (draw(r, 8) == 0) pause_a_little(NULL);
  if (draw(r, 8) == 0) is_wrong(r->bench, r->bench->driver->call(pause_a_little, NULL, stream));
}

static exec_tensor operand(const bench_rank *r, const stage *s, const plan_op *o, uint32_t i)
{
  plan_view v = stage_view(s, o, i);
  exec_tensor t = { .data = r->buffers[stage_operand(s, o, i)], .type = v.dtype, .rank = v.rank };
  memcpy(t.shape, v.shape, sizeof t.shape);
  memcpy(t.strides, v.strides, sizeof t.strides);
  return t;
}

static exchange_trouble collective(bench_rank *r, const stage *s, uint32_t op)
{
  const plan_op *o = stage_op(s, op);
  exec_tensor tensors[MOST_OPERANDS];
  for (uint32_t i = 0; i < (uint32_t)o->reads + o->writes; i++)
    tensors[i] = operand(r, s, o, i);
  exec_call of = { .call = &s->plan->calls.items[o->arg],
                   .reads = tensors,
                   .writes = tensors + o->reads,
                   .read_count = o->reads,
                   .write_count = o->writes,
                   .site = &s->plan->sites.items[o->site],
                   .rank = &r->bench->ranks[r->number],
                   .step = &step };
  cuda_call c = { .of = &of,
                  .stream = r->streams[o->stream],
                  .scratch = r->scratch[o->stream],
                  .scratch_bytes = SCRATCH_BYTES };
  if (exchange_scratch(r->bench->exchange, r->number, &of) > SCRATCH_BYTES)
    return (exchange_trouble){ NULL, "more scratch than the test has" };
  return exchange_collective(r->bench->exchange, r->number, op, &c);
}

static exchange_trouble issue(bench_rank *r, const stage *s, uint32_t op)
{
  const gpu_driver *g = r->bench->driver;
  const plan_op *o = stage_op(s, op);
  gpu_stream *stream = r->streams[o->stream];
  jitter(r, stream);
  op_kind kind = (op_kind)o->kind;
  if (kind == OP_COLLECTIVE) return collective(r, s, op);
  if (kind == OP_SEND || kind == OP_RECV)
    return exchange_message(r->bench->exchange, r->number, op, r->buffers[stage_operand(s, o, 0)],
                            stream);
  const char *failure = "an op that the test does not know";
  if (kind == OP_RECORD) failure = g->event_record(r->events[o->arg], stream);
  if (kind == OP_WAIT) failure = g->stream_wait(stream, r->events[o->arg]);
  return (exchange_trouble){ NULL, failure };
}

static void *run_host(void *context)
{
  bench_rank *r = context;
  bench *b = r->bench;
  const stage *s = &b->stages[b->ranks[r->number].stage];
  r->random = b->setup->jitter + r->number;
  is_wrong(b, b->driver->use(b->gpu_of[r->number]));
  if (r->number == b->setup->absent) {
    pause_a_little(NULL);
    is_wrong(b, "stopped");
    return NULL;
  }
  for (uint32_t op = 0; op < s->ops_of->ops.count; op++) {
    exchange_trouble t = issue(r, s, op);
    is_wrong(b, t.finding);
    is_wrong(b, t.failure);
    if (t.finding != NULL || t.failure != NULL) break;
  }
  return NULL;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void synchronize(bench *b)
{
  for (uint32_t r = 0; r < b->count; r++)
    for (uint32_t i = 0; i < DEVICE_STREAMS; i++)
      if (b->of[r].streams[i] != NULL)
        is_wrong(b, b->driver->stream_synchronize(b->of[r].streams[i]));
}

static void run(bench *b)
{
  for (uint32_t r = 0; r < b->count; r++)
    if (pthread_create(&b->of[r].thread, NULL, run_host, &b->of[r]) != 0) abort();
  for (uint32_t r = 0; r < b->count; r++)
    pthread_join(b->of[r].thread, NULL);
  is_wrong(b, exchange_end(b->exchange));
  synchronize(b);
}

static void bench_begin(bench *b, const bench_setup *s, const char *text, arena *a)
{
  diag d = { 0 };
  *b = (bench){ .setup = s, .driver = s->driver, .a = a };
  pthread_mutex_init(&b->lock, NULL);
  if (!plan_parse(&b->plan, "text", text, strlen(text), a, &d)) {
    is_wrong(b, arena_strdup(a, d.message));
    return;
  }
  for (uint32_t i = 0; i < s->stages; i++)
    b->stages[i] = stage_new(&b->plan, i, a);
  lay_out(b);
  exchange_setup setup = { s->driver, &b->layout, b->gpu_of, s->collectives, s->nccl };
  for (uint32_t r = 0; r < b->count; r++) {
    b->of[r].bench = b;
    b->of[r].number = r;
    is_wrong(b, rank_begin(&b->of[r]));
  }
  b->exchange = exchange_new(&setup, &d);
  if (b->exchange == NULL || !exchange_begin(b->exchange, &b->plan, b->stages, &d))
    is_wrong(b, arena_strdup(a, d.message));
}

static void bench_end(bench *b)
{
  if (b->wrong != NULL) b->wrong = arena_strdup(b->a, b->wrong);
  exchange_release(b->exchange);
  b->exchange = NULL;
  for (uint32_t r = 0; r < b->count; r++)
    rank_end(&b->of[r]);
  plan_release(&b->plan);
  pthread_mutex_destroy(&b->lock);
}

const char *bench_finding(const bench_setup *s, const char *text, arena *a)
{
  bench b;
  bench_begin(&b, s, text, a);
  if (b.wrong == NULL) run(&b);
  bench_end(&b);
  return b.wrong;
}

/* ---- against ref ----------------------------------------------------------------------------- */

static void compare_buffer(bench *b, ref_exec *e, uint32_t rank, uint32_t buffer)
{
  const stage *s = &b->stages[b->ranks[rank].stage];
  int64_t bytes = s->bytes[buffer];
  void *pinned;
  gpu_stream *stream = b->of[rank].streams[STREAM_COMPUTE];
  is_wrong(b, b->driver->allocate_pinned(&pinned, bytes));
  is_wrong(b, b->driver->copy(pinned, b->of[rank].buffers[buffer], bytes, GPU_D2H, stream));
  is_wrong(b, b->driver->stream_synchronize(stream));
  if (memcmp(pinned, ref_exec_data(e, rank, buffer), (size_t)bytes) != 0)
    is_wrong(b, arena_printf(b->a, "rank %u: %s has other bits than in ref", rank,
                             stage_buffer_text(s, buffer, b->a)));
  is_wrong(b, b->driver->release_pinned(pinned));
}

static void compare(bench *b)
{
  diag d = { 0 };
  exec_hooks hooks = { .context = b, .fill = fill };
  ref_options options = { .arithmetic = REF_EXACT,
                          .kernels = ref_kernels,
                          .collectives = ref_collectives };
  ref_exec *e = ref_exec_new(&b->layout, &options, &hooks);
  if (ref_exec_iteration(e, &b->plan, &(exec_order){ 0 }, &step, &d) != EXEC_DONE)
    is_wrong(b, arena_printf(b->a, "ref: %s%s", d.message,
                             ref_exec_finding(e) == NULL ? "" : ref_exec_finding(e)));
  for (uint32_t r = 0; r < b->count && b->wrong == NULL; r++) {
    is_wrong(b, b->driver->use(b->gpu_of[r]));
    const rank_plan *p = &b->plan.ranks[b->ranks[r].stage];
    for (uint32_t i = 0; i < p->buffers.count; i++)
      compare_buffer(b, e, r, i);
  }
  ref_exec_release(e);
}

const char *bench_check(const bench_setup *s, const char *text, arena *a)
{
  bench b;
  bench_begin(&b, s, text, a);
  if (b.wrong == NULL) run(&b);
  if (b.wrong == NULL) compare(&b);
  bench_end(&b);
  return b.wrong;
}
