/* Issues kernels, collectives and messages of one rank to its streams. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/exec/state.h"
#include "sim/base/units.h"

/* ---- kernels --------------------------------------------------------------------------------- */

bool is_fast(const rank_run *r, const exec_call *c)
{
  assert(c->call->kind < KERNEL_KINDS && !c->call->is_collective);
#ifdef OFFSIM_WITH_CUDA
  const cuda_fast_row *fast = &cuda_fast_kernels[c->call->kind];
  return r->libraries != NULL && fast->launch != NULL && (fast->suits == NULL || fast->suits(c));
#else
  (void)r;
  (void)c;
  return false;
#endif
}

/* Fast arithmetic if it supports the call, exact otherwise. */
static cuda_kernel_row row_of(const rank_run *r, const exec_call *c)
{
  assert(!c->call->is_collective && c->call->kind < KERNEL_KINDS);
#ifdef OFFSIM_WITH_CUDA
  const cuda_fast_row *fast = &cuda_fast_kernels[c->call->kind];
  if (is_fast(r, c)) return (cuda_kernel_row){ fast->launch, fast->scratch };
#endif
  return r->exec->kernels[c->call->kind];
}

static cuda_call call_of(rank_run *r, const op_call *c)
{
  uint32_t stream = c->op->stream;
  assert(r->queue.streams[stream] != NULL && "queue_prepare has seen the plan");
  return (cuda_call){ .of = &c->call,
                      .stream = r->queue.streams[stream],
                      .scratch = r->scratch.areas[stream].data,
                      .scratch_bytes = r->scratch.areas[stream].bytes,
                      .left_out = r->left_out,
                      .libraries = r->libraries };
}

static int64_t kernel_scratch(const rank_run *r, const exec_call *c)
{
  cuda_kernel_row row = row_of(r, c);
  assert(row.scratch == NULL || row.launch != NULL);
  return row.scratch == NULL ? 0 : row.scratch(c);
}

/* A call of the host's processor, with its operands. */
typedef struct host_call {
  exec_call call;
  exec_tensor tensors[];
} host_call;

/* Runs on a thread other than the rank's: it must not call the driver. */
static void run_on_host(void *context)
{
  host_call *h = context;
  cuda_call call = { .of = &h->call };
  host_exact_kernels[h->call.call->kind].launch(&call);
  assert(call.failure == NULL && "the host launches nothing");
  free(h);
}

static void host_issue(rank_run *r, const op_call *c)
{
  size_t count = c->call.read_count + c->call.write_count;
  host_call *h = malloc(sizeof *h + count * sizeof *h->tensors);
  if (h == NULL) die_refused("memory: none is left for a call of the host's processor");
  assert(c->op->stream == STREAM_CPU && host_exact_kernels[c->call.call->kind].launch != NULL);
  h->call = c->call;
  memcpy(h->tensors, c->call.reads, c->call.read_count * sizeof *h->tensors);
  memcpy(h->tensors + c->call.read_count, c->call.writes, c->call.write_count * sizeof *h->tensors);
  h->call.reads = h->tensors;
  h->call.writes = h->tensors + c->call.read_count;
  const char *why = r->driver->call(run_on_host, h, r->queue.streams[c->op->stream]);
  if (why != NULL) free(h);
  rank_ok(r, why);
}

void kernel_issue(rank_run *r, const op_call *c)
{
  if (c->op->stream == STREAM_CPU) {
    host_issue(r, c);
    return;
  }
  cuda_kernel_row row = row_of(r, &c->call);
  assert(row.launch != NULL && "cuda_exec_knows has seen the plan");
  if (!scratch_reserve(&r->scratch, c->op->stream, kernel_scratch(r, &c->call))) return;
  cuda_call call = call_of(r, c);
  row.launch(&call);
  if (rank_ok(r, call.failure)) rank_ok(r, r->driver->last_error());
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static void look_at(rank_run *r, exchange_trouble t)
{
  assert(t.finding == NULL || t.failure == NULL);
  if (t.finding != NULL) run_wrong(r->exec, "%s", t.finding);
  rank_ok(r, t.failure);
}

void collective_issue(rank_run *r, const op_call *c, uint32_t op)
{
  exchange *x = r->exec->exchange;
  assert(c->op->kind == OP_COLLECTIVE && c->call.call->is_collective);
  if (!scratch_reserve(&r->scratch, c->op->stream, exchange_scratch(x, r->number, &c->call)))
    return;
  cuda_call call = call_of(r, c);
  look_at(r, exchange_collective(x, r->number, op, &call));
}

void message_issue(rank_run *r, const op_call *c, uint32_t op)
{
  assert(is_message(r->stage, op) && c->count == 1);
  look_at(r, exchange_message(r->exec->exchange, r->number, op, c->tensors[0].data,
                              r->queue.streams[c->op->stream]));
}

/* ---- scratch of a plan ----------------------------------------------------------------------- */

static int64_t scratch_of(const rank_run *r, uint32_t op)
{
  assert(op < r->stage->ops_of->ops.count);
  operand_room room;
  op_call c;
  op_kind kind = (op_kind)stage_op(r->stage, op)->kind;
  if (!op_is_call(kind)) return 0;
  op_call_shapes(r, op, &room, &c);
  return kind == OP_KERNEL ? kernel_scratch(r, &c.call)
                           : exchange_scratch(r->exec->exchange, r->number, &c.call);
}

bool scratch_prepare(rank_run *r)
{
  assert(r->stage != NULL && is_here(r));
  int64_t bytes[DEVICE_STREAMS] = { 0 };
  for (uint32_t i = 0; i < r->stage->ops_of->ops.count; i++) {
    uint32_t stream = stage_op(r->stage, i)->stream;
    int64_t needed = scratch_of(r, i);
    assert(needed >= 0 && (needed == 0 || stream < DEVICE_STREAMS));
    if (needed > 0) bytes[stream] = max_i64(bytes[stream], needed);
  }
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    if (!scratch_reserve(&r->scratch, s, bytes[s])) return false;
  return true;
}
