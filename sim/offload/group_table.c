#include "sim/offload/group_table.h"

#include <assert.h>
#include <string.h>

#include "sim/config/megatron_releases.h"

static name_id id_of_name(group_table *t, const char *name)
{
  for (name_id n = 1; n < t->name_count; n++)
    if (strcmp(t->names[n], name) == 0) return n;
  assert(name != NULL && t->name_count < t->name_room);
  t->names[t->name_count] = name;
  return t->name_count++;
}

static int64_t group_bytes(const settings *s, const chunk_shape *c, uint32_t group)
{
  bool gathers = megatron_has(s, MEGATRON_GATHERED_VIEW);
  const saved_group *g = &c->groups[group];
  int64_t bytes = 0;

  assert(group > 0 && group < c->group_count);
  assert(g->first_entry + g->entry_count <= c->entry_count);
  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++)
    if (entry_leaves(&c->entries[e], s->offload.min_offloaded_tensor_size))
      bytes += entry_copied_bytes(&c->entries[e], gathers);
  return bytes;
}

static chunk_groups name_groups(group_table *t, const settings *s, const chunk_shape *c, arena *a)
{
  name_id *name = ARENA_ARRAY(a, name_id, c->group_count);
  int64_t *bytes = ARENA_ARRAY(a, int64_t, c->group_count);

  assert(c->group_count > 0 && "group 0 is none");
  for (uint32_t g = 1; g < c->group_count; g++) {
    name[g] = id_of_name(t, c->groups[g].name);
    bytes[g] = group_bytes(s, c, g);
  }
  return (chunk_groups){ .count = c->group_count - 1, .name = name, .bytes = bytes };
}

/* Call it when all names of the rank are known. */
static void index_names(chunk_groups *c, uint32_t name_count, arena *a)
{
  uint32_t *last = ARENA_ARRAY(a, uint32_t, name_count);
  uint32_t *first = ARENA_ARRAY(a, uint32_t, name_count + 1);

  for (uint32_t g = 1; g <= c->count; g++) {
    last[c->name[g]] = last[0] = g;
    first[c->name[g] + 1]++;
  }
  for (name_id n = 1; n < name_count; n++) {
    c->distinct_names += last[n] != 0;
    first[n + 1] += first[n];
  }
  assert(first[name_count] == c->count && "each group has a name");
  c->last = last;
  c->first_of_name = first;
}

group_table group_table_new(const rank_shape *r, arena *a)
{
  group_table t = { .name_count = 1, .chunk_count = r->chunk_count };
  uint32_t groups = 1;

  for (uint32_t c = 0; c < r->chunk_count; c++)
    groups += r->chunks[c].group_count;
  t.name_room = groups;
  t.names = ARENA_ARRAY(a, const char *, groups);
  t.chunks = ARENA_ARRAY(a, chunk_groups, r->chunk_count);
  for (uint32_t c = 0; c < r->chunk_count; c++)
    t.chunks[c] = name_groups(&t, r->settings, &r->chunks[c], a);
  for (uint32_t c = 0; c < r->chunk_count; c++)
    index_names(&t.chunks[c], t.name_count, a);
  assert(t.name_count <= t.name_room);
  return t;
}
