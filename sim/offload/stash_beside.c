#include "sim/offload/stash_beside.h"

#include <assert.h>
#include <string.h>

#include "sim/offload/actions.h"
#include "sim/offload/systems.h"

/* A rank as one of the engines sees it. */
typedef struct half {
  const offload_policy *policy;
  rank_shape shape;
  uint32_t **own; /* by chunk and group of the rank: its number here, 0: it is the other's */
  void *state;
} half;

typedef struct both {
  half modules, stash;
} both;

/* ---- what each engine sees -------------------------------------------------------------------- */

static bool is_stashed(const saved_group *g)
{
  assert(g->name != NULL);
  return strcmp(g->name, "grouped_mlp") == 0;
}

/* The chunk's own groups; what others save is outside the groups. */
static chunk_shape chunk_of_half(const chunk_shape *c, bool stashed, uint32_t *own, arena *a)
{
  chunk_shape out = *c;
  saved_group *groups = ARENA_ARRAY(a, saved_group, c->group_count);
  saved_entry *entries = ARENA_ARRAY(a, saved_entry, c->entry_count + 1);
  out.group_count = 1;
  for (uint32_t g = 1; g < c->group_count; g++) {
    if (is_stashed(&c->groups[g]) != stashed) continue;
    own[g] = out.group_count;
    groups[out.group_count++] = c->groups[g];
  }
  for (uint32_t e = 1; e < c->entry_count; e++) {
    entries[e] = c->entries[e];
    entries[e].group = own[c->entries[e].group];
  }
  assert(out.group_count <= c->group_count);
  out.groups = groups;
  out.entries = entries;
  return out;
}

static half half_of(const rank_shape *r, const offload_policy *policy, bool stashed, arena *a)
{
  half h = { .policy = policy, .shape = *r };
  chunk_shape *chunks = ARENA_ARRAY(a, chunk_shape, r->chunk_count);
  h.own = ARENA_ARRAY(a, uint32_t *, r->chunk_count);
  for (uint32_t c = 0; c < r->chunk_count; c++) {
    assert(r->chunks[c].group_count > 0 && "groups[0] is none");
    h.own[c] = ARENA_ARRAY(a, uint32_t, r->chunks[c].group_count);
    chunks[c] = chunk_of_half(&r->chunks[c], stashed, h.own[c], a);
  }
  h.shape.chunks = chunks;
  return h;
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  both *b = ARENA_NEW(a, both);
  assert(r->settings->offload.system == SYSTEM_megatron && r->settings->offload.moe_paged_stash);
  b->modules = half_of(r, &megatron_system.policy, false, a);
  b->stash = half_of(r, &paged_stash_system.policy, true, a);
  b->modules.state = b->modules.policy->begin(&b->modules.shape, iteration, a, d);
  b->stash.state = b->stash.policy->begin(&b->stash.shape, iteration, a, d);
  return b;
}

/* ---- hooks of groups: the owner's ------------------------------------------------------------- */

/* The engine that owns the group, which becomes its number there. */
static const half *owner(const both *b, instance_id i, uint32_t *group)
{
  const uint32_t *stashed = b->stash.own[i % b->stash.shape.chunk_count];
  const uint32_t *moved = b->modules.own[i % b->modules.shape.chunk_count];
  bool is_of_stash = stashed[*group] != 0;
  assert(is_of_stash != (moved[*group] != 0) && "a group has one owner");
  *group = is_of_stash ? stashed[*group] : moved[*group];
  return is_of_stash ? &b->stash : &b->modules;
}

static void group_start(void *state, walk *w, instance_id i, uint32_t group)
{
  assert(group > 0);
  const half *h = owner(state, i, &group);
  h->policy->group_start(h->state, w, i, group);
}

static void group_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  assert(group > 0);
  const half *h = owner(state, i, &group);
  h->policy->group_commit(h->state, w, i, group);
}

static void group_backward_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  assert(group > 0);
  const half *h = owner(state, i, &group);
  h->policy->group_backward_commit(h->state, w, i, group);
}

static void group_backward_start(void *state, walk *w, instance_id i, uint32_t group)
{
  assert(group > 0);
  const half *h = owner(state, i, &group);
  h->policy->group_backward_start(h->state, w, i, group);
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  const both *b = state;
  const chunk_shape *c = &b->stash.shape.chunks[i % b->stash.shape.chunk_count];
  assert(entry > 0 && entry < c->entry_count);
  const half *h = c->entries[entry].group != 0 ? &b->stash : &b->modules;
  h->policy->unpack(h->state, w, i, entry);
}

/* ---- hooks that one engine has ---------------------------------------------------------------- */

static void lasting_memory(void *state, walk *w)
{
  const half *h = &((both *)state)->stash;
  assert(h->policy == &paged_stash_system.policy);
  h->policy->lasting_memory(h->state, w);
}

static void forward_begin(void *state, walk *w, instance_id i)
{
  const half *h = &((both *)state)->modules;
  assert(h->policy == &megatron_system.policy);
  h->policy->forward_begin(h->state, w, i);
}

static void entry_needed(void *state, walk *w, instance_id i, uint32_t entry)
{
  const half *h = &((both *)state)->modules;
  assert(h->policy == &megatron_system.policy);
  h->policy->entry_needed(h->state, w, i, entry);
}

static void backward_end(void *state, walk *w, instance_id i)
{
  const half *h = &((both *)state)->modules;
  assert(h->policy == &megatron_system.policy);
  h->policy->backward_end(h->state, w, i);
}

static void layer_begin(void *state, walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  const half *h = &((both *)state)->modules;
  assert(h->policy == &megatron_system.policy);
  h->policy->layer_begin(h->state, w, i, layer, pass);
}

static void layer_end(void *state, walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  const half *h = &((both *)state)->modules;
  assert(h->policy == &megatron_system.policy);
  h->policy->layer_end(h->state, w, i, layer, pass);
}

static const char *defects(void *state)
{
  const half *h = &((both *)state)->modules;
  assert(h->policy == &megatron_system.policy);
  return h->policy->defects(h->state);
}

const offload_policy stash_beside_policy = {
  .begin = begin,
  .lasting_memory = lasting_memory,
  .forward_begin = forward_begin,
  .group_start = group_start,
  .group_commit = group_commit,
  .group_backward_commit = group_backward_commit,
  .entry_needed = entry_needed,
  .unpack = unpack,
  .group_backward_start = group_backward_start,
  .backward_end = backward_end,
  .layer_begin = layer_begin,
  .layer_end = layer_end,
  .defects = defects,
};

/* ---- theory ----------------------------------------------------------------------------------- */

int64_t stash_beside_saving_bytes(const rank_shape *r, arena *a)
{
  half modules = half_of(r, &megatron_system.policy, false, a);
  half stash = half_of(r, &paged_stash_system.policy, true, a);
  assert(modules.shape.chunk_count == stash.shape.chunk_count);
  return theory_saving_bytes(&megatron_system.theory, &modules.shape, a) +
         theory_saving_bytes(&paged_stash_system.theory, &stash.shape, a);
}
