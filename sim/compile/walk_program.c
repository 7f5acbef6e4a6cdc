#include "sim/compile/walk.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/attributes.h"
#include "sim/compile/ddp.h"
#include "sim/compile/deferred.h"
#include "sim/compile/fsdp.h"
#include "sim/compile/fsdp_buckets.h"
#include "sim/compile/hooks.h"
#include "sim/compile/leftovers.h"
#include "sim/compile/megatron_fsdp.h"
#include "sim/compile/parameters.h"

static inline uint32_t buffer_of_operand(const instance *in, uint32_t operand)
{
  uint32_t buffer = operand < OPERAND_PARAMETER_GRADIENT ? in->buffer_of[operand]
                    : operand & OPERAND_PARAMETER
                        ? in->weight_of[operand & ~OPERAND_PARAMETER]
                        : in->gradient_of[operand & ~OPERAND_PARAMETER_GRADIENT];
  assert(buffer != NO_BUFFER && "an operand that is not on the device");
  return buffer;
}

uint32_t walk_operand(const instance *in, uint32_t operand)
{
  return buffer_of_operand(in, operand);
}

static bool is_alone(const chunk_program *p, const instance *in, uint32_t operand)
{
  if (operand & (OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT)) return false;
  assert(operand < p->places.count);
  uint32_t entry = p->places.items[operand].entry;
  return entry != 0 && in->alone[entry];
}

/* The call with the views that its operands have now. */
static uint32_t call_of_copies(walk *w, const chunk_program *p, const instance *in,
                               const program_step *step)
{
  assert(step->views > 0 && "the step lists both views of its operands");
  const uint32_t *operands = p->operands.items + step->operands;
  uint32_t count = (uint32_t)step->reads + step->writes, first = 0;
  while (first < count && !is_alone(p, in, operands[first]))
    first++;
  if (first == count) return step->call;
  plan_view views[2 * UINT8_MAX];
  plan_call call = w->plan->calls.items[step->call];
  for (uint32_t i = 0; i < count; i++)
    views[i] = p->step_views.items[step->views + 2 * i + is_alone(p, in, operands[i])];
  plan_call_views(w->plan, &call, views, count);
  return plan_call_row(w->plan, &call);
}

static void emit_step(walk *w, const program_step *step, uint32_t call, uint32_t first_operand)
{
  *ARRAY_PUSH(&w->rank->ops) = (plan_op){ .kind = step->op,
                                          .stream = step->stream,
                                          .reads = step->reads,
                                          .writes = step->writes,
                                          .arg = call,
                                          .operands = first_operand,
                                          .site = step->site };
}

static void run_step(walk *w, const chunk_program *p, const instance *in, const program_step *step)
{
  uint32_t count = (uint32_t)step->reads + step->writes;
  uint32_t first = w->rank->operands.count;
  uint32_t *to = ARRAY_EXTEND(&w->rank->operands, count);
  const uint32_t *from = p->operands.items + step->operands, *end = from + count;
  while (from < end)
    *to++ = buffer_of_operand(in, *from++);
  emit_step(w, step, step->views == 0 ? step->call : call_of_copies(w, p, in, step), first);
}

void walk_emit_step(walk *w, const program_step *step, const uint32_t *buffers)
{
  assert(step->views == 0 || step->call < w->plan->calls.count);
  uint32_t count = (uint32_t)step->reads + step->writes;
  uint32_t first = w->rank->operands.count;
  memcpy(ARRAY_EXTEND(&w->rank->operands, count), buffers, count * sizeof *buffers);
  emit_step(w, step, step->call, first);
}

static void bind_place(walk *w, const chunk_program *p, instance *in, place_id to, uint32_t from)
{
  assert(in->buffer_of[to] == NO_BUFFER && "a place refers to one buffer");
  in->buffer_of[to] = walk_operand(in, from);
  if (p->places.items[to].entry != 0) in->alone[p->places.items[to].entry] = is_alone(p, in, from);
  walk_refer(w, in->buffer_of[to]);
}

/* All places of an emptied storage get one new buffer, except those whose data is on the host. */
static void refill(walk *w, const chunk_program *p, instance *in, const program_refill *what)
{
  uint32_t old = in->buffer_of[what->handle];
  assert(old != NO_BUFFER && (w->references.items[old] & REFERENCE_EMPTIED) && "it was emptied");
  const program_place *place = &p->places.items[what->handle];
  uint32_t made = walk_alloc(w, place->bytes, place->tensor, (buffer_class)place->purpose,
                             (plan_stream)place->stream);
  w->references.items[made] = 0;
  for (uint32_t i = 0; i < what->count; i++) {
    place_id id = p->refill_places.items[what->first + i];
    if (in->buffer_of[id] != old) continue;
    in->buffer_of[id] = made;
    walk_refer(w, made);
    assert((w->references.items[old] & REFERENCE_COUNT) != 0);
    w->references.items[old]--;
  }
}

/* FSDP2 empties the storage of what it has gathered, and fills it again: between, autograd's
 * reference keeps nothing. */
static void leave_gathered(walk *w, const chunk_program *p, instance *in, uint32_t entry)
{
  place_id place = p->entry_places.items[entry];
  assert(entry > 0 && entry < p->entries.count);
  if (w->fsdp != NULL && p->entries.items[entry].parameter_number != 0) walk_drop(w, in, place);
}

