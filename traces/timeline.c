#include "traces/timeline.h"

#include <assert.h>
#include <stdio.h>

#include "sim/base/units.h"
#include "sim/plan/phrases.h"

/* Tracks of a process: the host's phases, then the streams. Processes and tracks are numbered from
 * 1: Perfetto takes process 0 for the kernel's own, and may merge thread 0 with another one. */
enum { FIRST_PROCESS = 1, TRACK_PHASES = 1, TRACK_STREAMS, ARGS = 12 };

typedef struct tracer {
  timeline_file *to;
  const timeline_rank *rank;
  const plan *plan;
  const rank_plan *ops;
  uint32_t process;
  char name[64];          /* of a collective or message */
  uint8_t *recorded_on;   /* by event of the rank: plan_stream */
  const plan_mark *phase; /* of the op that is written */
} tracer;

static uint32_t track_of(const plan_op *o)
{
  return TRACK_STREAMS + o->stream;
}

/* ---- slices ---- */

typedef struct slice {
  const char *category, *name;
  chrome_arg args[ARGS];
  uint32_t arg_count;
} slice;

static void text_arg(slice *s, const char *key, const char *text)
{
  assert(s->arg_count < ARGS);
  if (text[0] != '\0') s->args[s->arg_count++] = (chrome_arg){ key, text, 0 };
}

static void number_arg(slice *s, const char *key, int64_t number)
{
  assert(s->arg_count < ARGS);
  s->args[s->arg_count++] = (chrome_arg){ key, NULL, number };
}

static void site_args(const tracer *t, slice *s, const plan_op *o)
{
  const plan_site *site = &t->plan->sites.items[o->site];
  if (site->layer >= 0) number_arg(s, "layer", site->layer);
  text_arg(s, "module", site->module);
}

/* As PyTorch's profiler names them (libkineto's output_json.cpp), and in which pass it was issued. */
static void stream_args(const tracer *t, slice *s, uint32_t op)
{
  const plan_op *o = &t->ops->ops.items[op];
  number_arg(s, "device", t->rank->number);
  number_arg(s, "stream", track_of(o));
  number_arg(s, "correlation", (int64_t)op + 1);
  text_arg(s, "phase", mark_name((mark_kind)t->phase->kind));
  number_arg(s, "microbatch", t->phase->microbatch);
  number_arg(s, "chunk", t->phase->chunk);
}

/* "ncclDevKernel_all_reduce", so that analysers see communication. */
static const char *nccl_name(tracer *t, const char *name)
{
  snprintf(t->name, sizeof t->name, "ncclDevKernel_%s", name);
  return t->name;
}

static slice call_slice(tracer *t, const plan_op *o)
{
  assert(o->arg < t->plan->calls.count);
  const plan_call *call = &t->plan->calls.items[o->arg];
  const char *name = call_name(call);
  slice s = { .category = "kernel", .name = call->is_collective ? nccl_name(t, name) : name };
  site_args(t, &s, o);
  text_arg(&s, "shape", t->to->shapes[o->arg]);
  number_arg(&s, "bytes", call->bytes);
  return s;
}

/* By a thread of the host. */
static bool is_file_copy(const plan_op *o)
{
  return o->kind == OP_DISK_WRITE || o->kind == OP_DISK_READ;
}

static slice copy_slice(const tracer *t, const plan_op *o)
{
  const plan_buffer *b = copy_host_buffer(t->ops, o);
  static const char *const names[OP_KINDS] = { [OP_D2H] = "Memcpy DtoH (Device -> Pinned)",
                                               [OP_H2D] = "Memcpy HtoD (Pinned -> Device)",
                                               [OP_DISK_WRITE] = "disk_write",
                                               [OP_DISK_READ] = "disk_read" };
  slice s = { .category = is_file_copy(o) ? "file" : "gpu_memcpy", .name = names[o->kind] };
  site_args(t, &s, o);
  text_arg(&s, "tensor", t->plan->tensors.items[b->tensor].name);
  number_arg(&s, "bytes", copy_bytes(t->plan, t->ops, o));
  return s;
}

