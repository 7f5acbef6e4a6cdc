#include "sim/compile/walk.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/combined.h"
#include "sim/compile/ddp.h"
#include "sim/compile/deferred.h"
#include "sim/compile/frames.h"
#include "sim/compile/fsdp.h"
#include "sim/compile/parameters.h"
#include "sim/compile/statics.h"

/* ---- ops and buffers --------------------------------------------------------------------------- */

plan_op *walk_emit(walk *w, op_kind kind, plan_stream stream, uint32_t arg)
{
  plan_op *made = ARRAY_PUSH(&w->rank->ops);
  *made = (plan_op){ .kind = (uint8_t)kind, .stream = (uint8_t)stream, .arg = arg };
  return made;
}

uint32_t walk_new_buffer(walk *w, plan_buffer description)
{
  *ARRAY_PUSH(&w->rank->buffers) = description;
  *ARRAY_PUSH(&w->references) = 1;
  return w->rank->buffers.count - 1;
}

uint32_t walk_resident(walk *w, plan_buffer description)
{
  assert(w->rank->residents == w->rank->buffers.count && "residents come before everything else");
  w->rank->residents++;
  return walk_new_buffer(w, description);
}

uint32_t walk_alloc(walk *w, int64_t bytes, uint32_t tensor, buffer_class class, plan_stream pool)
{
  uint32_t made = walk_new_buffer(w, (plan_buffer){ .bytes = bytes,
                                                    .tensor = tensor,
                                                    .mark = w->mark,
                                                    .class = (uint8_t)class,
                                                    .stream = (uint8_t)pool });
  walk_emit(w, OP_ALLOC, pool, made);
  return made;
}

void walk_free(walk *w, uint32_t buffer)
{
  uint32_t marks = (w->references.items[buffer] & ~(uint32_t)REFERENCE_EMPTIED) >>
                   REFERENCE_MARK_SHIFT;
  plan_stream pool = (plan_stream)w->rank->buffers.items[buffer].stream;
  walk_emit(w, OP_FREE, pool, buffer)->operands = marks & ~(UINT32_C(1) << pool);
}

void walk_drop_reference(walk *w, uint32_t buffer)
{
  uint32_t *references = &w->references.items[buffer];
  assert((*references & REFERENCE_COUNT) != 0);
  --*references;
  if ((*references & (REFERENCE_COUNT | REFERENCE_EMPTIED)) == 0)
    walk_free(w, buffer);
}

void walk_mark_stream(walk *w, uint32_t buffer, plan_stream stream)
{
  uint32_t bit = REFERENCE_MARK_SHIFT + (uint32_t)walk_stream(w, stream);
  w->references.items[buffer] |= UINT32_C(1) << bit;
}

/* ---- instances --------------------------------------------------------------------------------- */

instance *walk_instance(const walk *w, instance_id i)
{
  assert(w->instances[i] != NULL && "a chunk that is not in flight");
  return w->instances[i];
}

static instance *new_instance(walk *w, uint32_t chunk)
{
  const chunk_program *p = w->programs[chunk];
  instance *made = w->free_instances[chunk];
  if (made != NULL) {
    w->free_instances[chunk] = made->next_free;
    return made;
  }
  made = ARENA_NEW(w->memory, instance);
  made->buffer_of = ARENA_ARRAY(w->memory, uint32_t, p->places.count);
  made->host_of = ARENA_ARRAY(w->memory, uint32_t, p->entries.count);
  made->file_of = ARENA_ARRAY(w->memory, uint32_t, p->entries.count);
  made->unpacked = ARENA_ARRAY(w->memory, bool, p->entries.count);
  made->weight_of = w->weight_of[chunk];
  made->gradient_of = w->gradient_of[chunk];
  memset(made->buffer_of, 0xff, p->places.count * sizeof *made->buffer_of);
  memset(made->host_of, 0xff, p->entries.count * sizeof *made->host_of);
  memset(made->file_of, 0xff, p->entries.count * sizeof *made->file_of);
  return made;
}

static instance *open_instance(walk *w, instance_id i)
{
  if (w->instances[i] == NULL)
    w->instances[i] = new_instance(w, i % w->chunk_count);
  return w->instances[i];
}

static void drop_place(walk *w, instance *in, place_id p)
{
  if (in->buffer_of[p] != NO_BUFFER)
    walk_drop_reference(w, in->buffer_of[p]);
  in->buffer_of[p] = NO_BUFFER;
}

