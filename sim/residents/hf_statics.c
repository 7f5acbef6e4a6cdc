/* Workspaces, optimizer states and the tensors that a step leaves in memory, for plain PyTorch. */
#include "sim/residents/hf_statics.h"

#include "sim/base/units.h"
#include "sim/graph/sizes.h"
#include "sim/residents/fsdp_units.h"
#include "sim/residents/static_writer.h"
#include "sim/residents/workspaces.h"

/* bitsandbytes */
enum {
  BLOCK_ELEMENTS = 256, /* of 8-bit states that share a maximum */
  LEAST_8BIT_ELEMENTS = 4096,
  LEAST_PAGED_ELEMENTS = 100000,
  QUANTISATION_LEVELS = 256
};

/* torchao; transformers asks for blocks of 256 for 4 bits too. Smaller parameters, and those that are no
 * whole number of blocks, have states like themselves. */
enum { LEAST_PACKED_ELEMENTS = 4096, PACKED_BLOCK_ELEMENTS = 256 };

/* DistributedDataParallel: bucket_cap_mb, and of the first bucket. */
enum { FIRST_BUCKET_BYTES = 1 << 20, BUCKET_BYTES = 25 << 20 };

/* Adam's foreach operations, reads and writes of a parameter's size: decay 2, lerp 3, mul 2,
 * addcmul 3, sqrt 2, div 2, add 2, addcdiv 4. */
enum { FOREACH_PASSES = 20 };

typedef enum state_form {
  STATES_NONE,
  STATES_LIKE_PARAMETER,
  STATES_8BIT,
  STATES_32BIT,
  STATES_PACKED_8BIT,
  STATES_PACKED_4BIT,
  STATES_PACKED_FP8
} state_form;

/* torchao's states: bits of an element, and the number of values that they encode. */
typedef struct packed_form {
  int64_t bits, levels;
} packed_form;

static const packed_form packed_forms[] = { [STATES_PACKED_8BIT] = { 8, 256 },
                                            [STATES_PACKED_4BIT] = { 4, 16 },
                                            [STATES_PACKED_FP8] = { 8, 0 } };

enum { ADAM_MOMENTS = 2, LION_MOMENTS = 1 };
static const char *const moment_names[] = { "exp_avg", "exp_avg_sq" };

typedef struct optimizer_row {
  optimizer_choice name;
  state_form form;
  int moments;
  bool foreach; /* temporaries of a step over all parameters at once */
  bool device_counters;
  bool paged;
} optimizer_row;

static const optimizer_row optimizers[] = {
  { OPTIMIZER_NONE, STATES_NONE, 0, false, false, false },
  { OPTIMIZER_SGD, STATES_NONE, 0, false, false, false },
  { OPTIMIZER_ADAM, STATES_LIKE_PARAMETER, ADAM_MOMENTS, true, false, false },
  { OPTIMIZER_ADAMW_TORCH, STATES_LIKE_PARAMETER, ADAM_MOMENTS, true, false, false },
  { OPTIMIZER_ADAMW_TORCH_FUSED, STATES_LIKE_PARAMETER, ADAM_MOMENTS, false, true, false },
  { OPTIMIZER_ADAMW_8BIT, STATES_8BIT, ADAM_MOMENTS, false, false, false },
  { OPTIMIZER_PAGED_ADAMW_8BIT, STATES_8BIT, ADAM_MOMENTS, false, false, true },
  { OPTIMIZER_PAGED_ADAMW_32BIT, STATES_32BIT, ADAM_MOMENTS, false, false, true },
  { OPTIMIZER_ADAMW_TORCH_8BIT, STATES_PACKED_8BIT, ADAM_MOMENTS, false, false, false },
  { OPTIMIZER_ADAMW_TORCH_4BIT, STATES_PACKED_4BIT, ADAM_MOMENTS, false, false, false },
  { OPTIMIZER_ADAMW_FP8, STATES_PACKED_FP8, ADAM_MOMENTS, false, false, false },
  { OPTIMIZER_LION_8BIT, STATES_8BIT, LION_MOMENTS, false, false, false },
  { OPTIMIZER_LION_32BIT, STATES_32BIT, LION_MOMENTS, false, false, false },
  { OPTIMIZER_PAGED_LION_8BIT, STATES_8BIT, LION_MOMENTS, false, false, true },
  { OPTIMIZER_PAGED_LION_32BIT, STATES_32BIT, LION_MOMENTS, false, false, true },
};

static const optimizer_row *optimizer_of(const settings *s)
{
  for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++)
    if (optimizers[i].name == s->training.optimizer) return &optimizers[i];
  assert(0 && "settings_resolve lets only these through with hf");
  return &optimizers[0];
}

