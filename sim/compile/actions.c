#include "sim/offload/actions.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/kernel_calls.h"
#include "sim/compile/walk.h"

static const plan_view whole = { .whole = 1 };

entry_place act_place(const walk *w, instance_id i, uint32_t entry)
{
  const instance *in = walk_instance(w, i);
  const chunk_program *program = walk_program(w, i);
  assert(entry > 0 && entry < program->entries.count);
  place_id p = program->entry_places.items[entry];
  if (in->buffer_of[p] != NO_BUFFER) return PLACE_DEVICE;
  if (in->host_of[entry] != NO_BUFFER) return PLACE_HOST;
  return in->file_of[entry] != NO_BUFFER ? PLACE_FILE : PLACE_NONE;
}

event_id act_record(walk *w, plan_stream stream)
{
  assert(stream != STREAM_HOST && "the host records no event");
  event_id made = w->rank->events++;
  walk_emit(w, OP_RECORD, walk_stream(w, stream), made);
  return made;
}

void act_wait(walk *w, plan_stream stream, event_id event)
{
  assert(stream != STREAM_HOST && "act_host_wait is the host's");
  assert(event < w->rank->events && "an event is recorded before a stream waits for it");
  walk_emit(w, OP_WAIT, walk_stream(w, stream), event);
}

void act_join(walk *w, plan_stream waiting, plan_stream on)
{
  act_wait(w, waiting, act_record(w, on));
}

void act_host_wait(walk *w, event_id event)
{
  assert(event < w->rank->events && "an event is recorded before the host waits for it");
  walk_emit(w, OP_HOST_WAIT, STREAM_HOST, event);
}

void act_host_read(walk *w, event_id event)
{
  bool reads = w->settings->software.issued_by != ISSUED_BY_OFFSIM; /* its runs know the counts */
  assert(event < w->rank->events && "an event is recorded before the host waits for it");
  walk_emit(w, reads ? OP_HOST_READ : OP_HOST_WAIT, STREAM_HOST, event);
}

void act_host_work(walk *w, uint32_t operators)
{
  assert(operators > 0 && w->rank->marks.count > 0);
  walk_emit(w, OP_HOST_WORK, STREAM_HOST, operators);
}

/* ---- host buffers ------------------------------------------------------------------------------ */

static uint32_t host_key_row(walk *w, const host_key *key)
{
  for (uint32_t i = 1; i < w->host_keys.count; i++)
    if (w->host_keys.items[i].dtype == key->dtype &&
        memcmp(w->host_keys.items[i].shape, key->shape, sizeof key->shape) == 0)
      return i;
  *ARRAY_PUSH(&w->host_keys) = *key;
  assert(w->host_keys.count > 1 && "key 0 is no pool");
  return w->host_keys.count - 1;
}

/* The pool keys host buffers by the shape and type of the copied tensor. */
static host_key key_of(const walk *w, const saved_entry *e, bool whole_storage)
{
  assert(e->tensor < w->plan->tensors.count && e->element_bytes > 0);
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
  assert(*cached < w->host_keys.count);
  return *cached;
}

void walk_number_host_keys(walk *w)
{
  assert(w->host_keys.count == 0);
  *ARRAY_PUSH(&w->host_keys) = (host_key){ 0 };
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t i = 1; i < w->programs[c]->entries.count; i++)
      for (int storage = 0; storage < 2; storage++) {
        host_key key = key_of(w, &w->programs[c]->entries.items[i], storage != 0);
        host_key_row(w, &key);
      }
}

plan_op *walk_call(walk *w, plan_stream stream, const plan_call *call, const uint32_t *reads,
                   uint32_t read_count, const uint32_t *writes, uint32_t write_count)
{
  assert(read_count <= UINT8_MAX && write_count <= UINT8_MAX && read_count + write_count > 0);
  uint32_t first = w->rank->operands.count;
  uint32_t *operands = ARRAY_EXTEND(&w->rank->operands, read_count + write_count);
  memcpy(operands, reads, read_count * sizeof *reads);
  memcpy(operands + read_count, writes, write_count * sizeof *writes);
  plan_op *made = walk_emit(w, call->is_collective ? OP_COLLECTIVE : OP_KERNEL, stream,
                            plan_call_row(w->plan, call));
  made->operands = first;
  made->reads = (uint8_t)read_count;
  made->writes = (uint8_t)write_count;
  return made;
}

void walk_copy(walk *w, op_kind kind, plan_stream stream, uint32_t from, uint32_t to,
               uint32_t tensor)
{
  assert(op_is_copy(kind));
  uint32_t first = w->rank->operands.count;
  uint32_t *operands = ARRAY_EXTEND(&w->rank->operands, 2);
  assert(from < w->rank->buffers.count && to < w->rank->buffers.count && from != to);
  assert(tensor < w->plan->tensors.count);
  operands[0] = from;
  operands[1] = to;
  plan_op *made = walk_emit(w, kind, walk_stream(w, stream), 0);
  made->operands = first;
  made->reads = made->writes = 1;
  made->site = w->plan->tensors.items[tensor].site;
}

