#include "sim/compile/ddp.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/collectives.h"
#include "sim/residents/fsdp_units.h"

enum { OUTSIDE_LAYERS = -1 };

static bool reduces(const walk *w, instance_id i)
{
  const settings *s = w->settings;
  int64_t last = s->derived.num_microbatches - 1;
  assert((int64_t)(i / w->chunk_count) <= last);
  return uses_hf(s) && !uses_fsdp(s) && s->parallel.world_size > 1 &&
         (int64_t)(i / w->chunk_count) == last;
}

/* Adds the gradients of the layer's parameters twice: as read and as written. Returns their
 * number. */
static uint32_t add_operands(walk *w, const chunk_program *p, int32_t layer, int64_t *bytes)
{
  uint32_t first = w->rank->operands.count, count = 0;
  for (uint32_t k = 0; k < p->parameters.count; k++) {
    uint32_t gradient = w->gradient_of[0][k];
    if (p->parameters.items[k].layer != layer || gradient == NO_BUFFER) continue;
    *ARRAY_PUSH(&w->rank->operands) = gradient;
    *bytes += w->rank->buffers.items[gradient].bytes;
    count++;
  }
  uint32_t *again = ARRAY_EXTEND(&w->rank->operands, count);
  memcpy(again, &w->rank->operands.items[first], count * sizeof *again);
  assert(count <= UINT8_MAX);
  return count;
}

static void emit(walk *w, op_kind kind, plan_stream stream, const plan_call *call, uint32_t first,
                 uint32_t count)
{
  assert(count > 0 && first + 2 * count == w->rank->operands.count);
  plan_op *made = walk_emit(w, kind, stream, plan_call_row(w->plan, call));
  made->operands = first;
  made->reads = made->writes = (uint8_t)count;
}

static int64_t element_bytes(const walk *w, uint32_t operand)
{
  assert(operand < w->rank->operands.count);
  const plan_buffer *b = &w->rank->buffers.items[w->rank->operands.items[operand]];
  return dtype_bytes((dtype)w->plan->tensors.items[b->tensor].dtype);
}

/* Copies gradients into the buckets, divided by the number of ranks, or out of them. Each kernel
 * moves the gradients and as many bytes of buckets. */
static void copy(walk *w, kernel_kind kind, int64_t bytes, uint32_t first, uint32_t count)
{
  plan_call call;
  assert(count > 0 && bytes % element_bytes(w, first) == 0);
  memset(&call, 0, sizeof call);
  call.kind = (uint8_t)kind;
  call.dtype = DTYPE_BYTE;
  call.dims[0] = bytes / element_bytes(w, first);
  if (kind == KERNEL_SCALE) call.scalars[0] = 1 / (double)w->settings->parallel.world_size;
  call.bytes = 2 * bytes;
  emit(w, OP_KERNEL, STREAM_COMPUTE, &call, first, count);
}

static void reduce(walk *w, instance_id i, int32_t layer)
{
  uint32_t first = w->rank->operands.count;
  int64_t bytes = 0;
  uint32_t count = add_operands(w, walk_program(w, i), layer, &bytes);
  if (count == 0) return;
  assert(bytes > 0 && w->backward_seen);
  copy(w, KERNEL_SCALE, bytes, first, count);
  act_join(w, STREAM_COMM, STREAM_COMPUTE);
  plan_call call = collective_call(w->settings, COLLECTIVE_ALL_REDUCE, GROUP_DP, bytes);
  emit(w, OP_COLLECTIVE, STREAM_COMM, &call, first, count);
}

/* Reduced gradients are copied out of the buckets at the end. */
static void copy_back(walk *w, instance_id i)
{
  assert(w->chunk_count == 1 && "plain PyTorch has no pipeline");
  const chunk_program *p = walk_program(w, i);
  int32_t layers = (int32_t)w->settings->model.num_layers;
  for (int32_t layer = OUTSIDE_LAYERS; layer < layers; layer++) {
    uint32_t first = w->rank->operands.count;
    int64_t bytes = 0;
    uint32_t count = add_operands(w, p, layer, &bytes);
    if (count > 0) copy(w, KERNEL_COPY, bytes, first, count);
  }
}

void ddp_layer_end(walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  if (pass != PASS_BACKWARD || !reduces(w, i)) return;
  assert(layer >= 0 && layer < w->settings->model.num_layers);
  reduce(w, i, layer);
}

void ddp_backward_end(walk *w, instance_id i)
{
  assert(w->backward_seen);
  if (!reduces(w, i)) return;
  reduce(w, i, OUTSIDE_LAYERS);
  act_join(w, STREAM_COMPUTE, STREAM_COMM);
  copy_back(w, i);
}
