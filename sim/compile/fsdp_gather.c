/* FSDP: a unit's parameters, from shards to whole and back. */
#include <assert.h>

#include "sim/compile/fsdp_parts.h"

enum { MAX_IN_FLIGHT = 2 }; /* freed units that the GPU still uses: _FreeEventQueue */

static void set_weights(walk *w, uint32_t unit, bool trainable, uint32_t buffer)
{
  const fsdp *f = w->fsdp;
  const fsdp_unit *u = fsdp_unit_of(f, unit);
  for (uint32_t k = 0; k < u->parameter_count; k++) {
    uint32_t of = u->parameters[k];
    assert(of < f->parameters.count);
    if (f->parameters.items[of].trainable == trainable) w->weight_of[0][of] = buffer;
  }
}

/* ---- FSDP1 ---- */

static void limit_units(walk *w)
{
  fsdp *f = w->fsdp;
  assert(f->given_back_count <= fsdp_ring_size(f));
  if (f->given_back_count < MAX_IN_FLIGHT) return;
  act_host_wait(w, f->given_back[f->given_back_first]);
  f->given_back_first = (f->given_back_first + 1) % fsdp_ring_size(f);
  f->given_back_count--;
}

static void note_given_back(walk *w)
{
  fsdp *f = w->fsdp;
  uint32_t end = (f->given_back_first + f->given_back_count) % fsdp_ring_size(f);
  assert(f->given_back_count < fsdp_ring_size(f));
  f->given_back[end] = act_record(w, STREAM_COMPUTE);
  f->given_back_count++;
}

static dtype computed_type(const fsdp *f, uint32_t shard)
{
  assert(shard < f->layout.shard_count && f->layout.shards[shard].type < DTYPES);
  return (dtype)f->layout.shards[shard].type;
}

static bool is_cast(const walk *w, uint32_t shard)
{
  dtype computed = computed_type(w->fsdp, shard);
  return fsdp_storage_dtype(w->settings, computed) != computed;
}

/* The shard in the compute type: the shard itself, or a copy that the caller drops. */
static uint32_t cast_shard(walk *w, uint32_t shard)
{
  const fsdp *f = w->fsdp;
  if (!is_cast(w, shard)) return f->shard[shard];
  uint32_t cast = fsdp_alloc(w, "fsdp.cast_shard", computed_type(f, shard),
                             f->layout.shards[shard].elements, CLASS_TRANSIENT, STREAM_COMM);
  fsdp_kernel(w, KERNEL_COPY, STREAM_COMM, &f->shard[shard], 1, cast);
  return cast;
}

static int64_t ranks_of(const walk *w, uint32_t shard)
{
  assert(shard < w->fsdp->layout.shard_count);
  return fsdp_ranks_of(w->settings, w->fsdp->layout.shards[shard].trainable);
}

/* The shard is the whole: nothing is gathered, and nothing cast. */
static bool is_whole(const walk *w, uint32_t shard)
{
  return ranks_of(w, shard) == 1 && !is_cast(w, shard);
}

void fsdp_find_whole(walk *w, uint32_t unit)
{
  assert(w->fsdp->stays && !w->fsdp->second);
  fsdp *f = w->fsdp;
  const fsdp_unit *u = fsdp_unit_of(f, unit);
  for (uint32_t k = 0; k < u->shard_count; k++) {
    uint32_t shard = u->first_shard + k;
    int64_t elements = f->layout.shards[shard].elements * ranks_of(w, shard);
    dtype type = computed_type(f, shard);
    bool left = w->iteration != ITERATION_WARMUP && !is_whole(w, shard);
    f->units[unit].whole[k] =
        left ? walk_resident(w, (plan_buffer){ .bytes = elements * dtype_bytes(type),
                                               .tensor = fsdp_tensor_row(w, "fsdp.flat_param", type,
                                                                         elements),
                                               .purpose = CLASS_WEIGHT,
                                               .stream = STREAM_COMM })
             : NO_BUFFER;
  }
}

/* Gathers one flat parameter, into `whole` if there is one. */
static uint32_t gather_flat(walk *w, uint32_t shard, uint32_t whole)
{
  const fsdp *f = w->fsdp;
  dtype type = computed_type(f, shard);
  int64_t elements = f->layout.shards[shard].elements, ranks = ranks_of(w, shard);
  if (is_whole(w, shard)) {
    walk_refer(w, f->shard[shard]);
    return f->shard[shard];
  }
  assert(ranks >= 1 && elements > 0);
  uint32_t part = cast_shard(w, shard);
  if (ranks == 1 && whole == NO_BUFFER) return part;
  if (whole == NO_BUFFER)
    whole = fsdp_alloc(w, "fsdp.flat_param", type, elements * ranks, CLASS_WEIGHT, STREAM_COMM);
  if (ranks == 1)
    fsdp_kernel(w, KERNEL_COPY, STREAM_COMM, &part, 1, whole);
  else
    fsdp_collective(w, COLLECTIVE_ALL_GATHER, ranks, elements * dtype_bytes(type), part, whole);
  if (part != f->shard[shard]) walk_drop_reference(w, part);
  return whole;
}

