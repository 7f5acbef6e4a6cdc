/* FSDP: a unit's gradients, from whole to the shards'. */
#include <assert.h>

#include "sim/compile/fsdp_parts.h"

dtype fsdp_trained_type(const fsdp *f, uint32_t unit)
{
  const fsdp_unit *u = fsdp_unit_of(f, unit);
  for (uint32_t k = u->first_shard; k < u->first_shard + u->shard_count; k++)
    if (f->layout.shards[k].trainable) return (dtype)f->layout.shards[k].type;
  assert(0 && "a unit that trains nothing has no gradients");
  return DTYPE_FP32;
}

/* Elements of the unit's trainable shards on this rank. */
static int64_t trainable_elements(const fsdp *f, uint32_t unit)
{
  assert(unit < f->layout.unit_count);
  const fsdp_unit *u = fsdp_unit_of(f, unit);
  int64_t elements = 0;
  for (uint32_t k = 0; k < u->shard_count; k++)
    if (f->layout.shards[u->first_shard + k].trainable)
      elements += f->layout.shards[u->first_shard + k].elements;
  return elements;
}

/* Collects the current gradients of the unit's parameters. */
static uint32_t collect(const walk *w, uint32_t unit, uint32_t *gradients)
{
  const fsdp_unit *u = fsdp_unit_of(w->fsdp, unit);
  assert(unit < w->fsdp->layout.unit_count && u->parameter_count > 0);
  uint32_t count = 0;
  for (uint32_t k = 0; k < u->parameter_count; k++)
    if (w->gradient_of[0][u->parameters[k]] != NO_BUFFER)
      gradients[count++] = w->gradient_of[0][u->parameters[k]];
  return count;
}

static void drop_collected(walk *w, uint32_t unit)
{
  assert(unit < w->fsdp->layout.unit_count);
  const fsdp_unit *u = fsdp_unit_of(w->fsdp, unit);
  for (uint32_t k = 0; k < u->parameter_count; k++) {
    uint32_t *gradient = &w->gradient_of[0][u->parameters[k]];
    if (*gradient != NO_BUFFER) walk_drop_reference(w, *gradient);
    *gradient = NO_BUFFER;
  }
}

/* From one rank's whole gradient: its shards' part of the sum over all data parallel ranks. */
static uint32_t scatter(walk *w, uint32_t whole, dtype type, int64_t elements)
{
  const fsdp *f = w->fsdp;
  int64_t replicas = w->settings->parallel.world_size / f->ranks;
  assert(replicas * f->ranks == w->settings->parallel.world_size);
  uint32_t part =
      fsdp_alloc(w, "fsdp.sharded_gradient", type, elements, CLASS_GRADIENT, STREAM_COMM);
  int64_t bytes = elements * dtype_bytes(type);
  if (f->ranks > 1)
    fsdp_collective(w, COLLECTIVE_REDUCE_SCATTER, f->ranks, bytes * f->ranks, whole, part);
  else
    fsdp_kernel(w, KERNEL_COPY, STREAM_COMM, &whole, 1, part);
  fsdp_collective(w, COLLECTIVE_ALL_REDUCE, replicas, bytes, part, part);
  return part;
}

/* Casts to the type of the shards. */
static uint32_t cast_part(walk *w, uint32_t part, dtype from, dtype to, int64_t elements)
{
  assert(w->rank->buffers.items[part].bytes == elements * dtype_bytes(from));
  if (from == to) return part;
  uint32_t cast = fsdp_alloc(w, "fsdp.sharded_gradient", to, elements, CLASS_GRADIENT, STREAM_COMM);
  fsdp_kernel(w, KERNEL_COPY, STREAM_COMM, &part, 1, cast);
  walk_drop_reference(w, part);
  return cast;
}

static void accumulate(walk *w, uint32_t unit, uint32_t part, plan_stream stream)
{
  uint32_t *gradient = &w->fsdp->units[unit].gradient;
  if (*gradient == NO_BUFFER) {
    *gradient = part;
    return;
  }
  assert(w->rank->buffers.items[part].bytes == w->rank->buffers.items[*gradient].bytes);
  fsdp_kernel(w, KERNEL_ADD, stream, (uint32_t[]){ part, *gradient }, 2, *gradient);
  walk_drop_reference(w, part);
}

/* Reduce-scatters, casts, and adds to the sum of earlier micro-batches. */
static void scatter_to_shards(walk *w, uint32_t unit, uint32_t whole)
{
  dtype computed = fsdp_trained_type(w->fsdp, unit);
  dtype reduced = fsdp_reduce_dtype(w->settings, computed);
  int64_t elements = trainable_elements(w->fsdp, unit);
  assert(elements > 0 && whole != NO_BUFFER);
  uint32_t part = scatter(w, whole, reduced, elements);
  accumulate(w, unit,
             cast_part(w, part, reduced, fsdp_storage_dtype(w->settings, computed), elements),
             STREAM_COMM);
}

/* Autograd joins the gradients (the backward of the split of the flat parameter into views). The
 * communication stream casts and divides them. */
