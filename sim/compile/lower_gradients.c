#include "sim/compile/lower.h"

#include <assert.h>

#include "sim/compile/parts.h"
#include "sim/residents/fsdp_buffers.h"

static void add(emitter *e, uint32_t a, uint32_t b, uint32_t sum)
{
  assert(a != 0 && b != 0 && sum != 0);
  emit_kernel(e, (kernel_shape){ .kind = KERNEL_ADD, .type = DTYPE_BF16 },
              (ref[]){ lower_ref(e, a), lower_ref(e, b), 0 }, (ref[]){ lower_ref(e, sum), 0 });
}

static void add_in_place(emitter *e, uint32_t sum, place_id more)
{
  assert(sum != more && "else the sum would count it twice");
  add(e, sum, more, sum);
}

/* The sum of a gradient that is a slice of a buffer is not a slice. */
static place_id place_of_sum(emitter *e, place_id a, tensor_id tensor)
{
  program_place of = e->program->places.items[a];
  assert(of.view < e->plan->views.count);
  plan_view view = e->plan->views.items[of.view];
  if (view.whole) return lower_place(e, of.bytes, of.tensor, CLASS_TRANSIENT);
  return lower_place(e, view_elements(&view) * dtype_bytes((dtype)view.dtype),
                     lower_tensor_row(e, tensor), CLASS_TRANSIENT);
}

/* The sum in a new tensor. */
static place_id add_apart(emitter *e, place_id a, place_id b, tensor_id tensor)
{
  assert(a != b && lower_is_alive(e, a) && lower_is_alive(e, b));
  place_id sum = place_of_sum(e, a, tensor);
  lower_instruction(e, I_ALLOC, sum, 0);
  add(e, a, b, sum);
  lower_drop(e, a);
  return sum;
}

/* A gradient from a view's backward is a view itself. Its base refers to the storage too, so
 * autograd does not add to it in place (input_buffer.cpp: can_accumulate_inplace). Gradients of the
 * same view are added before that. Megatron-LM's autograd functions make their views inside, where
 * autograd does not see them. */
static bool is_held_by_base(const emitter *e, place_id sum, place_id more)
{
  assert(sum < e->program->places.count && more < e->program->places.count);
  tensor_id through = e->program->places.items[sum].through;
  return uses_hf(e->settings) && through != 0 && through != e->program->places.items[more].through;
}

/* torch.utils.checkpoint's backward keeps a reference to the gradient that it receives. */
static bool is_held_by_checkpoint(const emitter *e, place_id sum)
{
  return e->held_gradient != 0 && lower_root(e, sum) == lower_root(e, e->held_gradient);
}

static bool is_held(const emitter *e, place_id sum, place_id more)
{
  assert(lower_is_alive(e, sum) && lower_is_alive(e, more));
  return parts_hold(e, sum) || is_held_by_checkpoint(e, sum) || is_held_by_base(e, sum, more);
}

void lower_deliver_gradients(emitter *e)
{
  for (uint32_t i = 0; i < e->gradients.count; i++) {
    pending_gradient made = e->gradients.items[i];
    assert(made.place != 0 && lower_gradient_key(e->graph, made.tensor) == made.tensor);
    place_id *collected = &e->gradient[made.tensor];
    if (*collected == 0) {
      *collected = made.place;
      continue;
    }
    if (is_held(e, *collected, made.place))
      *collected = add_apart(e, *collected, made.place, made.tensor);
    else
      add_in_place(e, *collected, made.place);
    lower_drop(e, made.place);
  }
  e->gradients.count = 0;
}

