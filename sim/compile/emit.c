#include "sim/graph/emitter.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/compile/collectives.h"
#include "sim/compile/kernel_calls.h"
#include "sim/compile/lower.h"
#include "sim/compile/parts.h"

const settings *emit_settings(const emitter *e)
{
  return e->settings;
}

place_id lower_refill(emitter *e, tensor_id storage)
{
  chunk_program *p = e->program;
  place_id handle = e->where[storage];
  assert(handle != 0 && "the storage was emptied, not dropped");
  uint32_t first = p->refill_places.count;
  *ARRAY_PUSH(&p->refill_places) = handle;
  for (uint32_t i = 1; i < p->entries.count; i++)
    if (p->entries.items[i].slot == handle)
      *ARRAY_PUSH(&p->refill_places) = p->entry_places.items[i];
  *ARRAY_PUSH(&p->refills) = (program_refill){ handle, first, p->refill_places.count - first };
  lower_instruction(e, I_REFILL, p->refills.count - 1, 0);
  return handle;
}

static bool region_empties(const graph *g, region_id region, tensor_id storage)
{
  assert(region > 0 && region < g->regions.count);
  const tensor_id *outputs = g->regions.items[region].outputs;
  for (int i = 0; i < REGION_OUTPUTS && outputs[i] != 0; i++)
    if (tensor_storage(g, outputs[i]) == storage) return true;
  return false;
}

static place_id output_place(emitter *e, tensor_id t)
{
  const graph *g = e->graph;
  tensor_id storage = tensor_storage(g, t);
  if (storage != t) {
    assert(e->where[storage] != 0 && "the viewed place exists");
    return e->where[storage];
  }
  if (e->refilling != 0 && region_empties(g, e->refilling, storage))
    return lower_refill(e, storage);
  place_id p = lower_place(e, tensor_bytes(g, t), lower_tensor_row(e, t), CLASS_TRANSIENT);
  lower_alloc(e, p);
  e->where[storage] = p;
  return p;
}

ref emit_output(emitter *e, tensor_id t)
{
  assert(t > 0 && t < e->graph->tensors.count);
  return lower_output_ref(e, output_place(e, t), t);
}

static uint32_t temporary_row(emitter *e, const char *name, dtype type, const int64_t shape[4])
{
  assert(type < DTYPES && e->node != NULL);
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
  assert(bytes > 0);
  place_id p = lower_place(e, bytes, temporary_row(e, name, type, shape), class);
  lower_alloc(e, p);
  *ARRAY_PUSH(&e->temporaries) = p;
  return lower_ref(e, p);
}

void emit_drop(emitter *e, ref r)
{
  assert(r < e->refs.count);
  lower_drop(e, lower_operand(e, r));
}

void emit_attribute(emitter *e, ref r, uint32_t number)
{
  assert(r != 0 && r < e->refs.count);
  lower_instruction(e, I_ATTRIBUTE, lower_operand(e, r), number);
}

static int64_t operand_bytes(const emitter *e, uint32_t operand)
{
  const uint32_t flags = OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT;
  assert((operand & ~flags) <
         (operand & flags ? e->program->parameters.count : e->program->places.count));
  return operand & flags ? e->program->parameters.items[operand & ~flags].bytes
                         : e->program->places.items[operand].bytes;
}

/* A kernel that sees a part of a buffer touches no more of it. Elements that a view repeats count as often as
 * it has them, up to the size of the buffer. */
static int64_t seen_bytes(const emitter *e, const emitted_ref *r)
{
  int64_t all_bytes = operand_bytes(e, r->operand);
  if (r->view.whole) return all_bytes;
  return min_i64(all_bytes, bytes_of_view(&r->view));
}

int64_t emit_bytes(const emitter *e, ref r)
{
  assert(r != 0 && r < e->refs.count);
  return seen_bytes(e, &e->refs.items[r]);
}

/* Operands of a step under construction. */
enum { STEP_OPERANDS = 64 };
typedef struct step_views {
  plan_view view[STEP_OPERANDS], alone[STEP_OPERANDS];
  uint32_t count;
  bool differ; /* an operand that autograd may get back as a separate copy */
  int64_t bytes;
} step_views;