static void reduce_flat(walk *w, uint32_t unit, const uint32_t *gradients, uint32_t count)
{
  assert(count > 0 && !w->fsdp->second);
  fsdp *f = w->fsdp;
  dtype computed = fsdp_trained_type(f, unit), reduced = fsdp_reduce_dtype(w->settings, computed);
  int64_t elements = trainable_elements(f, unit) * f->ranks;
  uint32_t flat =
      fsdp_alloc(w, "fsdp.flat_gradient", computed, elements, CLASS_GRADIENT, STREAM_COMPUTE);
  fsdp_kernel(w, KERNEL_COPY, STREAM_COMPUTE, gradients, count, flat);
  drop_collected(w, unit);
  fsdp_reshard(w, unit);
  if (w->settings->parallel.world_size == 1 && reduced == computed &&
      fsdp_storage_dtype(w->settings, computed) == computed) {
    accumulate(w, unit, flat, STREAM_COMPUTE); /* autograd accumulates; one rank has nothing to
                                                * reduce */
    return;
  }
  act_join(w, STREAM_COMM, STREAM_COMPUTE);
  uint32_t whole = flat;
  if (reduced != computed) {
    whole = fsdp_alloc(w, "fsdp.wide_gradient", reduced, elements, CLASS_GRADIENT, STREAM_COMM);
    fsdp_kernel(w, KERNEL_COPY, STREAM_COMM, &flat, 1, whole);
  }
  if (w->settings->parallel.world_size > 1)
    fsdp_divide(w, STREAM_COMM, whole, w->settings->parallel.world_size);
  scatter_to_shards(w, unit, whole);
  if (whole != flat) walk_drop_reference(w, whole);
  walk_mark_stream(w, flat, STREAM_COMM);
  walk_drop_reference(w, flat);
}

static void forget_input(walk *w)
{
  fsdp *f = w->fsdp;
  if (f->reduce_input == NO_BUFFER) return;
  assert(f->second && f->reduced < w->rank->events);
  act_wait(w, STREAM_COMPUTE, f->reduced);
  walk_drop_reference(w, f->reduce_input);
  f->reduce_input = NO_BUFFER;
}

/* Copies each gradient into every rank's part of the buffer; a part has `elements`. */
static void copy_by_rank(walk *w, const fsdp_unit *u, int64_t elements, dtype reduced)
{
  const fsdp *f = w->fsdp;
  fsdp_operand *from = ARENA_ARRAY(w->memory, fsdp_operand, u->parameter_count);
  fsdp_operand *to = ARENA_ARRAY(w->memory, fsdp_operand, u->parameter_count);
  int64_t before = 0;
  uint32_t count = 0;
  for (uint32_t k = 0; k < u->parameter_count; k++) {
    const fsdp_shard *shard = &f->layout.shards[u->first_shard + k];
    uint32_t gradient = w->gradient_of[0][u->parameters[k]];
    if (!shard->trainable) continue;
    if (gradient != NO_BUFFER) {
      from[count] = (fsdp_operand){ gradient, { .whole = 1 } };
      to[count] = (fsdp_operand){ f->reduce_input,
                                  { .dtype = (uint8_t)reduced,
                                    .rank = 2,
                                    .offset = before,
                                    .shape = { f->ranks, shard->elements },
                                    .strides = { elements, 1 } } };
      count++;
    }
    before += shard->elements;
  }
  assert(before == elements && count > 0);
  fsdp_copy(w, STREAM_COMPUTE, from, count, to, count);
}

/* Copies and casts the gradients into one buffer, ordered by rank. */
static void reduce_rows(walk *w, uint32_t unit)
{
  assert(w->fsdp->second && w->fsdp->units[unit].gather_output == NO_BUFFER);
  fsdp *f = w->fsdp;
  dtype reduced = fsdp_reduce_dtype(w->settings, fsdp_trained_type(f, unit));
  fsdp_reshard(w, unit);
  forget_input(w);
  f->reduce_input =
      fsdp_alloc(w, "fsdp.reduce_scatter_input", reduced, trainable_elements(f, unit) * f->ranks,
                 CLASS_GRADIENT, STREAM_COMPUTE);
  copy_by_rank(w, fsdp_unit_of(f, unit), trainable_elements(f, unit), reduced);
  drop_collected(w, unit);
  act_join(w, STREAM_COMM, STREAM_COMPUTE);
  scatter_to_shards(w, unit, f->reduce_input);
  f->reduced = act_record(w, STREAM_COMM);
}

void fsdp_reduce(walk *w, uint32_t unit)
{
  uint32_t *gradients =
      ARENA_ARRAY(w->memory, uint32_t, fsdp_unit_of(w->fsdp, unit)->parameter_count);
  uint32_t count = collect(w, unit, gradients);
  assert(w->fsdp->units[unit].in_backward && "the unit's backward has run");
  w->fsdp->units[unit].in_backward = false;
  w->fsdp->site = w->fsdp->units[unit].site;
  if (count == 0)
    fsdp_reshard(w, unit);
  else if (w->fsdp->second)
    reduce_rows(w, unit);
  else
    reduce_flat(w, unit, gradients, count);
}

void fsdp_finish_reductions(walk *w)
{
  forget_input(w);
  act_join(w, STREAM_COMPUTE, STREAM_COMM);
}
