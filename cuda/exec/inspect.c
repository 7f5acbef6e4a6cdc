/* Results of an execution: contents, digests, figures. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/exec/state.h"
#include "sim/base/units.h"

const char *cuda_exec_finding(const cuda_exec *e)
{
  assert((e->finding != NULL) == (e->outcome == EXEC_WRONG));
  return e->finding;
}

/* ---- contents -------------------------------------------------------------------------------- */

static bool contents_reserve(rank_run *r, int64_t bytes)
{
  assert(bytes > 0 && (r->contents == NULL) == (r->contents_bytes == 0));
  if (bytes <= r->contents_bytes) return true;
  free(r->contents);
  r->contents = malloc((size_t)bytes);
  r->contents_bytes = r->contents == NULL ? 0 : bytes;
  if (r->contents == NULL)
    sink_refused(&r->sink, "no host memory for %lld bytes of a buffer's contents",
                 (long long)bytes);
  return r->contents != NULL;
}

static void *contents_of(rank_run *r, const held_buffer *h)
{
  assert(h->state == HELD && h->bytes >= 0 && (h->data != NULL || h->bytes == 0));
  if (!contents_reserve(r, max_i64(h->bytes, 1))) return NULL;
  if (h->bytes == 0) return r->contents;
  bool copied =
      rank_ok(r, r->driver->use(r->gpu)) &&
      rank_ok(r, r->driver->copy(r->contents, h->data, h->bytes, GPU_D2H, r->queue.inspector)) &&
      rank_ok(r, r->driver->stream_synchronize(r->queue.inspector));
  return copied ? r->contents : NULL;
}

static void *rank_data(rank_run *r, uint32_t buffer)
{
  const held_buffer *h = &r->buffers[buffer];
  assert(buffer < r->stage->ops_of->buffers.count);
  if (r->watches.telling != NO_OP && !r->exec->options.every_op) return watched_data(r, buffer);
  buffer_side side = side_of(r->stage, buffer);
  if (h->state != HELD || side == ON_DISK) return NULL;
  return side == ON_HOST ? h->data : contents_of(r, h);
}

/* The process that has the rank broadcasts its data to all others, in the order of calls. */
static void *spread_data(cuda_exec *e, uint32_t rank, uint32_t buffer)
{
  rank_run *r = &e->ranks[rank];
  assert(buffer < r->stage->ops_of->buffers.count);
  uint32_t from = world_owner(rank, e->layout->rank_count);
  int64_t bytes = r->stage->bytes[buffer];
  void *data = is_here(r) ? rank_data(r, buffer) : NULL;
  bool there = data != NULL;
  world_broadcast(&there, sizeof there, from);
  if (!there) return NULL;
  if (!is_here(r)) data = contents_reserve(r, bytes > 0 ? bytes : 1) ? r->contents : NULL;
  if (data == NULL) die_refused("no memory for another process's contents");
  world_broadcast(data, bytes, from);
  return data;
}

void *cuda_exec_data(cuda_exec *e, uint32_t rank, uint32_t buffer)
{
  assert(rank < e->layout->rank_count);
  return world_of().processes > 1 ? spread_data(e, rank, buffer)
                                  : rank_data(&e->ranks[rank], buffer);
}

int64_t cuda_exec_bytes(const cuda_exec *e, uint32_t rank, uint32_t buffer)
{
  assert(rank < e->layout->rank_count);
  assert(buffer < e->ranks[rank].stage->ops_of->buffers.count);
  return e->ranks[rank].stage->bytes[buffer];
}

bool cuda_exec_is_scratch(const cuda_exec *e, uint32_t rank, uint32_t buffer)
{
  assert(rank < e->layout->rank_count);
  return stage_is_scratch(e->ranks[rank].stage, buffer);
}

exec_tally cuda_exec_tally(const cuda_exec *e, uint32_t rank)
{
  assert(rank < e->layout->rank_count);
  const rank_run *r = &e->ranks[rank];
  return (exec_tally){ .peak_bytes = r->device.requested_peak_bytes, .after_op = r->after_op };
}

/* ---- digests --------------------------------------------------------------------------------- */

static exec_tensor tensor_of(const rank_run *r, uint32_t buffer, const plan_view *view)
{
  assert(r->buffers[buffer].state == HELD);
  const plan_tensor *t = &r->exec->plan->tensors.items[stage_buffer(r->stage, buffer)->tensor];
  exec_tensor seen = { .data = r->buffers[buffer].data, .type = t->dtype, .rank = t->rank };
  int64_t stride = 1;
  for (int i = t->rank; view->whole && i-- > 0; stride *= t->shape[i]) {
    seen.shape[i] = t->shape[i];
    seen.strides[i] = stride;
  }
  if (view->whole) return seen;
  assert(view_elements(view) >= 0 && view->offset >= 0);
  return exec_tensor_of(r->buffers[buffer].data, view);
}

