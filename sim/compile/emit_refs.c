/* What operators refer to: a place or a parameter, and what a kernel sees of its buffer (plan_view). */
#include <assert.h>
#include <string.h>

#include "sim/compile/lower.h"

static const plan_view whole = { .whole = 1 };

static ref make_ref(emitter *e, uint32_t operand, plan_view view)
{
  assert(operand != 0 && "ref 0 is no operand");
  if (e->refs.count == 0) *ARRAY_PUSH(&e->refs) = (emitted_ref){ 0 };
  *ARRAY_PUSH(&e->refs) = (emitted_ref){ operand, view, whole };
  return e->refs.count - 1;
}

uint32_t lower_operand(const emitter *e, ref r)
{
  assert(r == 0 || r < e->refs.count);
  return r == 0 ? 0 : e->refs.items[r].operand;
}

ref lower_ref_again(emitter *e, ref r)
{
  assert(r != 0 && r < e->refs.count);
  emitted_ref again = e->refs.items[r];
  again.operand = lower_refer(e, again.operand);
  *ARRAY_PUSH(&e->refs) = again;
  return e->refs.count - 1;
}

ref lower_ref(emitter *e, uint32_t operand)
{
  assert((operand & OPERAND_PARAMETER) == 0 || (operand & OPERAND_PARAMETER_GRADIENT) == 0);
  if (operand == 0) return 0;
  const program_parameter *parameters = e->program->parameters.items;
  if (operand & OPERAND_PARAMETER)
    return make_ref(e, operand, parameters[operand & ~OPERAND_PARAMETER].weight);
  if (operand & OPERAND_PARAMETER_GRADIENT)
    return make_ref(e, operand, parameters[operand & ~OPERAND_PARAMETER_GRADIENT].gradient);
  return make_ref(e, operand, e->plan->views.items[e->program->places.items[operand].view]);
}

/* ---- views --------------------------------------------------------------------------------------- */

static void close_gaps(plan_view *v)
{
  int64_t next = 1;
  for (int i = v->rank; i-- > 0; next *= v->shape[i])
    v->strides[i] = next;
  assert(view_is_contiguous(v));
}

plan_view lower_tensor_view(const graph *g, tensor_id t)
{
  const graph_tensor *of = &g->tensors.items[t];
  tensor_id storage = tensor_storage(g, t);
  assert(of->offset_elements >= 0 && storage <= t);
  if (of->view.rank > 0) return of->view;
  bool all = of->offset_elements == 0 && tensor_elements(g, t) == tensor_elements(g, storage) &&
             of->dtype == g->tensors.items[storage].dtype;
  if (all || !of->contiguous) return whole;
  plan_view slice = { .dtype = of->dtype, .rank = 1, .offset = of->offset_elements };
  slice.shape[0] = tensor_elements(g, t);
  slice.strides[0] = 1;
  return slice;
}

/* `inner` is relative to a storage that begins where `outer` begins. */
static plan_view within(plan_view outer, plan_view inner)
{
  assert(inner.whole || outer.whole || inner.offset >= 0);
  if (outer.whole) return inner;
  if (inner.whole) return outer;
  inner.offset += outer.offset;
  return inner;
}

static ref tensor_ref(emitter *e, uint32_t operand, tensor_id t)
{
  ref r = lower_ref(e, operand);
  plan_view own = lower_tensor_view(e->graph, t);
  assert(own.rank <= PLAN_VIEW_DIMS);
  /* Only the place of a gradient has a view of its own; the place of a tensor has none. */
  e->refs.items[r].view = operand & OPERAND_PARAMETER ? within(e->refs.items[r].view, own) : own;
  return r;
}

static plan_view strided(plan_view of, dtype type, int64_t offset, uint32_t rank,
                         const int64_t *shape, const int64_t *strides)
{
  assert(rank <= PLAN_VIEW_DIMS && of.offset + offset >= 0);
  plan_view v = { .dtype = (uint8_t)type, .rank = (uint8_t)rank, .offset = of.offset + offset };
  memcpy(v.shape, shape, rank * sizeof *shape);
  if (strides != NULL)
    memcpy(v.strides, strides, rank * sizeof *strides);
  else
    close_gaps(&v);
  return v;
}

