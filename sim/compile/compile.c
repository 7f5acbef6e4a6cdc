#include "sim/compile/compile.h"

#include <assert.h>

#include "sim/base/parallel.h"
#include "sim/compile/attributes.h"
#include "sim/compile/graphs.h"
#include "sim/compile/walk.h"
#include "sim/graph/user_buffers.h"
#include "sim/offload/systems.h"
#include "sim/plan/join.h"
#include "sim/plan/repeats.h"

static const int64_t *visiting_bytes(const chunk_program *p, arena *a)
{
  int64_t *bytes = ARENA_ARRAY(a, int64_t, p->parameters.count + 1);
  for (uint32_t k = 0; k < p->parameters.count; k++)
    if (program_parameter_visits(&p->parameters.items[k]))
      bytes[k + 1] = p->parameters.items[k].bytes;
  return bytes;
}

static rank_shape shape_of(const settings *s, uint32_t pp_rank, chunk_program **programs,
                           const schedule *steps, arena *a)
{
  assert(pp_rank < s->parallel.pipeline_model_parallel_size && steps->count > 0);
  uint32_t chunks = (uint32_t)s->derived.virtual_stages;
  chunk_shape *shapes = ARENA_ARRAY(a, chunk_shape, chunks);
  for (uint32_t c = 0; c < chunks; c++)
    shapes[c] = (chunk_shape){ .groups = programs[c]->groups.items,
                               .group_count = programs[c]->groups.count,
                               .entries = programs[c]->entries.items,
                               .entry_count = programs[c]->entries.count,
                               .held = programs[c]->held.items,
                               .held_count = programs[c]->held.count,
                               .input_slot = programs[c]->input,
                               .visiting_bytes = visiting_bytes(programs[c], a),
                               .visiting_count = programs[c]->parameters.count + 1 };
  return (rank_shape){
    .settings = s, .pp_rank = pp_rank, .chunk_count = chunks, .chunks = shapes, .schedule = steps
  };
}

/* One message for every boundary between virtual stages, micro-batch and direction (exchanges.c numbers them
 * the same way). */
static void add_messages(plan *p, const settings *s)
{
  uint32_t stages = p->rank_count * (uint32_t)s->derived.virtual_stages;
  for (uint32_t boundary = 0; boundary + 1 < stages; boundary++) {
    uint32_t before = boundary % p->rank_count, after = (boundary + 1) % p->rank_count;
    for (int64_t m = 0; m < s->derived.num_microbatches; m++) {
      *ARRAY_PUSH(&p->messages) = (plan_message){ .from_rank = before, .to_rank = after };
      *ARRAY_PUSH(&p->messages) = (plan_message){ .from_rank = after, .to_rank = before };
    }
  }
  assert(p->messages.count == (stages - 1) * 2 * s->derived.num_microbatches);
}

/* In `a` is what outlives the walk. */
static walk walk_new(compilation *c, const settings *s, plan *p, uint32_t pp_rank, arena *a,
                     arena *scratch)
{
  walk w = { .settings = s, .plan = p, .rank = &c->plan.ranks[pp_rank], .pp_rank = pp_rank };
  w.chunk_count = c->shapes[pp_rank].chunk_count;
  w.programs = c->programs[pp_rank];
  w.schedule = *c->shapes[pp_rank].schedule;
  w.iteration = c->iteration;
  w.every_turn = c->every_turn;
  w.memory = scratch;
  uint32_t instances = (uint32_t)s->derived.num_microbatches * w.chunk_count;
  assert(w.rank->ops.count == 0 && w.rank->marks.count == 1);
  ARRAY_RESERVE(&w.references, w.rank->buffers.capacity);
  w.instances = ARENA_ARRAY(scratch, instance *, instances);
  w.free_instances = ARENA_ARRAY(scratch, instance *, w.chunk_count);
  w.entry_key = ARENA_ARRAY(scratch, uint32_t *, w.chunk_count);
  for (uint32_t i = 0; i < w.chunk_count; i++)
    w.entry_key[i] = ARENA_ARRAY(scratch, uint32_t, w.programs[i]->entries.count);
  w.copied_bytes = ARENA_ARRAY(a, int64_t *, w.chunk_count);
  for (uint32_t i = 0; i < w.chunk_count; i++)
    w.copied_bytes[i] = ARENA_ARRAY(a, int64_t, c->shapes[pp_rank].chunks[i].group_count);
  w.weight_of = ARENA_ARRAY(scratch, uint32_t *, w.chunk_count);
  w.gradient_of = ARENA_ARRAY(scratch, uint32_t *, w.chunk_count);
  w.posted = ARENA_ARRAY(scratch, uint32_t, w.schedule.count);
  walk_number_host_keys(&w);
  return w;
}