void walk_drop_place(walk *w, instance_id i, place_id p)
{
  if (p != 0)
    drop_place(w, walk_instance(w, i), p);
}

/* After its last send an instance holds nothing: its arrays serve another micro-batch. */
static void close_instance(walk *w, instance_id i)
{
  instance *in = walk_instance(w, i);
  in->next_free = w->free_instances[i % w->chunk_count];
  w->free_instances[i % w->chunk_count] = in;
  w->instances[i] = NULL;
}

static void alloc_place(walk *w, const chunk_program *p, instance *in, place_id id)
{
  const program_place *what = &p->places.items[id];
  in->buffer_of[id] = walk_alloc(w, what->bytes, what->tensor, (buffer_class)what->class,
                                 (plan_stream)what->stream);
}

/* ---- running a program ------------------------------------------------------------------------- */

uint32_t walk_operand(const instance *in, uint32_t operand)
{
  uint32_t buffer = operand & OPERAND_PARAMETER ? in->weight_of[operand & ~OPERAND_PARAMETER]
                    : operand & OPERAND_PARAMETER_GRADIENT
                        ? in->gradient_of[operand & ~OPERAND_PARAMETER_GRADIENT]
                        : in->buffer_of[operand];
  assert(buffer != NO_BUFFER && "an operand that is not on the device");
  return buffer;
}

static void emit_step(walk *w, const program_step *step, uint32_t first_operand)
{
  plan_op *made = walk_emit(w, (op_kind)step->op, (plan_stream)step->stream, step->call);
  made->reads = step->reads;
  made->writes = step->writes;
  made->operands = first_operand;
  made->site = step->site;
}

static void run_step(walk *w, const chunk_program *p, const instance *in, const program_step *step)
{
  uint32_t count = (uint32_t)step->reads + step->writes;
  uint32_t first = w->rank->operands.count;
  uint32_t *operands = ARRAY_EXTEND(&w->rank->operands, count);
  for (uint32_t i = 0; i < count; i++)
    operands[i] = walk_operand(in, p->operands.items[step->operands + i]);
  emit_step(w, step, first);
}

void walk_emit_step(walk *w, const program_step *step, const uint32_t *buffers)
{
  uint32_t count = (uint32_t)step->reads + step->writes;
  uint32_t first = w->rank->operands.count;
  memcpy(ARRAY_EXTEND(&w->rank->operands, count), buffers, count * sizeof *buffers);
  emit_step(w, step, first);
}

static void bind_place(walk *w, instance *in, place_id to, place_id from)
{
  in->buffer_of[to] = walk_operand(in, from);
  w->references.items[in->buffer_of[to]]++;
}

/* All places of an emptied storage get one new buffer. Those whose data is on the host do not. */
static void refill(walk *w, const chunk_program *p, instance *in, const program_refill *what)
{
  uint32_t old = in->buffer_of[what->handle];
  const program_place *place = &p->places.items[what->handle];
  uint32_t made = walk_alloc(w, place->bytes, place->tensor, (buffer_class)place->class,
                             (plan_stream)place->stream);
  w->references.items[made] = 0;
  for (uint32_t i = 0; i < what->count; i++) {
    place_id id = p->refill_places.items[what->first + i];
    if (in->buffer_of[id] != old)
      continue;
    in->buffer_of[id] = made;
    w->references.items[made]++;
    w->references.items[old]--;
  }
}

static void host_sync(walk *w, plan_stream stream)
{
  act_host_wait(w, act_record(w, stream));
}

/* The host waits for every stream. */
static void device_sync(walk *w)
{
  /* Copies last: they are to blame only for what is left when everything else is done. */
  static const plan_stream streams[] = { STREAM_COMPUTE,  STREAM_COMM, STREAM_PREVIOUS,
                                         STREAM_NEXT,     STREAM_D2H,  STREAM_H2D };
  for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++)
    host_sync(w, streams[i]);
  if (w->settings->parallel.overlap_moe_expert_parallel_comm) host_sync(w, STREAM_A2A);
}

