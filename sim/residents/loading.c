#include "sim/residents/loading.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/base/units.h"
#include "sim/residents/optimizer_states.h"

/* What lives until the checkpoint is loaded. */
typedef struct passing {
  uint32_t *items;
  uint32_t count, capacity;
} passing;

static void pass(static_writer *w, passing *p, int64_t bytes)
{
  uint32_t id =
      static_take(w, "checkpoint.exchanged", CLASS_TRANSIENT, DTYPE_BYTE, bytes, NO_PARAMETER);
  if (id != UINT32_MAX) *ARRAY_PUSH(p) = id;
}

static void drop(static_writer *w, passing *p)
{
  for (uint32_t i = 0; i < p->count; i++)
    static_give_back(w, p->items[i]);
  ARRAY_FREE(p);
}

static passing made_states(static_writer *w, const optimizer_shard_list *shards)
{
  passing p = { 0 };
  uint32_t first = w->allocations.count;
  take_optimizer_states(w, shards, CLASS_TRANSIENT);
  for (uint32_t id = first; id < w->allocations.count; id++)
    *ARRAY_PUSH(&p) = id;
  return p;
}

/* ---- the exchange ----------------------------------------------------------------------------- */

/* Of the data parallel ranks, `need` have the same tensors; all of them have `sets` different ones. */
typedef struct sharing {
  int64_t need, sets;
} sharing;

static sharing sharing_of(const settings *s, bool expert, bool states)
{
  const struct parallel_settings *p = &s->parallel;
  int64_t ranks = s->derived.data_parallel_size * p->context_parallel_size;
  int64_t need = expert ? max_i64(1, min_i64(ranks, s->derived.expert_data_parallel_size)) : ranks;
  assert(ranks >= need && ranks % need == 0);
  if (states && p->use_distributed_optimizer)
    need = min_i64(need, p->num_distributed_optimizer_instances);
  return (sharing){ need, ranks / need };
}

/* A tensor of the checkpoint that the last rank needs; the ranks of other sets need one of its size. */
typedef struct wanted {
  sharing of;
  int64_t bytes;
  uint32_t number;
} wanted;

typedef struct wanted_array {
  wanted *items;
  uint32_t count, capacity;
} wanted_array;

static void want(wanted_array *all, sharing of, int64_t bytes)
{
  assert(bytes > 0 && of.need >= 1);
  wanted made = { of, bytes, all->count };
  if (of.need > 1) *ARRAY_PUSH(all) = made; /* else the rank reads it, and keeps it to itself */
}

/* The order in which tensors are dealt out: those that fewer ranks need, then the larger ones. */
static int before(const void *left, const void *right)
{
  const wanted *a = left, *b = right;
  if (a->of.need != b->of.need) return a->of.need < b->of.need ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}

/* Of the ranks that need it, the first with the fewest bytes reads it. Rank r is of set r % sets. */
static int64_t deal(int64_t *load, const wanted *t, int64_t set)
{
  int64_t reader = set;
  assert(set < t->of.sets);
  for (int64_t k = 1; k < t->of.need; k++)
    if (load[set + k * t->of.sets] < load[reader]) reader = set + k * t->of.sets;
  load[reader] += t->bytes;
  return reader;
}

/* As the last rank sees it: new tensors for what others have read, and for what only others need. */
static void exchange(static_writer *w, passing *p, wanted_array *all)
{
  if (all->count == 0) return;
  int64_t ranks = all->items[0].of.need * all->items[0].of.sets;
  int64_t *load = ARENA_ARRAY(w->names, int64_t, (size_t)ranks);
  qsort(all->items, all->count, sizeof *all->items, before);
  for (uint32_t i = 0; i < all->count; i++) {
    const wanted *t = &all->items[i];
    assert(t->of.need * t->of.sets == ranks && "all are shared by the data parallel ranks");
    for (int64_t set = 0; set < t->of.sets; set++)
      if (deal(load, t, set) != ranks - 1) pass(w, p, t->bytes);
  }
}

static void want_weights(const static_writer *w, wanted_array *all)
{
  for (uint32_t i = 0; i < w->parameters.count; i++) {
    const parameter *of = &w->parameters.items[i];
    want(all, sharing_of(w->s, of->is_expert, false),
         parameter_elements(of) * dtype_bytes((dtype)of->type));
  }
}

/* Main parameter and each state are a tensor of their own. */
static void want_shards(const static_writer *w, wanted_array *all,
                        const optimizer_shard_list *shards)
{
  for (uint32_t i = 0; i < shards->count; i++) {
    const parameter *of = &w->parameters.items[shards->items[i].parameter];
    int64_t fields = checkpointed_bytes(w->s, of) / dtype_bytes(DTYPE_FP32);
    for (int64_t k = 0; k < fields; k++)
      want(all, sharing_of(w->s, of->is_expert, true),
           shards->items[i].elements * dtype_bytes(DTYPE_FP32));
  }
}

void write_loading(static_writer *w, const optimizer_shard_list *shards)
{
  const settings *s = w->s;
  assert(s->training.resumes && w->phase == STATIC_BUILD);
  bool in_chunks = s->training.chunked_optimizer_state_offload;
  passing states = { 0 }, exchanged = { 0 };
  if (!in_chunks) states = made_states(w, shards);
  if (!in_chunks && s->parallel.use_distributed_optimizer) {
    passing again = made_states(w, shards);
    drop(w, &states);
    states = again;
  }
  if (s->training.ckpt_fully_parallel_load) {
    wanted_array all = { 0 };
    want_weights(w, &all);
    want_shards(w, &all, shards);
    exchange(w, &exchanged, &all);
    ARRAY_FREE(&all);
  }
  take_optimizer_states(w, shards, CLASS_OPTIMIZER);
  drop(w, &exchanged);
  drop(w, &states);
}
