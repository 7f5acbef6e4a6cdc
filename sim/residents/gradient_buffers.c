/* Megatron's parameter and gradient buffers: the order of parameters, and the padding. */
#include "sim/residents/gradient_buffers.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/residents/layer_wise_layout.h"

enum {
  SLOT_ALIGNMENT = 64,    /* elements: 128 bytes of a 16-bit type */
  BUCKET_ALIGNMENT = 128, /* elements: cuBLAS wants 256-byte alignment */
  HIGH_BUS_BANDWIDTH_ALIGNMENT = 1 << 16
};

#define DEFAULT_BUCKET_ELEMENTS  INT64_C(40000000)
#define BUCKET_ELEMENTS_PER_RANK INT64_C(1000000)

typedef struct index_array {
  uint32_t *items;
  uint32_t count, capacity;
} index_array;
typedef struct shard_array {
  optimizer_shard *items;
  uint32_t count, capacity;
} shard_array;

dtype gradient_type_of(const settings *s)
{
  const struct training_settings *t = &s->training;
  if (t->use_precision_aware_optimizer && t->main_grads_dtype == MAIN_GRADS_BF16) return DTYPE_BF16;
  if (t->bf16) return t->grad_reduce_in_bf16 ? DTYPE_BF16 : DTYPE_FP32;
  if (t->fp16) return t->accumulate_allreduce_grads_in_fp32 ? DTYPE_FP32 : DTYPE_FP16;
  return DTYPE_FP32;
}

bool parameters_are_buffered(const settings *s)
{
  if (s->derived.layer_wise_optimizer) return s->derived.layer_wise_layout;
  return s->parallel.use_distributed_optimizer;
}

/* Dense gradients are summed over data and context parallel ranks. */
static int64_t ranks_of_buffer(const settings *s, bool is_expert)
{
  const struct parallel_settings *p = &s->parallel;
  int64_t all = is_expert ? s->derived.expert_data_parallel_size
                          : s->derived.data_parallel_size * p->context_parallel_size;
  return max_i64(1, all / p->num_distributed_optimizer_instances);
}

int64_t gradient_bucket_limit(const settings *s, uint32_t pp_rank, uint32_t chunk)
{
  if (!s->parallel.overlap_grad_reduce || pp_rank > 0 || chunk > 0) return INT64_MAX;
  if (s->parallel.ddp_bucket_size != UNSET) return s->parallel.ddp_bucket_size;
  return max_i64(DEFAULT_BUCKET_ELEMENTS, BUCKET_ELEMENTS_PER_RANK * s->derived.data_parallel_size);
}

/* The buffer being laid out. */
typedef struct layout {
  bool padded;
  int64_t bucket_multiple;
  slot_array slots;
  bucket_array buckets;
  int64_t bucket_start; /* of the open bucket */
  int64_t end;          /* of what has been placed */
  bool open;            /* the open bucket holds something */
} layout;

static void close_bucket(layout *l)
{
  assert(l->open && l->bucket_multiple > 0 && l->end >= l->bucket_start);
  if (l->padded) l->end = round_up(l->end, l->bucket_multiple);
  *ARRAY_PUSH(&l->buckets) = (gradient_bucket){ l->bucket_start, l->end };
  l->bucket_start = l->end;
  l->open = false;
}

static void place(layout *l, const parameter *p, uint32_t index, int64_t limit)
{
  if (l->padded) l->end = round_up(l->end, SLOT_ALIGNMENT);
  bool alone = l->padded && p->shared_embedding;
  if (alone && l->open) close_bucket(l);
  *ARRAY_PUSH(&l->slots) = (buffer_slot){ index, l->buckets.count, l->end };
  l->end += parameter_elements(p);
  l->open = true;
  assert(l->end > l->bucket_start);
  if (alone || l->end - l->bucket_start >= limit) close_bucket(l);
}

static gradient_buffer finish(const settings *s, layout *l, uint8_t parameter_type, arena *a)
{
  assert(l->slots.count > 0 && l->buckets.items[l->buckets.count - 1].end == l->end);
  gradient_buffer b = { .elements = l->end,
                        .slot_count = l->slots.count,
                        .bucket_count = l->buckets.count };
  b.gradient_type = (uint8_t)gradient_type_of(s);
  b.gradient_bytes = l->end * dtype_bytes(gradient_type_of(s));
  if (parameters_are_buffered(s)) b.parameter_bytes = l->end * dtype_bytes((dtype)parameter_type);
  b.slots = ARENA_ARRAY(a, buffer_slot, b.slot_count);
  memcpy(b.slots, l->slots.items, b.slot_count * sizeof *b.slots);
  b.buckets = ARENA_ARRAY(a, gradient_bucket, b.bucket_count);
  memcpy(b.buckets, l->buckets.items, b.bucket_count * sizeof *b.buckets);
  ARRAY_FREE(&l->slots);
  ARRAY_FREE(&l->buckets);
  return b;
}

/* Parameters that share a buffer have the same key. */
enum { KIND_FP8 = 1, KIND_WHOLE = 2, KIND_EXPERT = 4, KIND_COUNT = 8 };