/* The places of a chunk live in its instance; every instruction is described in program.h. */
void walk_run(walk *w, instance_id id, const instruction_array *code, uint32_t from, uint32_t to)
{
  const chunk_program *p = walk_program(w, id);
  instance *in = walk_instance(w, id);
  const offload_policy *policy = w->policy;
  for (uint32_t i = from; i < to; i++) {
    uint32_t a = code->items[i].a, b = code->items[i].b;
    switch ((instruction_kind)code->items[i].kind) {
    case I_ALLOC: alloc_place(w, p, in, a); break;
    case I_BIND: bind_place(w, in, a, b); break;
    case I_DROP: drop_place(w, in, a); break;
    case I_EMPTY: act_empty_storage(w, id, a, (plan_stream)b); break;
    case I_LEAVE: combined_leave(w, id, b, in->buffer_of[a]); break;
    case I_FORGET: combined_forward_of_layer(w, id, b); break;
    case I_MARK: walk_mark_stream(w, in->buffer_of[a], (plan_stream)b); break;
    case I_REFILL: refill(w, p, in, &p->refills.items[a]); break;
    case I_STEP: run_step(w, p, in, &p->steps.items[a]); break;
    case I_DEFERRED_STEP:
      if (!deferred_take(w, p, in, &p->steps.items[a]))
        run_step(w, p, in, &p->steps.items[a]);
      break;
    case I_ACCUMULATE:
      if (!parameters_adopt(w, p, in, &p->steps.items[a]))
        run_step(w, p, in, &p->steps.items[a]);
      break;
    case I_JOIN: act_join(w, (plan_stream)a, (plan_stream)b); break;
    case I_HOST_SYNC:
      if (b != 0)
        act_host_wait(w, in->part_done);
      else
        host_sync(w, (plan_stream)a);
      break;
    case I_UNPACK:
      in->unpacked[a] = in->host_of[a] != NO_BUFFER || in->file_of[a] != NO_BUFFER;
      if (in->unpacked[a] && policy->unpack != NULL)
        policy->unpack(w->state, w, id, a);
      break;
    case I_DROP_UNPACKED:
      if (in->unpacked[a])
        drop_place(w, in, p->entry_places.items[a]);
      break;
    case I_GROUP_START:
      if (policy->group_start != NULL)
        policy->group_start(w->state, w, id, a);
      break;
    case I_ENTRY_READY:
      if (policy->entry_ready != NULL)
        policy->entry_ready(w->state, w, id, a);
      break;
    case I_NODE_BACKWARD_END:
      if (policy->node_backward_end != NULL)
        policy->node_backward_end(w->state, w, id, a, b);
      break;
    case I_LAYER_BEGIN:
      fsdp_layer_begin(w, (int32_t)a, (layer_pass)b);
      if (policy->layer_begin != NULL)
        policy->layer_begin(w->state, w, id, (int32_t)a, (layer_pass)b);
      break;
    case I_LAYER_END:
      if (policy->layer_end != NULL)
        policy->layer_end(w->state, w, id, (int32_t)a, (layer_pass)b);
      fsdp_layer_end(w, (int32_t)a, (layer_pass)b);
      ddp_layer_end(w, id, (int32_t)a, (layer_pass)b);
      break;
    case I_GROUP_COMMIT:
      if (policy->group_commit != NULL)
        policy->group_commit(w->state, w, id, a);
      break;
    case I_GROUP_BACKWARD_COMMIT:
      if (policy->group_backward_commit != NULL)
        policy->group_backward_commit(w->state, w, id, a);
      break;
    case I_GROUP_BACKWARD_START:
      if (policy->group_backward_start != NULL)
        policy->group_backward_start(w->state, w, id, a);
      break;
    }
  }
}

/* ---- the schedule's steps ---------------------------------------------------------------------- */

void walk_begin_mark(walk *w, mark_kind kind, uint32_t microbatch, uint32_t chunk)
{
  *ARRAY_PUSH(&w->rank->marks) =
      (plan_mark){ .kind = (uint8_t)kind, .microbatch = microbatch, .chunk = chunk };
  w->mark = w->rank->marks.count - 1;
  walk_emit(w, OP_MARK, STREAM_HOST, w->mark);
}

void walk_mark(walk *w, mark_kind direction, instance_id i)
{
  const plan_mark *now = &w->rank->marks.items[w->mark];
  uint32_t microbatch = i / w->chunk_count, chunk = i % w->chunk_count;
  if (now->kind != direction || now->microbatch != microbatch || now->chunk != chunk)
    walk_begin_mark(w, direction, microbatch, chunk);
}

static bool is_in_parts(const walk *w, instance_id i)
{
  return walk_program(w, i)->forward_parts.count > 0;
}

static void begin_forward(walk *w, instance_id i)
{
  open_instance(w, i);
  walk_begin_mark(w, MARK_FORWARD, i / w->chunk_count, i % w->chunk_count);
  if (!w->forward_seen)
    statics_first_forward(w);
  w->forward_seen = true;
  if (w->policy->forward_begin != NULL)
    w->policy->forward_begin(w->state, w, i);
  fsdp_forward_begin(w);
}