static void launch_digest(const rank_run *r, cuda_call *call)
{
  assert(call->of->read_count == 1 && call->scratch_bytes == DIGEST_SCRATCH_BYTES);
#ifdef OFFSIM_WITH_CUDA
  if (r->exec->options.gpus > 0) {
    cuda_exact_digest(call);
    return;
  }
#endif
  (void)r;
  host_exact_digest(call);
}

static bool run_digest(rank_run *r, const exec_tensor *seen, exec_digest *out)
{
  assert(r->digest != NULL && seen->rank <= PLAN_VIEW_DIMS);
  exec_tensor written = {
    .data = r->digest, .type = DTYPE_FP64, .rank = 1, .shape = { 3 }, .strides = { 1 }
  };
  exec_call of = { .reads = seen, .writes = &written, .read_count = 1, .write_count = 1 };
  cuda_call call = { .of = &of,
                     .stream = r->queue.inspector,
                     .scratch = (unsigned char *)r->digest + DIGEST_BYTES,
                     .scratch_bytes = DIGEST_SCRATCH_BYTES };
  uint64_t words[3];
  launch_digest(r, &call);
  if (!rank_ok(r, call.failure) || !rank_ok(r, r->driver->last_error())) return false;
  if (!rank_ok(r, r->driver->copy(words, r->digest, sizeof words, GPU_D2H, r->queue.inspector)) ||
      !rank_ok(r, r->driver->stream_synchronize(r->queue.inspector)))
    return false;
  out->print = (exec_fingerprint){ words[0], words[1] };
  memcpy(&out->squares, &words[2], sizeof out->squares);
  return true;
}

exec_digest cuda_exec_digest(cuda_exec *e, uint32_t rank, uint32_t buffer, const plan_view *view)
{
  assert(rank < e->layout->rank_count);
  rank_run *r = &e->ranks[rank];
  assert(buffer < r->stage->ops_of->buffers.count &&
         (r->watches.telling == NO_OP || e->options.every_op));
  exec_digest digest = { 0 };
  if (is_here(r) && rank_ok(r, r->driver->use(r->gpu))) {
    exec_tensor seen = tensor_of(r, buffer, view);
    run_digest(r, &seen, &digest);
  }
  world_broadcast(&digest, sizeof digest, world_owner(rank, e->layout->rank_count));
  return digest;
}

/* ---- figures --------------------------------------------------------------------------------- */

static int64_t outside_bytes(const rank_run *r)
{
  assert(r->device.guard_peak_bytes >= 0);
  return r->device.guard_peak_bytes + exchange_outside_bytes(r->exec->exchange, r->number) +
         scratch_bytes(&r->scratch) + (int64_t)sizeof *r->left_out + DIGEST_BYTES +
         DIGEST_SCRATCH_BYTES;
}

cuda_memory rank_memory(const rank_run *r)
{
  assert(is_here(r) && r->device.requested_peak_bytes >= r->device.requested_bytes);
  return (cuda_memory){
    .requested_peak_bytes = r->device.requested_peak_bytes,
    .live_peak_bytes = device_live_peak_bytes(&r->device),
    .reserved_peak_bytes = r->device.reserved_peak_bytes,
    .pinned_peak_bytes = pinned_pool_stats(r->host.pool)->pow2_peak_bytes,
    .driver_used_bytes = r->device.driver_used_bytes,
    .outside_bytes = outside_bytes(r),
    .broken_guards = r->device.broken_guards,
  };
}

cuda_memory cuda_exec_memory(const cuda_exec *e, uint32_t rank)
{
  assert(rank < e->layout->rank_count);
  const rank_run *r = &e->ranks[rank];
  return is_here(r) ? rank_memory(r) : r->told;
}

cuda_times cuda_exec_times(const cuda_exec *e, uint32_t rank)
{
  assert(rank < e->layout->rank_count);
  const rank_run *r = &e->ranks[rank];
  return (cuda_times){ .begin_ps = r->curves.begin_ps,
                       .end_ps = r->curves.end_ps,
                       .step_ps = e->step_ps,
                       .live_bytes = r->curves.live,
                       .reserved_bytes = r->curves.reserved,
                       .host_bytes = r->curves.host };
}