static slice message_slice(tracer *t, const plan_op *o)
{
  assert(o->arg < t->plan->messages.count);
  const plan_message *m = &t->plan->messages.items[o->arg];
  slice s = { .category = "kernel", .name = nccl_name(t, op_name((op_kind)o->kind)) };
  number_arg(&s, o->kind == OP_SEND ? "to_rank" : "from_rank",
             o->kind == OP_SEND ? m->to_rank : m->from_rank);
  number_arg(&s, "bytes", m->bytes);
  return s;
}

static void put_slice(tracer *t, uint32_t op, const slice *s)
{
  const plan_op *o = &t->ops->ops.items[op];
  assert(t->rank->start_ps[op] <= t->rank->end_ps[op]);
  chrome_slice(&t->to->chrome, t->process, track_of(o), s->category, s->name, t->rank->start_ps[op],
               t->rank->end_ps[op], s->args, s->arg_count);
}

/* The host waits for the GPU, or for room in a stream's queue. */
static void put_host_wait(tracer *t, uint32_t op)
{
  if (t->rank->waited_ps == NULL) return;
  int64_t before_ps = op == 0 ? 0 : t->rank->issued_ps[op - 1];
  if (t->rank->waited_ps[op] >= PS_PER_US)
    chrome_slice(&t->to->chrome, t->process, TRACK_PHASES, "cuda_runtime", "cudaStreamSynchronize",
                 before_ps, before_ps + t->rank->waited_ps[op], NULL, 0);
}

/* Work of a stream, and the host's call that issued it. */
static void put_work(tracer *t, uint32_t op, slice *s)
{
  const chrome_arg correlation = { "correlation", NULL, (int64_t)op + 1 };
  bool copies = op_is_copy((op_kind)t->ops->ops.items[op].kind);
  stream_args(t, s, op);
  put_slice(t, op, s);
  if (t->rank->issued_ps == NULL) return;
  chrome_slice(&t->to->chrome, t->process, TRACK_PHASES, "cuda_runtime",
               copies ? "cudaMemcpyAsync" : "cudaLaunchKernel", t->rank->issued_ps[op],
               t->rank->issued_ps[op], &correlation, 1);
}

/* ---- copies: rate and arrow ---- */

static void put_rate(tracer *t, uint32_t op, int64_t bytes)
{
  static const char *const names[OP_KINDS] = { [OP_D2H] = "d2h GB/s",
                                               [OP_H2D] = "h2d GB/s",
                                               [OP_DISK_WRITE] = "disk write GB/s",
                                               [OP_DISK_READ] = "disk read GB/s" };
  const char *name = names[t->ops->ops.items[op].kind];
  int64_t start_ps = t->rank->start_ps[op], end_ps = t->rank->end_ps[op];
  if (end_ps == start_ps) return;
  chrome_counter(&t->to->chrome, t->process, name, "GB/s", start_ps,
                 muldiv_i64(bytes, 1000000, end_ps - start_ps), 3);
  chrome_counter(&t->to->chrome, t->process, name, "GB/s", end_ps, 0, 3);
}

/* Where the data waits to come back: in host memory, or in a file. An arrow joins its two copies.
 */
static uint32_t kept_buffer(const tracer *t, const plan_op *o)
{
  bool comes_back = o->kind == OP_H2D || o->kind == OP_DISK_READ;
  return t->ops->operands.items[o->operands + !comes_back];
}

static void put_copy(tracer *t, uint32_t op)
{
  const plan_op *o = &t->ops->ops.items[op];
  slice s = copy_slice(t, o);
  if (is_file_copy(o))
    put_slice(t, op, &s);
  else
    put_work(t, op, &s);
  put_rate(t, op, copy_bytes(t->plan, t->ops, o));
  bool leaves = o->kind == OP_D2H || o->kind == OP_DISK_WRITE;
  chrome_flow(&t->to->chrome, leaves ? CHROME_FLOW_FROM : CHROME_FLOW_TO, t->process, track_of(o),
              "offloaded", (uint64_t)t->rank->number << 32 | kept_buffer(t, o),
              t->rank->start_ps[op]);
}

/* ---- one rank ---- */

/* Compute is idle. */
static void put_wait(tracer *t, uint32_t op)
{
  uint32_t event = t->ops->ops.items[op].arg;
  assert(event < t->ops->events);
  if (t->rank->end_ps[op] > t->rank->start_ps[op])
    put_slice(t, op, &(slice){ .category = "wait", .name = t->to->waits[t->recorded_on[event]] });
}

