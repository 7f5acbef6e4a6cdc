#include "sim/model/emitter.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/collectives.h"
#include "sim/compile/lower.h"
#include "sim/compile/parts.h"

const settings *emit_settings(const emitter *e)
{
  return e->settings;
}

ref emit_parameter(emitter *e, tensor_id parameter)
{
  assert(e->graph->tensors.items[parameter].parameter);
  return OPERAND_PARAMETER | lower_parameter(e, parameter);
}

ref emit_input(emitter *e, tensor_id t)
{
  tensor_id storage = tensor_storage(e->graph, t);
  if (e->graph->tensors.items[storage].parameter)
    return emit_parameter(e, storage);
  place_id p = e->where[storage];
  assert(p != 0 && "an operator reads a tensor that nothing has produced");
  return p;
}

/* The output of a recomputed DISCARD region goes into the storage that was emptied. */
static place_id refill(emitter *e, tensor_id storage)
{
  chunk_program *p = e->program;
  place_id handle = e->where[storage];
  uint32_t first = p->refill_places.count;
  *ARRAY_PUSH(&p->refill_places) = handle;
  for (uint32_t i = 1; i < p->entries.count; i++)
    if (p->entries.items[i].slot == handle)
      *ARRAY_PUSH(&p->refill_places) = p->entry_places.items[i];
  *ARRAY_PUSH(&p->refills) =
      (program_refill){ handle, first, p->refill_places.count - first };
  lower_instruction(e, I_REFILL, p->refills.count - 1, 0);
  return handle;
}

static bool region_empties(const graph *g, region_id region, tensor_id storage)
{
  const tensor_id *outputs = g->regions.items[region].outputs;
  for (int i = 0; i < REGION_OUTPUTS && outputs[i] != 0; i++)
    if (tensor_storage(g, outputs[i]) == storage)
      return true;
  return false;
}

ref emit_output(emitter *e, tensor_id t)
{
  const graph *g = e->graph;
  tensor_id storage = tensor_storage(g, t);
  if (storage != t) {
    assert(e->where[storage] != 0 && "a view of something that does not exist");
    return e->where[storage];
  }
  if (e->refilling != 0 && region_empties(g, e->refilling, storage))
    return refill(e, storage);
  place_id p = lower_place(e, tensor_bytes(g, t), lower_tensor_row(e, t), CLASS_TRANSIENT);
  lower_instruction(e, I_ALLOC, p, 0);
  e->where[storage] = p;
  return p;
}

static uint32_t temporary_row(emitter *e, const char *name, dtype type, const int64_t shape[4])
{
  plan_tensor row = { .name = name, .dtype = (uint8_t)type };
  row.site = lower_site_row(e, e->node->site);
  for (int i = 0; i < 4 && shape[i] != 0; i++) {
    row.shape[i] = shape[i];
    row.rank++;
  }
  *ARRAY_PUSH(&e->plan->tensors) = row;
  return e->plan->tensors.count - 1;
}

ref emit_temporary(emitter *e, const char *name, dtype type, int64_t d0, int64_t d1, int64_t d2,
                   int64_t d3, buffer_class class)
{
  int64_t shape[4] = { d0, d1, d2, d3 };
  int64_t bytes = dtype_bytes(type);
  for (int i = 0; i < 4 && shape[i] != 0; i++)
    bytes *= shape[i];
  place_id p = lower_place(e, bytes, temporary_row(e, name, type, shape), class);
  lower_instruction(e, I_ALLOC, p, 0);
  *ARRAY_PUSH(&e->temporaries) = p;
  return p;
}

void emit_drop(emitter *e, ref r)
{
  lower_drop(e, r);
}

ref emit_grad_of(emitter *e, tensor_id output)
{
  return e->gradient[lower_gradient_key(e->graph, output)];
}

static place_id saved_place(const emitter *e, uint32_t i)
{
  return e->program->entry_places.items[e->node_first_entry + i];
}

ref emit_saved(emitter *e, uint32_t i)
{
  assert(i < NODE_SAVED && e->node->saved[i] != 0);
  place_id saved = saved_place(e, i);
  return saved != 0 ? saved : emit_parameter(e, tensor_storage(e->graph, e->node->saved[i]));
}

void emit_drop_saved(emitter *e, uint32_t i)
{
  lower_drop(e, saved_place(e, i));
}

static ref add_gradient(emitter *e, tensor_id input, place_id p)
{
  tensor_id key = lower_gradient_key(e->graph, input);
  *ARRAY_PUSH(&e->gradients) = (pending_gradient){ key, p };
  e->program->places.items[p].through = input == key ? 0 : input;
  return p;
}

ref emit_grad_for(emitter *e, tensor_id input)
{
  if (!e->graph->tensors.items[input].requires_grad)
    return 0;
  assert(!e->graph->tensors.items[input].parameter);
  place_id p = lower_place(e, tensor_bytes(e->graph, input), lower_tensor_row(e, input),
                           CLASS_TRANSIENT);
  lower_instruction(e, I_ALLOC, p, 0);
  return add_gradient(e, input, p);
}

