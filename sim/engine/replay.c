#include "sim/engine/replay.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/memory/caching_allocator_steps.h"
#include "sim/memory/pinned_pool.h"
#include "sim/plan/repeats.h"

/* An event is the time at which it happens, since the first iteration began. */
typedef struct clock_events {
  struct {
    int64_t *items;
    uint32_t count, capacity;
  } at_ps;
  const rank_timeline *times; /* of the current iteration; NULL: no block waits */
  int64_t origin_ps;          /* when it began */
  int64_t now_ps;             /* when the host thread last asked for memory */
  int64_t soonest_ps;         /* until then, nothing more that a freed block waits for is done */
  bool waited;                /* the host thread has waited for all of them */
} clock_events;

/* Instead of a buffer's block: the buffer is not alive. (An empty buffer is alive without a
 * block.) */
#define NOT_ALIVE (ALLOCATOR_NO_BLOCK - 1)

#define NO_OP MEMORY_NO_OP

/* A few calls in an iteration: not inline, so that the ops of each iteration save few registers. */
#define SELDOM __attribute__((cold, noinline))

/* Compiled apart for each constant that callers give. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* A buffer that an iteration finds or leaves. */
typedef struct lasting_buffer {
  plan_buffer what; /* its plan may be gone */
  uint32_t id;      /* in its plan, in order of allocation */
  uint32_t turn;    /* its order among equal ones */
  uint32_t block;
} lasting_buffer;
typedef struct lasting_array {
  lasting_buffer *items;
  uint32_t count, capacity;
} lasting_array;

struct replay {
  replay_options options;
  caching_allocator *device;
  pinned_pool *host;
  clock_events events;
  memory_curve *curve;
  memory_ops own;        /* of the plan that the current iteration was given */
  const memory_ops *ops; /* of the current iteration; NULL: replay_again may not follow */
  hold_list refused;     /* of this iteration */
  lasting_array left;    /* by the last iteration, sorted */
  lasting_array found;   /* by the current one, sorted */
  bool has_left;         /* there is a last iteration */
};

static bool event_done(void *context, uint32_t event)
{
  clock_events *e = context;
  assert(event < e->at_ps.count && e->times != NULL);
  int64_t at_ps = e->at_ps.items[event];
  if (e->waited || at_ps <= e->now_ps) return true;
  e->soonest_ps = min_i64(e->soonest_ps, at_ps);
  return false;
}

replay *replay_new(const replay_options *o, arena *a)
{
  assert(o->capacity_bytes >= 0);
  replay *r = ARENA_NEW(a, replay);
  r->options = *o;
  r->device =
      caching_allocator_new(&(allocator_options){ .capacity_bytes = o->capacity_bytes,
                                                  .expandable_segments = o->expandable_segments,
                                                  .event_done = event_done,
                                                  .event_context = &r->events });
  r->host = pinned_pool_new(event_done, &r->events);
  return r;
}

replay *replay_copy(const replay *r, arena *a)
{
  replay *copy = ARENA_NEW(a, replay);
  *copy = *r;
  copy->curve = NULL;
  copy->own = (memory_ops){ 0 };
  copy->ops = NULL;
  copy->device = caching_allocator_copy(r->device, &copy->events);
  copy->host = pinned_pool_copy(r->host, &copy->events);
  ARRAY_COPY(&copy->events.at_ps, &r->events.at_ps);
  ARRAY_COPY(&copy->left, &r->left);
  ARRAY_COPY(&copy->found, &r->found);
  ARRAY_COPY(&copy->refused, &r->refused);
  return copy;
}

const hold_list *replay_refused(const replay *r)
{
  return &r->refused;
}

void replay_release(replay *r)
{
  caching_allocator_delete(r->device);
  pinned_pool_delete(r->host);
  ARRAY_FREE(&r->events.at_ps);
  ARRAY_FREE(&r->left);
  ARRAY_FREE(&r->found);
  ARRAY_FREE(&r->refused);
  memory_ops_release(&r->own);
}

bool replay_needs_times(const rank_plan *p)
{
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    assert(o->kind < OP_KINDS);
    if (o->kind == OP_FREE && o->operands != 0) return true;
    if (o->kind == OP_HOST_FREE && p->buffers.items[o->arg].host_key == 0) return true;
  }
  return false;
}

