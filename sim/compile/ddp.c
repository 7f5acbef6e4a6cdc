#include "sim/compile/ddp.h"

#include <assert.h>

#include "sim/compile/collectives.h"
#include "sim/compile/kernel_calls.h"
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

typedef struct layer_gradients {
  uint32_t buffers[UINT8_MAX], count;
  int64_t bytes;
} layer_gradients;

static layer_gradients gradients_of(const walk *w, const chunk_program *p, int32_t layer)
{
  layer_gradients of = { .count = 0 };
  for (uint32_t k = 0; k < p->parameters.count; k++) {
    uint32_t gradient = w->gradient_of[0][k];
    if (p->parameters.items[k].layer != layer || gradient == NO_BUFFER) continue;
    assert(of.count < UINT8_MAX);
    of.buffers[of.count++] = gradient;
    of.bytes += w->rank->buffers.items[gradient].bytes;
  }
  return of;
}

/* The call reads and writes all of them. */
static void emit(walk *w, plan_stream stream, const plan_call *call, const layer_gradients *of)
{
  walk_call(w, stream, call, of->buffers, of->count, of->buffers, of->count);
}

/* Copies gradients into the buckets, divided by the number of ranks, or out of them. Each kernel
 * moves the gradients and as many bytes of buckets. */
static void copy(walk *w, kernel_kind kind, const layer_gradients *of)
{
  const plan_buffer *first = &w->rank->buffers.items[of->buffers[0]];
  int64_t element_bytes = dtype_bytes((dtype)w->plan->tensors.items[first->tensor].dtype);
  plan_call call = kernel_call(kind, DTYPE_BYTE, 2 * of->bytes);
  assert(of->count > 0 && of->bytes % element_bytes == 0);
  call.dims[0] = of->bytes / element_bytes;
  if (kind == KERNEL_SCALE) call.scalars[0] = 1 / (double)w->settings->parallel.world_size;
  emit(w, STREAM_COMPUTE, &call, of);
}

static void reduce(walk *w, instance_id i, int32_t layer)
{
  layer_gradients of = gradients_of(w, walk_program(w, i), layer);
  if (of.count == 0) return;
  assert(of.bytes > 0 && w->backward_seen);
  copy(w, KERNEL_SCALE, &of);
  act_join(w, STREAM_COMM, STREAM_COMPUTE);
  plan_call call = collective_call(w->settings, COLLECTIVE_ALL_REDUCE, GROUP_DP, of.bytes);
  emit(w, STREAM_COMM, &call, &of);
}

/* Reduced gradients are copied out of the buckets at the end. */
static void copy_back(walk *w, instance_id i)
{
  assert(w->chunk_count == 1 && "plain PyTorch has no pipeline");
  int32_t layers = (int32_t)w->settings->model.num_layers;
  for (int32_t layer = OUTSIDE_LAYERS; layer < layers; layer++) {
    layer_gradients of = gradients_of(w, walk_program(w, i), layer);
    if (of.count > 0) copy(w, KERNEL_COPY, &of);
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