static bool is_saved(const emitter *e, uint32_t operand)
{
  const uint32_t flags = OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT;
  assert((operand & flags) || operand < e->program->places.count);
  return !(operand & flags) && e->program->places.items[operand].entry != 0;
}

static void add_operand(emitter *e, const emitted_ref *r, step_views *views)
{
  assert(lower_is_alive(e, r->operand) && "the operator's tensor is alive");
  assert(views->count < STEP_OPERANDS);
  *ARRAY_PUSH(&e->program->operands) = r->operand;
  views->view[views->count] = r->view;
  views->alone[views->count++] = r->alone;
  views->differ |= is_saved(e, r->operand) && memcmp(&r->view, &r->alone, sizeof r->view) != 0;
  views->bytes += seen_bytes(e, r);
}

/* Parameters that the operator sees as one are consecutive. */
static uint32_t parts_of(const emitter *e, uint32_t operand)
{
  assert(!(operand & OPERAND_PARAMETER) ||
         (operand & ~OPERAND_PARAMETER) < e->program->parameters.count);
  return operand & OPERAND_PARAMETER
             ? e->program->parameters.items[operand & ~OPERAND_PARAMETER].parts
             : 0;
}

static uint8_t add_operands(emitter *e, const ref *list, step_views *views)
{
  uint32_t first = views->count;
  for (; list != NULL && *list != 0; list++) {
    emitted_ref r = e->refs.items[*list];
    add_operand(e, &r, views);
    for (uint32_t i = parts_of(e, r.operand); i > 0; i--) {
      r.operand++;
      add_operand(e, &r, views);
    }
  }
  assert(views->count - first <= UINT8_MAX);
  return (uint8_t)(views->count - first);
}

static uint32_t list_views(emitter *e, const step_views *v)
{
  view_array *list = &e->program->step_views;
  if (!v->differ) return 0;
  if (list->count == 0) *ARRAY_PUSH(list) = (plan_view){ 0 };
  uint32_t first = list->count;
  assert(first > 0 && "0: the call's views fit both");
  for (uint32_t i = 0; i < v->count; i++) {
    *ARRAY_PUSH(list) = v->view[i];
    *ARRAY_PUSH(list) = v->alone[i];
  }
  return first;
}

/* An operator's STREAM_COMPUTE is the stream that its part runs on. */
static plan_stream own_stream(const emitter *e, plan_stream stream)
{
  assert(stream < STREAM_HOST && e->stream < STREAM_HOST);
  return stream == STREAM_COMPUTE ? e->stream : stream;
}

static void push_step(emitter *e, op_kind kind, plan_stream stream, plan_call *call,
                      const ref *reads, const ref *writes)
{
  program_step step = { .op = (uint8_t)kind, .stream = (uint8_t)own_stream(e, stream) };
  step.operands = e->program->operands.count;
  step_views views; /* too large to clear for every step */
  views.count = 0;
  views.differ = false;
  views.bytes = 0;
  step.reads = add_operands(e, reads, &views);
  step.writes = add_operands(e, writes, &views);
  if (call->bytes == 0) call->bytes = views.bytes;
  plan_call_views(e->plan, call, views.view, views.count);
  step.call = plan_call_row(e->plan, call);
  step.views = list_views(e, &views);
  step.site = lower_site_row(e, e->node->site);
  assert(step.operands + step.reads + step.writes == e->program->operands.count);
  *ARRAY_PUSH(&e->program->steps) = step;
  lower_instruction(e, I_STEP, e->program->steps.count - 1, 0);
}