/* The ops, issued last to a stream, whose end freed blocks wait for, in the order in which they are asked. */
typedef struct awaited_queue {
  uint32_t *items;
  uint32_t count, capacity;
  uint32_t done;
} awaited_queue;

/* Asks at op `at` what is done, with both times. A stream's ops end in order, so that the first answer which
 * differs is that of the head. */
static bool answers_alike(awaited_queue *q, uint32_t at, const rank_timeline *a,
                          const rank_timeline *b)
{
  for (; q->done < q->count; q->done++) {
    uint32_t op = q->items[q->done];
    bool done = op_end_ps(a, op) <= op_start_ps(a, at);
    if (done != (op_end_ps(b, op) <= op_start_ps(b, at))) return false;
    if (!done) return true;
  }
  return true;
}

/* A walk through the ops that take and return, with both times. */
typedef struct two_times {
  const memory_ops *m;
  const rank_timeline *a, *b;
  uint32_t waiting;              /* bit s: queues[s] has ops */
  awaited_queue queues[STREAMS]; /* by stream; of the host: for its buffers */
} two_times;

static bool rows_are_same(two_times *w, memory_stretch rows)
{
  bool same = true;
  for (const memory_op *o = rows.from; o < rows.end && same; o++) {
    uint32_t asked = o->kind == MEMORY_HOST_TAKE ? w->waiting & 1u << STREAM_HOST
                     : o->kind == MEMORY_TAKE    ? w->waiting & ~(1u << STREAM_HOST)
                                                 : 0;
    for (; asked != 0 && same; asked &= asked - 1)
      same = answers_alike(&w->queues[__builtin_ctz(asked)], o->op + rows.ops, w->a, w->b);
    for (uint32_t u = o->first_use; u < o->first_use + o->use_count; u++) {
      const memory_use *use = &w->m->uses.items[u];
      uint32_t queue = o->kind == MEMORY_RETURN ? use->stream : STREAM_HOST;
      if (use->op == MEMORY_NO_OP) continue;
      *ARRAY_PUSH(&w->queues[queue]) = memory_use_op(w->m, &rows, use);
      w->waiting |= 1u << queue;
    }
  }
  return same;
}

bool replay_is_same(const memory_ops *m, const rank_timeline *a, const rank_timeline *b)
{
  if (a == b) return true;
  two_times w = { .m = m, .a = a, .b = b };
  bool same = true;
  for (uint32_t i = 0; i < memory_stretches(m) && same; i++)
    same = rows_are_same(&w, memory_stretch_of(m, i));
  for (uint32_t s = 0; s < STREAMS; s++)
    ARRAY_FREE(&w.queues[s]);
  /* A refused request waits for an op, unless all that was issued ended with the iteration's beginning: so an
   * op ends there with both times or with none. */
  int64_t differs = 0;
  for (uint32_t i = 0; i < m->plan->ops.count; i++)
    differs |= (op_end_ps(a, i) - 1) ^ (op_end_ps(b, i) - 1);
  return same && differs >= 0;
}

void replay_keep_curve(replay *r, memory_curve *curve)
{
  r->curve = curve;
}

/* ---- one iteration ------------------------------------------------------------------------------ */

typedef struct pass {
  replay *r;
  caching_allocator *device;
  const rank_plan *plan;
  const memory_ops *ops;
  memory_stretch rows; /* that are replayed */
  const rank_timeline *timeline;
  uint32_t *all_blocks;   /* by buffer: its block, the handle of host memory, or NOT_ALIVE */
  uint32_t *blocks;       /* ... from the rows' first buffer on */
  uint32_t last[STREAMS]; /* by stream: the last op issued before `issued`, or NO_OP */
  uint32_t issued;
  uint32_t last_awaited;   /* the op that ends last of those that freed blocks wait for, */
  int64_t last_awaited_ps; /* ... then */
  uint64_t driver_allocs, driver_frees, retries; /* so far */
  bool again;                                    /* the plan is that of the iteration before */
  replay_result out;
} pass;