static void run_forward(walk *w, instance_id i)
{
  const instruction_array *code = &walk_program(w, i)->forward;
  begin_forward(w, i);
  if (is_in_parts(w, i))
    combined_run(w, i, MARK_FORWARD);
  else
    walk_run(w, i, code, 0, code->count);
  frames_forward_done(w, i);
}

static void begin_backward(walk *w, instance_id i)
{
  walk_begin_mark(w, MARK_BACKWARD, i / w->chunk_count, i % w->chunk_count);
  if (!w->backward_seen)
    statics_first_backward(w);
  frames_backward_begins(w, i);
  w->backward_seen = true;
  fsdp_backward_begin(w);
}

static void end_backward(walk *w, instance_id i)
{
  fsdp_backward_end(w);
  ddp_backward_end(w, i);
  if (w->policy->backward_end != NULL)
    w->policy->backward_end(w->state, w, i);
  /* The trainers read each micro-batch's loss: transformers' Trainer asks whether it is a number
   * (logging_nan_inf_filter), verl logs it. */
  if (uses_hf(w->settings)) host_sync(w, STREAM_COMPUTE);
  frames_backward_done(w, i);
  deferred_backward_done(w, i);
  if (walk_program(w, i)->input_gradient == 0)
    close_instance(w, i);
}

static void run_backward(walk *w, instance_id i)
{
  const instruction_array *code = &walk_program(w, i)->backward;
  begin_backward(w, i);
  if (is_in_parts(w, i))
    combined_run(w, i, MARK_BACKWARD);
  else
    walk_run(w, i, code, 0, code->count);
  end_backward(w, i);
}

/* The forward counts as the last one from here on. */
static void open_pair_with_forward(walk *w, instance_id i)
{
  begin_forward(w, i);
  combined_begin_forward(w, i);
  frames_forward_done(w, i);
}

static void join_pair_with_backward(walk *w, instance_id i)
{
  begin_backward(w, i);
  combined_begin_backward(w, i);
}

static void finish_pair(walk *w)
{
  combined_finish(w);
  end_backward(w, w->back.instance);
}

/* Messages are numbered by boundary between virtual stages, micro-batch and direction, so that both
 * ranks find the same number without talking. */
static uint32_t message_of(const walk *w, const schedule_step *step)
{
  uint32_t microbatches = (uint32_t)w->settings->derived.num_microbatches;
  uint32_t stage = step->chunk * w->plan->rank_count + w->pp_rank;
  bool towards_next = step->kind == STEP_SEND_FORWARD || step->kind == STEP_RECV_BACKWARD;
  bool backward = step->kind == STEP_SEND_BACKWARD || step->kind == STEP_RECV_BACKWARD;
  uint32_t boundary = towards_next ? stage : stage - 1;
  return (boundary * microbatches + step->microbatch) * 2 + backward;
}

static place_id exchanged_place(const chunk_program *p, step_kind kind)
{
  switch (kind) {
  case STEP_SEND_FORWARD: return p->output;
  case STEP_RECV_FORWARD: return p->input;
  case STEP_SEND_BACKWARD: return p->input_gradient;
  case STEP_RECV_BACKWARD: return p->output_gradient;
  case STEP_FORWARD:
  case STEP_BACKWARD:
  case STEP_WAIT:
  case STEP_SYNCHRONIZE:
  case STEP_RELEASE_OUTPUT:
  case STEP_LAYERS:
  case STEP_FINISH: break;
  }
  assert(0 && "not an exchange");
  return 0;
}

static bool is_send(const schedule_step *step)
{
  return step->kind == STEP_SEND_FORWARD || step->kind == STEP_SEND_BACKWARD;
}

static bool is_exchange(const schedule_step *step)
{
  return is_send(step) || step->kind == STEP_RECV_FORWARD || step->kind == STEP_RECV_BACKWARD;
}

/* Without overlap all exchanges go through the pipeline group's communicator; overlapped ones have one
 * for each neighbour, and so a stream. */
static plan_stream exchange_stream(const walk *w, const schedule_step *step)
{
  if (!w->settings->parallel.overlap_p2p_comm)
    return STREAM_COMM;
  bool towards_next = step->kind == STEP_SEND_FORWARD || step->kind == STEP_RECV_BACKWARD;
  return towards_next ? STREAM_NEXT : STREAM_PREVIOUS;
}

