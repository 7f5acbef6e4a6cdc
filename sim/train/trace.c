#include "sim/train/trace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "sim/base/units.h"
#include "sim/exec/layout.h"

/* The place of element `i`, in elements. */
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
    die_refused("memory: requested %lld bytes, the system has none left",
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

/* The bytes that a copy or a message moves: those of its smaller side. */
static int64_t moved_bytes(const trace_recorder *to, const execution *e, const exec_rank *rank,
                           const plan_op *o)
{
  const uint32_t *operands = to->plan->ranks[rank->stage].operands.items + o->operands;
  int64_t bytes = INT64_MAX;
  for (int i = 0; i < o->reads + o->writes; i++)
    bytes = min_i64(bytes, e->by->bytes(e->exec, rank->global, operands[i]));
  return o->kind == OP_RECV ? min_i64(bytes, to->plan->messages.items[o->arg].bytes) : bytes;
}

static void take_contents(const trace_recorder *to, const execution *e, const exec_rank *rank,
                          const plan_op *o, uint32_t written, trace_output *output)
{
  uint32_t operand = o->reads + written;
  uint32_t buffer = to->plan->ranks[rank->stage].operands.items[o->operands + operand];
  const char *data = e->by->data(e->exec, rank->global, buffer);
  plan_view seen = plan_op_view(to->plan, o, operand), v = rank_view(&seen, rank);
  bool computes = op_is_call((op_kind)o->kind);
  if (data == NULL || e->by->is_scratch(e->exec, rank->global, buffer)) return;
  XXH128_hash_t hash;
  if (!computes && v.whole)
    hash = XXH3_128bits(data, (size_t)moved_bytes(to, e, rank, o));
  else if (v.whole)
    hash = XXH3_128bits(data, (size_t)e->by->bytes(e->exec, rank->global, buffer));
  else
    hash = hash_view(&v, data);
  *output = (trace_output){ .known = true, .fingerprint = { hash.high64, hash.low64 } };
}

void train_record_op(trace_recorder *to, const execution *e, uint32_t step, const exec_rank *rank,
                     uint32_t op)
{
  assert(to->plan != NULL && rank->stage < to->plan->rank_count);
  const plan_op *o = &to->plan->ranks[rank->stage].ops.items[op];
  trace_output outputs[TRACE_OUTPUTS];
  trace_op known = { .step = step,
                     .rank = rank->global,
                     .requested_bytes = e->by->tally(e->exec, rank->global).after_op[op] };
  if (!recorder_takes(o)) return;
  for (uint32_t i = 0; i < o->writes; i++) {
    outputs[i] = (trace_output){ .known = false };
    take_contents(to, e, rank, o, i, &outputs[i]);
  }
  recorder_op(to, rank->stage, op, &known, outputs);
}
