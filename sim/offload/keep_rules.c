#include "sim/offload/keep_rules.h"

#include <assert.h>

kept_groups keep_nothing(const group_table *t, const chunk_order *o, arena *a)
{
  uint32_t *base = ARENA_ARRAY(a, uint32_t, o->count + 1);
  assert(o->chunk_count == t->chunk_count);

  for (uint32_t p = 0; p < o->count; p++)
    base[p + 1] = base[p] + t->chunks[chunk_at(o, p)].count + 1;
  return (kept_groups){ .base = base,
                        .keep = ARENA_ARRAY(a, bool, base[o->count] + 1),
                        .margin = ARENA_ARRAY(a, bool, base[o->count] + 1) };
}

/* The number of groups that stay so that backward can begin without a copy: one of each name. */
static uint32_t offload_margin(const group_table *t, const chunk_order *o)
{
  uint32_t margin = 0;

  for (uint32_t p = 0; p < o->count; p++)
    if (t->chunks[chunk_at(o, p)].distinct_names > margin)
      margin = t->chunks[chunk_at(o, p)].distinct_names;
  assert(margin < t->name_count && "name 0 is none");
  return margin;
}

/*
 * The last group of a name in the first chunk to come back that has the name. Names are counted in
 * order of appearance from the last chunk to come back to the first; if there are more names than
 * the margin allows, the later ones stay offloaded.
 */
static void keep_margin(kept_groups *k, const group_table *t, const chunk_order *o, arena *a)
{
  uint32_t margin = offload_margin(t, o), met_count = 0;
  name_id *met = ARENA_ARRAY(a, name_id, t->name_count);
  uint32_t *last = ARENA_ARRAY(a, uint32_t, t->name_count); /* by name: base + group, 0 = not found
                                                             * yet */

  for (uint32_t b = o->backward_count; b-- > 0;) {
    uint32_t p = o->backward[b];
    const chunk_groups *c = &t->chunks[chunk_at(o, p)];
    assert(k->base[p + 1] == k->base[p] + c->count + 1);
    for (uint32_t g = 1; g <= c->count; g++) {
      if (last[c->name[g]] == 0) met[met_count++] = c->name[g];
      last[c->name[g]] = k->base[p] + g;
    }
  }
  assert(met_count >= margin && met_count < t->name_count);
  k->margin_count = margin;
  for (uint32_t i = 0; i < margin; i++)
    k->keep[last[met[i]]] = k->margin[last[met[i]]] = true;
}

/* Rank r keeps at least r * delta bytes more, from the first groups of the first chunks to come
 * back. */
static void keep_delta(kept_groups *k, const group_table *t, const chunk_order *o, uint32_t pp_rank,
                       int64_t delta_bytes)
{
  assert(delta_bytes >= 0);
  bool fits = pp_rank == 0 || delta_bytes <= INT64_MAX / pp_rank;
  int64_t keep_bytes = fits ? delta_bytes * pp_rank : INT64_MAX;

  for (uint32_t b = 0; b < o->backward_count; b++) {
    uint32_t p = o->backward[b];
    const chunk_groups *c = &t->chunks[chunk_at(o, p)];
    for (uint32_t g = 1; g <= c->count && keep_bytes > 0; g++)
      if (!k->keep[k->base[p] + g]) {
        k->keep[k->base[p] + g] = true;
        keep_bytes -= c->bytes[g];
      }
  }
}

/* Of each chunk's groups that still move bytes, the last int(n * (1 - fraction)) stay. The product
 * is computed in double precision, as in Megatron: 10 groups and 0.9 keep none. */
static void keep_fraction(kept_groups *k, const group_table *t, const chunk_order *o,
                          double fraction)
{
  for (uint32_t p = 0; p < o->count; p++) {
    const chunk_groups *c = &t->chunks[chunk_at(o, p)];
    bool *keep = k->keep + k->base[p];
    uint32_t eligible = 0;
    for (uint32_t g = 1; g <= c->count; g++)
      eligible += !keep[g] && c->bytes[g] > 0;
    double rest = 1.0 - fraction;
    uint32_t disabled = (uint32_t)((double)eligible * rest);
    assert(disabled <= eligible && "the fraction is from 0 to 1");
    for (uint32_t g = c->count; g > 0 && disabled > 0; g--)
      if (!keep[g] && c->bytes[g] > 0) {
        keep[g] = true;
        disabled--;
      }
  }
}

kept_groups keep_by_rules(const settings *s, uint32_t pp_rank, const group_table *t,
                          const chunk_order *o, arena *a)
{
  kept_groups k = keep_nothing(t, o, a);

  keep_margin(&k, t, o, a);
  keep_delta(&k, t, o, pp_rank, s->offload.delta_offload_bytes_across_pp_ranks);
  keep_fraction(&k, t, o, s->offload.activation_offload_fraction);
  assert(k.base[o->count] >= o->count && "row 0 of each chunk is no group");
  return k;
}
