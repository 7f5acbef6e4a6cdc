/* Parameters into Megatron-FSDP's groups, and into their buckets. */
#include "sim/residents/fsdp_groups.h"

#include <assert.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/graph/sizes.h"

typedef struct group_array {
  fsdp_group *items;
  uint32_t count, capacity;
} group_array;

/* ---- which parameters ---- */

static bool layers_are_units(const settings *s)
{
  switch (s->parallel.data_parallel_sharding_strategy) {
  case SHARD_NOTHING: break;
  case SHARD_OPTIM:
  case SHARD_OPTIM_GRADS: return megatron_is_from(s, 20260818, 2026, 4);
  case SHARD_OPTIM_GRADS_PARAMS: return true;
  }
  return false;
}

static fsdp_group kind_of(const settings *s, const parameter *p)
{
  return (fsdp_group){ .chunk = p->chunk,
                       .layer = layers_are_units(s) ? p->layer : -1,
                       .is_expert = p->is_expert,
                       .type = p->type };
}

static bool is_like(const fsdp_group *g, const fsdp_group *h)
{
  return g->chunk == h->chunk && g->layer == h->layer && g->is_expert == h->is_expert &&
         g->type == h->type;
}

/* In the order of their first parameters. */
static group_array kinds_of(const settings *s, const parameter_list *list)
{
  group_array kinds = { 0 };
  for (uint32_t i = 0; i < list->count; i++) {
    fsdp_group kind = kind_of(s, &list->items[i]);
    uint32_t k = kinds.count;
    while (k > 0 && !is_like(&kinds.items[k - 1], &kind))
      k--;
    if (k == 0) *ARRAY_PUSH(&kinds) = kind;
  }
  return kinds;
}

typedef struct division {
  const settings *s;
  const parameter_list *list;
  group_array groups;
  uint32_t *members; /* of the open group */
  uint32_t member_count;
  int64_t elements; /* of them */
  arena *a;
} division;

static void close_group(division *d, const fsdp_group *kind)
{
  if (d->member_count == 0) return;
  fsdp_group *g = ARRAY_PUSH(&d->groups);
  *g = *kind;
  g->slots = ARENA_ARRAY(d->a, buffer_slot, d->member_count);
  g->slot_count = d->member_count;
  for (uint32_t i = 0; i < d->member_count; i++)
    g->slots[i] = (buffer_slot){ .parameter = d->members[i] };
  d->member_count = 0;
  d->elements = 0;
}

static void divide(division *d, const fsdp_group *kind, int64_t limit)
{
  assert(d->member_count == 0 && limit > 0);
  for (uint32_t i = 0; i < d->list->count; i++) {
    const parameter *p = &d->list->items[i];
    fsdp_group own = kind_of(d->s, p);
    if (!is_like(&own, kind)) continue;
    if (p->shared_embedding) close_group(d, kind);
    d->members[d->member_count++] = i;
    d->elements += parameter_elements(p);
    if (p->shared_embedding || d->elements >= limit) close_group(d, kind);
  }
  close_group(d, kind);
}

/* ---- where in the bucket ---- */

enum { OLD_MULTIPLE = 128 };

static int64_t row_of(const parameter *p)
{
  return p->rank > 1 ? p->shape[1] : 1;
}

/* Stable: of equal rows, the one that was registered first comes first. */
static void sort_by_row(fsdp_group *g, const parameter_list *list)
{
  for (uint32_t i = 1; i < g->slot_count; i++) {
    buffer_slot moved = g->slots[i];
    uint32_t to = i;
    for (; to > 0 &&
           row_of(&list->items[g->slots[to - 1].parameter]) < row_of(&list->items[moved.parameter]);
         to--)
      g->slots[to] = g->slots[to - 1];
    g->slots[to] = moved;
  }
}

static int64_t factor_of(const fsdp_group *g, const parameter_list *list)
{
  int64_t factor = 1;
  for (uint32_t i = 0; i < g->slot_count; i++) {
    const parameter *p = &list->items[g->slots[i].parameter];
    if (parameter_elements(p) < factor || row_of(p) == factor) continue;
    if (factor % row_of(p) == 0 && parameter_elements(p) % factor == 0) continue;
    factor = least_common_multiple(factor, row_of(p));
  }
  return factor;
}

/* A bucket being filled. */
typedef struct filling {
  const parameter_list *list;
  fsdp_group *g;
  bool *placed; /* by slot */
  int64_t factor, end;
} filling;

