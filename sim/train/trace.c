#include "sim/train/trace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "sim/base/units.h"

bool run_trace_open(run_trace *t, const char *path, const trace_header *h, diag *d)
{
  *t = (run_trace){ .plan = NULL };
  return trace_open(&t->writer, path, h, d);
}

void run_trace_plan(run_trace *t, const plan *p)
{
  t->plan = p;
  t->describer = plan_describer_new(p, &t->memory);
}

bool run_trace_close(run_trace *t, diag *d)
{
  arena_release(&t->memory);
  return trace_close(&t->writer, d);
}

void run_trace_discard(run_trace *t)
{
  arena_release(&t->memory);
  trace_discard(&t->writer);
}

/* ---- contents -------------------------------------------------------------------------------- */

/* Where element `i` stands, in elements. */
static int64_t place_of(const plan_view *v, int64_t i)
{
  assert(i >= 0 && i < view_elements(v));
  int64_t place = v->offset;
  for (int d = v->rank; d-- > 0; i /= v->shape[d])
    place += i % v->shape[d] * v->strides[d];
  return place;
}

static XXH128_hash_t hash_strided(const plan_view *v, const char *data)
{
  size_t size = (size_t)dtype_bytes((dtype)v->dtype);
  int64_t elements = view_elements(v);
  char *packed = malloc((size_t)max_i64(elements, 1) * size);
  if (packed == NULL)
    die_refused("memory: asked for %lld bytes, the system has none left",
                (long long)elements * (long long)size);
  for (int64_t i = 0; i < elements; i++)
    memcpy(packed + (size_t)i * size, data + place_of(v, i) * (int64_t)size, size);
  XXH128_hash_t hash = XXH3_128bits(packed, (size_t)elements * size);
  free(packed);
  return hash;
}

static XXH128_hash_t hash_view(const plan_view *v, const char *data)
{
  int64_t size = dtype_bytes((dtype)v->dtype);
  if (!view_is_contiguous(v)) return hash_strided(v, data);
  return XXH3_128bits(data + v->offset * size, (size_t)(view_elements(v) * size));
}

/* What a copy or a message moves: as many bytes as its smaller side has. */
static int64_t moved_bytes(const run_trace *t, const execution *e, const exec_rank *rank,
                           const plan_op *o)
{
  const uint32_t *operands = t->plan->ranks[rank->stage].operands.items + o->operands;
  int64_t bytes = INT64_MAX;
  for (int i = 0; i < o->reads + o->writes; i++)
    bytes = min_i64(bytes, e->by->bytes(e->exec, rank->global, operands[i]));
  return o->kind == OP_RECV ? min_i64(bytes, t->plan->messages.items[o->arg].bytes) : bytes;
}

static void take_contents(const run_trace *t, const execution *e, const exec_rank *rank,
                          const plan_op *o, uint32_t written, trace_output *to)
{
  uint32_t operand = o->reads + written;
  uint32_t buffer = t->plan->ranks[rank->stage].operands.items[o->operands + operand];
  const char *data = e->by->data(e->exec, rank->global, buffer);
  plan_view v = plan_op_view(t->plan, o, operand);
  bool computes = o->kind == OP_KERNEL || o->kind == OP_COLLECTIVE;
  if (data == NULL || e->by->is_scratch(e->exec, rank->global, buffer)) return;
  XXH128_hash_t hash;
  if (!computes && v.whole)
    hash = XXH3_128bits(data, (size_t)moved_bytes(t, e, rank, o));
  else if (v.whole)
    hash = XXH3_128bits(data, (size_t)e->by->bytes(e->exec, rank->global, buffer));
  else
    hash = hash_view(&v, data);
  to->known = true;
  to->fingerprint[0] = hash.high64;
  to->fingerprint[1] = hash.low64;
}

void run_trace_op(run_trace *t, const execution *e, uint32_t step, const exec_rank *rank,
                  uint32_t op)
{
  assert(t->plan != NULL && rank->stage < t->plan->rank_count);
  const plan_op *o = &t->plan->ranks[rank->stage].ops.items[op];
  trace_output outputs[TRACE_OUTPUTS];
  trace_op told = { .step = step,
                    .requested_bytes = e->by->tally(e->exec, rank->global).after_op[op] };
  if (!trace_tells(o)) return;
  describe_op(&t->describer, rank->stage, op, &told, outputs);
  told.rank = rank->global;
  for (uint32_t i = 0; i < told.output_count; i++)
    take_contents(t, e, rank, o, i, &outputs[i]);
  trace_put(&t->writer, &told, outputs);
}
