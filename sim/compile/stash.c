/* What a policy packs into device memory of its own, or, without such memory, into a smaller block. */
#include <assert.h>

#include "sim/compile/walk.h"

device_buffer act_own_memory(walk *w, const char *name, int64_t bytes, bool on_host)
{
  *ARRAY_PUSH(&w->plan->tensors) =
      (plan_tensor){ .name = name, .dtype = DTYPE_BYTE, .rank = 1, .shape = { bytes } };
  uint32_t tensor = w->plan->tensors.count - 1;
  if (w->iteration == ITERATION_WARMUP)
    return on_host ? walk_host_alloc(w, bytes, tensor, 0)
                   : walk_alloc(w, bytes, tensor, CLASS_SAVED, STREAM_COMPUTE);
  return walk_resident(w, (plan_buffer){ .bytes = bytes,
                                         .tensor = tensor,
                                         .class = on_host ? CLASS_PINNED_HOST : CLASS_SAVED,
                                         .stream = on_host ? STREAM_HOST : STREAM_COMPUTE });
}

static void copy_kernel(walk *w, const saved_entry *e, uint32_t from, uint32_t to, int64_t bytes,
                        plan_stream stream)
{
  walk_copy_kernel(w, stream, from, to, e->tensor, bytes / e->element_bytes, 2 * bytes);
}

void act_stash(walk *w, instance_id i, uint32_t entry, device_buffer memory, int64_t bytes,
               plan_stream stream)
{
  const saved_entry *e = &walk_program(w, i)->entries.items[entry];
  instance *in = walk_instance(w, i);
  uint32_t source = in->buffer_of[walk_program(w, i)->entry_places.items[entry]];

  assert(source != NO_BUFFER && in->host_of[entry] == NO_BUFFER);
  if (memory == NO_OWN_MEMORY)
    memory = walk_alloc(w, bytes, e->tensor, CLASS_SAVED, STREAM_COMPUTE);
  else
    w->references.items[memory]++;
  copy_kernel(w, e, source, memory, bytes, stream);
  in->host_of[entry] = memory;
}

void act_unstash(walk *w, instance_id i, uint32_t entry, int64_t bytes, plan_stream stream)
{
  const saved_entry *e = &walk_program(w, i)->entries.items[entry];
  instance *in = walk_instance(w, i);
  uint32_t packed = in->host_of[entry];

  assert(packed != NO_BUFFER && "nothing is packed");
  uint32_t target = walk_alloc(w, e->bytes, e->tensor, CLASS_RELOAD, STREAM_COMPUTE);
  copy_kernel(w, e, packed, target, bytes, stream);
  in->buffer_of[walk_program(w, i)->entry_places.items[entry]] = target;
  in->host_of[entry] = NO_BUFFER;
  walk_drop_reference(w, packed);
}
