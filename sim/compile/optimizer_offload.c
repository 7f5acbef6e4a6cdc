#include "sim/compile/optimizer_offload.h"

#include <assert.h>
#include <string.h>

/* ---- what moves, in which order --------------------------------------------------------------- */

/* In the order in which a parameter's are copied. */
static const char *const state_names[] = { "exp_avg", "exp_avg_sq", "master_param" };
enum { STATE_NAMES = sizeof state_names / sizeof *state_names };

static int state_of(const static_allocation *a)
{
  assert(a->purpose < BUFFER_CLASSES);
  for (int k = 0; k < STATE_NAMES && a->purpose == CLASS_OPTIMIZER; k++)
    if (strcmp(a->name, state_names[k]) == 0) return k;
  return -1;
}

typedef struct parameter_states {
  uint32_t allocation[STATE_NAMES]; /* NO_PARAMETER: it has no such state */
} parameter_states;

static parameter_states *states_by_parameter(const walk *w, const static_allocation_list *list)
{
  uint32_t count = list->parameters.count;
  parameter_states *of = ARENA_ARRAY(w->memory, parameter_states, count);
  for (uint32_t p = 0; p < count; p++)
    for (int k = 0; k < STATE_NAMES; k++)
      of[p].allocation[k] = NO_PARAMETER;
  for (uint32_t i = 0; i < list->count; i++) {
    int k = state_of(&list->items[i]);
    if (k < 0) continue;
    assert(list->items[i].parameter < count && "a state belongs to a parameter");
    of[list->items[i].parameter].allocation[k] = i;
  }
  return of;
}

static bool is_of_side(const static_allocation_list *list, uint32_t i, bool experts)
{
  uint32_t owner = list->items[i].parameter;
  assert(i < list->count);
  return owner != NO_PARAMETER && list->parameters.items[owner].is_expert_parallel == experts;
}

/* The states, parameter by parameter; then the main parameters that the optimizer does not hold. */
static void add_optimizer(moving_states *m, const parameter_states *of, bool experts)
{
  const static_allocation_list *list = m->list;
  assert(m->count <= list->count);
  for (uint32_t i = 0; i < list->count; i++) {
    if (state_of(&list->items[i]) != 0 || !is_of_side(list, i, experts)) continue;
    for (int k = 0; k < STATE_NAMES; k++)
      if (of[list->items[i].parameter].allocation[k] != NO_PARAMETER)
        m->order[m->count++] = of[list->items[i].parameter].allocation[k];
  }
  for (uint32_t i = 0; i < list->count; i++)
    if (list->items[i].purpose == CLASS_OPTIMIZER && is_of_side(list, i, experts) &&
        strcmp(list->items[i].name, "main_param") == 0)
      m->order[m->count++] = i;
}

static uint32_t row_of(const walk *w, const moving_states *m, uint32_t allocation)
{
  assert(m->buffer[allocation] < w->rank->buffers.count);
  return w->rank->buffers.items[m->buffer[allocation]].tensor;
}

static uint32_t resident_twin(walk *w, const moving_states *m, uint32_t allocation)
{
  assert(w->iteration == ITERATION_STEADY);
  return walk_resident(w, (plan_buffer){ .bytes = m->list->items[allocation].bytes,
                                         .tensor = row_of(w, m, allocation),
                                         .purpose = CLASS_PINNED_HOST,
                                         .stream = STREAM_HOST });
}

moving_states moving_states_of(walk *w, const static_allocation_list *list, uint32_t *buffer)
{
  moving_states m = { .list = list,
                      .buffer = buffer,
                      .twin = ARENA_ARRAY(w->memory, uint32_t, list->count),
                      .order = ARENA_ARRAY(w->memory, uint32_t, list->count) };
  assert(w->settings->training.offload_optimizer_states);
  for (uint32_t i = 0; i < list->count; i++)
    m.twin[i] = NO_BUFFER;
  const parameter_states *of = states_by_parameter(w, list);
  for (int experts = 0; experts < 2; experts++)
    add_optimizer(&m, of, experts != 0);
  for (uint32_t k = 0; k < m.count && w->iteration == ITERATION_STEADY; k++)
    m.twin[m.order[k]] = resident_twin(w, &m, m.order[k]);
  return m;
}

/* ---- moving ----------------------------------------------------------------------------------- */

/* Before its first step the offloader knows no states, although a checkpoint may have brought them. */
static bool moves(const walk *w, const moving_states *m, uint32_t k)
{
  assert(k < m->count);
  return w->iteration == ITERATION_STEADY || state_of(&m->list->items[m->order[k]]) < 0;
}

static void make_twin(walk *w, moving_states *m, uint32_t allocation)
{
  assert(w->iteration == ITERATION_WARMUP && m->twin[allocation] == NO_BUFFER);
  m->twin[allocation] =
      walk_host_alloc(w, m->list->items[allocation].bytes, row_of(w, m, allocation), 0);
}

void moving_states_leave(walk *w, moving_states *m)
{
  assert(!w->forward_seen && "a step begins");
  act_join(w, STREAM_D2H, STREAM_COMPUTE);
  for (uint32_t k = 0; k < m->count && w->iteration == ITERATION_WARMUP; k++)
    if (moves(w, m, k)) make_twin(w, m, m->order[k]);
  for (uint32_t k = 0; k < m->count; k++) {
    uint32_t i = m->order[k];
    if (!moves(w, m, k)) continue;
    walk_copy(w, OP_D2H, STREAM_D2H, m->buffer[i], m->twin[i], row_of(w, m, i));
    walk_mark_stream(w, m->buffer[i], STREAM_D2H);
  }
}

void moving_states_release(walk *w, const moving_states *m)
{
  assert(!w->forward_seen && "a step begins");
  for (uint32_t k = 0; k < m->count; k++)
    if (moves(w, m, k)) walk_drop_reference(w, m->buffer[m->order[k]]);
}

void moving_states_return(walk *w, moving_states *m)
{
  assert(w->backward_seen && "the last backward is over");
  for (uint32_t k = 0; k < m->count; k++) {
    uint32_t i = m->order[k];
    if (moves(w, m, k))
      m->buffer[i] =
          walk_alloc(w, m->list->items[i].bytes, row_of(w, m, i), CLASS_OPTIMIZER, STREAM_COMPUTE);
  }
  act_join(w, STREAM_H2D, STREAM_D2H);
  act_join(w, STREAM_H2D, STREAM_COMPUTE);
  for (uint32_t k = 0; k < m->count; k++) {
    uint32_t i = m->order[k];
    if (moves(w, m, k)) walk_copy(w, OP_H2D, STREAM_H2D, m->twin[i], m->buffer[i], row_of(w, m, i));
  }
}

void moving_states_end(walk *w, moving_states *m)
{
  assert(w->iteration == ITERATION_WARMUP && w->backward_seen);
  for (uint32_t k = 0; k < m->count; k++)
    if (!moves(w, m, k)) make_twin(w, m, m->order[k]);
}