/* One expert's weight to a part of `to`. */
static void weight_in(emitter *e, plan_stream stream, uint32_t parameter, const emitted_ref *to,
                      int64_t offset, int64_t elements)
{
  plan_view part = { .dtype = to->view.dtype,
                     .rank = 1,
                     .offset = to->view.offset + offset,
                     .shape = { elements },
                     .strides = { 1 } };
  program_step step = { .op = OP_H2D,
                        .stream = (uint8_t)stream,
                        .reads = 1,
                        .writes = 1,
                        .operands = e->program->operands.count,
                        .site = lower_site_row(e, e->node->site) };
  assert(!to->view.whole && stream < STREAM_HOST);
  *ARRAY_PUSH(&e->program->operands) = OPERAND_PARAMETER | parameter;
  *ARRAY_PUSH(&e->program->operands) = to->operand;
  step.call = plan_copy_views(e->plan, &e->program->parameters.items[parameter].weight, &part);
  *ARRAY_PUSH(&e->program->steps) = step;
  lower_instruction(e, I_STEP, e->program->steps.count - 1, 0);
}

void emit_weights_in(emitter *e, plan_stream stream, tensor_id weight, int64_t first, int64_t count,
                     ref to)
{
  int64_t experts =
      e->settings->model.num_experts / e->settings->parallel.expert_model_parallel_size;
  int64_t elements = tensor_elements(e->graph, weight) / experts;
  uint32_t row = lower_expert_weights(e, weight, experts) + (uint32_t)first;
  emitted_ref target = e->refs.items[to];
  assert(first >= 0 && first + count <= experts && to != 0);
  for (int64_t i = 0; i < count; i++)
    weight_in(e, stream, row + (uint32_t)i, &target, i * elements, elements);
}

/* `operand` is no longer as it was allocated; whether it was until now. */
static bool was_fresh(emitter *e, uint32_t operand)
{
  if (operand & (OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT)) return false;
  program_place *place = &e->program->places.items[lower_root(e, operand)];
  bool fresh = place->fresh != 0;
  place->fresh = 0;
  return fresh;
}

static void fill(emitter *e, plan_stream stream, uint32_t operand)
{
  const program_place *place = &e->program->places.items[operand];
  dtype type = (dtype)e->plan->tensors.items[place->tensor].dtype;
  plan_call call = kernel_call(KERNEL_FILL_EMPTY, type, 0);
  call.dims[0] = place->bytes / dtype_bytes(type);
  *ARRAY_PUSH(&e->refs) = (emitted_ref){ operand, { .whole = 1 }, { .whole = 1 } };
  push_step(e, OP_KERNEL, stream, &call, NULL, (ref[]){ e->refs.count - 1, 0 });
}

static void add_step(emitter *e, op_kind kind, plan_stream stream, plan_call *call,
                     const ref *reads, const ref *writes)
{
  bool fills = lower_fills(e, kind, call);
  for (const ref *r = reads; r != NULL && *r != 0; r++)
    (void)was_fresh(e, lower_operand(e, *r));
  for (const ref *w = writes; w != NULL && *w != 0; w++)
    if (was_fresh(e, lower_operand(e, *w)) && fills) fill(e, stream, lower_operand(e, *w));
  push_step(e, kind, stream, call, reads, writes);
}

/* A product that writes a gradient buffer adds to the sum of earlier micro-batches. */
static bool accumulates(const emitter *e, kernel_kind kind, const ref *writes)
{
  assert(kind < KERNEL_KINDS);
  bool product = kind == KERNEL_GEMM || kind == KERNEL_GROUPED_GEMM;
  return product && lower_operand(e, writes[0]) & OPERAND_PARAMETER_GRADIENT;
}

static int64_t counted_bytes(const emitter *e, const ref *reads, const ref *writes,
                             uint32_t uncounted)
{
  int64_t bytes = 0;
  uint32_t count = 0;
  while (reads[count] != 0)
    count++;
  assert(uncounted <= count);
  for (uint32_t i = 0; i + uncounted < count; i++)
    bytes += emit_bytes(e, reads[i]);
  for (uint32_t i = 0; writes[i] != 0; i++)
    bytes += emit_bytes(e, writes[i]);
  return bytes;
}