static inline uint32_t op_of(const pass *p, const memory_op *m)
{
  return m->op + p->rows.ops;
}

static void begin_rows(pass *p, uint32_t stretch)
{
  p->rows = memory_stretch_of(p->ops, stretch);
  p->blocks = p->all_blocks + p->rows.buffers;
}

static const plan_buffer *buffer_of(const pass *p, const memory_op *m)
{
  return &p->plan->buffers.items[m->buffer + p->rows.buffers];
}

/* An op's end in this iteration; before the iteration for NO_OP. */
static int64_t end_ps(const pass *p, uint32_t op)
{
  return op == NO_OP ? 0 : op_end_ps(p->timeline, op);
}

/* The later end of two ops of this iteration. */
static uint32_t later(const pass *p, uint32_t a, uint32_t b)
{
  int64_t a_ps = end_ps(p, a), b_ps = end_ps(p, b);
  assert(a_ps >= 0 && b_ps >= 0);
  return a_ps > b_ps ? a : b;
}

/* The op that returning memory waits for. cudaFree waits for everything issued, on all streams. To
 * unmap granules of an expandable segment, PyTorch waits for blocks that other streams use, then
 * for the segment's stream. Blocks that still wait from the previous iteration wait for no op of
 * this one. */
static uint32_t awaited_to_give_back(pass *p, const memory_op *m)
{
  uint32_t stream = buffer_of(p, m)->stream;
  assert(stream < STREAM_HOST && p->issued <= op_of(p, m));
  for (; p->issued < op_of(p, m); p->issued++) {
    const plan_op *o = &p->plan->ops.items[p->issued];
    if (op_runs_on_stream((op_kind)o->kind)) p->last[o->stream] = p->issued;
  }
  if (p->r->options.expandable_segments) return later(p, p->last[stream], p->last_awaited);
  uint32_t last = NO_OP;
  for (uint32_t s = 0; s < STREAMS; s++)
    last = later(p, p->last[s], last);
  return last;
}

/* After the driver's first refusal the allocator has returned its cached memory. From there on, it
 * takes from the driver what it has returned. */
static void note_driver_calls(pass *p, const memory_op *m, uint64_t calls, bool refused)
{
  const hold_list *noted = &p->r->refused;
  assert(calls > 0 && calls <= UINT32_MAX);
  assert(noted->count == 0 || noted->items[noted->count - 1].at <= op_of(p, m));
  if (refused || noted->count > 0)
    *ARRAY_PUSH(&p->r->refused) =
        (host_hold){ .at = op_of(p, m),
                     .until = refused && p->timeline != NULL ? awaited_to_give_back(p, m)
                                                             : HOLD_FOR_NOTHING,
                     .driver_calls = (uint32_t)calls };
}

/* The host thread waits for what uses freed blocks, and asks again. */
static SELDOM allocator_status ask_again(pass *p, const memory_op *m)
{
  p->r->events.waited = true;
  allocator_status status = caching_allocator_alloc_after_events(p->device, buffer_of(p, m)->stream,
                                                                 m->bytes, &p->blocks[m->buffer]);
  p->r->events.waited = false;
  assert(status != ALLOCATOR_NEEDS_EVENTS);
  return status;
}

/* What came of a request that needed the driver, or that even the driver has no memory for. */
static SELDOM void note_driver(pass *p, const memory_op *m, allocator_status status)
{
  const allocator_stats *stats = &p->device->stats;
  uint64_t calls = stats->driver_allocs - p->driver_allocs + stats->driver_frees - p->driver_frees;
  bool refused = stats->retries > p->retries;
  assert(status == ALLOCATOR_OK || (status == ALLOCATOR_OUT_OF_MEMORY && refused));
  p->out.out_of_memory = status == ALLOCATOR_OUT_OF_MEMORY;
  if (calls > 0) note_driver_calls(p, m, calls, refused);
  p->driver_allocs = stats->driver_allocs;
  p->driver_frees = stats->driver_frees;
  p->retries = stats->retries;
}

