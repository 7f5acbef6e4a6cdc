#include "sim/compile/fsdp_buckets.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/compile/collectives.h"
#include "sim/compile/kernel_calls.h"
#include "sim/compile/parameters.h"
#include "sim/residents/fsdp_buffers.h"

enum { LEAST_CAPACITY = 1000000000 };

typedef struct bucket {
  uint32_t buffer;    /* NO_BUFFER: not collecting, or waiting */
  uint32_t gradients; /* the buffer with this rank's parts, */
  int64_t start;      /* ... and where: elements */
  uint32_t tensor, site;
  uint32_t expected, seen; /* gradients: of a backward, and collected */
} bucket;

typedef struct waiting {
  uint32_t buffer;
  int64_t elements;
  event_id reduced;
} waiting;

struct fsdp_buckets {
  fsdp_group_list groups;
  bucket *buckets;    /* by group */
  uint32_t *group_of; /* by row of the rank's parameters */
  bool *seen;         /* by row */
  waiting *queue;     /* a ring, of the current backward */
  uint32_t first, waiting_count;
  int64_t waiting_elements, capacity;
  bool reduces_output_early;
};

/* How many elements may wait: at least 10^9; a whole unit's, twice; or a bucket's. */
static int64_t capacity_of(const walk *w, const fsdp_group_list *groups)
{
  const settings *s = w->settings;
  int64_t elements = 0, units = 0, limit = gradient_bucket_limit(s, w->pp_rank, 0);
  for (uint32_t i = 0; i < groups->count; i++) {
    const fsdp_group *g = &groups->items[i];
    if (g->layer < 0) continue;
    elements += g->elements;
    units += i == 0 || groups->items[i - 1].layer != g->layer;
  }
  if (s->parallel.data_parallel_sharding_strategy == SHARD_OPTIM_GRADS_PARAMS)
    limit = units > 0 ? 2 * (elements / units) : 0;
  return limit == INT64_MAX ? LEAST_CAPACITY : max_i64(LEAST_CAPACITY, limit);
}

static bucket new_bucket(walk *w, const fsdp_group *g, int64_t start,
                         const static_allocation_list *list, const uint32_t *buffer)
{
  dtype type = fsdp_gradient_type(w->settings, g);
  *ARRAY_PUSH(&w->plan->sites) = (plan_site){ .module = "fsdp", .layer = g->layer };
  uint32_t site = w->plan->sites.count - 1;
  *ARRAY_PUSH(&w->plan->tensors) = (plan_tensor){
    .name = "fsdp.bucket", .site = site, .dtype = (uint8_t)type, .rank = 1, .shape = { g->elements }
  };
  return (bucket){ .buffer = NO_BUFFER,
                   .start = start,
                   .gradients = parameters_fsdp_gradients(list, buffer, (uint8_t)type),
                   .tensor = w->plan->tensors.count - 1,
                   .site = site };
}

static bool is_collected(const program_parameter *p)
{
  return p->row != NO_ROW && !p->gradient.whole;
}

/* A tied embedding is two parameters of the program. */
static void expect_gradients(walk *w, struct fsdp_buckets *b, uint32_t rows)
{
  bool *counted = ARENA_ARRAY(w->memory, bool, rows);
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t k = 0; k < w->programs[c]->parameters.count; k++) {
      const program_parameter *p = &w->programs[c]->parameters.items[k];
      if (!is_collected(p) || counted[p->row]) continue;
      counted[p->row] = true;
      b->buckets[b->group_of[p->row]].expected++;
    }
}

void fsdp_buckets_begin(walk *w, const static_allocation_list *list, const uint32_t *buffer)
{
  const settings *s = w->settings;
  assert(w->buckets == NULL && s->parallel.use_megatron_fsdp);
  if (!fsdp_collects_gradients(s)) return;
  struct fsdp_buckets *b = w->buckets = ARENA_NEW(w->memory, struct fsdp_buckets);
  b->groups = fsdp_groups_of(s, w->pp_rank, &list->parameters, w->memory);
  b->buckets = ARENA_ARRAY(w->memory, bucket, b->groups.count);
  b->group_of = ARENA_ARRAY(w->memory, uint32_t, list->parameters.count);
  b->seen = ARENA_ARRAY(w->memory, bool, list->parameters.count);
  b->queue = ARENA_ARRAY(w->memory, waiting, b->groups.count);
  b->capacity = capacity_of(w, &b->groups);
  b->reduces_output_early =
      s->model.untie_embeddings_and_output_weights && s->model.mtp_num_layers == 0;
  int64_t end[DTYPES] = { 0 };
  for (uint32_t i = 0; i < b->groups.count; i++) {
    const fsdp_group *g = &b->groups.items[i];
    dtype type = fsdp_gradient_type(s, g);
    b->buckets[i] = new_bucket(w, g, end[type], list, buffer);
    end[type] += g->part;
    for (uint32_t k = 0; k < g->slot_count; k++)
      b->group_of[g->slots[k].parameter] = i;
  }
  expect_gradients(w, b, list->parameters.count);
}

/* ---- collecting ---- */