ref emit_strided(emitter *e, ref r, dtype type, int64_t offset, uint32_t rank, const int64_t *shape,
                 const int64_t *strides)
{
  if (r == 0) return 0;
  assert(r < e->refs.count && rank <= PLAN_VIEW_DIMS);
  emitted_ref seen = e->refs.items[r];
  seen.view = strided(seen.view, type, offset, rank, shape, strides);
  seen.alone = strided(seen.alone, type, offset, rank, shape, strides);
  *ARRAY_PUSH(&e->refs) = seen;
  return e->refs.count - 1;
}

ref emit_turned(emitter *e, ref r, dtype type, uint32_t part, uint32_t parts, int64_t rows,
                int64_t columns)
{
  int64_t shape[] = { rows, columns };
  assert(part < parts && parts <= UINT8_MAX);
  ref seen = emit_strided(e, r, type, part * rows * columns, 2, shape, NULL);
  emitted_ref *of = &e->refs.items[seen];
  of->view.turned = of->alone.turned = (uint8_t)parts;
  assert(view_can_turn(&of->view) && view_can_turn(&of->alone));
  return seen;
}

/* Splits each dimension of `of` into consecutive dimensions of `shape` with the same product. */
static plan_view with_dimensions(plan_view of, uint32_t rank, const int64_t *shape)
{
  plan_view v = of;
  uint32_t at = rank;
  assert(rank <= PLAN_VIEW_DIMS && !of.whole);
  v.rank = (uint8_t)rank;
  for (uint32_t i = of.rank; i-- > 0;) {
    int64_t inner = 1;
    for (; at > 0 && inner < of.shape[i]; inner *= shape[at]) {
      at--;
      v.shape[at] = shape[at];
      v.strides[at] = of.strides[i] * inner;
    }
    assert(inner == of.shape[i] && "a permutation of the view's dimensions");
  }
  for (; at > 0; at--) {
    assert(shape[at - 1] == 1);
    v.shape[at - 1] = v.strides[at - 1] = 1;
  }
  return v;
}

/* A contiguous view states no shape: it has the given one. */
static plan_view permuted(plan_view of, dtype type, uint32_t rank, const int64_t *shape,
                          const uint8_t *order)
{
  of = of.whole || view_is_contiguous(&of) ? strided(of, type, 0, rank, shape, NULL)
                                           : with_dimensions(of, rank, shape);
  plan_view v = of;
  for (uint32_t i = 0; i < rank; i++) {
    assert(order[i] < rank);
    v.shape[i] = of.shape[order[i]];
    v.strides[i] = of.strides[order[i]];
  }
  assert(view_elements(&v) == view_elements(&of) && "a permutation");
  return v;
}

static dtype type_of_operand(const emitter *e, uint32_t operand)
{
  uint32_t tensor = operand & OPERAND_PARAMETER
                        ? e->program->parameters.items[operand & ~OPERAND_PARAMETER].tensor
                        : e->program->places.items[operand].tensor;
  return (dtype)e->plan->tensors.items[tensor].dtype;
}

static dtype type_of_ref(const emitter *e, const emitted_ref *r)
{
  return r->view.whole ? type_of_operand(e, r->operand) : (dtype)r->view.dtype;
}

ref emit_matrix_rows(emitter *e, ref r, int64_t first, int64_t rows, int64_t columns)
{
  assert(r != 0 && r < e->refs.count);
  dtype type = type_of_ref(e, &e->refs.items[r]);
  return emit_strided(e, r, type, first * columns, 2, (int64_t[]){ rows, columns }, NULL);
}

