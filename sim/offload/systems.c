#include "sim/offload/systems.h"

#include <assert.h>

#include "sim/offload/stash_beside.h"

static const offload_descriptor *const systems[OFFLOAD_SYSTEM_COUNT] = {
#define X(name, ...) [SYSTEM_##name] = &name##_system,
  OFFLOAD_SYSTEMS(X)
#undef X
};

const offload_descriptor *offload_system_of(system_choice system)
{
  assert(system != SYSTEM_EMPTY && (uint32_t)system < OFFLOAD_SYSTEM_COUNT);
  const offload_descriptor *o = systems[system];
  assert(o->theory.group_leaves != NULL && o->theory.entry_leaves != NULL &&
         "a system says what it must save");
  return o;
}

static bool has_stash_beside(const settings *s)
{
  assert(s->offload.system != SYSTEM_EMPTY);
  return stashes_experts(s) && s->offload.system != SYSTEM_paged_stash;
}

const offload_policy *offload_policy_of(const settings *s)
{
  return has_stash_beside(s) ? &stash_beside_policy : &offload_system_of(s->offload.system)->policy;
}

const offload_policy *offload_beside(const settings *s)
{
  assert((uint32_t)s->offload.system < OFFLOAD_SYSTEM_COUNT);
  bool beside = s->offload.layer_offloading && s->offload.system != SYSTEM_layer_offloading;

  return beside ? &layer_offloading_system.policy : NULL;
}

bool offload_conditions(const settings *s, diag *d)
{
  assert(offload_systems[s->offload.system].name != NULL);
  const offload_descriptor *o = offload_system_of(s->offload.system);

  return (o->conditions == NULL || o->conditions(s, d)) &&
         (offload_beside(s) == NULL || layer_offloading_system.conditions(s, d));
}

int64_t theoretical_saving_bytes(const rank_shape *r, arena *a)
{
  assert(r->chunk_count > 0 && r->schedule->count > 0);
  const theory_rules *rules = &offload_system_of(r->settings->offload.system)->theory;
  int64_t weights = r->settings->offload.layer_offloading ? theory_weight_bytes(rules, r, a) : 0;

  if (has_stash_beside(r->settings)) return stash_beside_saving_bytes(r, a);
  return theory_saving_bytes(rules, r, a) + weights;
}

static void document_cell(FILE *out, const char *text)
{
  assert(text != NULL && "a system documents all its streams");
  fprintf(out, *text == '\0' ? " |" : " %s |", text);
}

void offload_document(FILE *out)
{
  for (uint32_t k = SYSTEM_EMPTY + 1; k < OFFLOAD_SYSTEM_COUNT; k++) {
    const offload_descriptor *o = offload_system_of((system_choice)k);
    fprintf(out, "| `%s` |", offload_systems[k].name);
    document_cell(out, o->streams.leaves);
    document_cell(out, o->streams.waits_for_copy_out);
    document_cell(out, o->streams.memory_goes);
    document_cell(out, o->streams.comes_back);
    document_cell(out, o->streams.into_pool_of);
    fputc('\n', out);
  }
}
