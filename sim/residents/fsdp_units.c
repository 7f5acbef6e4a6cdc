/* Parameters into units, units into shards. */
#include "sim/residents/fsdp_units.h"

#include <assert.h>

#include "sim/base/units.h"

bool uses_fsdp(const settings *s)
{
  return s->parallel.fsdp != FSDP_NONE;
}

bool uses_fsdp2(const settings *s)
{
  return s->parallel.fsdp == FSDP_2;
}

bool uses_zero(const settings *s)
{
  return s->parallel.fsdp == FSDP_ZERO;
}

int64_t fsdp_ranks(const settings *s)
{
  return s->parallel.fsdp_size;
}

int64_t fsdp_ranks_of(const settings *s, bool trainable)
{
  return uses_zero(s) && !trainable ? 1 : fsdp_ranks(s);
}

/* Bytes of quantised weights are not cast. */
dtype fsdp_storage_dtype(const settings *s, dtype computed)
{
  if (computed == DTYPE_BYTE) return computed;
  switch (s->parallel.fsdp_model_dtype) {
  case FSDP_MODEL_DTYPE_FP32: return DTYPE_FP32;
  case FSDP_MODEL_DTYPE_BF16: return DTYPE_BF16;
  case FSDP_MODEL_DTYPE_EMPTY: break;
  }
  return computed;
}

dtype fsdp_reduce_dtype(const settings *s, dtype computed)
{
  if (computed == DTYPE_BYTE) return computed;
  switch (s->parallel.fsdp_reduce_dtype) {
  case FSDP_REDUCE_DTYPE_FP32: return DTYPE_FP32;
  case FSDP_REDUCE_DTYPE_BF16: return DTYPE_BF16;
  case FSDP_REDUCE_DTYPE_EMPTY: break;
  }
  return computed;
}

/* ---- units ---- */

static bool embedding_is_apart(const settings *s)
{
  return uses_fsdp2(s) && s->parallel.fsdp_wrap_embedding &&
         s->model.untie_embeddings_and_output_weights;
}

static uint32_t unit_of(const fsdp_layout *l, const hf_parameter *p)
{
  if (p->layer >= 0) return (l->embedding_unit != 0 ? 2 : 1) + (uint32_t)p->layer;
  return p->embedding ? l->embedding_unit : FSDP_ROOT_UNIT;
}

static int32_t last_layer(const hf_parameter_list *parameters)
{
  int32_t last = -1;

  for (uint32_t i = 0; i < parameters->count; i++)
    if (parameters->items[i].layer > last) last = parameters->items[i].layer;
  return last;
}

static void deal_parameters(fsdp_layout *l, const hf_parameter_list *parameters, arena *a)
{
  for (uint32_t u = 0; u < l->unit_count; u++) {
    fsdp_unit *unit = &l->units[u];
    uint32_t first_layer = l->embedding_unit + 1;
    unit->layer = u >= first_layer ? (int32_t)(u - first_layer) : -1;
    for (uint32_t i = 0; i < parameters->count; i++)
      unit->parameter_count += unit_of(l, &parameters->items[i]) == u;
    unit->parameters = ARENA_ARRAY(a, uint32_t, unit->parameter_count);
    unit->parameter_count = 0;
    for (uint32_t i = 0; i < parameters->count; i++)
      if (unit_of(l, &parameters->items[i]) == u) unit->parameters[unit->parameter_count++] = i;
  }
}

/* ---- shards ---- */

/* A flat parameter of the `trainable` parameters, if there are any. It has one type: the bytes of
 * quantised weights are stored as elements of the others' type. */
static void add_flat(fsdp_layout *l, fsdp_unit *unit, const hf_parameter_list *parameters,
                     int64_t ranks, bool trainable)
{
  int64_t bytes = 0;
  dtype type = DTYPE_BYTE;

  for (uint32_t k = 0; k < unit->parameter_count; k++) {
    const hf_parameter *p = &parameters->items[unit->parameters[k]];
    if (p->trainable != trainable) continue;
    bytes += p->elements * dtype_bytes((dtype)p->type);
    if (type == DTYPE_BYTE) type = (dtype)p->type;
  }
  if (bytes == 0) return;
  l->shards[l->shard_count++] =
      (fsdp_shard){ .name = "flat_param",
                    .elements = ceil_div(ceil_div(bytes, dtype_bytes(type)), ranks),
                    .type = (uint8_t)type,
                    .trainable = trainable };
  unit->shard_count++;
}

static void add_rows(fsdp_layout *l, fsdp_unit *unit, const hf_parameter_list *parameters,
                     int64_t ranks)
{
  for (uint32_t k = 0; k < unit->parameter_count; k++) {
    const hf_parameter *p = &parameters->items[unit->parameters[k]];
    assert(p->rows > 0 && p->elements % p->rows == 0);
    l->shards[l->shard_count++] =
        (fsdp_shard){ .name = p->name,
                      .elements = ceil_div(p->rows, ranks) * (p->elements / p->rows),
                      .type = p->type,
                      .trainable = p->trainable,
                      .embedding = p->embedding };
    unit->shard_count++;
  }
}

fsdp_layout fsdp_layout_of(const settings *s, const hf_parameter_list *parameters, arena *a)
{
  fsdp_layout l = { .embedding_unit = embedding_is_apart(s) ? 1 : 0 };
  int64_t ranks = fsdp_ranks(s);

  assert(ranks > 0);
  l.unit_count = l.embedding_unit + 1 + (uint32_t)(last_layer(parameters) + 1);
  l.units = ARENA_ARRAY(a, fsdp_unit, l.unit_count);
  deal_parameters(&l, parameters, a);
  l.shards = ARENA_ARRAY(a, fsdp_shard, parameters->count + 2 * l.unit_count);
  for (uint32_t u = 0; u < l.unit_count; u++) {
    fsdp_unit *unit = &l.units[u];
    unit->first_shard = l.shard_count;
    if (uses_fsdp2(s)) {
      add_rows(&l, unit, parameters, ranks);
      continue;
    }
    add_flat(&l, unit, parameters, fsdp_ranks_of(s, true), true);
    add_flat(&l, unit, parameters, fsdp_ranks_of(s, false), false);
  }
  assert(l.shard_count <= parameters->count + 2 * l.unit_count);
  return l;
}