static void find_gathered(walk *w, const chunk_program *p, instance *in, uint32_t entry)
{
  place_id place = p->entry_places.items[entry];
  uint32_t number = p->entries.items[entry].parameter_number;
  assert(place != 0 && "an entry without a place is not unpacked");
  if (w->fsdp == NULL || number == 0 || in->host_of[entry] != NO_BUFFER) return;
  bind_place(w, p, in, place, OPERAND_PARAMETER | (number - 1));
}

/* The places of a chunk live in its instance; every instruction is described in program.h. */
static void host_sync(walk *w, event_id event, uint32_t flags)
{
  assert(event < w->rank->events && (flags & ~(uint32_t)(SYNC_READS | SYNC_OF_PART)) == 0);
  if ((flags & SYNC_READS) != 0)
    act_host_read(w, event);
  else
    act_host_wait(w, event);
}

/* Whether it waits, or needs no op. */
static inline bool is_step_done(walk *w, const chunk_program *p, instance *in,
                                const instruction *step)
{
  return (step->kind == I_DEFERRED_STEP && deferred_take(w, p, in, &p->steps.items[step->a])) ||
         (step->kind == I_ACCUMULATE && parameters_adopt(w, p, in, &p->steps.items[step->a]));
}

void walk_run(walk *w, instance_id id, const instruction_array *code, uint32_t from, uint32_t to)
{
  const chunk_program *p = walk_program(w, id);
  instance *in = walk_instance(w, id);
  const offload_policy *policy = w->policy;
  assert(from <= to && to <= code->count);
  const instruction *end = code->items + to;
  for (const instruction *now = code->items + from; now < end; now++) {
    uint32_t a = now->a, b = now->b;
    switch ((instruction_kind)now->kind) {
    case I_ALLOC:
      if (policy->storage_begin != NULL) policy->storage_begin(w->state, w, id, a);
      walk_alloc_place(w, p, in, a);
      break;
    case I_BIND: bind_place(w, p, in, a, b); break;
    case I_DROP: walk_drop(w, in, a); break;
    case I_EMPTY: act_empty_storage(w, id, a, (plan_stream)b); break;
    case I_LEAVE: leftovers_add(w, id, b, in->buffer_of[a]); break;
    case I_FORGET: leftovers_forget(w, id, b); break;
    case I_ATTRIBUTE: attributes_set(w, id, b, in->buffer_of[a]); break;
    case I_MARK: walk_mark_stream(w, in->buffer_of[a], (plan_stream)b); break;
    case I_REFILL: refill(w, p, in, &p->refills.items[a]); break;
    case I_STEP:
    case I_DEFERRED_STEP:
    case I_ACCUMULATE:
      if (has_fsdp_buckets(w)) fsdp_buckets_take(w, p, in, &p->steps.items[a]);
      if (!is_step_done(w, p, in, now)) run_step(w, p, in, &p->steps.items[a]);
      break;
    case I_JOIN: act_join(w, (plan_stream)a, (plan_stream)b); break;
    case I_HOST_SYNC:
      host_sync(w, (b & SYNC_OF_PART) != 0 ? in->part_done : act_record(w, (plan_stream)a), b);
      break;
    case I_UNPACK:
      find_gathered(w, p, in, a);
      if (policy->entry_needed != NULL) policy->entry_needed(w->state, w, id, a);
      in->unpacked[a] = in->host_of[a] != NO_BUFFER || in->file_of[a] != NO_BUFFER;
      if (in->unpacked[a] && policy->unpack != NULL) policy->unpack(w->state, w, id, a);
      break;
    case I_DROP_UNPACKED:
      if (in->unpacked[a]) walk_drop(w, in, p->entry_places.items[a]);
      break;
    case I_GROUP_START:
      if (policy->group_start != NULL) policy->group_start(w->state, w, id, a);
      break;
    case I_ENTRY_READY:
      if (policy->entry_ready != NULL) policy->entry_ready(w->state, w, id, a);
      leave_gathered(w, p, in, a);
      break;
    case I_NODE_BACKWARD_END:
      if (policy->node_backward_end != NULL) policy->node_backward_end(w->state, w, id, a, b);
      break;
    case I_LAYER_BEGIN:
      fsdp_layer_begin(w, (int32_t)a, (layer_pass)b);
      fsdp_buckets_layer_begin(w, id % w->chunk_count, (layer_pass)b);
      megatron_fsdp_layer_begin(w, p, (int32_t)a);
      hook_layer_begin(w, id, (int32_t)a, (layer_pass)b);
      break;
    case I_LAYER_END:
      hook_layer_end(w, id, (int32_t)a, (layer_pass)b);
      fsdp_layer_end(w, (int32_t)a, (layer_pass)b);
      fsdp_buckets_layer_end(w, id % w->chunk_count, (int32_t)a, (layer_pass)b);
      megatron_fsdp_layer_end(w, p, (int32_t)a, (layer_pass)b);
      ddp_layer_end(w, id, (int32_t)a, (layer_pass)b);
      break;
    case I_GROUP_COMMIT:
      if (policy->group_commit != NULL) policy->group_commit(w->state, w, id, a);
      break;
    case I_GROUP_BACKWARD_COMMIT:
      if (policy->group_backward_commit != NULL) policy->group_backward_commit(w->state, w, id, a);
      break;
    case I_GROUP_BACKWARD_START:
      if (policy->group_backward_start != NULL) policy->group_backward_start(w->state, w, id, a);
      break;
    }
  }
}