static void walk_release(walk *w)
{
  assert(w->references.count == w->rank->buffers.count);
  attributes_release(w);
  ARRAY_FREE(&w->references);
  ARRAY_FREE(&w->host_keys);
  ARRAY_FREE(&w->batches);
  ARRAY_FREE(&w->retained);
  arena_release(&w->of_instances);
}

static bool begin_policies(walk *w, const compilation *c, arena *a, diag *d)
{
  assert(w->rank->ops.count == 0 && w->pp_rank < c->plan.rank_count);
  const rank_shape *shape = &c->shapes[w->pp_rank];
  w->policy = offload_policy_of(w->settings);
  w->beside = offload_beside(w->settings);
  if (w->policy->begin != NULL) w->state = w->policy->begin(shape, c->iteration, a, d);
  if (w->beside != NULL) w->beside_state = w->beside->begin(shape, c->iteration, a, d);
  return diag_ok(d);
}

static const char *defects_of(const walk *w, arena *a)
{
  assert(w->policy != NULL);
  const char *own = w->policy->defects != NULL ? w->policy->defects(w->state) : NULL;
  const char *other = w->beside != NULL ? w->beside->defects(w->beside_state) : NULL;
  if (own == NULL && other == NULL) return NULL;
  if (own == NULL || other == NULL) return arena_strdup(a, own != NULL ? own : other);
  return arena_printf(a, "%s; %s", own, other);
}

/* Ranks have about as many ops as the one before. */
static void reserve_as(rank_plan *r, const rank_plan *before)
{
  ARRAY_RESERVE(&r->ops, before->ops.count + before->ops.count / 64);
  ARRAY_RESERVE(&r->operands, before->operands.count + before->operands.count / 64);
  ARRAY_RESERVE(&r->buffers, before->buffers.count + before->buffers.count / 64);
}

static void trim_rank(rank_plan *r)
{
  ARRAY_TRIM(&r->ops);
  ARRAY_TRIM(&r->operands);
  ARRAY_TRIM(&r->buffers);
}

/* Its rows are in the tables of `p`. */
static bool compile_rank(compilation *c, const settings *s, const lowered_ranks *l, plan *p,
                         uint32_t pp_rank, arena *a, diag *d)
{
  c->programs[pp_rank] = lowered_programs(l, pp_rank, p, a);
  schedule *steps = ARENA_NEW(a, schedule);
  *steps = schedule_of_rank(s, pp_rank, a);
  c->shapes[pp_rank] = shape_of(s, pp_rank, c->programs[pp_rank], steps, a);

  arena scratch = { 0 }; /* of the walk and its policies */
  walk w = walk_new(c, s, p, pp_rank, a, &scratch);
  if (!begin_policies(&w, c, &scratch, d)) {
    walk_release(&w);
    arena_release(&scratch);
    return false;
  }
  c->copied_turns[pp_rank] = walk_rank(&w);
  if (c->iteration == ITERATION_STEADY) mark_graphs(s, p, w.rank);
  if (w.rank->repeat.turns > 0) /* while the CPU's caches have its ops */
    plan_extend_repeats_of(p, pp_rank, &w.retained);
  else
    plan_find_repeats_of(p, pp_rank);
  c->defects[pp_rank] = defects_of(&w, a);
  for (uint32_t k = 0; k < w.chunk_count; k++)
    c->groups[pp_rank] += (w.programs[k]->groups.count - 1) * s->derived.num_microbatches;
  c->offloaded_groups[pp_rank] = w.offloaded_groups;
  c->copied_bytes[pp_rank] = (const int64_t *const *)w.copied_bytes;
  walk_release(&w);
  arena_release(&scratch);
  return diag_ok(d);
}

/* ---- ranks side by side -------------------------------------------------------------------------- */