static void unshard_flat(walk *w, uint32_t unit)
{
  const fsdp_unit *u = fsdp_unit_of(w->fsdp, unit);
  assert(!w->fsdp->second && u->shard_count <= 2 && "trainable and frozen");
  limit_units(w);
  for (uint32_t k = 0; k < u->shard_count; k++) {
    uint32_t shard = u->first_shard + k;
    uint32_t left = w->fsdp->stays ? w->fsdp->units[unit].whole[k] : NO_BUFFER;
    uint32_t whole = gather_flat(w, shard, left);
    w->fsdp->units[unit].whole[k] = whole;
    set_weights(w, unit, w->fsdp->layout.shards[shard].trainable, whole);
  }
}

static void reshard_flat(walk *w, uint32_t unit)
{
  assert(!w->fsdp->second && !w->fsdp->stays);
  const fsdp_unit *u = fsdp_unit_of(w->fsdp, unit);
  for (uint32_t k = 0; k < u->shard_count; k++) {
    uint32_t whole = w->fsdp->units[unit].whole[k];
    assert(whole != NO_BUFFER && "the unit was gathered");
    walk_mark_stream(w, whole, STREAM_COMPUTE);
    walk_drop_reference(w, whole);
  }
  if (w->fsdp->ranks > 1) note_given_back(w);
}

/* ---- FSDP2 ---- */

/* Bytes of the unit's shards on this rank, in the compute types. */
static int64_t unit_bytes(const fsdp *f, uint32_t unit)
{
  const fsdp_unit *u = fsdp_unit_of(f, unit);
  int64_t bytes = 0;
  for (uint32_t k = u->first_shard; k < u->first_shard + u->shard_count; k++)
    bytes += f->layout.shards[k].elements * dtype_bytes(computed_type(f, k));
  assert(bytes > 0);
  return bytes;
}

/* The sources of the copy into the output: each shard, or its cast. */
static uint32_t *cast_shards(walk *w, uint32_t unit)
{
  assert(w->fsdp->second);
  const fsdp_unit *u = fsdp_unit_of(w->fsdp, unit);
  uint32_t *parts = ARENA_ARRAY(w->memory, uint32_t, u->shard_count);
  for (uint32_t k = 0; k < u->shard_count; k++)
    parts[k] = cast_shard(w, u->first_shard + k);
  return parts;
}

static int64_t bytes_of_buffer(const walk *w, uint32_t buffer)
{
  assert(buffer < w->rank->buffers.count);
  return w->rank->buffers.items[buffer].bytes;
}

static void copy_in(walk *w, const fsdp_unit *u, const uint32_t *parts, uint32_t output,
                    int64_t bytes)
{
  assert(u->shard_count > 0 && bytes > 0);
  fsdp_operand *from = ARENA_ARRAY(w->memory, fsdp_operand, u->shard_count);
  fsdp_operand *to = ARENA_ARRAY(w->memory, fsdp_operand, u->shard_count);
  bool together = u->shard_count <= UINT8_MAX; /* one kernel */
  int64_t before = 0;
  for (uint32_t k = 0; k < u->shard_count; k++) {
    int64_t own = bytes_of_buffer(w, parts[k]);
    from[k] = (fsdp_operand){ parts[k], fsdp_bytes(0, 1, own, own) };
    to[k] = (fsdp_operand){ output, fsdp_bytes(before, 1, own, own) };
    before += own;
  }
  if (together) to[0].view = fsdp_bytes(0, 1, bytes, bytes);
  fsdp_copy(w, STREAM_COMM, from, u->shard_count, to, together ? 1 : u->shard_count);
}

/* Casts shards where types differ and copies them into this rank's part of the output; the
 * all-gather works in place. */
static void unshard_rows(walk *w, uint32_t unit)
{
  fsdp *f = w->fsdp;
  const fsdp_unit *u = fsdp_unit_of(f, unit);
  int64_t bytes = unit_bytes(f, unit);
  assert(f->units[unit].gather_output == NO_BUFFER && bytes > 0);
  uint32_t output = fsdp_alloc(w, "fsdp.all_gather_output", DTYPE_BYTE, bytes * f->ranks,
                               CLASS_WEIGHT, STREAM_COMM);
  const uint32_t *parts = cast_shards(w, unit);
  copy_in(w, u, parts, output, bytes);
  for (uint32_t k = 0; k < u->shard_count; k++)
    if (is_cast(w, u->first_shard + k)) walk_drop_reference(w, parts[k]);
  fsdp_collective(w, COLLECTIVE_ALL_GATHER, f->ranks, bytes, output, output);
  f->units[unit].gather_output = output;
}

