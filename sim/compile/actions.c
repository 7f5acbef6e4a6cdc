#include "sim/offload/actions.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/walk.h"

entry_place act_place(const walk *w, instance_id i, uint32_t entry)
{
  const instance *in = walk_instance(w, i);
  if (in->host_of[entry] != NO_BUFFER)
    return PLACE_HOST;
  place_id p = walk_program(w, i)->entry_places.items[entry];
  return in->buffer_of[p] != NO_BUFFER ? PLACE_DEVICE : PLACE_NONE;
}

event_id act_record(walk *w, plan_stream stream)
{
  event_id made = w->rank->events++;
  walk_emit(w, OP_RECORD, stream, made);
  return made;
}

void act_wait(walk *w, plan_stream stream, event_id event)
{
  walk_emit(w, OP_WAIT, stream, event);
}

void act_join(walk *w, plan_stream waiting, plan_stream on)
{
  act_wait(w, waiting, act_record(w, on));
}

/* ---- host buffers ------------------------------------------------------------------------------ */

static uint32_t host_key_row(walk *w, const host_key *key)
{
  for (uint32_t i = 1; i < w->host_keys.count; i++)
    if (w->host_keys.items[i].dtype == key->dtype &&
        memcmp(w->host_keys.items[i].shape, key->shape, sizeof key->shape) == 0)
      return i;
  *ARRAY_PUSH(&w->host_keys) = *key;
  return w->host_keys.count - 1;
}

/* The pool keys buffers by shape and type of what is copied. */
static host_key key_of(const walk *w, const saved_entry *e, bool whole_storage)
{
  const plan_tensor *t = &w->plan->tensors.items[e->tensor];
  host_key key = { .dtype = t->dtype };
  if (whole_storage)
    key.shape[0] = e->storage_bytes / e->element_bytes;
  else
    memcpy(key.shape, t->shape, sizeof key.shape);
  return key;
}

static uint32_t entry_host_key(walk *w, instance_id i, uint32_t entry, const offload_how *how)
{
  uint32_t *cached = &w->entry_key[i % w->chunk_count][entry];
  if (*cached == 0) {
    const saved_entry *e = &walk_program(w, i)->entries.items[entry];
    host_key key = key_of(w, e, how->form == COPY_STORAGE);
    *cached = host_key_row(w, &key);
  }
  return *cached;
}

void walk_number_host_keys(walk *w)
{
  *ARRAY_PUSH(&w->host_keys) = (host_key){ 0 };
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t i = 1; i < w->programs[c]->entries.count; i++)
      for (int whole = 0; whole < 2; whole++) {
        host_key key = key_of(w, &w->programs[c]->entries.items[i], whole != 0);
        host_key_row(w, &key);
      }
}

static void copy_op(walk *w, op_kind kind, plan_stream stream, uint32_t from, uint32_t to,
                    uint32_t tensor)
{
  uint32_t first = w->rank->operands.count;
  uint32_t *operands = ARRAY_EXTEND(&w->rank->operands, 2);
  operands[0] = from;
  operands[1] = to;
  plan_op *made = walk_emit(w, kind, stream, 0);
  made->operands = first;
  made->reads = made->writes = 1;
  made->site = w->plan->tensors.items[tensor].site;
}

static uint32_t host_alloc(walk *w, int64_t bytes, uint32_t tensor, uint32_t key)
{
  uint32_t made = walk_new_buffer(w, (plan_buffer){ .bytes = bytes,
                                                    .tensor = tensor,
                                                    .mark = w->mark,
                                                    .class = CLASS_PINNED_HOST,
                                                    .stream = STREAM_HOST,
                                                    .host_key = key });
  walk_emit(w, OP_HOST_ALLOC, STREAM_HOST, made);
  return made;
}

/* ---- moving ------------------------------------------------------------------------------------ */

/* A strided view is first gathered by a kernel on the copying stream, into that stream's memory. */
static uint32_t gather(walk *w, const saved_entry *e, uint32_t source, plan_stream stream)
{
  uint32_t gathered = walk_alloc(w, e->bytes, e->tensor, CLASS_TRANSIENT, stream);
  plan_call call;
  memset(&call, 0, sizeof call);
  call.kind = KERNEL_COPY;
  call.dtype = w->plan->tensors.items[e->tensor].dtype;
  call.dims[0] = e->elements;
  call.bytes = 2 * e->bytes;
  uint32_t row = plan_call_row(w->plan, &call);
  copy_op(w, OP_KERNEL, stream, source, gathered, e->tensor);
  w->rank->ops.items[w->rank->ops.count - 1].arg = row;
  return gathered;
}

static void count_group(walk *w, instance_id i, uint32_t group)
{
  uint64_t name = (uint64_t)i << 32 | group;
  w->offloaded_groups += name != w->last_offloaded;
  w->last_offloaded = name;
}

void act_offload(walk *w, instance_id i, uint32_t entry, offload_how how)
{
  const saved_entry *e = &walk_program(w, i)->entries.items[entry];
  instance *in = walk_instance(w, i);
  place_id place = walk_program(w, i)->entry_places.items[entry];
  uint32_t source = in->buffer_of[place];
  assert(source != NO_BUFFER && "offload of what is not on the device");
  count_group(w, i, e->group);
  uint32_t key = how.pooled ? entry_host_key(w, i, entry, &how) : 0;
  int64_t bytes = how.form == COPY_STORAGE ? e->storage_bytes : e->bytes;
  uint32_t host = host_alloc(w, bytes, e->tensor, key);
  uint32_t copied = how.form == COPY_GATHERED ? gather(w, e, source, how.stream) : source;
  copy_op(w, OP_D2H, how.stream, copied, host, e->tensor);
  if (copied != source)
    walk_drop_reference(w, copied);
  if (how.record_stream)
    w->references.items[source] |= UINT32_C(1) << (REFERENCE_MARK_SHIFT + (uint32_t)how.stream);
  in->host_of[entry] = host;
  in->buffer_of[place] = NO_BUFFER;
  walk_drop_reference(w, source);
}

void act_reload(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool)
{
  const saved_entry *e = &walk_program(w, i)->entries.items[entry];
  instance *in = walk_instance(w, i);
  uint32_t host = in->host_of[entry];
  assert(host != NO_BUFFER && "reload of what is not on the host");
  uint32_t made =
      walk_alloc(w, w->rank->buffers.items[host].bytes, e->tensor, CLASS_RELOAD, pool);
  copy_op(w, OP_H2D, stream, host, made, e->tensor);
  walk_emit(w, OP_HOST_FREE, STREAM_HOST, host);
  in->buffer_of[walk_program(w, i)->entry_places.items[entry]] = made;
  in->host_of[entry] = NO_BUFFER;
}

void act_empty_storage(walk *w, instance_id i, uint32_t slot, plan_stream marked)
{
  const instance *in = walk_instance(w, i);
  uint32_t emptied = in->buffer_of[slot];
  if (emptied == NO_BUFFER || (w->references.items[emptied] & REFERENCE_EMPTIED))
    return;
  if (marked != STREAM_HOST)
    w->references.items[emptied] |= UINT32_C(1) << (REFERENCE_MARK_SHIFT + (uint32_t)marked);
  walk_free(w, emptied);
  w->references.items[emptied] |= REFERENCE_EMPTIED;
}