ref emit_permuted(emitter *e, ref r, uint32_t rank, const int64_t *shape, const uint8_t *order)
{
  if (r == 0) return 0;
  assert(r < e->refs.count && rank <= PLAN_VIEW_DIMS);
  emitted_ref seen = e->refs.items[r];
  dtype type = type_of_ref(e, &seen);
  seen.view = permuted(seen.view, type, rank, shape, order);
  seen.alone = permuted(seen.alone, type, rank, shape, order);
  *ARRAY_PUSH(&e->refs) = seen;
  return e->refs.count - 1;
}

/* ---- what operators ask for ---------------------------------------------------------------------- */

ref emit_parameter(emitter *e, tensor_id parameter)
{
  assert(e->graph->tensors.items[parameter].parameter);
  return lower_ref(e, OPERAND_PARAMETER | lower_parameter(e, parameter));
}

ref emit_shared_buffer(emitter *e, const char *name, dtype type, int64_t rows, int64_t columns,
                       int64_t bytes)
{
  assert(rows > 0 && columns > 0 && bytes >= 0);
  plan_view view = { .dtype = (uint8_t)type, .rank = 2, .shape = { rows, columns } };
  close_gaps(&view);
  *ARRAY_PUSH(&e->program->parameters) = (program_parameter){
    .bytes = bytes, .layer = -1, .shared = name, .row = NO_ROW, .weight = view
  };
  return lower_ref(e, OPERAND_PARAMETER | (e->program->parameters.count - 1));
}

/* A recomputation finds each of its region's inputs where autograd saved it: two parts of one storage
 * may come back in a buffer each. 0: `t` is no such input. */
static place_id recomputed_from(const emitter *e, tensor_id t)
{
  assert(t > 0 && t < e->graph->tensors.count);
  const tensor_id *inputs = e->graph->regions.items[e->recomputing].inputs;
  for (uint32_t i = 0; e->recomputing != 0 && i < NODE_INPUTS && inputs[i] != 0; i++)
    if (inputs[i] == t) return e->program->entry_places.items[e->region_entry[e->recomputing] + i];
  return 0;
}

place_id lower_place_of(const emitter *e, tensor_id t)
{
  place_id saved = recomputed_from(e, t),
           p = saved != 0 ? saved : e->where[tensor_storage(e->graph, t)];
  assert(p != 0 && "an operator has produced the tensor");
  return p;
}

ref emit_input(emitter *e, tensor_id t)
{
  assert(t > 0 && t < e->graph->tensors.count);
  tensor_id storage = tensor_storage(e->graph, t);
  if (e->graph->tensors.items[storage].parameter)
    return tensor_ref(e, OPERAND_PARAMETER | lower_parameter(e, storage), t);
  return tensor_ref(e, lower_place_of(e, t), t);
}

ref emit_saved(emitter *e, uint32_t i)
{
  tensor_id t = e->node->saved[i];
  assert(i < NODE_SAVED && t != 0);
  place_id saved = e->program->entry_places.items[e->node_first_entry + i];
  return saved != 0 ? tensor_ref(e, saved, t) : emit_input(e, t);
}

static bool saves(const graph_node *n, tensor_id t, uint32_t *i)
{
  assert(t > 0 && "tensor 0 is none");
  for (*i = 0; *i < NODE_SAVED && n->saved[*i] != 0; ++*i)
    if (n->saved[*i] == t) return true;
  return false;
}

ref emit_kept(emitter *e, tensor_id t)
{
  const graph_node *nodes = e->graph->nodes.items;
  uint32_t i;
  for (const graph_node *n = e->node; n-- > nodes;)
    if (saves(n, t, &i)) {
      uint32_t entry = e->node_entry[n - nodes] + i;
      e->program->entries.items[entry].read_beside = true;
      return tensor_ref(e, e->program->entry_places.items[entry], t);
    }
  assert(false && "an earlier operator has saved it");
  return 0;
}

ref lower_output_ref(emitter *e, place_id p, tensor_id t)
{
  assert(p != 0 && p < e->program->places.count);
  return tensor_ref(e, p, t);
}

/* ---- gradients ----------------------------------------------------------------------------------- */