void walk_copy_parts(walk *w, const plan_view *source, const plan_view *target)
{
  plan_op *last = &w->rank->ops.items[w->rank->ops.count - 1];
  assert(copy_may_be_part((op_kind)last->kind));
  last->arg = plan_copy_views(w->plan, source, target);
}

void walk_copy_kernel(walk *w, plan_stream stream, walk_operand_view from, walk_operand_view to,
                      uint32_t tensor, int64_t elements, int64_t traffic_bytes)
{
  const plan_tensor *t = &w->plan->tensors.items[tensor];
  plan_call call = kernel_call(stream == STREAM_CPU ? KERNEL_HOST_COPY : KERNEL_COPY,
                               (dtype)t->dtype, traffic_bytes);
  call.dims[0] = elements;
  assert(from.view < w->plan->views.count && to.view < w->plan->views.count && elements > 0);
  const plan_view views[] = { w->plan->views.items[from.view], w->plan->views.items[to.view] };
  plan_call_views(w->plan, &call, views, 2);
  walk_call(w, walk_stream(w, stream), &call, &from.buffer, 1, &to.buffer, 1)->site = t->site;
}

uint32_t walk_host_alloc(walk *w, int64_t bytes, uint32_t tensor, uint32_t key)
{
  assert(key == 0 || key < w->host_keys.count);
  uint32_t made = walk_new_buffer(w, (plan_buffer){ .bytes = bytes,
                                                    .tensor = tensor,
                                                    .mark = w->mark,
                                                    .purpose = CLASS_PINNED_HOST,
                                                    .stream = STREAM_HOST,
                                                    .host_key = key });
  walk_emit(w, OP_HOST_ALLOC, STREAM_HOST, made);
  return made;
}

/* ---- moving ------------------------------------------------------------------------------------ */

/* Memory traffic of a gather, in multiples of the tensor's size: one read and one write if rows are
 * contiguous. On a transposed matrix, PyTorch's copy kernel is six times as slow (measured on an
 * H200: 0.6 TB/s). */
enum { ROWS_TRAFFIC = 2, TRANSPOSED_TRAFFIC = 12 };

/* Among views of parameters, only transposed ones are not contiguous. */
static int64_t gather_bytes(const saved_entry *e)
{
  assert(e->bytes > 0);
  bool transposed = e->of_parameter && !e->contiguous;
  return e->bytes * (transposed ? TRANSPOSED_TRAFFIC : ROWS_TRAFFIC);
}

/* A kernel on the copying stream first gathers a strided view, into that stream's memory. */
static uint32_t gather(walk *w, const saved_entry *e, uint32_t view, uint32_t source,
                       plan_stream stream)
{
  assert(e->elements > 0 && walk_stream(w, stream) < STREAM_HOST);
  uint32_t gathered = walk_alloc(w, e->bytes, e->tensor, CLASS_TRANSIENT, walk_stream(w, stream));
  walk_copy_kernel(w, stream, (walk_operand_view){ source, view },
                   (walk_operand_view){ gathered, 0 }, e->tensor, e->elements, gather_bytes(e));
  return gathered;
}

/* The entry's view of its buffer on the device. */
static uint32_t view_on_device(const saved_entry *e, const instance *in, uint32_t entry)
{
  assert(entry > 0 && "entry 0 is none");
  return in->alone[entry] ? 0 : e->view;
}

void act_clone(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  const saved_entry *e = &walk_program(w, i)->entries.items[entry];
  instance *in = walk_instance(w, i);
  uint32_t *place = &in->buffer_of[walk_program(w, i)->entry_places.items[entry]];
  uint32_t source = *place;
  assert(source != NO_BUFFER && "the entry is on the device");
  *place = gather(w, e, view_on_device(e, in, entry), source, stream);
  in->alone[entry] = true;
  w->rank->buffers.items[*place].purpose = CLASS_SAVED;
  walk_drop_reference(w, source);
}

static void count_group(walk *w, instance_id i, uint32_t group, int64_t bytes)
{
  assert(bytes > 0);
  w->copied_bytes[i % w->chunk_count][group] += bytes;
  w->offloaded_groups += i != w->last_offloaded || group != w->last_group;
  w->last_offloaded = i;
  w->last_group = group;
}

/* The entry's view of its buffer on the device for a copy that makes `bytes` of it. FSDP2 pads a
 * weight to equal shards: the weight is the first part. */