void fsdp_forget_output(walk *w)
{
  fsdp *f = w->fsdp;
  if (f->copied_out == 0) return;
  unit_state *last = &f->units[f->copied_out - 1];
  assert(f->second && f->copied_out <= f->layout.unit_count);
  assert(last->gather_output != NO_BUFFER);
  act_wait(w, STREAM_COMM, f->copied);
  walk_drop_reference(w, last->gather_output);
  last->gather_output = NO_BUFFER;
  f->copied_out = 0;
}

/* Allocates each parameter and copies it out of every rank's part of the output. */
static void copy_out(walk *w, uint32_t unit, bool in_forward)
{
  assert(w->fsdp->second && w->fsdp->units[unit].gather_output != NO_BUFFER);
  fsdp *f = w->fsdp;
  const fsdp_unit *u = fsdp_unit_of(f, unit);
  fsdp_operand *from = ARENA_ARRAY(w->memory, fsdp_operand, u->parameter_count);
  fsdp_operand *made = ARENA_ARRAY(w->memory, fsdp_operand, u->parameter_count);
  int64_t before = 0, all = unit_bytes(f, unit);
  for (uint32_t k = 0; k < u->parameter_count; k++) {
    const fsdp_shard *shard = &f->layout.shards[u->first_shard + k];
    int64_t own = shard->elements * dtype_bytes((dtype)shard->type);
    uint32_t whole = fsdp_alloc(w, shard->name, (dtype)shard->type, shard->elements * f->ranks,
                                CLASS_WEIGHT, STREAM_COMPUTE);
    made[k] = (fsdp_operand){ whole, fsdp_bytes(0, f->ranks, own, own) };
    from[k] =
        (fsdp_operand){ f->units[unit].gather_output, fsdp_bytes(before, f->ranks, own, all) };
    before += own;
    w->weight_of[0][u->parameters[k]] = whole;
  }
  assert(before == all && "the unit's parameters are its shards");
  fsdp_copy(w, STREAM_COMPUTE, from, u->parameter_count, made, u->parameter_count);
  f->copied = act_record(w, STREAM_COMPUTE);
  f->copied_out = unit + 1;
  assert(f->copied < w->rank->events);
  if (!in_forward) fsdp_forget_output(w);
}

static void reshard_rows(walk *w, uint32_t unit)
{
  const fsdp_unit *u = fsdp_unit_of(w->fsdp, unit);
  assert(w->fsdp->second && u->shard_count == u->parameter_count && "a shard of each parameter");
  for (uint32_t k = 0; k < u->parameter_count; k++)
    walk_drop_reference(w, w->weight_of[0][u->parameters[k]]);
}

/* ---- either ---- */

void fsdp_unshard(walk *w, uint32_t unit)
{
  assert(unit < w->fsdp->layout.unit_count);
  unit_state *state = &w->fsdp->units[unit];
  if (state->gathered) return;
  state->gathered = true;
  w->fsdp->site = state->site;
  if (w->fsdp->second)
    unshard_rows(w, unit);
  else
    unshard_flat(w, unit);
  state->ready = act_record(w, STREAM_COMM);
}

void fsdp_wait_for_unit(walk *w, uint32_t unit, bool in_forward)
{
  fsdp *f = w->fsdp;
  unit_state *state = &f->units[unit];
  assert(state->gathered && "only a gather that was issued is waited for");
  f->site = state->site;
  if (f->second) fsdp_forget_output(w);
  act_wait(w, STREAM_COMPUTE, state->ready);
  if (f->second && state->gather_output != NO_BUFFER) copy_out(w, unit, in_forward);
}

void fsdp_reshard(walk *w, uint32_t unit)
{
  assert(unit < w->fsdp->layout.unit_count);
  const fsdp_unit *u = fsdp_unit_of(w->fsdp, unit);
  unit_state *state = &w->fsdp->units[unit];
  if (!state->gathered || w->fsdp->stays) return;
  state->gathered = false;
  if (w->fsdp->second)
    reshard_rows(w, unit);
  else
    reshard_flat(w, unit);
  for (uint32_t k = 0; k < u->parameter_count; k++)
    w->weight_of[0][u->parameters[k]] = NO_BUFFER;
}