/* Freed blocks wait. */
static void take_back(pass *p, const memory_op *m)
{
  clock_events *e = &p->r->events;
  assert(e->times != NULL);
  e->now_ps = e->origin_ps + op_start_ps(e->times, op_of(p, m));
  if (e->soonest_ps <= e->now_ps) {
    e->soonest_ps = INT64_MAX;
    caching_allocator_poll(p->device);
  }
}

/* The driver may be asked. Not inline, so that the others save few registers; not cold, since expandable
 * segments take each block in this way. */
static __attribute__((noinline)) void take_slowly(pass *p, const memory_op *m)
{
  allocator_status status =
      allocator_take_slowly(p->device, m->bin, m->bytes, op_of(p, m), &p->blocks[m->buffer]);
  if (status == ALLOCATOR_NEEDS_EVENTS) status = ask_again(p, m);
  if (status != ALLOCATOR_OK || p->device->stats.driver_allocs != p->driver_allocs)
    note_driver(p, m, status);
}

static inline void take_block(pass *p, const memory_op *m)
{
  if (p->device->stats.waiting_bytes != 0) take_back(p, m);
  if (!allocator_take_quickly(p->device, m->bin, m->bytes, op_of(p, m), &p->blocks[m->buffer]))
    take_slowly(p, m);
}

static inline void take(pass *p, const memory_op *m)
{
  assert(p->blocks[m->buffer] == NOT_ALIVE && "a buffer is allocated once");
  if (m->bytes > 0 && !p->out.out_of_memory)
    take_block(p, m);
  else
    p->blocks[m->buffer] = ALLOCATOR_NO_BLOCK;
}

/* An event at a time of this iteration. */
static uint32_t event_at(replay *r, int64_t at_ps)
{
  assert(at_ps >= 0);
  *ARRAY_PUSH(&r->events.at_ps) = r->events.origin_ps + at_ps;
  r->events.soonest_ps = min_i64(r->events.soonest_ps, r->events.origin_ps + at_ps);
  return r->events.at_ps.count - 1;
}

static inline uint32_t use_op(const pass *p, uint32_t use)
{
  return memory_use_op(p->ops, &p->rows, &p->ops->uses.items[use]);
}

static void return_marked(pass *p, const memory_op *m)
{
  allocator_use uses[STREAMS];
  assert(m->use_count <= STREAMS);
  for (uint32_t i = 0; i < m->use_count; i++) {
    uint32_t op = use_op(p, m->first_use + i);
    int64_t use_ps = end_ps(p, op);
    uses[i] =
        (allocator_use){ p->ops->uses.items[m->first_use + i].stream, event_at(p->r, use_ps) };
    if (use_ps > p->last_awaited_ps) {
      p->last_awaited = op;
      p->last_awaited_ps = use_ps;
    }
  }
  caching_allocator_free_after(p->device, p->blocks[m->buffer], uses, m->use_count);
}

static inline void return_block(pass *p, const memory_op *m)
{
  uint32_t *block = &p->blocks[m->buffer];
  assert(*block != NOT_ALIVE);
  if (m->use_count > 0 && p->timeline != NULL)
    return_marked(p, m);
  else
    allocator_free(p->device, *block);
  *block = NOT_ALIVE;
}

/* A pool never shrinks, and waits for nothing: the iteration before has left as many buffers as the same one
 * takes. */
static bool has_pooled(const pass *p, const plan_buffer *b)
{
  return p->again && b->host_key != 0;
}

static void host_take(pass *p, const memory_op *m)
{
  const plan_buffer *b = buffer_of(p, m);
  assert(b->stream == STREAM_HOST && p->blocks[m->buffer] == NOT_ALIVE);
  p->blocks[m->buffer] = ALLOCATOR_NO_BLOCK;
  if (b->purpose != CLASS_PINNED_HOST || has_pooled(p, b)) return;
  clock_events *e = &p->r->events;
  if (p->timeline != NULL) e->now_ps = e->origin_ps + op_start_ps(p->timeline, op_of(p, m));
  pinned_buffer taken = b->host_key != 0 ? pinned_pool_take(p->r->host, b->host_key, b->bytes)
                                         : pinned_alloc(p->r->host, b->bytes);
  p->blocks[m->buffer] = taken.handle;
}