static plan_view copied_view(const walk *w, const saved_entry *e, copy_form form, uint32_t view,
                             uint32_t source, int64_t bytes)
{
  if (form == COPY_VIEW && view != 0) return w->plan->views.items[view];
  if (form == COPY_GATHERED || w->rank->buffers.items[source].bytes == bytes) return whole;
  plan_view first = { .dtype = w->plan->tensors.items[e->tensor].dtype,
                      .rank = 1,
                      .shape = { bytes / e->element_bytes },
                      .strides = { 1 } };
  assert(e->parameter_number != 0 && w->rank->buffers.items[source].bytes > bytes);
  return first;
}

static void copy_to(walk *w, instance_id i, uint32_t entry, const offload_how *how, uint32_t host)
{
  const saved_entry *e = &walk_program(w, i)->entries.items[entry];
  instance *in = walk_instance(w, i);
  uint32_t source = in->buffer_of[walk_program(w, i)->entry_places.items[entry]];
  assert(source != NO_BUFFER && "the entry is on the device");
  assert(in->host_of[entry] == NO_BUFFER && "an entry has one copy");
  count_group(w, i, e->group, w->rank->buffers.items[host].bytes);
  uint32_t view = view_on_device(e, in, entry);
  uint32_t copied = how->form == COPY_GATHERED ? gather(w, e, view, source, how->stream) : source;
  plan_view seen = copied_view(w, e, how->form, view, source, w->rank->buffers.items[host].bytes);
  walk_copy(w, OP_D2H, how->stream, copied, host, e->tensor);
  walk_copy_parts(w, &seen, &whole);
  in->packed_alone[entry] = in->alone[entry] || how->form != COPY_STORAGE;
  if (copied != source) walk_drop_reference(w, copied);
  if (how->record_stream) walk_mark_stream(w, source, how->stream);
  in->host_of[entry] = host;
}

static int64_t copied_bytes(const saved_entry *e, copy_form form)
{
  assert(e->bytes > 0 && e->storage_bytes > 0 && form <= COPY_GATHERED);
  return form == COPY_STORAGE ? e->storage_bytes : e->bytes;
}

void act_copy_out(walk *w, instance_id i, uint32_t entry, offload_how how)
{
  const saved_entry *e = &walk_program(w, i)->entries.items[entry];
  assert(!(how.pooled && how.pageable) && "the pool is of pinned memory");
  uint32_t key = how.pooled ? entry_host_key(w, i, entry, &how) : 0;
  uint32_t host = walk_host_alloc(w, copied_bytes(e, how.form), e->tensor, key);
  if (how.pageable) w->rank->buffers.items[host].purpose = CLASS_PAGEABLE_HOST;
  copy_to(w, i, entry, &how, host);
}

host_buffer act_own_host_buffer(walk *w, uint32_t chunk, uint32_t entry, copy_form form)
{
  assert(chunk < w->chunk_count && entry > 0 && entry < w->programs[chunk]->entries.count);
  const saved_entry *e = &w->programs[chunk]->entries.items[entry];
  if (w->iteration == ITERATION_WARMUP)
    return walk_host_alloc(w, copied_bytes(e, form), e->tensor, 0);
  return walk_resident(w, (plan_buffer){ .bytes = copied_bytes(e, form),
                                         .tensor = e->tensor,
                                         .purpose = CLASS_PINNED_HOST,
                                         .stream = STREAM_HOST });
}

void act_copy_out_into(walk *w, instance_id i, uint32_t entry, offload_how how, host_buffer own)
{
  assert(w->rank->buffers.items[own].stream == STREAM_HOST);
  walk_refer(w, own);
  copy_to(w, i, entry, &how, own);
}

void act_release(walk *w, instance_id i, uint32_t entry)
{
  assert(walk_instance(w, i)->host_of[entry] != NO_BUFFER && "the entry has a copy");
  walk_drop_place(w, i, walk_program(w, i)->entry_places.items[entry]);
}

void act_offload(walk *w, instance_id i, uint32_t entry, offload_how how)
{
  act_copy_out(w, i, entry, how);
  act_release(w, i, entry);
  assert(act_place(w, i, entry) == PLACE_HOST);
}

void act_record_stream(walk *w, instance_id i, uint32_t entry, plan_stream stream)
{
  assert(stream < STREAM_HOST);
  uint32_t marked = walk_instance(w, i)->buffer_of[walk_program(w, i)->entry_places.items[entry]];
  assert(marked != NO_BUFFER && "the entry is on the device");
  walk_mark_stream(w, marked, stream);
}