/* Ranks [first, end), which one thread compiles, one after the other. The first group works with the plan's
 * own tables, memory and errors; the others have theirs, so that threads share none. */
typedef struct rank_group {
  compilation *compiled;
  const settings *settings;
  const lowered_ranks *lowered;
  uint32_t first, end;
  plan *tables, apart;
  plan_rows rows; /* of tables that were apart */
  arena *memory, own_memory;
  diag *errors;
} rank_group;

static rank_group *divide_ranks(compilation *c, const settings *s, const lowered_ranks *l,
                                uint32_t groups, arena *a, diag *d)
{
  rank_group *made = ARENA_ARRAY(a, rank_group, groups);
  uint32_t ranks = c->plan.rank_count;
  assert(groups > 0 && groups <= ranks);
  for (uint32_t i = 0; i < groups; i++) {
    rank_group *g = &made[i];
    *g = (rank_group){
      .compiled = c, .settings = s, .lowered = l, .tables = &c->plan, .memory = a, .errors = d
    };
    g->first = ranks * i / groups;
    g->end = ranks * (i + 1) / groups;
    if (i == 0) continue;
    g->memory = &g->own_memory;
    g->apart = plan_apart(&c->plan, g->memory);
    g->tables = &g->apart;
    g->errors = ARENA_NEW(a, diag);
    g->errors->quiet = d->quiet;
  }
  return made;
}

static void compile_group(void *context, uint32_t index)
{
  rank_group *g = (rank_group *)context + index;
  rank_plan *ranks = g->compiled->plan.ranks;
  for (uint32_t r = g->first; r < g->end; r++) {
    if (r > g->first) reserve_as(&ranks[r], &ranks[r - 1]);
    if (!compile_rank(g->compiled, g->settings, g->lowered, g->tables, r, g->memory, g->errors))
      return;
    trim_rank(&ranks[r]);
  }
}

static void renumber_group(void *context, uint32_t index)
{
  const rank_group *g = (rank_group *)context + index;
  for (uint32_t r = g->first; r < g->end && index > 0; r++) {
    plan_renumber(&g->compiled->plan.ranks[r], &g->rows);
    for (uint32_t k = 0; k < g->compiled->shapes[r].chunk_count; k++)
      chunk_program_renumber(g->compiled->programs[r][k], &g->rows);
  }
}

/* One thread would stop in the first group that fails, so that group's errors are reported. */
static void join_groups(rank_group *groups, uint32_t count, arena *a, diag *d)
{
  plan *p = &groups->compiled->plan;
  for (uint32_t i = 1; i < count; i++) {
    rank_group *g = &groups[i];
    if (diag_ok(d) && !diag_ok(g->errors)) *d = *g->errors;
    if (diag_ok(d))
      g->rows = plan_join(p, &g->apart, a);
    else
      plan_release_tables(&g->apart);
  }
  if (diag_ok(d)) parallel_for(count, count, renumber_group, groups);
  for (uint32_t i = 1; i < count; i++)
    arena_take(a, &groups[i].own_memory);
}

/* Validating every op takes an eighth of a prediction's time, so BUILD.gn decides:
 * validate_plans. */
static void assert_plan(const plan *p)
{
#ifdef OFFSIM_VALIDATE_PLANS
  plan_assert_valid(p);
#else
  plan_assert_tables(p);
#endif
}

static compilation compilation_new(const settings *s, iteration_kind iteration, arena *a)
{
  assert(s->derived.num_microbatches > 0 && s->parallel.world_size <= UINT32_MAX);
  uint32_t ranks = (uint32_t)s->parallel.pipeline_model_parallel_size;
  compilation c = { .plan = plan_new(ranks, a), .iteration = iteration };
  c.shapes = ARENA_ARRAY(a, rank_shape, ranks);
  c.defects = ARENA_ARRAY(a, const char *, ranks);
  c.groups = ARENA_ARRAY(a, int64_t, ranks);
  c.offloaded_groups = ARENA_ARRAY(a, int64_t, ranks);
  c.copied_bytes = ARENA_ARRAY(a, const int64_t *const *, ranks);
  c.programs = ARENA_ARRAY(a, chunk_program **, ranks);
  c.copied_turns = ARENA_ARRAY(a, uint32_t, ranks);
  c.plan.global_ranks = (uint32_t)s->parallel.world_size;
  add_messages(&c.plan, s);
  return c;
}