static int64_t elements_of(const filling *f, uint32_t slot)
{
  return parameter_elements(&f->list->items[f->g->slots[slot].parameter]);
}

static void place(filling *f, uint32_t slot, int64_t start)
{
  assert(!f->placed[slot] && start >= 0);
  f->g->slots[slot].start = start;
  f->placed[slot] = true;
}

/* Another parameter whose remainder fits beside this one: its start is in the same multiple. */
static int64_t place_beside(filling *f, int64_t remainder)
{
  for (uint32_t i = 0; i < f->g->slot_count; i++) {
    int64_t elements = elements_of(f, i), other = elements % f->factor;
    if (f->placed[i] || elements < f->factor || other == 0 || remainder + other > f->factor)
      continue;
    place(f, i, f->end - other);
    f->end += elements - other;
    return other;
  }
  return 0;
}

static void place_with_remainder(filling *f, uint32_t slot)
{
  int64_t elements = elements_of(f, slot), remainder = elements % f->factor;
  int64_t gap = f->end + elements;
  place(f, slot, f->end);
  f->end = round_up(gap, f->factor);
  if (remainder == 0) return;
  int64_t space = f->factor - remainder - place_beside(f, remainder);
  for (uint32_t i = 0; i < f->g->slot_count; i++) {
    if (f->placed[i] || elements_of(f, i) >= f->factor || elements_of(f, i) > space) continue;
    place(f, i, gap);
    gap += elements_of(f, i);
    space -= elements_of(f, i);
  }
}

/* Until 21 August 2025 (af28b5a5) parameters followed each other as they were registered, and 128 elements
 * were the only multiple. */
static bool cuts_between_rows(const settings *s)
{
  return megatron_is_from(s, 20250821, 2025, 9);
}

static void fill_bucket(fsdp_group *g, const settings *s, const parameter_list *list, arena *a)
{
  int64_t ranks = g->is_expert ? max_i64(1, s->derived.expert_data_parallel_size)
                               : s->derived.data_parallel_size * s->parallel.context_parallel_size;
  bool by_rows = cuts_between_rows(s);
  if (by_rows) sort_by_row(g, list);
  int64_t factor = by_rows ? factor_of(g, list) : 1;
  filling f = { list, g, ARENA_ARRAY(a, bool, g->slot_count), factor, 0 };
  assert(g->slot_count > 0 && ranks > 0);
  for (uint32_t i = 0; i < g->slot_count; i++)
    if (!f.placed[i] && elements_of(&f, i) >= factor) place_with_remainder(&f, i);
  for (uint32_t i = 0; i < g->slot_count; i++)
    if (!f.placed[i]) {
      place(&f, i, f.end);
      f.end += elements_of(&f, i);
    }
  g->elements = f.end;
  if (s->parallel.data_parallel_sharding_strategy != SHARD_NOTHING)
    g->elements =
        round_up(f.end, by_rows ? ranks * factor : least_common_multiple(ranks, OLD_MULTIPLE));
  g->part = g->elements / ranks;
}

fsdp_group_list fsdp_groups_of(const settings *s, uint32_t pp_rank,
                               const parameter_list *parameters, arena *a)
{
  group_array kinds = kinds_of(s, parameters);
  division d = { .s = s, .list = parameters, .a = a };
  d.members = ARENA_ARRAY(a, uint32_t, parameters->count);
  for (uint32_t k = 0; k < kinds.count; k++) {
    const fsdp_group *kind = &kinds.items[k];
    divide(&d, kind, kind->layer < 0 ? gradient_bucket_limit(s, pp_rank, kind->chunk) : INT64_MAX);
  }
  fsdp_group_list list = { ARENA_ARRAY(a, fsdp_group, d.groups.count), d.groups.count };
  for (uint32_t i = 0; i < list.count; i++) {
    list.items[i] = d.groups.items[i];
    fill_bucket(&list.items[i], s, parameters, a);
  }
  ARRAY_FREE(&kinds);
  ARRAY_FREE(&d.groups);
  return list;
}

int64_t fsdp_owned_elements(const fsdp_group *g, const buffer_slot *slot,
                            const parameter_list *parameters)
{
  int64_t end = slot->start + parameter_elements(&parameters->items[slot->parameter]);
  int64_t owned = end - max_i64(slot->start, g->elements - g->part);
  assert(slot->start >= 0 && end <= g->elements);
  return max_i64(owned, 0);
}