static void copy_in(walk *w, instance_id i, uint32_t entry, plan_stream stream, uint32_t target)
{
  const chunk_program *p = walk_program(w, i);
  instance *in = walk_instance(w, i);
  assert(in->host_of[entry] != NO_BUFFER &&
         in->buffer_of[p->entry_places.items[entry]] == NO_BUFFER);
  walk_copy(w, OP_H2D, stream, in->host_of[entry], target, p->entries.items[entry].tensor);
  in->alone[entry] = in->packed_alone[entry];
  in->buffer_of[p->entry_places.items[entry]] = target;
}

void act_copy_in(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool)
{
  uint32_t host = walk_instance(w, i)->host_of[entry];
  assert(host != NO_BUFFER && "the entry is on the host");
  copy_in(w, i, entry, stream,
          walk_alloc(w, w->rank->buffers.items[host].bytes,
                     walk_program(w, i)->entries.items[entry].tensor, CLASS_RELOAD,
                     walk_stream(w, pool)));
}

/* The last entry that shares a host buffer returns it to the pool. */
void act_drop_host(walk *w, instance_id i, uint32_t entry)
{
  instance *in = walk_instance(w, i);
  uint32_t host = in->host_of[entry];
  assert(host != NO_BUFFER && (w->references.items[host] & REFERENCE_COUNT) != 0 &&
         "the entry has a host buffer");
  in->host_of[entry] = NO_BUFFER;
  if ((--w->references.items[host] & REFERENCE_COUNT) == 0)
    walk_emit(w, OP_HOST_FREE, STREAM_HOST, host);
}

void act_reload(walk *w, instance_id i, uint32_t entry, plan_stream stream, plan_stream pool)
{
  act_copy_in(w, i, entry, stream, pool);
  act_drop_host(w, i, entry);
  assert(act_place(w, i, entry) == PLACE_DEVICE);
}

static void refer_too(walk *w, uint32_t *reference, uint32_t buffer)
{
  assert(buffer == NO_BUFFER || buffer < w->references.count);
  if (*reference != NO_BUFFER || buffer == NO_BUFFER) return;
  *reference = buffer;
  walk_refer(w, buffer);
}

void act_share(walk *w, instance_id i, uint32_t entry, uint32_t with)
{
  const place_id *places = walk_program(w, i)->entry_places.items;
  instance *in = walk_instance(w, i);
  assert(entry != with);
  in->packed_alone[entry] = in->packed_alone[with];
  in->alone[entry] = in->alone[with];
  refer_too(w, &in->host_of[entry], in->host_of[with]);
  refer_too(w, &in->buffer_of[places[entry]], in->buffer_of[places[with]]);
}

device_buffer act_hold(walk *w, instance_id i, uint32_t entry)
{
  uint32_t held = walk_instance(w, i)->buffer_of[walk_program(w, i)->entry_places.items[entry]];
  assert(held != NO_BUFFER && "the entry is on the device");
  walk_refer(w, held);
  return held;
}

void act_let_go(walk *w, device_buffer held)
{
  assert(walk_references(w, held) > 0 && "act_hold made the reference");
  walk_drop_reference(w, held);
}

bool act_others_refer(const walk *w, device_buffer held)
{
  assert(walk_references(w, held) > 0 && "the caller refers to it");
  return walk_references(w, held) > 1;
}

void act_mark_held(walk *w, device_buffer held, plan_stream stream)
{
  assert(walk_references(w, held) > 0 && "act_hold made the reference");
  walk_mark_stream(w, held, stream);
}

device_buffer act_own_buffer(walk *w, uint32_t chunk, uint32_t entry)
{
  assert(chunk < w->chunk_count && entry > 0 && entry < w->programs[chunk]->entries.count);
  const saved_entry *e = &w->programs[chunk]->entries.items[entry];
  if (w->iteration == ITERATION_WARMUP)
    return walk_alloc(w, e->bytes, e->tensor, CLASS_RELOAD, STREAM_COMPUTE);
  return walk_resident(w, (plan_buffer){ .bytes = e->bytes,
                                         .tensor = e->tensor,
                                         .purpose = CLASS_RELOAD,
                                         .stream = STREAM_COMPUTE });
}

void act_reload_into(walk *w, instance_id i, uint32_t entry, plan_stream stream, device_buffer own)
{
  assert(w->rank->buffers.items[own].stream != STREAM_HOST);
  walk_refer(w, own);
  copy_in(w, i, entry, stream, own);
  act_drop_host(w, i, entry);
}

void act_empty_storage(walk *w, instance_id i, uint32_t slot, plan_stream marked)
{
  const instance *in = walk_instance(w, i);
  uint32_t emptied = in->buffer_of[slot];
  if (emptied == NO_BUFFER || (w->references.items[emptied] & REFERENCE_EMPTIED)) return;
  assert(walk_references(w, emptied) > 0);
  if (marked != STREAM_HOST) walk_mark_stream(w, emptied, marked);
  walk_free(w, emptied);
  w->references.items[emptied] |= REFERENCE_EMPTIED;
}
