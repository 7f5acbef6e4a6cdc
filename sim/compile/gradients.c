#include "sim/compile/gradients.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/collectives.h"
#include "sim/compile/fsdp_buckets.h"
#include "sim/compile/kernel_calls.h"

enum { OPERANDS = UINT8_MAX };

/* The buffers that a collective reads and writes. It is large: made by list_new, which leaves its
 * arrays as they are, and never copied. */
typedef struct operand_list {
  uint32_t count;
  int64_t bytes;
  uint32_t buffers[OPERANDS];
  plan_view views[2 * OPERANDS]; /* the second half: room for what it writes */
} operand_list;

static void list_new(operand_list *o)
{
  o->count = 0;
  o->bytes = 0;
}

static void add(operand_list *o, uint32_t buffer, plan_view view, int64_t bytes)
{
  assert(bytes > 0 && buffer != NO_BUFFER);
  assert(o->count < OPERANDS);
  o->buffers[o->count] = buffer;
  o->views[o->count++] = view;
  o->bytes += bytes;
}

static const plan_view whole = { .whole = 1 };

/* ---- one buffer after the other -------------------------------------------------------------- */

static bool is_gradient_buffer(const static_allocation *a)
{
  assert(a->purpose < BUFFER_CLASSES);
  return a->purpose == CLASS_GRADIENT && a->buffer != NO_PARAMETER;
}

/* Executors leave norms and clipping to the trainer, which has the norm and the coefficient already. */
static void emit_kernel(walk *w, kernel_kind kind, const static_allocation *a, uint32_t buffer,
                        double scalar, int64_t bytes)
{
  int64_t element_bytes = dtype_bytes((dtype)a->type);
  plan_call call = kernel_call(kind, (dtype)a->type, bytes);
  assert(a->bytes % element_bytes == 0);
  call.dims[0] = a->bytes / element_bytes;
  call.scalars[0] = scalar;
  bool reads = kind != KERNEL_FILL, writes = kind != KERNEL_GRADIENT_NORM;
  walk_call(w, STREAM_COMPUTE, &call, &buffer, reads, &buffer, writes);
}

void gradients_zero(walk *w, const static_allocation_list *list, const uint32_t *buffer)
{
  assert(!w->forward_seen && "gradients are zero before the first forward");
  for (uint32_t i = 0; i < list->count; i++)
    if (is_gradient_buffer(&list->items[i]))
      emit_kernel(w, KERNEL_FILL, &list->items[i], buffer[i], 0, list->items[i].bytes);
}

void gradients_check(walk *w, const static_allocation_list *list, const uint32_t *buffer)
{
  assert(w->forward_seen && w->backward_seen);
  if (!w->settings->training.check_for_nan_in_loss_and_grad) return;
  for (uint32_t i = 0; i < list->count; i++)
    if (is_gradient_buffer(&list->items[i])) {
      emit_kernel(w, KERNEL_GRADIENT_NORM, &list->items[i], buffer[i], 0, list->items[i].bytes);
      walk_host_read(w);
    }
}

/* Without APEX, whose kernels also fuse the accumulation of gradients, Megatron-LM multiplies each gradient
 * into a new tensor and copies that back (core/utils.py: local_multi_tensor_scale). */
static int64_t passes_of_clip(const settings *s)
{
  assert(s->training.clip_grad > 0);
  return s->training.gradient_accumulation_fusion ? 2 : 4;
}

static int64_t shards(const walk *w)
{
  const settings *s = w->settings;
  assert(s->derived.data_parallel_size >= 1 && s->parallel.context_parallel_size >= 1);
  return s->parallel.use_distributed_optimizer
             ? s->derived.data_parallel_size * s->parallel.context_parallel_size
             : 1;
}

void gradients_clip(walk *w, const static_allocation_list *list, const uint32_t *buffer)
{
  assert(w->forward_seen && w->backward_seen);
  if (w->settings->training.clip_grad == 0) return;
  bool any = false;
  for (uint32_t i = 0; i < list->count; i++)
    if (is_gradient_buffer(&list->items[i])) {
      emit_kernel(w, KERNEL_GRADIENT_NORM, &list->items[i], buffer[i], 0,
                  list->items[i].bytes / shards(w));
      any = true;
    }
  if (!any) return;
  walk_host_read(w);
  for (uint32_t i = 0; i < list->count; i++)
    if (is_gradient_buffer(&list->items[i]))
      emit_kernel(w, KERNEL_GRADIENT_CLIP, &list->items[i], buffer[i], 0,
                  passes_of_clip(w->settings) * (list->items[i].bytes / shards(w)));
}

static void average(walk *w, const static_allocation_list *list, const uint32_t *buffer)
{
  int64_t ranks =
      w->settings->derived.data_parallel_size * w->settings->parallel.context_parallel_size;
  assert(ranks >= 1);
  for (uint32_t i = 0; i < list->count && ranks > 1; i++)
    if (is_gradient_buffer(&list->items[i]))
      emit_kernel(w, KERNEL_SCALE, &list->items[i], buffer[i], 1 / (double)ranks,
                  2 * list->items[i].bytes);
}

/* ---- over ranks ------------------------------------------------------------------------------ */

static bool is_sharded(const walk *w)
{
  return w->settings->parallel.use_distributed_optimizer;
}

