/* Buckets of whole matrices. */
#include "sim/residents/layer_wise_layout.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"

enum {
  SLOT_ALIGNMENT = 64,
  FLOOR_PERCENT = 90,     /* of ranks x largest parameter: a bucket's least size */
  OVERLOAD_PERCENT = 130, /* of the average: a shard's greatest size */
  PERCENT = 100
};

/* A parameter of the open bucket. */
typedef struct candidate {
  uint32_t position; /* in the order of taking */
  uint32_t parameter;
  int64_t elements;
  int64_t cost;
  int64_t shard; /* dealt to it, at `start` from its begin */
  int64_t start;
} candidate;

typedef struct candidate_array {
  candidate *items;
  uint32_t count, capacity;
} candidate_array;

typedef struct dealer {
  const layer_wise_rules *rules;
  candidate_array open;
  int64_t open_elements, open_largest;
  int64_t *estimate; /* by shard: elements of the open bucket if dealt by size as they come */
  int64_t *length;   /* by shard: elements dealt */
  int64_t *work;     /* by shard, over all buckets */
  int64_t end;       /* of the closed buckets */
  slot_array *slots;
  bucket_array *buckets;
} dealer;

/* The work of Newton-Schulz iterations: the longer side times the square of the shorter side. */
static int64_t cost_of(const parameter *p)
{
  int64_t longer = max_i64(p->shape[0], p->shape[1]), shorter = min_i64(p->shape[0], p->shape[1]);
  return longer * shorter * shorter;
}

static int by_cost(const void *left, const void *right)
{
  const candidate *a = left, *b = right;
  if (a->cost != b->cost) return a->cost > b->cost ? -1 : 1;
  return a->position < b->position ? -1 : 1;
}

static int by_position(const void *left, const void *right)
{
  const candidate *a = left, *b = right;
  return a->position < b->position ? -1 : 1;
}

static int64_t least_of(const int64_t *values, int64_t count)
{
  int64_t least = 0;
  for (int64_t i = 1; i < count; i++)
    if (values[i] < values[least]) least = i;
  return least;
}

static int64_t greatest_value(const int64_t *values, int64_t count)
{
  int64_t greatest = 0;
  for (int64_t i = 0; i < count; i++)
    greatest = max_i64(greatest, values[i]);
  return greatest;
}

/* The shard with the least work among those with room; the shortest shard if none has room. */
static int64_t shard_for(const dealer *d, int64_t elements)
{
  int64_t ranks = d->rules->ranks, best = -1;
  for (int64_t i = 0; i < ranks; i++) {
    int64_t filled = round_up(d->length[i], SLOT_ALIGNMENT) + elements;
    bool has_room = filled <= d->open_elements * OVERLOAD_PERCENT / PERCENT / ranks;
    if (has_room && (best < 0 || d->work[i] < d->work[best])) best = i;
  }
  return best < 0 ? least_of(d->length, ranks) : best;
}

static void deal(dealer *d)
{
  memset(d->length, 0, (size_t)d->rules->ranks * sizeof *d->length);
  qsort(d->open.items, d->open.count, sizeof *d->open.items, by_cost);
  for (uint32_t i = 0; i < d->open.count; i++) {
    candidate *c = &d->open.items[i];
    c->shard = shard_for(d, c->elements);
    c->start = round_up(d->length[c->shard], SLOT_ALIGNMENT);
    d->length[c->shard] = c->start + c->elements;
    d->work[c->shard] += c->cost;
  }
}

static void close_bucket(dealer *d)
{
  if (d->open.count == 0) return;
  int64_t ranks = d->rules->ranks;
  deal(d);
  int64_t shard = round_up(greatest_value(d->length, ranks), d->rules->shard_multiple);
  qsort(d->open.items, d->open.count, sizeof *d->open.items, by_position);
  for (uint32_t i = 0; i < d->open.count; i++) {
    const candidate *c = &d->open.items[i];
    assert(c->start + c->elements <= shard);
    int64_t start = d->end + c->shard * shard + c->start;
    *ARRAY_PUSH(d->slots) = (buffer_slot){ c->parameter, d->buckets->count, start };
  }
  *ARRAY_PUSH(d->buckets) = (gradient_bucket){ d->end, d->end + ranks * shard };
  d->end += ranks * shard;
  d->open.count = 0;
  d->open_elements = d->open_largest = 0;
  memset(d->estimate, 0, (size_t)ranks * sizeof *d->estimate);
}

static bool is_full(const dealer *d, int64_t next)
{
  int64_t ranks = d->rules->ranks;
  int64_t least = max_i64(d->rules->limit, ranks * d->open_largest * FLOOR_PERCENT / PERCENT);
  if (d->open.count == 0 || d->open_elements < least) return false;
  int64_t row = round_up(greatest_value(d->estimate, ranks), d->rules->shard_multiple);
  int64_t shortest = d->estimate[least_of(d->estimate, ranks)];
  return round_up(shortest, SLOT_ALIGNMENT) + next > row;
}

static void take(dealer *d, const parameter *p, uint32_t index)
{
  int64_t elements = parameter_elements(p);
  if (is_full(d, elements)) close_bucket(d);
  int64_t *shortest = &d->estimate[least_of(d->estimate, d->rules->ranks)];
  *shortest = round_up(*shortest, SLOT_ALIGNMENT) + elements;
  *ARRAY_PUSH(&d->open) = (candidate){
    .position = d->open.count, .parameter = index, .elements = elements, .cost = cost_of(p)
  };
  d->open_elements += elements;
  d->open_largest = max_i64(d->open_largest, elements);
}

void layer_wise_layout(const parameter_list *parameters, const uint32_t *members, uint32_t count,
                       const layer_wise_rules *rules, slot_array *slots, bucket_array *buckets)
{
  assert(rules->ranks > 0 && rules->shard_multiple % SLOT_ALIGNMENT == 0 && rules->limit > 0);
  arena scratch = { 0 };
  dealer d = { .rules = rules, .slots = slots, .buckets = buckets };
  d.estimate = ARENA_ARRAY(&scratch, int64_t, (size_t)rules->ranks);
  d.length = ARENA_ARRAY(&scratch, int64_t, (size_t)rules->ranks);
  d.work = ARENA_ARRAY(&scratch, int64_t, (size_t)rules->ranks);
  for (uint32_t i = 0; i < count; i++)
    take(&d, &parameters->items[members[i]], members[i]);
  close_bucket(&d);
  ARRAY_FREE(&d.open);
  arena_release(&scratch);
}