/* Fused: gradient, parameter and states are read, and all but the gradient written. */
int64_t hf_step_traffic_bytes(const settings *s, int64_t parameter_bytes, int64_t state_bytes)
{
  return optimizer_of(s)->foreach ? FOREACH_PASSES * parameter_bytes
                                  : 3 * parameter_bytes + 2 * state_bytes;
}

/* ---- what the optimizer steps ---- */

typedef struct stepped {
  int64_t elements;
  dtype type;
  bool embedding;
  uint32_t parameter; /* of the model's; with FSDP, the shard */
} stepped;

typedef struct stepped_list {
  stepped *items;
  uint32_t count;
} stepped_list;

static stepped_list stepped_shards(const settings *s, const hf_parameter_list *parameters, arena *a)
{
  fsdp_layout l = fsdp_layout_of(s, parameters, a);
  stepped_list list = { ARENA_ARRAY(a, stepped, l.shard_count), 0 };

  for (uint32_t i = 0; i < l.shard_count; i++)
    if (l.shards[i].trainable)
      list.items[list.count++] =
          (stepped){ l.shards[i].elements, fsdp_storage_dtype(s, (dtype)l.shards[i].type),
                     l.shards[i].embedding, i };
  return list;
}

static stepped_list stepped_by_optimizer(const settings *s, const hf_parameter_list *parameters,
                                         arena *a)
{
  stepped_list list = { ARENA_ARRAY(a, stepped, parameters->count), 0 };

  if (uses_fsdp(s)) return stepped_shards(s, parameters, a);
  for (uint32_t i = 0; i < parameters->count; i++) {
    const hf_parameter *p = &parameters->items[i];
    if (p->trainable)
      list.items[list.count++] = (stepped){ p->elements, (dtype)p->type, p->embedding, i };
  }
  return list;
}

/* ---- states ---- */

static void take_of(static_writer *w, const stepped *p, const char *name, dtype type,
                    int64_t elements)
{
  static_take(w, name, CLASS_OPTIMIZER, type, elements * dtype_bytes(type), p->parameter);
}

static void take(static_writer *w, const char *name, dtype type, int64_t elements)
{
  static_take(w, name, CLASS_OPTIMIZER, type, elements * dtype_bytes(type), NO_PARAMETER);
}

/* Moments of one type. The driver manages states in managed memory, so they are not counted. */
static void write_moments(static_writer *w, const optimizer_row *o, dtype type, const stepped *p)
{
  if (o->paged && p->elements >= LEAST_PAGED_ELEMENTS) return;
  for (int i = 0; i < o->moments; i++)
    take_of(w, p, moment_names[i], type, p->elements);
}

static void write_blocks(static_writer *w, const optimizer_row *o, int64_t elements)
{
  static const char *const names[] = { "exp_avg.absmax", "exp_avg_sq.absmax" };

  for (int i = 0; i < o->moments; i++)
    take(w, names[i], DTYPE_FP32, ceil_div(elements, BLOCK_ELEMENTS));
}

static bool is_8bit(const optimizer_row *o, const stepped *p)
{
  return o->form == STATES_8BIT && p->elements >= LEAST_8BIT_ELEMENTS && !p->embedding;
}

static bool is_packed(const optimizer_row *o, const stepped *p)
{
  return o->form >= STATES_PACKED_8BIT && p->elements >= LEAST_PACKED_ELEMENTS &&
         p->elements % PACKED_BLOCK_ELEMENTS == 0;
}

/* Each moment has scales and levels that nothing shares. */
static void write_packed(static_writer *w, const optimizer_row *o, const stepped *p)
{
  enum { BYTE_BITS = 8 };
  const packed_form *form = &packed_forms[o->form];

  for (int i = 0; i < o->moments; i++) {
    take_of(w, p, moment_names[i], DTYPE_BYTE, p->elements / BYTE_BITS * form->bits);
    take(w, "scale", DTYPE_FP32, p->elements / PACKED_BLOCK_ELEMENTS);
    if (form->levels > 0) take(w, "qmap", DTYPE_FP32, form->levels);
  }
}

static void write_states(static_writer *w, const optimizer_row *o, const stepped *p)
{
  if (o->device_counters) take(w, "step", DTYPE_FP32, 1);
  if (is_packed(o, p)) {
    write_packed(w, o, p);
    return;
  }
  if (o->form == STATES_LIKE_PARAMETER || o->form >= STATES_PACKED_8BIT) {
    write_moments(w, o, p->type, p);
    return;
  }
  write_moments(w, o, is_8bit(o, p) ? DTYPE_BYTE : DTYPE_FP32, p);
  if (is_8bit(o, p)) write_blocks(w, o, p->elements);
}

/* The first parameter with 8-bit states moves the tables that its moments use to the device. */
static void write_tables(static_writer *w, const optimizer_row *o)
{
  take(w, "quantisation_table.signed", DTYPE_FP32, QUANTISATION_LEVELS);
  if (o->moments == ADAM_MOMENTS)
    take(w, "quantisation_table.unsigned", DTYPE_FP32, QUANTISATION_LEVELS);
}