static void host_return(pass *p, const memory_op *m)
{
  uint32_t handle = p->blocks[m->buffer];
  assert(handle != NOT_ALIVE && m->use_count <= 1);
  const plan_buffer *b = buffer_of(p, m);
  p->blocks[m->buffer] = NOT_ALIVE;
  if (b->purpose != CLASS_PINNED_HOST || has_pooled(p, b)) return;
  if (m->use_count == 0)
    pinned_pool_give(p->r->host, handle);
  else if (p->timeline == NULL)
    pinned_free(p->r->host, handle);
  else
    pinned_free_after(p->r->host, handle, event_at(p->r, end_ps(p, use_op(p, m->first_use))));
}

/* What the ops before `end` have left as it is now. */
static void draw(const pass *p, uint32_t *next, uint32_t end)
{
  const memory_curve *curve = p->r->curve;
  for (; *next < end; (*next)++) {
    if (!p->again) curve->allocated_bytes[*next] = p->device->stats.allocated.current_bytes;
    if (p->timeline == NULL) continue;
    curve->live_bytes[*next] = allocator_active_bytes(&p->device->stats);
    curve->reserved_bytes[*next] = p->device->stats.reserved.current_bytes;
  }
}

static ALWAYS_INLINE void run_ops(pass *p, bool draws)
{
  uint32_t drawn = 0;
  for (uint32_t i = 0; i < memory_stretches(p->ops); i++) {
    begin_rows(p, i);
    for (const memory_op *m = p->rows.from, *end = p->rows.end; m < end; m++) {
      if (draws) draw(p, &drawn, op_of(p, m));
      if (m->kind == MEMORY_TAKE)
        take(p, m);
      else if (m->kind == MEMORY_RETURN)
        return_block(p, m);
      else if (m->kind == MEMORY_HOST_TAKE)
        host_take(p, m);
      else
        host_return(p, m);
    }
  }
  if (draws) draw(p, &drawn, p->plan->ops.count);
}

/* Few replays draw: the others do not ask with each op. */
static void run(pass *p)
{
  assert(p->r->events.origin_ps >= 0);
  if (p->r->curve != NULL)
    run_ops(p, true);
  else
    run_ops(p, false);
}

static bool is_on_host(const plan_buffer *b)
{
  return b->stream == STREAM_HOST;
}

static void take_new_resident(pass *p, uint32_t id)
{
  const plan_buffer *b = &p->plan->buffers.items[id];
  memory_op taken = memory_op_of(b, id, 0, is_on_host(b) ? MEMORY_HOST_TAKE : MEMORY_TAKE);
  assert(id < p->plan->residents);
  if (is_on_host(b))
    host_take(p, &taken);
  else
    take(p, &taken);
}

/* ---- from one iteration to the next: residents are what the last one left ------------------------- */

/* Buffers that may have each other's block: of one class, pool and size. A step may leave the input of its
 * last micro-batch in another pool. */
static int order_of_size(const lasting_buffer *a, const lasting_buffer *b)
{
  const plan_buffer *x = &a->what, *y = &b->what;
  assert(x->bytes >= 0 && y->bytes >= 0);
  if (is_on_host(x) != is_on_host(y)) return is_on_host(x) ? 1 : -1;
  if (x->purpose != y->purpose) return x->purpose < y->purpose ? -1 : 1;
  if (x->stream != y->stream && x->purpose != CLASS_RETAINED) return x->stream < y->stream ? -1 : 1;
  return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : 0;
}

static int order_of_lasting(const void *left, const void *right)
{
  const lasting_buffer *a = left, *b = right;
  int size = order_of_size(a, b);
  return size != 0 ? size : a->turn < b->turn ? -1 : a->turn > b->turn;
}

static void sort_lasting(lasting_array *a)
{
  if (a->count > 0) qsort(a->items, a->count, sizeof *a->items, order_of_lasting);
}

static void add_lasting(const pass *p, lasting_array *to, uint32_t id)
{
  *ARRAY_PUSH(to) = (lasting_buffer){
    .what = p->plan->buffers.items[id], .id = id, .turn = id, .block = p->all_blocks[id]
  };
}

/* A buffer that was made in place of a resident, as gradients of a step are, has its turn: else it would have
 * the block of another one of its size, a state's, which stays. */
