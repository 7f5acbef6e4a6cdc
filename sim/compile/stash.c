/* Packing saved tensors into a policy's stash in device memory, or, without a stash, into smaller
 * blocks. */
#include <assert.h>
#include <string.h>

#include "sim/compile/walk.h"

device_buffer act_own_memory(walk *w, const char *name, int64_t bytes, bool on_host)
{
  assert(bytes > 0);
  *ARRAY_PUSH(&w->plan->tensors) =
      (plan_tensor){ .name = name, .dtype = DTYPE_BYTE, .rank = 1, .shape = { bytes } };
  uint32_t tensor = w->plan->tensors.count - 1;
  if (w->iteration == ITERATION_WARMUP)
    return on_host ? walk_host_alloc(w, bytes, tensor, 0)
                   : walk_alloc(w, bytes, tensor, CLASS_SAVED, STREAM_COMPUTE);
  return walk_resident(w, (plan_buffer){ .bytes = bytes,
                                         .tensor = tensor,
                                         .purpose = on_host ? CLASS_PINNED_HOST : CLASS_SAVED,
                                         .stream = on_host ? STREAM_HOST : STREAM_COMPUTE });
}

/* A view of `bytes` of a buffer, from `offset` on. */
static walk_operand_view part_of(walk *w, const saved_entry *e, uint32_t buffer, int64_t offset,
                                 int64_t bytes)
{
  assert(offset % e->element_bytes == 0 && bytes % e->element_bytes == 0);
  assert(offset >= 0 && offset + bytes <= w->rank->buffers.items[buffer].bytes);
  plan_view part = { .dtype = w->plan->tensors.items[e->tensor].dtype,
                     .rank = 1,
                     .offset = offset / e->element_bytes,
                     .shape = { bytes / e->element_bytes },
                     .strides = { 1 } };
  return (walk_operand_view){ buffer, plan_view_row(w->plan, &part) };
}

static void copy_kernel(walk *w, const saved_entry *e, walk_operand_view from, walk_operand_view to,
                        int64_t bytes, plan_stream stream)
{
  assert(bytes > 0 && bytes % e->element_bytes == 0);
  walk_copy_kernel(w, stream, from, to, e->tensor, bytes / e->element_bytes, 2 * bytes);
}

static bool is_same_row(const plan_tensor *a, const plan_tensor *b)
{
  return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->site == b->site &&
         a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

/* The tensor without its padding rows. */
static uint32_t packed_tensor(walk *w, const saved_entry *e)
{
  assert(e->tensor < w->plan->tensors.count && e->view < w->plan->views.count);
  plan_tensor row = w->plan->tensors.items[e->tensor];
  plan_view used = w->plan->views.items[e->view];
  assert(row.site != 0 && "only this rank has rows of the site");
  if (used.whole) return e->tensor;
  for (uint32_t i = 0; i < row.rank; i++)
    row.shape[i] = used.shape[i];
  for (uint32_t i = w->plan->tensors.count; i-- > 0;)
    if (is_same_row(&w->plan->tensors.items[i], &row)) return i;
  *ARRAY_PUSH(&w->plan->tensors) = row;
  return w->plan->tensors.count - 1;
}

void act_stash(walk *w, instance_id i, uint32_t entry, packed_place to, int64_t bytes,
               plan_stream stream)
{
  const saved_entry *e = &walk_program(w, i)->entries.items[entry];
  instance *in = walk_instance(w, i);
  uint32_t source = in->buffer_of[walk_program(w, i)->entry_places.items[entry]];

  assert(source != NO_BUFFER && in->host_of[entry] == NO_BUFFER);
  if (to.memory == NO_OWN_MEMORY)
    to.memory = walk_alloc(w, bytes, packed_tensor(w, e), CLASS_SAVED, STREAM_COMPUTE);
  else
    walk_refer(w, to.memory);
  copy_kernel(w, e, part_of(w, e, source, 0, bytes), part_of(w, e, to.memory, to.offset, bytes),
              bytes, stream);
  in->host_of[entry] = to.memory;
}

void act_unstash(walk *w, instance_id i, uint32_t entry, int64_t offset, int64_t bytes,
                 plan_stream stream)
{
  const saved_entry *e = &walk_program(w, i)->entries.items[entry];
  instance *in = walk_instance(w, i);
  uint32_t packed = in->host_of[entry];

  assert(packed != NO_BUFFER && "nothing is packed");
  uint32_t target = walk_alloc(w, e->bytes, e->tensor, CLASS_RELOAD, STREAM_COMPUTE);
  copy_kernel(w, e, part_of(w, e, packed, offset, bytes), part_of(w, e, target, 0, bytes), bytes,
              stream);
  in->buffer_of[walk_program(w, i)->entry_places.items[entry]] = target;
  in->host_of[entry] = NO_BUFFER;
  walk_drop_reference(w, packed);
}
