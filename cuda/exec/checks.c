/* Checks before anything runs: arithmetic for every op of a plan, and memory. */
#include <assert.h>
#include <inttypes.h>

#include "cuda/exec/state.h"
#include "sim/base/units.h"

/* ---- arithmetic ------------------------------------------------------------------------------ */

typedef struct exact_tables {
  const cuda_kernel_row *kernels;
  const cuda_collective_row *collectives;
} exact_tables;

/* GPUs have the kernels that the CPU has: they come from the same sources. */
static exact_tables tables_of(const cuda_options *o)
{
#ifdef OFFSIM_WITH_CUDA
  if (o->gpus > 0) return (exact_tables){ cuda_exact_kernels, cuda_exact_collectives };
#endif
  (void)o;
  return (exact_tables){ host_exact_kernels, host_exact_collectives };
}

static bool has_kernel(const exact_tables *t, const plan *p, const plan_op *o)
{
  uint32_t kind = p->calls.items[o->arg].kind;
  assert(kind < (o->kind == OP_KERNEL ? (uint32_t)KERNEL_KINDS : (uint32_t)COLLECTIVE_KINDS));
  return o->kind == OP_KERNEL ? t->kernels[kind].launch != NULL
                              : t->collectives[kind].launch != NULL;
}

static bool knows_stage(const plan *p, uint32_t number, const cuda_options *options, diag *d)
{
  exact_tables t = tables_of(options);
  assert(number < p->rank_count && t.kernels != NULL && t.collectives != NULL);
  arena scratch = { 0 };
  stage s = { .plan = p, .ops_of = &p->ranks[number] };
  for (uint32_t i = 0; i < s.ops_of->ops.count && diag_ok(d); i++) {
    const plan_op *o = stage_op(&s, i);
    bool steps = o->kind == OP_KERNEL && p->calls.items[o->arg].kind == KERNEL_HOST_OPTIMIZER_STEP;
    if (steps && options->gpus > 0)
      diag_error(d, (source_pos){ 0 },
                 "cuda runs no optimizer on the host's processor: rank %u's %s", number,
                 stage_op_text(&s, i, &scratch));
    else if (op_is_call((op_kind)o->kind) && !has_kernel(&t, p, o))
      diag_error(d, (source_pos){ 0 }, "cuda has no kernel for rank %u's %s", number,
                 stage_op_text(&s, i, &scratch));
  }
  arena_release(&scratch);
  return diag_ok(d);
}

bool cuda_exec_knows(const plan *p, const cuda_options *options, diag *d)
{
  for (uint32_t r = 0; r < p->rank_count; r++)
    if (!knows_stage(p, r, options, d)) return false;
  return true;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int64_t device_bytes(const plan_buffer *b)
{
  assert(b->bytes >= 0 && b->purpose < BUFFER_CLASSES);
  return class_side((buffer_class)b->purpose) == ON_DEVICE
             ? round_up(b->bytes, ALLOCATOR_ROUNDING_BYTES)
             : 0;
}

/* Residents, and the most that is allocated in addition. */
static int64_t peak_of(const rank_plan *r)
{
  assert(r->residents <= r->buffers.count);
  int64_t now = 0, most = 0;
  for (uint32_t i = 0; i < r->residents; i++)
    now += device_bytes(&r->buffers.items[i]);
  most = now;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    if (o->kind == OP_ALLOC) now += device_bytes(&r->buffers.items[o->arg]);
    if (o->kind == OP_FREE) now -= device_bytes(&r->buffers.items[o->arg]);
    assert(now >= 0 && "no more is freed than was allocated");
    most = max_i64(most, now);
  }
  return most;
}

/* Memory that the GPU's ranks already have is available to them. */
static int64_t room_of(const cuda_exec *e, uint32_t gpu, int64_t *free_bytes)
{
  int64_t total;
  if (e->driver->memory(gpu, free_bytes, &total) != NULL) return INT64_MAX;
  assert(*free_bytes >= 0 && *free_bytes <= total);
  int64_t room = *free_bytes;
  for (uint32_t i = 0; i < e->layout->rank_count; i++)
    if (e->gpu_of[i] == gpu) room += device_reserved_bytes(&e->ranks[i].device);
  return room;
}

bool cuda_exec_fits(const cuda_exec *e, const plan *p, diag *d)
{
  assert(e->ranks != NULL && p->rank_count <= e->layout->rank_count);
  for (uint32_t k = 0; k < max_i64(e->options.gpus, 1); k++) {
    uint32_t gpu = e->first_gpu + k;
    int64_t needed = 0, free_bytes = 0;
    for (uint32_t i = 0; i < e->layout->rank_count; i++)
      if (e->gpu_of[i] == gpu) needed += peak_of(&p->ranks[e->layout->ranks[i].stage]);
    int64_t room = room_of(e, gpu, &free_bytes);
    if (needed > room)
      return diag_refused(d,
                          "cuda: GPU %u needs at least %" PRId64
                          " bytes of memory; there are %" PRId64 " (%" PRId64 " free)",
                          gpu, needed, room, free_bytes);
  }
  return true;
}
