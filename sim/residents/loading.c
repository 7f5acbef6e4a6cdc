#include "sim/residents/loading.h"

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

/* The tensor with that number among its kind: the last rank reads every `need`th. */
static void exchange(static_writer *w, passing *p, sharing of, int64_t bytes, uint32_t number)
{
  if (of.need == 1) return;
  if (number % of.need != of.need - 1) pass(w, p, bytes);
  for (int64_t other = 1; other < of.sets; other++)
    pass(w, p, bytes);
}

static void exchange_weights(static_writer *w, passing *p)
{
  uint32_t seen[2] = { 0, 0 };
  for (uint32_t i = 0; i < w->parameters.count; i++) {
    const parameter *of = &w->parameters.items[i];
    int64_t bytes = parameter_elements(of) * dtype_bytes((dtype)of->type);
    exchange(w, p, sharing_of(w->s, of->is_expert, false), bytes, seen[of->is_expert]++);
  }
}

static void exchange_shards(static_writer *w, passing *p, const optimizer_shard_list *shards)
{
  uint32_t seen[2] = { 0, 0 };
  for (uint32_t i = 0; i < shards->count; i++) {
    const parameter *of = &w->parameters.items[shards->items[i].parameter];
    exchange(w, p, sharing_of(w->s, of->is_expert, true),
             shards->items[i].elements * checkpointed_bytes(w->s, of), seen[of->is_expert]++);
  }
}

void write_loading(static_writer *w, const optimizer_shard_list *shards)
{
  const settings *s = w->s;
  assert(s->training.resumes && w->phase == STATIC_BUILD);
  passing states = made_states(w, shards), exchanged = { 0 };
  if (s->parallel.use_distributed_optimizer) {
    passing again = made_states(w, shards);
    drop(w, &states);
    states = again;
  }
  if (s->training.ckpt_fully_parallel_load) {
    exchange_weights(w, &exchanged);
    exchange_shards(w, &exchanged, shards);
  }
  take_optimizer_states(w, shards, CLASS_OPTIMIZER);
  drop(w, &exchanged);
  drop(w, &states);
}