ref emit_grad_of(emitter *e, tensor_id output)
{
  assert(!e->graph->tensors.items[output].parameter && "a parameter's gradient is its own");
  return lower_ref(e, e->gradient[lower_gradient_key(e->graph, output)]);
}

/* `v` views a gradient whose elements are in the order of `input`, a view. The operator that made
 * the tensor under that view reads them in the order of the storage: this returns that view. */
static plan_view in_order_of_storage(const graph *g, tensor_id input, dtype type, plan_view v)
{
  const plan_view *own = &g->tensors.items[input].view;
  if (own->rank == 0 || lower_gradient_key(g, input) == input) return v;
  uint8_t order[PLAN_VIEW_DIMS];
  for (uint8_t i = 0; i < own->rank; i++) {
    uint8_t at = i;
    assert(own->strides[i] > 0 && "the gradient of a repeated tensor is a sum, no view");
    for (; at > 0 && own->strides[order[at - 1]] < own->strides[i]; at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  return permuted(v, type, own->rank, own->shape, order);
}

static void add_gradient(emitter *e, tensor_id input, place_id p, plan_view view)
{
  tensor_id key = lower_gradient_key(e->graph, input);
  dtype type = view.whole ? type_of_operand(e, p) : (dtype)view.dtype;
  program_place *place = &e->program->places.items[p];
  assert(p != 0 && p < e->program->places.count);
  *ARRAY_PUSH(&e->gradients) = (pending_gradient){ key, p };
  place->through = input == key ? 0 : input;
  view = in_order_of_storage(e->graph, input, type, view);
  if (!view.whole && view.offset == 0 && view_is_contiguous(&view) &&
      view_elements(&view) * dtype_bytes(type) == place->bytes)
    view = whole;
  place->view = plan_view_row(e->plan, &view);
}

ref emit_grad_for(emitter *e, tensor_id input)
{
  if (!e->graph->tensors.items[input].requires_grad) return 0;
  assert(!e->graph->tensors.items[input].parameter);
  place_id p =
      lower_place(e, tensor_bytes(e->graph, input), lower_tensor_row(e, input), CLASS_TRANSIENT);
  lower_alloc(e, p);
  const graph_tensor *of = &e->graph->tensors.items[input];
  bool first_rows = of->view.rank > 0 && of->base == input && of->contiguous;
  plan_view view = first_rows ? of->view : whole;
  add_gradient(e, input, p, view);
  return make_ref(e, p, view);
}

void emit_grad_is(emitter *e, tensor_id input, ref r)
{
  if (!e->graph->tensors.items[input].requires_grad || r == 0) return;
  assert(r < e->refs.count && input > 0 && input < e->graph->tensors.count);
  add_gradient(e, input, lower_refer(e, lower_operand(e, r)), e->refs.items[r].view);
}

void emit_parameter_grad_is(emitter *e, tensor_id parameter, ref r)
{
  if (!e->graph->tensors.items[parameter].requires_grad) return;
  assert(r != 0 && e->graph->tensors.items[parameter].parameter);
  place_id p = lower_refer(e, lower_operand(e, r));
  e->program->places.items[p].view = plan_view_row(e->plan, &e->refs.items[r].view);
  *ARRAY_PUSH(&e->parameter_gradients) = (pending_gradient){ parameter, p };
}

ref emit_parameter_grad(emitter *e, tensor_id parameter, bool fused_with_gemm)
{
  const graph_tensor *t = &e->graph->tensors.items[parameter];
  assert(t->parameter);
  if (!t->requires_grad) return 0;
  if (fused_with_gemm && e->settings->training.gradient_accumulation_fusion)
    return lower_ref(e, OPERAND_PARAMETER_GRADIENT | lower_parameter(e, parameter));
  place_id p = lower_place(e, tensor_bytes(e->graph, parameter), lower_tensor_row(e, parameter),
                           CLASS_TRANSIENT);
  lower_alloc(e, p);
  *ARRAY_PUSH(&e->parameter_gradients) = (pending_gradient){ parameter, p };
  return make_ref(e, p, whole);
}
