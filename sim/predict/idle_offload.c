#include "sim/predict/idle_offload.h"

#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"

/* What all ranks' chunks have of one name, or of all names. */
typedef struct offered {
  int64_t groups;
  int64_t tensors;       /* that may leave, whatever their size */
  int64_t most_elements; /* of the largest of these */
  int64_t copied_bytes;
} offered;

static void look_at_group(offered *o, const chunk_shape *c, uint32_t group)
{
  const saved_group *g = &c->groups[group];
  o->groups++;
  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++) {
    const saved_entry *entry = &c->entries[e];
    if (entry->parameter || entry->not_offloadable) continue;
    o->tensors++;
    o->most_elements = max_i64(o->most_elements, entry->elements);
  }
}

static offered look_at(const compilation *c, const char *name)
{
  offered o = { 0 };
  for (uint32_t r = 0; r < c->plan.rank_count; r++)
    for (uint32_t k = 0; k < c->shapes[r].chunk_count; k++) {
      const chunk_shape *chunk = &c->shapes[r].chunks[k];
      for (uint32_t g = 1; g < chunk->group_count; g++) {
        if (name != NULL && strcmp(chunk->groups[g].name, name) != 0) continue;
        look_at_group(&o, chunk, g);
        o.copied_bytes += c->copied_bytes[r][k][g];
      }
    }
  return o;
}

/* In the order in which the rules apply: the first that leaves nothing is the reason. */
static const char *reason_of(const settings *s, const offered *o, arena *a)
{
  const struct offload_settings *offload = &s->offload;
  if (o->groups == 0)
    return "no layer of this model has such a module of its own; norms are often fused into "
           "linears";
  if (o->tensors == 0) return "it saves nothing but what others save too, or parameters";
  if (o->most_elements < offload->min_offloaded_tensor_size)
    return arena_printf(
        a, "its largest tensor has %" PRId64 " elements, and min_offloaded_tensor_size is %" PRId64,
        o->most_elements, offload->min_offloaded_tensor_size);
  if (offload->activation_offload_fraction == 0) return "activation_offload_fraction is 0";
  if (offload->delta_offload_bytes_across_pp_ranks > 0 || offload->activation_offload_fraction < 1)
    return "all of it comes back first in backward, or is kept by activation_offload_fraction or "
           "delta_offload_bytes_across_pp_ranks";
  return "each of its groups comes back first in backward, and stays for that; with more layers or "
         "micro-batches in flight others would leave";
}

/* Weights that visit the device count too, and files. */
static bool moves_anything(const prediction *p)
{
  for (uint32_t i = 0; i < p->rank_count; i++) {
    const rank_prediction *r = &p->result.ranks[i];
    if (r->d2h_bytes + r->h2d_bytes + r->disk_write_bytes > 0) return true;
  }
  return false;
}

/* The stash packs on the device. */
static bool means_to_move(const settings *s)
{
  return s->offload.system != SYSTEM_none && offload_scope_of(s) != OFFLOAD_EXPERTS;
}

static const idle_offload *idle_modules(const prediction *p, uint32_t *count, arena *a)
{
  const settings *s = p->settings;
  const choice_list *modules = &s->offload.offload_modules;
  idle_offload *found = ARENA_ARRAY(a, idle_offload, modules->count);
  for (uint32_t i = 0; i < modules->count; i++) {
    const char *name = choice_word(KEY_offload_offload_modules, modules->items[i]);
    offered o = look_at(&p->steady, name);
    if (o.copied_bytes == 0) found[(*count)++] = (idle_offload){ name, reason_of(s, &o, a) };
  }
  return found;
}

const idle_offload *idle_offloads(const prediction *p, uint32_t *count, arena *a)
{
  const settings *s = p->settings;
  *count = 0;
  if (offload_scope_of(s) == OFFLOAD_MODULES) return idle_modules(p, count, a);
  if (!means_to_move(s) || moves_anything(p)) return NULL;
  offered o = look_at(&p->steady, NULL);
  idle_offload *found = ARENA_NEW(a, idle_offload);
  *count = 1;
  *found = (idle_offload){ chosen_word(s, KEY_offload_system),
                           o.tensors == 0 ? "nothing is saved that it could move"
                                          : "its rules keep all tensors on the device" };
  return found;
}