static void take_for(walk *w, instance *in, uint32_t k, uint32_t row)
{
  struct fsdp_buckets *b = w->buckets;
  uint32_t group = b->group_of[row];
  const fsdp_group *g = &b->groups.items[group];
  bucket *of = &b->buckets[group];
  if (!fsdp_group_is_cut(g)) return;
  if (of->buffer == NO_BUFFER) {
    int64_t bytes = w->plan->tensors.items[of->tensor].shape[0] *
                    dtype_bytes((dtype)w->plan->tensors.items[of->tensor].dtype);
    of->buffer = walk_alloc(w, bytes, of->tensor, CLASS_TRANSIENT, STREAM_COMPUTE);
    walk_fill(w, of->buffer); /* nothing writes its padding */
  }
  in->gradient_of[k] = of->buffer;
  of->seen += !b->seen[row];
  b->seen[row] = true;
}

void fsdp_buckets_take(walk *w, const chunk_program *p, instance *in, const program_step *step)
{
  assert(w->buckets != NULL);
  uint32_t count = (uint32_t)step->reads + step->writes;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t operand = p->operands.items[step->operands + i];
    if (operand < OPERAND_PARAMETER_GRADIENT || (operand & OPERAND_PARAMETER) != 0) continue;
    uint32_t k = operand & ~OPERAND_PARAMETER_GRADIENT;
    if (is_collected(&p->parameters.items[k])) take_for(w, in, k, p->parameters.items[k].row);
  }
}

/* ---- reducing ---- */

static void forget_oldest(walk *w)
{
  struct fsdp_buckets *b = w->buckets;
  assert(b->waiting_count > 0);
  const waiting *oldest = &b->queue[b->first];
  b->first = (b->first + 1) % b->groups.count;
  b->waiting_count--;
  act_wait(w, STREAM_COMPUTE, oldest->reduced);
  walk_drop_reference(w, oldest->buffer);
  b->waiting_elements -= oldest->elements;
}

static void reduce(walk *w, uint32_t group)
{
  struct fsdp_buckets *b = w->buckets;
  const fsdp_group *g = &b->groups.items[group];
  bucket *of = &b->buckets[group];
  dtype type = fsdp_gradient_type(w->settings, g);
  int64_t size = dtype_bytes(type);
  while (b->waiting_elements > b->capacity || b->waiting_count == b->groups.count)
    forget_oldest(w);
  act_join(w, STREAM_COMM, STREAM_COMPUTE);
  if (type != DTYPE_FP32) { /* whose sum multiplies (gradient_reduce_div_fusion) */
    plan_call scale = kernel_call(KERNEL_SCALE, type, 2 * g->elements * size);
    scale.dims[0] = g->elements;
    scale.scalars[0] = (double)g->part / (double)g->elements;
    walk_call(w, STREAM_COMM, &scale, &of->buffer, 1, &of->buffer, 1)->site = of->site;
  }
  plan_call scatter = collective_call(w->settings, COLLECTIVE_REDUCE_SCATTER,
                                      g->is_expert ? GROUP_EDP : GROUP_DP, g->elements * size);
  walk_call(w, STREAM_COMM, &scatter, &of->buffer, 1, &of->buffer, 1)->site = of->site;
  plan_call add = kernel_call(KERNEL_ADD, type, 3 * g->part * size);
  add.dims[0] = g->part;
  plan_view part = elements_from(type, of->start, g->part);
  plan_call_views(w->plan, &add,
                  (plan_view[]){ elements_from(type, g->elements - g->part, g->part), part, part },
                  3);
  const uint32_t terms[] = { of->buffer, of->gradients };
  walk_call(w, STREAM_COMM, &add, terms, 2, &of->gradients, 1)->site = of->site;
  b->queue[(b->first + b->waiting_count++) % b->groups.count] =
      (waiting){ of->buffer, g->elements, act_record(w, STREAM_COMM) };
  b->waiting_elements += g->elements;
  of->buffer = NO_BUFFER;
  of->seen = 0;
  for (uint32_t k = 0; k < g->slot_count; k++)
    b->seen[g->slots[k].parameter] = false;
}

/* The complete groups of a layer, or of what is outside of all of them. */
static void reduce_complete(walk *w, uint32_t chunk, int32_t layer)
{
  struct fsdp_buckets *b = w->buckets;
  for (uint32_t i = 0; i < b->groups.count; i++) {
    const fsdp_group *g = &b->groups.items[i];
    const bucket *of = &b->buckets[i];
    assert(of->seen <= of->expected);
    if (g->chunk == chunk && g->layer == layer && of->buffer != NO_BUFFER &&
        of->seen == of->expected)
      reduce(w, i);
  }
}

void fsdp_buckets_layer_begin(walk *w, uint32_t chunk, layer_pass pass)
{
  if (w->buckets != NULL && pass == PASS_BACKWARD && w->buckets->reduces_output_early)
    reduce_complete(w, chunk, -1);
}

void fsdp_buckets_layer_end(walk *w, uint32_t chunk, int32_t layer, layer_pass pass)
{
  assert(layer >= 0);
  if (w->buckets != NULL && pass == PASS_BACKWARD) reduce_complete(w, chunk, layer);
}

void fsdp_buckets_backward_end(walk *w, uint32_t chunk)
{
  if (w->buckets == NULL) return;
  struct fsdp_buckets *b = w->buckets;
  for (uint32_t i = 0; i < b->groups.count; i++)
    if (b->buckets[i].buffer != NO_BUFFER) {
      assert(b->groups.items[i].chunk == chunk && "another chunk's backward has ended");
      reduce(w, i);
    }
  while (b->waiting_count > 0)
    forget_oldest(w);
}