/* Megatron-LM's buffers are in fp32. With fusion only vectors come here. */
static void add_to_total(emitter *e, uint32_t total, place_id made)
{
  assert(total & OPERAND_PARAMETER_GRADIENT);
  dtype type = gradient_type_of(e->settings);
  int64_t made_bytes = emit_bytes(e, lower_ref(e, made));
  int64_t elements = made_bytes / dtype_bytes(DTYPE_BF16);
  if (fsdp_collects_gradients(e->settings)) {
    emit_kernel(e,
                (kernel_shape){ .kind = KERNEL_COPY,
                                .type = DTYPE_BF16,
                                .dims = { elements },
                                .bytes = made_bytes + elements * dtype_bytes(type) },
                (ref[]){ lower_ref(e, made), 0 }, (ref[]){ lower_ref(e, total), 0 });
    return;
  }
  if (uses_hf(e->settings) || e->settings->training.gradient_accumulation_fusion ||
      type != DTYPE_FP32) {
    add_in_place(e, total, made);
    return;
  }
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_ADD_MIXED,
                              .type = DTYPE_BF16,
                              .dims = { elements },
                              .bytes = made_bytes + 2 * elements * dtype_bytes(type) },
              (ref[]){ lower_ref(e, total), lower_ref(e, made), 0 },
              (ref[]){ lower_ref(e, total), 0 });
}

/* Without fusion the accumulator's hook adds each weight gradient to the gradient buffer and frees
 * it. */
static void accumulate(emitter *e, plan_stream stream)
{
  assert(stream < STREAM_HOST);
  for (uint32_t i = 0; i < e->parameter_gradients.count; i++) {
    pending_gradient made = e->parameter_gradients.items[i];
    uint32_t total = OPERAND_PARAMETER_GRADIENT | lower_parameter(e, made.tensor);
    assert(made.place != 0 && e->graph->tensors.items[made.tensor].requires_grad);
    if (stream != e->stream) lower_instruction(e, I_JOIN, stream, (uint32_t)e->stream);
    add_to_total(e, total, made.place);
    instruction *last = &e->out->items[e->out->count - 1];
    assert(last->kind == I_STEP);
    last->kind = I_ACCUMULATE;
    e->program->steps.items[last->a].stream = (uint8_t)stream;
    if (stream != e->stream) {
      lower_instruction(e, I_MARK, made.place, stream);
      e->accumulates = true;
    }
    lower_drop(e, made.place);
  }
  e->parameter_gradients.count = 0;
}

void lower_accumulate_at_once(emitter *e)
{
  accumulate(e, e->stream);
}

/*
 * An accumulator runs on the stream on which it was made. Megatron-LM builds its
 * DistributedDataParallel, which makes them, on a stream of its own (training.py: ddp_stream). The
 * engine marks each gradient that goes from one stream to the other (input_buffer.cpp,
 * record_stream_any_impl).
 *
 * Products with fusion write the gradient buffer on the current stream, beside the accumulators of
 * norms and embedding, into other slices. A buffer of a plan has no slices that are ordered apart,
 * so these few sums are assumed to be on the current stream too.
 */
void lower_accumulate(emitter *e)
{
  const settings *s = e->settings;
  bool own_stream =
      !uses_hf(s) && !s->parallel.use_megatron_fsdp && !s->training.gradient_accumulation_fusion;
  assert(e->out == &e->program->backward);
  accumulate(e, own_stream ? STREAM_ACCUMULATE : e->stream);
}

void lower_join_accumulators(emitter *e)
{
  assert(!e->accumulates || e->stream != STREAM_ACCUMULATE);
  if (e->accumulates) lower_instruction(e, I_JOIN, (uint32_t)e->stream, STREAM_ACCUMULATE);
  e->accumulates = false;
}

void lower_consume_gradients(emitter *e, const graph_node *n)
{
  assert(n->kind != NULL);
  for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++) {
    place_id *p = &e->gradient[lower_gradient_key(e->graph, n->outputs[i])];
    lower_drop(e, *p);
    *p = 0;
  }
}

bool lower_any_gradient(const emitter *e, const graph_node *n)
{
  assert(n->kind != NULL);
  for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    if (e->gradient[lower_gradient_key(e->graph, n->outputs[i])] != 0) return true;
  return false;
}