void emit_kernel(emitter *e, kernel_shape shape, const ref *reads, const ref *writes)
{
  assert(shape.kind < KERNEL_KINDS && shape.type < DTYPES && shape.bytes >= 0);
  plan_call call = kernel_call(shape.kind, shape.type,
                               shape.bytes == 0 && shape.uncounted > 0
                                   ? counted_bytes(e, reads, writes, shape.uncounted)
                                   : shape.bytes);
  memcpy(call.dims, shape.dims, sizeof call.dims);
  memcpy(call.scalars, shape.scalars, sizeof call.scalars);
  if (accumulates(e, shape.kind, writes)) call.scalars[GEMM_ADD] = 1;
  add_step(e, OP_KERNEL, STREAM_COMPUTE, &call, reads, writes);
}

void emit_gemm(emitter *e, dtype type, int64_t m, int64_t n, int64_t k, int64_t batch,
               gemm_layout layout, const ref *reads, ref write)
{
  assert(m >= 0 && n >= 0 && k >= 0 && batch >= 0 && type < DTYPES);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_GEMM,
                              .type = type,
                              .dims = { m, n, k, batch },
                              .scalars = { [GEMM_LAYOUT] = layout } },
              reads, (ref[]){ write, 0 });
}

void emit_weight_gradient(emitter *e, kernel_shape shape, const ref *reads, tensor_id weight)
{
  assert(e->graph->tensors.items[weight].parameter);
  if (!e->graph->tensors.items[weight].requires_grad || parts_delay(e, &shape, reads, weight))
    return;
  emit_kernel(e, shape, reads, (ref[]){ emit_parameter_grad(e, weight, true), 0 });
}

void emit_deferred_gemm(emitter *e, dtype type, int64_t m, int64_t n, int64_t k, int64_t batch,
                        gemm_layout layout, const ref *reads, ref write)
{
  emit_gemm(e, type, m, n, k, batch, layout, reads, write);
  emit_defer(e);
}

void emit_defer(emitter *e)
{
  assert(e->out == &e->program->backward && "only backward's products wait");
  assert(e->out->count > 0);
  instruction *last = &e->out->items[e->out->count - 1];
  assert(last->kind == I_STEP);
  last->kind = I_DEFERRED_STEP;
}

void emit_collective(emitter *e, plan_stream stream, collective_kind kind, comm_group group,
                     int64_t bytes, const ref *reads, const ref *writes)
{
  assert(bytes >= 0 && group < COMM_GROUPS);
  plan_call call = collective_call(e->settings, kind, group, bytes);
  add_step(e, OP_COLLECTIVE, stream, &call, reads, writes);
}

void emit_token_exchange(emitter *e, comm_group group, int64_t bytes, int64_t once,
                         const ref *reads, const ref *writes)
{
  assert(bytes >= 0 && once > 0 && group < COMM_GROUPS);
  plan_call call = collective_call(e->settings, COLLECTIVE_ALL_TO_ALL, group, bytes);
  call.dims[COLLECTIVE_DETAIL] = once;
  add_step(e, OP_COLLECTIVE, STREAM_COMPUTE, &call, reads, writes);
}

void emit_shift(emitter *e, plan_stream stream, comm_group group, int64_t by, int64_t bytes,
                const ref *reads, const ref *writes)
{
  assert(bytes > 0 && group < COMM_GROUPS);
  plan_call call = collective_call(e->settings, COLLECTIVE_SHIFT, group, bytes);
  assert(by > 0 && by < call.group_size);
  call.dims[COLLECTIVE_DETAIL] = by;
  add_step(e, OP_COLLECTIVE, stream, &call, reads, writes);
}

void emit_join(emitter *e, plan_stream waiting, plan_stream waited_for)
{
  assert(waiting < STREAM_HOST && waited_for < STREAM_HOST && waiting != waited_for);
  lower_instruction(e, I_JOIN, (uint32_t)own_stream(e, waiting),
                    (uint32_t)own_stream(e, waited_for));
}

static void host_sync(emitter *e, uint32_t flags)
{
  assert((flags & ~(uint32_t)SYNC_READS) == 0);
  uint32_t of_part = parts_know_counts(e) ? SYNC_OF_PART : 0;
  lower_instruction(e, I_HOST_SYNC, (uint32_t)e->stream, flags | of_part);
}

void emit_host_wait(emitter *e)
{
  host_sync(e, 0);
}

void emit_host_read(emitter *e)
{
  host_sync(e, SYNC_READS);
}