static void take_turns_of_freed(const pass *p, lasting_array *left)
{
  lasting_array freed = { 0 };
  uint32_t next = 0;
  for (uint32_t i = 0; i < p->plan->residents; i++)
    if (p->all_blocks[i] == NOT_ALIVE) add_lasting(p, &freed, i);
  sort_lasting(&freed);
  for (uint32_t i = 0; i < left->count && next < freed.count; i++) {
    lasting_buffer *made = &left->items[i];
    if (made->id < p->plan->residents) continue;
    while (next < freed.count && order_of_size(&freed.items[next], made) < 0)
      next++;
    if (next < freed.count && order_of_size(&freed.items[next], made) == 0)
      made->turn = freed.items[next++].id;
  }
  if (freed.count > 0) sort_lasting(left);
  ARRAY_FREE(&freed);
}

/* Both lists are sorted: each resident finds a block of its size. */
static void pair_equal(pass *p)
{
  lasting_array *found = &p->r->found, *left = &p->r->left;
  assert(found->count == left->count);
  for (uint32_t i = 0; i < found->count; i++) {
    assert(order_of_size(&found->items[i], &left->items[i]) == 0);
    p->all_blocks[found->items[i].id] = left->items[i].block;
  }
}

static void find_residents(pass *p)
{
  lasting_array *found = &p->r->found;
  found->count = 0;
  for (uint32_t i = 0; i < p->plan->residents; i++)
    add_lasting(p, found, i);
  sort_lasting(found);
}

static void take_residents(pass *p)
{
  replay *r = p->r;
  for (uint32_t i = 0; i < p->plan->residents && !r->has_left; i++)
    take_new_resident(p, i);
  if (!r->has_left) return;
  /* The iteration before has found those of its plan, unless it took them anew. */
  if (!p->again || r->found.count != p->plan->residents) find_residents(p);
  pair_equal(p);
}

/* The first buffer from `from` on that is alive; `count`: there is none. Nearly all are gone, so that most
 * are passed some at a time. */
static uint32_t next_alive(const uint32_t *blocks, uint32_t from, uint32_t count)
{
  enum { AT_A_TIME = 32 };
  for (; count - from >= AT_A_TIME; from += AT_A_TIME) {
    const uint32_t *some = blocks + from;
    uint32_t alive = 0;
    for (uint32_t i = 0; i < AT_A_TIME; i++)
      alive |= some[i] ^ NOT_ALIVE;
    if (alive != 0) break;
  }
  while (from < count && blocks[from] == NOT_ALIVE)
    from++;
  assert(from <= count);
  return from;
}

/* The few buffers that outlive the iteration. */
static void leave_residents(pass *p)
{
  const uint32_t *blocks = p->all_blocks;
  lasting_array *left = &p->r->left;
  left->count = 0;
  uint32_t count = p->plan->buffers.count;
  for (uint32_t i = next_alive(blocks, 0, count); i < count; i = next_alive(blocks, i + 1, count))
    add_lasting(p, left, i);
  sort_lasting(left);
  take_turns_of_freed(p, left);
  p->r->has_left = true;
}

/* Each iteration of a plan leaves the same ones, in blocks of its own. */
static void leave_residents_again(pass *p)
{
  lasting_array *left = &p->r->left;
  assert(p->again);
  for (uint32_t i = 0; i < left->count; i++) {
    left->items[i].block = p->all_blocks[left->items[i].id];
    assert(left->items[i].block != NOT_ALIVE);
  }
}