static void collective(walk *w, collective_kind kind, comm_group group, operand_list *o,
                       bool bytes_of_part)
{
  plan_call call = collective_call(w->settings, kind, group, o->bytes);
  if (call.group_size == 1 || o->count == 0) return;
  assert(o->bytes > 0 && call.group_size > 1);
  if (bytes_of_part) call.bytes /= call.group_size;
  memcpy(o->views + o->count, o->views, o->count * sizeof *o->views);
  plan_call_views(w->plan, &call, o->views, 2 * o->count);
  walk_call(w, STREAM_COMPUTE, &call, o->buffers, o->count, o->buffers, o->count);
}

/* The buffers of a class, of experts' parameters or of the others. */
static void buffers_of(operand_list *o, const static_allocation_list *list, const uint32_t *buffer,
                       buffer_class class, bool is_expert)
{
  list_new(o);
  assert(class == CLASS_GRADIENT || class == CLASS_WEIGHT);
  for (uint32_t i = 0; i < list->count; i++) {
    const static_allocation *a = &list->items[i];
    if (a->purpose == class && a->buffer != NO_PARAMETER &&
        list->rank.buffers.items[a->buffer].is_expert == is_expert)
      add(o, buffer[i], whole, a->bytes);
  }
}

/* The first buffer of a class, for all of them. */
static void one_for_all(operand_list *o, const static_allocation_list *list, const uint32_t *buffer,
                        buffer_class class)
{
  assert(list->count > 0);
  list_new(o);
  for (uint32_t i = list->event_count; i-- > 0;) {
    const static_event *e = &list->events[i];
    assert(e->allocation < list->count);
    const static_allocation *a = &list->items[e->allocation];
    if (e->is_free || a->purpose != class) continue;
    o->buffers[0] = buffer[e->allocation];
    o->views[0] = whole;
    o->count = 1;
    o->bytes += a->bytes;
  }
}

static void over_data_parallel_ranks(walk *w, const static_allocation_list *list,
                                     const uint32_t *buffer, collective_kind kind,
                                     buffer_class class)
{
  bool gathers = kind == COLLECTIVE_ALL_GATHER;
  assert(class == (gathers ? CLASS_WEIGHT : CLASS_GRADIENT));
  operand_list dense, experts;
  buffers_of(&dense, list, buffer, class, false);
  buffers_of(&experts, list, buffer, class, true);
  if (dense.count + experts.count == 0) one_for_all(&dense, list, buffer, class);
  collective(w, kind, GROUP_DP, &dense, gathers);
  collective(w, kind, GROUP_EDP, &experts, gathers);
}

static plan_view slot_view(const rank_parameters *r, uint32_t i)
{
  const parameter_place *at = &r->places[i];
  assert(i < r->list.count && at->buffer < r->buffers.count && at->start >= 0);
  return elements_from((dtype)r->buffers.items[at->buffer].gradient_type, at->start,
                       parameter_elements(&r->list.items[i]));
}

static uint32_t *buffer_ids(const walk *w, const static_allocation_list *list,
                            const uint32_t *buffer)
{
  assert(list->rank.buffers.count > 0 || list->rank.list.count == 0);
  uint32_t *ids = ARENA_ARRAY(w->memory, uint32_t, list->rank.buffers.count);
  for (uint32_t i = 0; i < list->count; i++)
    if (is_gradient_buffer(&list->items[i])) ids[list->items[i].buffer] = buffer[i];
  return ids;
}

static bool has_seen_a_part(const parameter *p)
{
  return p->sequence_parallel && !p->is_expert;
}

static bool is_on_two_stages(const parameter *p)
{
  return p->shared_embedding;
}

/* Sums the gradients of the chosen parameters, in any buffers. */
static void sum_chosen(walk *w, const static_allocation_list *list, const uint32_t *buffer,
                       comm_group group, bool (*is_chosen)(const parameter *p))
{
  assert(group == GROUP_TP || group == GROUP_EMBD);
  const rank_parameters *r = &list->rank;
  const uint32_t *ids = buffer_ids(w, list, buffer);
  operand_list o;
  list_new(&o);
  for (uint32_t i = 0; i < r->list.count; i++) {
    if (!is_chosen(&r->list.items[i])) continue;
    plan_view v = slot_view(r, i);
    add(&o, ids[r->places[i].buffer], v, v.shape[0] * dtype_bytes((dtype)v.dtype));
    if (o.count < OPERANDS) continue;
    collective(w, COLLECTIVE_ALL_REDUCE, group, &o, false);
    list_new(&o);
  }
  collective(w, COLLECTIVE_ALL_REDUCE, group, &o, false);
}

void gradients_finish(walk *w, const static_allocation_list *list, const uint32_t *buffer)
{
  assert(w->forward_seen && w->backward_seen);
  average(w, list, buffer);
  if (!has_fsdp_buckets(w)) /* they have been reduced in every micro-batch */
    over_data_parallel_ranks(w, list, buffer,
                             is_sharded(w) ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE,
                             CLASS_GRADIENT);
  sum_chosen(w, list, buffer, GROUP_TP, has_seen_a_part);
  sum_chosen(w, list, buffer, GROUP_EMBD, is_on_two_stages);
}

void gradients_gather_weights(walk *w, const static_allocation_list *list, const uint32_t *buffer)
{
  assert(is_sharded(w) && w->backward_seen);
  over_data_parallel_ranks(w, list, buffer, COLLECTIVE_ALL_GATHER, CLASS_WEIGHT);
}
