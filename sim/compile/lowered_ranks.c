#include "sim/compile/lowered_ranks.h"

#include <assert.h>
#include <string.h>

#include "sim/base/parallel.h"
#include "sim/model/chunk.h"
#include "sim/plan/join.h"
#include "sim/residents/fsdp_buffers.h"

/* ---- lowering ----------------------------------------------------------------------------------- */

typedef struct lowering_ranks {
  const settings *settings;
  lowered_ranks *to;
} lowering_ranks;

static void lower_rank(void *context, uint32_t rank)
{
  const lowering_ranks *x = context;
  const settings *s = x->settings;
  lowered_rank *to = &x->to->ranks[rank];
  arena *a = &to->memory;
  to->tables = plan_new(1, a);
  to->programs = ARENA_ARRAY(a, chunk_program *, x->to->chunk_count);
  rank_parameters parameters = { 0 };
  if (!uses_hf(s))
    parameters = s->parallel.use_megatron_fsdp ? fsdp_rank_parameters(s, rank, a)
                                               : rank_parameters_of(s, rank, a);
  for (uint32_t c = 0; c < x->to->chunk_count; c++) {
    graph *g = graph_of_chunk(s, rank, c, a);
    if (!uses_hf(s)) rank_parameters_place(&parameters, s, c, g);
    to->programs[c] = lower_chunk(s, g, &to->tables, a);
    graph_release(g);
  }
}

settings lowered_settings(const settings *s)
{
  settings seen = *s;
  seen.offload.min_offloaded_tensor_size = 0;
  seen.offload.activation_offload_fraction = 0;
  seen.offload.delta_offload_bytes_across_pp_ranks = 0;
  seen.offload.fine_grained_offloading_max_inflight_offloads = UNSET;
  seen.offload.activation_gpu_limit = 0;
  seen.offload.max_fwd_stash_size = 0;
  seen.offload.planned_device_bytes = 0;
  return seen;
}

/* Lowering sees nothing else of the settings. */
lowered_ranks lower_ranks(const settings *s, uint32_t threads)
{
  settings seen = lowered_settings(s);
  lowered_ranks l = { .rank_count = (uint32_t)s->parallel.pipeline_model_parallel_size,
                      .chunk_count = (uint32_t)s->derived.virtual_stages };
  assert(l.rank_count > 0 && l.chunk_count > 0);
  l.ranks = ARENA_ARRAY(&l.memory, lowered_rank, l.rank_count);
  lowering_ranks x = { &seen, &l };
  parallel_for(l.rank_count, threads, lower_rank, &x);
  return l;
}

void lowered_ranks_release(lowered_ranks *l)
{
  for (uint32_t r = 0; r < l->rank_count; r++) {
    for (uint32_t c = 0; c < l->chunk_count; c++)
      chunk_program_release(l->ranks[r].programs[c]);
    plan_release(&l->ranks[r].tables);
    arena_release(&l->ranks[r].memory);
  }
  arena_release(&l->memory);
  *l = (lowered_ranks){ 0 };
}

/* ---- a plan's own programs ---------------------------------------------------------------------- */

static const char *copy_of_name(const char *name, arena *a)
{
  return name == NULL ? NULL : arena_strndup(a, name, strlen(name));
}

static chunk_program *copy_of(const chunk_program *from, arena *a)
{
  chunk_program *p = ARENA_NEW(a, chunk_program);
  *p = *from;
  ARRAY_COPY(&p->forward, &from->forward);
  ARRAY_COPY(&p->backward, &from->backward);
  ARRAY_COPY(&p->forward_parts, &from->forward_parts);
  ARRAY_COPY(&p->backward_parts, &from->backward_parts);
  ARRAY_COPY(&p->places, &from->places);
  ARRAY_COPY(&p->steps, &from->steps);
  ARRAY_COPY(&p->operands, &from->operands);
  ARRAY_COPY(&p->step_views, &from->step_views);
  ARRAY_COPY(&p->parameters, &from->parameters);
  ARRAY_COPY(&p->refills, &from->refills);
  ARRAY_COPY(&p->refill_places, &from->refill_places);
  ARRAY_COPY(&p->entries, &from->entries);
  ARRAY_COPY(&p->entry_places, &from->entry_places);
  ARRAY_COPY(&p->held, &from->held);
  ARRAY_COPY(&p->groups, &from->groups);
  for (uint32_t i = 0; i < p->groups.count; i++)
    p->groups.items[i].name = copy_of_name(p->groups.items[i].name, a);
  return p;
}

void chunk_program_renumber(chunk_program *p, const plan_rows *rows)
{
  for (uint32_t i = 1; i < p->places.count; i++) {
    program_place *place = &p->places.items[i];
    place->tensor += rows->tensors;
    place->view = rows->views[place->view];
  }
  for (uint32_t i = 0; i < p->steps.count; i++) {
    program_step *step = &p->steps.items[i];
    step->site = plan_site_joined(rows, step->site);
    step->call = op_is_call((op_kind)step->op) ? rows->calls[step->call] : rows->views[step->call];
  }
  for (uint32_t i = 0; i < p->parameters.count; i++)
    p->parameters.items[i].tensor += rows->tensors;
  for (uint32_t i = 1; i < p->entries.count; i++) {
    saved_entry *e = &p->entries.items[i];
    e->tensor += rows->tensors;
    e->view = rows->views[e->view];
  }
}

chunk_program **lowered_programs(const lowered_ranks *l, uint32_t rank, plan *p, arena *a)
{
  const lowered_rank *from = &l->ranks[rank];
  plan_rows rows = plan_join_rows(p, &from->tables, a);
  chunk_program **programs = ARENA_ARRAY(a, chunk_program *, l->chunk_count);
  for (uint32_t c = 0; c < l->chunk_count; c++) {
    programs[c] = copy_of(from->programs[c], a);
    chunk_program_renumber(programs[c], &rows);
  }
  return programs;
}