static void fill_result(pass *p)
{
  const allocator_stats *device = &p->device->stats;
  const pinned_stats *host = pinned_pool_stats(p->r->host);
  p->out.refused = &p->r->refused;
  p->out.requested_peak_bytes = p->ops->requested_peak_bytes;
  p->out.allocated_peak_bytes = device->allocated.peak_bytes;
  p->out.allocated_peak_op = device->allocated_peak_at;
  p->out.allocated_end_bytes = device->allocated.current_bytes;
  p->out.live_peak_bytes = device->active_peak_bytes;
  p->out.reserved_peak_bytes = device->reserved.peak_bytes;
  p->out.host_exact_peak_bytes = host->exact_peak_bytes;
  p->out.host_pow2_peak_bytes = host->pow2_peak_bytes;
  assert(p->out.requested_peak_bytes <= p->out.allocated_peak_bytes ||
         device->retries > 0); /* then buffers may be without blocks, also of iterations before */
  assert(p->out.allocated_end_bytes <= p->out.allocated_peak_bytes);
  assert(p->out.allocated_peak_bytes <= p->out.live_peak_bytes);
  assert(p->out.live_peak_bytes <= p->out.reserved_peak_bytes);
  assert(p->out.reserved_peak_bytes <= p->r->options.capacity_bytes);
  assert(p->out.host_exact_peak_bytes <= p->out.host_pow2_peak_bytes);
}

static uint32_t *new_blocks(const rank_plan *rank)
{
  uint32_t *blocks = malloc((rank->buffers.count + 1) * sizeof *blocks);
  if (blocks == NULL)
    die_refused("memory: requested the blocks of %u buffers", rank->buffers.count);
  for (uint32_t i = 0; i < rank->buffers.count; i++)
    blocks[i] = NOT_ALIVE;
  return blocks;
}

static pass begin_iteration(replay *r, const memory_ops *m, const rank_timeline *t)
{
  pass p = { .r = r, .plan = m->plan, .ops = m, .timeline = t, .last_awaited = NO_OP };
  for (uint32_t s = 0; s < STREAMS; s++)
    p.last[s] = NO_OP;
  assert(m->plan->residents <= m->plan->buffers.count && (t == NULL || t->end_of_rank_ps >= 0));
  r->ops = m;
  r->events.times = t;
  r->refused.count = 0;
  p.device = r->device;
  p.driver_allocs = p.device->stats.driver_allocs;
  p.driver_frees = p.device->stats.driver_frees;
  p.retries = p.device->stats.retries;
  p.blocks = p.all_blocks = new_blocks(m->plan);
  caching_allocator_reset_peaks(r->device);
  return p;
}

static replay_result end_iteration(pass *p)
{
  replay *r = p->r;
  if (p->again)
    leave_residents_again(p);
  else
    leave_residents(p);
  fill_result(p);
  pinned_pool_reset(r->host);
  r->events.origin_ps += p->timeline != NULL ? p->timeline->end_of_rank_ps : 0;
  assert(r->events.origin_ps >= 0 && "time never goes back");
  free(p->all_blocks);
  return p->out;
}

static replay_result run_iteration(pass *p)
{
  take_residents(p);
  p->out.allocated_start_bytes = p->device->stats.allocated.current_bytes;
  run(p);
  return end_iteration(p);
}

replay_result replay_ops(replay *r, const memory_ops *m, const rank_timeline *t)
{
  pass p = begin_iteration(r, m, t);
  return run_iteration(&p);
}

replay_result replay_iteration(replay *r, const rank_plan *rank, const rank_timeline *t)
{
  memory_ops_release(&r->own);
  r->own = memory_ops_new(rank);
  return replay_ops(r, &r->own, t);
}

replay_result replay_again(replay *r, const rank_timeline *t)
{
  assert(r->ops != NULL && t != NULL && r->left.count == r->ops->plan->residents);
  pass p = begin_iteration(r, r->ops, t);
  p.again = true;
  return run_iteration(&p);
}

/* ---- for reports -------------------------------------------------------------------------------- */

/* A layer has some tens of sites, so a search is fast enough. */
plan_modules plan_modules_of(const plan *p, arena *a)
{
  plan_modules m = { .names = ARENA_ARRAY(a, const char *, p->sites.count),
                     .of_site = ARENA_ARRAY(a, uint32_t, p->sites.count) };
  for (uint32_t i = 0; i < p->sites.count; i++) {
    uint32_t k = 0;
    while (k < m.count && strcmp(m.names[k], p->sites.items[i].module) != 0)
      k++;
    if (k == m.count) m.names[m.count++] = p->sites.items[i].module;
    m.of_site[i] = k;
  }
  assert(m.count <= p->sites.count);
  return m;
}

