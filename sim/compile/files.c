/* What an offload policy does with files: see sim/offload/actions.h. */
#include <assert.h>

#include "sim/compile/walk.h"

static uint32_t take(walk *w, uint32_t like, buffer_class class)
{
  plan_buffer b = w->rank->buffers.items[like];
  uint32_t made = walk_host_alloc(w, b.bytes, b.tensor, 0);
  assert(made != like && class != CLASS_PINNED_HOST);

  w->rank->buffers.items[made].purpose = (uint8_t) class;
  return made;
}

static uint32_t tensor_of(const walk *w, instance_id i, uint32_t entry)
{
  assert(entry > 0 && entry < walk_program(w, i)->entries.count);
  return walk_program(w, i)->entries.items[entry].tensor;
}

void act_write_file(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  instance *in = walk_instance(w, i);
  uint32_t host = in->host_of[entry];
  assert(host != NO_BUFFER && "the entry has a host buffer");

  in->file_of[entry] = take(w, host, CLASS_DISK);
  walk_copy(w, OP_DISK_WRITE, stream, host, in->file_of[entry], tensor_of(w, i, entry));
}

void act_read_file(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  instance *in = walk_instance(w, i);
  uint32_t file = in->file_of[entry];
  assert(act_place(w, i, entry) == PLACE_FILE);

  in->host_of[entry] = take(w, file, CLASS_PAGEABLE_HOST);
  walk_copy(w, OP_DISK_READ, stream, file, in->host_of[entry], tensor_of(w, i, entry));
}

void act_drop_file(walk *w, instance_id i, uint32_t entry)
{
  instance *in = walk_instance(w, i);
  assert(in->file_of[entry] != NO_BUFFER && "no file");

  walk_emit(w, OP_HOST_FREE, STREAM_HOST, in->file_of[entry]);
  in->file_of[entry] = NO_BUFFER;
}