void emit_grad_is(emitter *e, tensor_id input, ref r)
{
  if (!e->graph->tensors.items[input].requires_grad || r == 0)
    return;
  add_gradient(e, input, lower_refer(e, r));
}

void emit_parameter_grad_is(emitter *e, tensor_id parameter, ref r)
{
  if (e->graph->tensors.items[parameter].requires_grad)
    *ARRAY_PUSH(&e->parameter_gradients) = (pending_gradient){ parameter, lower_refer(e, r) };
}

ref emit_parameter_grad(emitter *e, tensor_id parameter, bool fused_with_gemm)
{
  const graph_tensor *t = &e->graph->tensors.items[parameter];
  assert(t->parameter);
  if (!t->requires_grad)
    return 0;
  if (fused_with_gemm && e->settings->training.gradient_accumulation_fusion)
    return OPERAND_PARAMETER_GRADIENT | lower_parameter(e, parameter);
  place_id p = lower_place(e, tensor_bytes(e->graph, parameter), lower_tensor_row(e, parameter),
                           CLASS_TRANSIENT);
  lower_instruction(e, I_ALLOC, p, 0);
  *ARRAY_PUSH(&e->parameter_gradients) = (pending_gradient){ parameter, p };
  return p;
}

static int64_t operand_bytes(const emitter *e, ref r)
{
  const uint32_t flags = OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT;
  return r & flags ? e->program->parameters.items[r & ~flags].bytes
                   : e->program->places.items[r].bytes;
}

static uint8_t add_operands(emitter *e, const ref *list, int64_t *bytes)
{
  uint32_t count = 0;
  for (; list != NULL && list[count] != 0; count++) {
    assert(lower_is_alive(e, list[count]) && "an operator uses a tensor that is gone");
    *ARRAY_PUSH(&e->program->operands) = list[count];
    *bytes += operand_bytes(e, list[count]);
  }
  assert(count <= UINT8_MAX);
  return (uint8_t)count;
}

/* What operators know as compute is the stream that they run on. */
static plan_stream own_stream(const emitter *e, plan_stream stream)
{
  return stream == STREAM_COMPUTE ? e->stream : stream;
}

static void add_step(emitter *e, op_kind kind, plan_stream stream, plan_call *call, const ref *reads,
                     const ref *writes)
{
  program_step step = { .op = (uint8_t)kind, .stream = (uint8_t)own_stream(e, stream) };
  step.operands = e->program->operands.count;
  int64_t bytes = 0;
  step.reads = add_operands(e, reads, &bytes);
  step.writes = add_operands(e, writes, &bytes);
  if (call->bytes == 0)
    call->bytes = bytes;
  step.call = plan_call_row(e->plan, call);
  step.site = lower_site_row(e, e->node->site);
  *ARRAY_PUSH(&e->program->steps) = step;
  lower_instruction(e, I_STEP, e->program->steps.count - 1, 0);
}

void emit_kernel(emitter *e, kernel_shape shape, const ref *reads, const ref *writes)
{
  plan_call call;
  memset(&call, 0, sizeof call); /* compared as bytes */
  call.kind = (uint8_t)shape.kind;
  call.dtype = (uint8_t)shape.type;
  call.bytes = shape.bytes;
  memcpy(call.dims, shape.dims, sizeof call.dims);
  add_step(e, OP_KERNEL, STREAM_COMPUTE, &call, reads, writes);
}

void emit_gemm(emitter *e, dtype type, int64_t m, int64_t n, int64_t k, int64_t batch, const ref *reads,
               ref write)
{
  emit_kernel(e, (kernel_shape){ KERNEL_GEMM, type, { m, n, k, batch }, 0 }, reads,
              (ref[]){ write, 0 });
}

void emit_weight_gradient(emitter *e, kernel_shape shape, const ref *reads, tensor_id weight)
{
  if (!e->graph->tensors.items[weight].requires_grad || parts_delay(e, &shape, reads, weight))
    return;
  emit_kernel(e, shape, reads, (ref[]){ emit_parameter_grad(e, weight, true), 0 });
}

void emit_deferred_gemm(emitter *e, dtype type, int64_t m, int64_t n, int64_t k, int64_t batch,
                        const ref *reads, ref write)
{
  emit_gemm(e, type, m, n, k, batch, reads, write);
  e->out->items[e->out->count - 1].kind = I_DEFERRED_STEP;
}

void emit_collective(emitter *e, plan_stream stream, collective_kind kind, comm_group group,
                     int64_t bytes, const ref *reads, const ref *writes)
{
  plan_call call = collective_call(e->settings, kind, group, bytes);
  add_step(e, OP_COLLECTIVE, stream, &call, reads, writes);
}

void emit_join(emitter *e, plan_stream waiting, plan_stream waited_for)
{
  lower_instruction(e, I_JOIN, (uint32_t)own_stream(e, waiting),
                    (uint32_t)own_stream(e, waited_for));
}

void emit_host_sync(emitter *e)
{
  lower_instruction(e, I_HOST_SYNC, (uint32_t)e->stream, parts_know_counts(e));
}