static void note_host(tracer *t, uint32_t op)
{
  const plan_op *o = &t->ops->ops.items[op];
  if (o->kind == OP_MARK) t->phase = &t->ops->marks.items[o->arg];
  put_host_wait(t, op);
}

static void put_op(tracer *t, uint32_t op)
{
  const plan_op *o = &t->ops->ops.items[op];
  if (t->rank->start_ps[op] < 0) return;
  if (op_is_call((op_kind)o->kind)) {
    slice s = call_slice(t, o);
    put_work(t, op, &s);
  } else if (op_is_copy((op_kind)o->kind)) {
    put_copy(t, op);
  } else if (o->kind == OP_SEND || o->kind == OP_RECV) {
    slice s = message_slice(t, o);
    put_work(t, op, &s);
  } else if (o->kind == OP_WAIT && o->stream == STREAM_COMPUTE) {
    put_wait(t, op);
  }
}

static void note_events(tracer *t, arena *a)
{
  t->recorded_on = ARENA_ARRAY(a, uint8_t, t->ops->events);
  for (uint32_t i = 0; i < t->ops->ops.count; i++)
    if (t->ops->ops.items[i].kind == OP_RECORD)
      t->recorded_on[t->ops->ops.items[i].arg] = t->ops->ops.items[i].stream;
}

static void put_phases(tracer *t)
{
  arena scratch = { 0 };
  chrome_slice(&t->to->chrome, t->process, TRACK_PHASES, "user_annotation", "step", 0,
               t->rank->step_ps, NULL, 0);
  for (uint32_t i = 0; i < t->rank->phase_count; i++) {
    const timeline_phase *p = &t->rank->phases[i];
    chrome_slice(&t->to->chrome, t->process, TRACK_PHASES, "user_annotation",
                 phase_name(p->mark, &scratch), p->begin_ps, p->end_ps, NULL, 0);
  }
  arena_release(&scratch);
}

static void put_curves(tracer *t)
{
  for (uint32_t i = 0; i < t->rank->curve_count; i++) {
    const timeline_curve *c = &t->rank->curves[i];
    for (uint32_t j = 0; j < c->count; j++)
      chrome_counter(&t->to->chrome, t->process, c->name, "bytes", c->points[j].at_ps,
                     c->points[j].bytes, 0);
  }
}

/* Of the streams that the rank uses. */
static void name_tracks(tracer *t, arena *a)
{
  bool used[STREAMS] = { false };
  for (uint32_t i = 0; i < t->ops->ops.count; i++)
    used[t->ops->ops.items[i].stream] |= op_works((op_kind)t->ops->ops.items[i].kind);
  chrome_thread(&t->to->chrome, t->process, TRACK_PHASES, "host: phases");
  for (int s = 0; s < STREAMS; s++)
    if (used[s])
      chrome_thread(&t->to->chrome, t->process, TRACK_STREAMS + (uint32_t)s,
                    arena_printf(a, "%s stream", plan_stream_name(t->plan, (plan_stream)s)));
}

void timeline_put(timeline_file *to, const timeline_rank *r)
{
  arena scratch = { 0 };
  tracer t = { .to = to,
               .rank = r,
               .plan = to->plan,
               .ops = r->ops,
               .process = FIRST_PROCESS + r->number,
               .phase = &r->ops->marks.items[0] };
  chrome_process(&to->chrome, t.process, r->name);
  name_tracks(&t, &scratch);
  note_events(&t, &scratch);
  put_phases(&t);
  for (uint32_t i = 0; i < r->ops->ops.count; i++) {
    note_host(&t, i);
    put_op(&t, i);
  }
  put_curves(&t);
  arena_release(&scratch);
}

void timeline_begin(timeline_file *t, FILE *out, const plan *p, uint32_t rank, uint32_t world_size,
                    arena *a)
{
  *t = (timeline_file){ .plan = p };
  t->shapes = ARENA_ARRAY(a, const char *, p->calls.count);
  for (uint32_t i = 0; i < p->calls.count; i++)
    t->shapes[i] = call_shape(&p->calls.items[i], a);
  for (int s = 0; s < STREAMS; s++)
    t->waits[s] = arena_printf(a, "wait for %s", plan_stream_name(p, (plan_stream)s));
  t->chrome = chrome_begin(out, rank, world_size);
}

void timeline_end(timeline_file *t)
{
  chrome_end(&t->chrome);
}