static void write_roots(static_writer *w, const stepped_list *list)
{
  for (uint32_t i = 0; i < list->count; i++) {
    const stepped *p = &list->items[i];
    *ARRAY_PUSH(&w->allocations) = (static_allocation){ .name = "exp_avg_sq.sqrt",
                                                        .purpose = CLASS_TRANSIENT,
                                                        .phase = (uint8_t)w->phase,
                                                        .type = (uint8_t)p->type,
                                                        .bytes = p->elements * dtype_bytes(p->type),
                                                        .parameter = NO_PARAMETER,
                                                        .in_step = true };
  }
}

static void write_optimizer(static_writer *w, const hf_parameter_list *parameters)
{
  const optimizer_row *o = optimizer_of(w->s);
  stepped_list list = stepped_by_optimizer(w->s, parameters, w->names);
  bool has_tables = false;

  if (o->form == STATES_NONE || w->s->training.optimizer_cpu_offload) return;
  for (uint32_t i = 0; i < list.count; i++) {
    if (is_8bit(o, &list.items[i]) && !has_tables) write_tables(w, o);
    has_tables = has_tables || is_8bit(o, &list.items[i]);
    write_states(w, o, &list.items[i]);
  }
  if (o->foreach) write_roots(w, &list);
}

/* ---- DistributedDataParallel ---- */

/* Each backward allocates them; offsim keeps them in forward too. */
static void write_zero_buckets(static_writer *w)
{
  const struct parallel_settings *p = &w->s->parallel;
  dtype type = model_dtype(w->s);

  for (int64_t i = 0; i < p->zero_buckets; i++)
    *ARRAY_PUSH(&w->allocations) =
        (static_allocation){ .name = "zero.bucket",
                             .purpose = CLASS_WORKSPACE,
                             .phase = (uint8_t)w->phase,
                             .type = (uint8_t)type,
                             .bytes = p->zero_reduce_bucket_size * dtype_bytes(type),
                             .parameter = NO_PARAMETER,
                             .each_pass = true };
}

/* A bucket closes when it has reached its size. The gradients of the last parameters come first. */
static void write_buckets(static_writer *w, const hf_parameter_list *parameters)
{
  int64_t limit = FIRST_BUCKET_BYTES, bytes = 0;

  if (uses_zero(w->s)) write_zero_buckets(w);
  if (uses_fsdp(w->s) || w->s->parallel.world_size == 1) return;
  for (uint32_t i = parameters->count; i-- > 0;) {
    const hf_parameter *p = &parameters->items[i];
    if (p->trainable) bytes += p->elements * dtype_bytes((dtype)p->type);
    if (bytes < limit && i > 0) continue;
    static_take(w, "ddp.bucket", CLASS_GRADIENT, DTYPE_BYTE, bytes, NO_PARAMETER);
    limit = BUCKET_BYTES;
    bytes = 0;
  }
}

/* ---- the rest ---- */

static void write_workspace(static_writer *w, static_phase phase, const char *name)
{
  w->phase = phase;
  static_take(w, name, CLASS_WORKSPACE, DTYPE_BYTE,
              cublas_workspace_bytes(w->s, w->compute_capability), NO_PARAMETER);
}

static void write_frequencies(static_writer *w)
{
  if (w->s->model.position_embedding_type != POSITIONS_ROPE) return;
  static_take(w, "rotary_emb.inv_freq", CLASS_WORKSPACE, DTYPE_FP32,
              w->s->model.kv_channels / 2 * dtype_bytes(DTYPE_FP32), NO_PARAMETER);
}

static void write_left(static_writer *w)
{
  int64_t tokens = w->s->training.micro_batch_size * size_sequence(w->s);

  w->phase = STATIC_RETAINED;
  static_take(w, "input_ids", CLASS_RETAINED, DTYPE_INT64, tokens * dtype_bytes(DTYPE_INT64),
              NO_PARAMETER);
  static_take(w, "loss", CLASS_RETAINED, DTYPE_FP32, dtype_bytes(DTYPE_FP32), NO_PARAMETER);
}

static_allocation_list hf_static_allocations(const settings *s, int compute_capability,
                                             const hf_parameter_list *parameters, arena *a)
{
  static_writer w = { .s = s, .names = a, .compute_capability = compute_capability };

  w.phase = STATIC_BUILD;
  write_frequencies(&w);
  write_buckets(&w, parameters);
  write_workspace(&w, STATIC_FORWARD, "cublas.forward_workspace");
  write_workspace(&w, STATIC_BACKWARD, "cublas.backward_workspace");
  w.phase = STATIC_STEP;
  write_optimizer(&w, parameters);
  write_left(&w);
  return static_writer_finish(&w, a);
}