/* Holdings by [module][class]. */
typedef struct tally {
  const plan *plan;
  const plan_modules *modules;
  const rank_plan *rank;
  replay_holding *holdings;
} tally;

static void tally_buffer(tally *t, uint32_t id)
{
  const plan_buffer *b = &t->rank->buffers.items[id];
  uint32_t module = t->modules->of_site[t->plan->tensors.items[b->tensor].site];
  replay_holding *h = &t->holdings[module * BUFFER_CLASSES + b->purpose];
  assert(b->purpose < BUFFER_CLASSES);
  h->module = t->modules->names[module];
  h->purpose = b->purpose;
  h->bytes += round_up(b->bytes, ALLOCATOR_ROUNDING_BYTES);
  h->buffers++;
}

/* Marks what the ops up to `at_op` leave. Without a branch that the CPU could not predict: a host buffer
 * is none of those that live. */
static void mark_rows(bool *lives, memory_stretch rows, uint32_t at_op)
{
  for (const memory_op *m = rows.from; m < rows.end && m->op + rows.ops <= at_op; m++)
    lives[m->buffer + rows.buffers] = m->kind == MEMORY_TAKE && m->bytes > 0;
}

/* A turn leaves what the one before it has left, with larger numbers. */
static void mark_living(bool *lives, const memory_ops *m, uint32_t at_op)
{
  const plan_repeat *r = &m->plan->repeat;
  uint32_t listed = r->turns - m->later_turns, end = r->first + listed * r->ops, turns = 0;
  mark_rows(lives, memory_stretch_of(m, 0), at_op);
  if (m->later_turns > 0 && at_op >= end) {
    uint32_t taken = buffers_before(m->plan, r->first), count = listed * r->buffers;
    turns = (at_op - end) / r->ops;
    if (turns > m->later_turns) turns = m->later_turns;
    memmove(lives + taken + turns * r->buffers, lives + taken, count);
    memset(lives + taken, false, (turns < listed ? turns : listed) * r->buffers);
  }
  mark_rows(lives, memory_stretch_of(m, turns + 1), at_op);
}

static void tally_living(tally *t, const memory_ops *m, uint32_t at_op, arena *a)
{
  uint32_t count = t->rank->buffers.count;
  bool *lives = ARENA_ARRAY(a, bool, count), *end = lives + count;
  assert(t->rank->residents <= t->rank->buffers.count);
  for (uint32_t i = 0; i < t->rank->residents; i++)
    lives[i] = buffer_is_allocated(&t->rank->buffers.items[i]);
  mark_living(lives, m, at_op);
  /* Few live. */
  for (const bool *b = lives; (b = memchr(b, true, (size_t)(end - b))) != NULL; b++)
    tally_buffer(t, (uint32_t)(b - lives));
}

/* Most bytes first; equal ones by name and class. */
static int by_bytes(const void *a, const void *b)
{
  assert(((const replay_holding *)a)->bytes >= 0 && ((const replay_holding *)b)->bytes >= 0);
  const replay_holding *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  int name = strcmp(x->module, y->module);
  return name != 0 ? name : (int)x->purpose - (int)y->purpose;
}

const replay_holding *replay_holdings(const plan *p, const plan_modules *modules,
                                      const memory_ops *m, uint32_t at_op, uint32_t *count,
                                      arena *a)
{
  arena scratch = { 0 };
  uint32_t cells = modules->count * BUFFER_CLASSES;
  tally t = { .plan = p, .modules = modules, .rank = m->plan };
  t.holdings = ARENA_ARRAY(&scratch, replay_holding, cells);
  tally_living(&t, m, at_op, &scratch);
  *count = 0;
  for (uint32_t i = 0; i < cells; i++)
    if (t.holdings[i].bytes > 0) t.holdings[(*count)++] = t.holdings[i];
  qsort(t.holdings, *count, sizeof *t.holdings, by_bytes);
  replay_holding *out = ARENA_ARRAY(a, replay_holding, *count);
  if (*count > 0) memcpy(out, t.holdings, *count * sizeof *out);
  for (uint32_t i = 1; i < *count; i++)
    assert(by_bytes(&out[i - 1], &out[i]) < 0 && "one holding for a module and a class");
  arena_release(&scratch);
  return out;
}