static void emit_exchange(walk *w, const schedule_step *step)
{
  instance_id i = step->microbatch * w->chunk_count + step->chunk;
  const chunk_program *p = walk_program(w, i);
  place_id place = exchanged_place(p, (step_kind)step->kind);
  bool sends = is_send(step);
  uint32_t message = message_of(w, step);
  w->plan->messages.items[message].bytes = p->places.items[place].bytes;
  uint32_t first = w->rank->operands.count;
  *ARRAY_PUSH(&w->rank->operands) = walk_instance(w, i)->buffer_of[place];
  plan_op *made = walk_emit(w, sends ? OP_SEND : OP_RECV, exchange_stream(w, step), message);
  made->operands = first;
  made->reads = sends;
  made->writes = !sends;
}

static void alloc_received(walk *w, const schedule_step *step)
{
  instance_id i = step->microbatch * w->chunk_count + step->chunk;
  instance *in = open_instance(w, i);
  if (!is_send(step))
    alloc_place(w, walk_program(w, i), in,
                exchanged_place(walk_program(w, i), (step_kind)step->kind));
}

/* Megatron posts a pair's forward exchanges, and waits for its send, from the stream of the token
 * exchange. */
static plan_stream issuing_stream(const walk *w, const schedule_step *step)
{
  bool forward = step->kind == STEP_SEND_FORWARD || step->kind == STEP_RECV_FORWARD;
  return w->exchanges_of_pair && forward ? STREAM_A2A : STREAM_COMPUTE;
}

/* Posts the exchanges of one batch, from step `first` on; returns how many steps that are. */
static uint32_t post_batch(walk *w, uint32_t first)
{
  const schedule_step *steps = w->schedule.steps;
  uint32_t end = first;
  for (; end < w->schedule.count && is_exchange(&steps[end]) && steps[end].batch == steps[first].batch;
       end++)
    alloc_received(w, &steps[end]);
  plan_stream stream = exchange_stream(w, &steps[first]);
  act_join(w, stream, issuing_stream(w, &steps[first]));
  for (uint32_t k = first; k < end; k++) {
    assert(exchange_stream(w, &steps[k]) == stream && "one event tells that the batch is done");
    emit_exchange(w, &steps[k]);
  }
  event_id done = act_record(w, stream);
  for (uint32_t k = first; k < end; k++)
    w->posted[k] = done;
  return end - first;
}

/* After its send the input's gradient dies. */
static void wait_exchange(walk *w, uint32_t target)
{
  const schedule_step *step = &w->schedule.steps[target];
  act_wait(w, issuing_stream(w, step), w->posted[target]);
  if (step->kind != STEP_SEND_BACKWARD)
    return;
  instance_id i = step->microbatch * w->chunk_count + step->chunk;
  drop_place(w, walk_instance(w, i), walk_program(w, i)->input_gradient);
  close_instance(w, i);
}

/* Returns how many steps it has done. */
static uint32_t run_steps(walk *w, uint32_t index)
{
  const schedule_step *step = &w->schedule.steps[index];
  instance_id i = step->microbatch * w->chunk_count + step->chunk;
  switch ((step_kind)step->kind) {
  case STEP_FORWARD:
    if (step->paired)
      open_pair_with_forward(w, i);
    else
      run_forward(w, i);
    break;
  case STEP_BACKWARD:
    if (step->paired)
      join_pair_with_backward(w, i);
    else
      run_backward(w, i);
    break;
  case STEP_SEND_FORWARD:
  case STEP_RECV_FORWARD:
  case STEP_SEND_BACKWARD:
  case STEP_RECV_BACKWARD: return post_batch(w, index);
  case STEP_WAIT: wait_exchange(w, step->target); break;
  case STEP_SYNCHRONIZE: device_sync(w); break;
  case STEP_RELEASE_OUTPUT:
    drop_place(w, walk_instance(w, i), walk_program(w, i)->output);
    break;
  case STEP_LAYERS: combined_layers(w); break;
  case STEP_FINISH: finish_pair(w); break;
  }
  return 1;
}

void walk_rank(walk *w)
{
  statics_begin(w);
  for (uint32_t i = 0; i < w->schedule.count;)
    i += run_steps(w, i);
  deferred_drain(w);
  frames_end(w);
  statics_finish(w);
  if (w->iteration == ITERATION_WARMUP && w->policy->lasting_memory != NULL)
    w->policy->lasting_memory(w->state, w);
}