static bool compile_ranks(compilation *c, const settings *s, const lowered_ranks *l,
                          uint32_t threads, arena *a, diag *d)
{
  assert(threads > 0 && c->plan.rank_count == l->rank_count);
  uint32_t groups = threads < c->plan.rank_count ? threads : c->plan.rank_count;
  rank_group *divided = divide_ranks(c, s, l, groups, a, d);
  parallel_for(groups, groups, compile_group, divided);
  join_groups(divided, groups, a, d);
  if (diag_ok(d)) assert_plan(&c->plan);
  return diag_ok(d);
}

/* What the last micro-batch leaves (write_retained) depends on whether anything is offloaded. */
settings first_iteration_settings(const settings *s)
{
  settings first = *s;
  if (!offload_policy_of(s)->first_keeps_nothing) return first;
  first.offload.activation_offload_fraction = s->offload.activation_offload_fraction > 0;
  first.offload.delta_offload_bytes_across_pp_ranks = 0;
  return first;
}

/* An iteration sees nothing else of the settings. */
static const settings *seen_in(iteration_kind iteration, const settings *s, arena *a)
{
  if (iteration == ITERATION_STEADY) return s;
  settings *first = ARENA_NEW(a, settings);
  *first = first_iteration_settings(s);
  return first;
}

bool compile_lowered(compilation *c, const settings *s, const lowered_ranks *l,
                     iteration_kind iteration, uint32_t threads, arena *a, diag *d)
{
  *c = compilation_new(s, iteration, a);
  return compile_ranks(c, seen_in(iteration, s, a), l, threads, a, d);
}

bool compile_in_parallel(compilation *c, const settings *s, iteration_kind iteration,
                         uint32_t threads, arena *a, diag *d)
{
  lowered_ranks l = lower_ranks(s, threads);
  bool ok = compile_lowered(c, s, &l, iteration, threads, a, d);
  lowered_ranks_release(&l);
  return ok;
}

bool compile_every_turn(compilation *c, const settings *s, iteration_kind iteration, arena *a,
                        diag *d)
{
  lowered_ranks l = lower_ranks(s, 1);
  *c = compilation_new(s, iteration, a);
  c->every_turn = true;
  bool ok = compile_ranks(c, seen_in(iteration, s, a), &l, 1, a, d);
  lowered_ranks_release(&l);
  return ok;
}

bool compile(compilation *c, const settings *s, iteration_kind iteration, arena *a, diag *d)
{
  return compile_in_parallel(c, s, iteration, 1, a, d);
}

void compilation_release(compilation *c)
{
  for (uint32_t r = 0; r < c->plan.rank_count; r++)
    for (uint32_t k = 0; c->programs[r] != NULL && k < c->shapes[r].chunk_count; k++)
      chunk_program_release(c->programs[r][k]);
  plan_release(&c->plan);
}

bool is_without_offload(const settings *s)
{
  return s->offload.system == SYSTEM_none && !s->offload.fine_grained_activation_offloading &&
         !s->offload.layer_offloading;
}

/* The paged stash packs what experts save even if nothing leaves, so it is part of the run. Keys of systems
 * that do not run are reset, so that settings that differ only in offload share one baseline. */
settings settings_without_offload(const settings *s)
{
  settings without = *s;
  without.offload = (struct offload_settings){
    .system = SYSTEM_none,
    .mode = s->offload.mode,
    .moe_paged_stash = s->offload.moe_paged_stash,
    .moe_paged_stash_page_size = s->offload.moe_paged_stash_page_size,
    .moe_paged_stash_buffer_size_factor_cuda = s->offload.moe_paged_stash_buffer_size_factor_cuda,
    .moe_paged_stash_buffer_size_factor_cpu = s->offload.moe_paged_stash_buffer_size_factor_cpu,
  };
  without.derived.layer_is_offloaded = NULL;
  assert(is_without_offload(&without));
  assert(offload_system_of(without.offload.system)->policy.begin == NULL);
  return without;
}

int64_t compile_driver_bytes(const settings *s)
{
  return user_buffers_bytes(s);
}