static unsigned kind_of(const settings *s, const parameter *p)
{
  bool whole = s->derived.layer_wise_layout && p->role == PARAMETER_WEIGHT;
  return (p->type == DTYPE_FP8 ? KIND_FP8 : 0u) | (whole ? KIND_WHOLE : 0u) |
         (p->is_expert_parallel ? KIND_EXPERT : 0u);
}

static index_array members_of(const settings *s, uint32_t chunk, unsigned kind,
                              const parameter_list *parameters)
{
  index_array members = { 0 };
  for (uint32_t i = parameters->count; i-- > 0;)
    if (parameters->items[i].chunk == chunk && kind_of(s, &parameters->items[i]) == kind)
      *ARRAY_PUSH(&members) = i;
  return members;
}

static void place_whole(layout *l, const parameter_list *parameters, const index_array *members,
                        int64_t ranks, int64_t limit)
{
  assert(l->bucket_multiple % ranks == 0);
  int64_t multiple = least_common_multiple(SLOT_ALIGNMENT, l->bucket_multiple / ranks);
  layer_wise_rules rules = { ranks, multiple, limit };
  layer_wise_layout(parameters, members->items, members->count, &rules, &l->slots, &l->buckets);
  l->end = l->buckets.items[l->buckets.count - 1].end;
}

static void place_in_order(layout *l, const parameter_list *parameters, const index_array *members,
                           int64_t limit)
{
  for (uint32_t i = 0; i < members->count; i++)
    place(l, &parameters->items[members->items[i]], members->items[i], limit);
  if (l->open) close_bucket(l);
}

static gradient_buffer buffer_of(const settings *s, uint32_t pp_rank, uint32_t chunk, unsigned kind,
                                 const parameter_list *parameters, arena *a)
{
  gradient_buffer b = { 0 };
  index_array members = members_of(s, chunk, kind, parameters);
  if (members.count == 0) return b;
  int64_t ranks = ranks_of_buffer(s, (kind & KIND_EXPERT) != 0);
  int64_t multiple = least_common_multiple(ranks, BUCKET_ALIGNMENT);
  if (s->parallel.ddp_pad_buckets_for_high_nccl_busbw)
    multiple = least_common_multiple(multiple, HIGH_BUS_BANDWIDTH_ALIGNMENT);
  layout l = { .padded = parameters_are_buffered(s), .bucket_multiple = multiple };
  int64_t limit = gradient_bucket_limit(s, pp_rank, chunk);
  if (kind & KIND_WHOLE)
    place_whole(&l, parameters, &members, ranks, limit);
  else
    place_in_order(&l, parameters, &members, limit);
  b = finish(s, &l, parameters->items[members.items[0]].type, a);
  b.chunk = chunk;
  b.is_expert = (kind & KIND_EXPERT) != 0;
  b.ranks = ranks;
  ARRAY_FREE(&members);
  return b;
}

gradient_buffer_list gradient_buffers_of_rank(const settings *s, uint32_t pp_rank,
                                              const parameter_list *parameters, arena *a)
{
  uint32_t chunks = (uint32_t)s->derived.virtual_stages;
  gradient_buffer_list list = { ARENA_ARRAY(a, gradient_buffer, KIND_COUNT * chunks), 0 };
  for (uint32_t chunk = 0; chunk < chunks; chunk++)
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
      gradient_buffer b = buffer_of(s, pp_rank, chunk, kind, parameters, a);
      if (b.slot_count > 0) list.items[list.count++] = b;
    }
  return list;
}

/* Every bucket is cut into equal parts, one per rank. The last rank owns the last part. */
static void add_owned(const parameter_list *parameters, const gradient_buffer *b, shard_array *out)
{
  for (uint32_t i = 0; i < b->slot_count; i++) {
    const buffer_slot *slot = &b->slots[i];
    const gradient_bucket *bucket = &b->buckets[slot->bucket];
    assert(slot->bucket < b->bucket_count && (bucket->end - bucket->start) % b->ranks == 0);
    int64_t owned_start = bucket->end - (bucket->end - bucket->start) / b->ranks;
    int64_t slot_end = slot->start + parameter_elements(&parameters->items[slot->parameter]);
    int64_t start = max_i64(slot->start, owned_start);
    if (slot_end > start) *ARRAY_PUSH(out) = (optimizer_shard){ slot->parameter, slot_end - start };
  }
}

optimizer_shard_list optimizer_shards_of(const settings *s, const parameter_list *parameters,
                                         const gradient_buffer_list *buffers, arena *a)
{
  shard_array found = { 0 };
  if (parameters_are_buffered(s)) {
    for (uint32_t i = 0; i < buffers->count; i++)
      add_owned(parameters, &buffers->items[i], &found);
  } else {
    for (uint32_t i = 0; i < parameters->count; i++)
      *ARRAY_PUSH(&found) = (optimizer_shard){ i, parameter_elements(&parameters->items[i]) };
  }
  optimizer_shard_list list = { ARENA_ARRAY(a, optimizer_shard, found.count), found.count };
  if (found.count > 0) memcpy(list.items, found.items, found.count * sizeof *list.items);
  ARRAY_FREE(&found);
  return list;
}
