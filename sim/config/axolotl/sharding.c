/*
 * How many GPUs train together in an Axolotl file, and what they share: PyTorch's FSDP, DeepSpeed, and the
 * sizes of the device mesh (utils/distributed.py, build_parallelism_config; accelerate's prepare_model).
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/config/axolotl/parts.h"

/* What trains in mixed precision is kept in fp32, however it was loaded (accelerate, prepare_model
 * and fsdp2_prepare_model); adapters are so already. */
static bool set_master_weights(const axolotl_reader *r, const text_node *n)
{
  bool mixed = r->s->training.bf16 || r->s->training.fp16;
  return !mixed || axolotl_get(r, "adapter") != NULL ||
         axolotl_set(r, KEY_parallel_fsdp_model_dtype, "fp32", n);
}

static bool set_parameters_on_host(const axolotl_reader *r, const char *name, const text_node *n)
{
  diag_note(
      r->d, n->at,
      "%s: optimizer states are predicted on the host, shards and their gradients on the GPU, "
      "which overestimates its memory use; copies and the time of the step on the host are not "
      "modelled",
      name);
  return axolotl_set(r, KEY_training_optimizer_cpu_offload, "true", n);
}

/* ---- PyTorch's FSDP ---- */

/* The version is next to fsdp_config or in it; without one it is the first. */
static const text_node *fsdp_version(const axolotl_reader *r)
{
  const text_node *map = axolotl_get(r, "fsdp_config");
  const text_node *n = axolotl_get(r, "fsdp_version");
  if (n == NULL) n = text_get(map, "fsdp_version");
  return n != NULL ? n : text_get(map, "version");
}

/* Strategies of the first version (torch.distributed.fsdp.ShardingStrategy), by name or number. */
static bool set_strategy(const axolotl_reader *r)
{
  static const struct strategy {
    const char *name, *number, *reshards;
  } strategies[] = {
    { "FULL_SHARD", "1", "true" },
    { "SHARD_GRAD_OP", "2", "false" },
  };
  const text_node *map = axolotl_get(r, "fsdp_config");
  const text_node *n = text_get(map, "sharding_strategy");
  if (n == NULL) n = text_get(map, "fsdp_sharding_strategy");
  if (n == NULL || text_is_null(n)) return true;
  for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
    if (n->kind == TEXT_SCALAR &&
        (strcmp(n->text, strategies[i].name) == 0 || strcmp(n->text, strategies[i].number) == 0))
      return axolotl_set(r, KEY_parallel_fsdp_reshard_after_forward, strategies[i].reshards, n);
  return diag_error(
      r->d, n->at,
      "sharding_strategy is %s; FULL_SHARD and SHARD_GRAD_OP are predicted (dp_shard_size "
      "and dp_replicate_size describe hybrid sharding)",
      text_describe(r->a, n));
}

/* Shards, their gradients and the optimizer are on the host (CPUOffload, CPUOffloadPolicy). */
static bool set_offload_params(const axolotl_reader *r)
{
  const text_node *map = axolotl_get(r, "fsdp_config");
  const text_node *n = text_get(map, "offload_params");
  if (n == NULL) n = text_get(map, "fsdp_offload_params");
  return !axolotl_truth(n) || set_parameters_on_host(r, "offload_params", n);
}

static bool set_fsdp(const axolotl_reader *r)
{
  const text_node *list = axolotl_get(r, "fsdp"), *map = axolotl_get(r, "fsdp_config");
  int64_t version = 1;
  if (!axolotl_truth(list) && !axolotl_truth(map)) return true;
  const text_node *n = fsdp_version(r);
  if (n != NULL && !text_is_null(n) && !text_as_i64(n, &version, r->d)) return false;
  if (version != 1 && version != 2)
    return diag_error(r->d, n->at, "fsdp_version is %lld; it must be 1 or 2", (long long)version);
  return axolotl_set(r, KEY_parallel_fsdp, version == 2 ? "fsdp2" : "fsdp",
                     map != NULL ? map : list) &&
         set_master_weights(r, n) && (version == 2 || set_strategy(r)) && set_offload_params(r);
}

/* ---- DeepSpeed ---- */

/* What of zero_optimization matters. Defaults: deepspeed/runtime/zero/config.py. */
typedef struct zero_config {
  int64_t stage;
  bool optimizer_on_host, parameters_on_host;
  int64_t reduce_bucket_size; /* elements */
  bool contiguous_gradients, overlap_comm;
} zero_config;

enum { DEFAULT_BUCKET = 500000000 };

/* The files of Axolotl's folder deepspeed_configs. */
static const struct known_zero {
  const char *file;
  zero_config config;
} known_zeros[] = {
  { "zero1.json", { 1, false, false, DEFAULT_BUCKET, true, true } },
  { "zero1_torch_compile.json", { 1, false, false, DEFAULT_BUCKET, true, true } },
  { "zero2.json", { 2, true, false, DEFAULT_BUCKET, true, true } },
  { "zero2_torch_compile.json", { 2, true, false, DEFAULT_BUCKET, true, true } },
  { "zero3.json", { .stage = 3 } },
  { "zero3_bf16.json", { .stage = 3 } },
  { "zero3_bf16_cpuoffload_all.json",
    { 3, .optimizer_on_host = true, .parameters_on_host = true } },
  { "zero3_bf16_cpuoffload_params.json", { 3, .parameters_on_host = true } },
};

static bool is_on_host(const text_node *offload)
{
  const text_node *device = text_get(offload, "device");
  return device != NULL && device->kind == TEXT_SCALAR && strcmp(device->text, "none") != 0;
}

static bool is_auto(const text_node *n)
{
  return n->kind == TEXT_SCALAR && strcmp(n->text, "auto") == 0;
}

/* "auto" is hidden_size squared (transformers, integrations/deepspeed.py). */
static bool read_bucket_size(const axolotl_reader *r, const text_node *n, int64_t *elements)
{
  *elements = DEFAULT_BUCKET;
  if (n == NULL) return true;
  if (is_auto(n)) {
    assert(r->s->model.hidden_size > 0);
    *elements = r->s->model.hidden_size * r->s->model.hidden_size;
    return true;
  }
  double number;
  if (!text_as_double(n, &number, r->d)) return false;
  if (number < 1 || number > (double)(INT64_C(1) << 36))
    return diag_error(r->d, n->at, "reduce_bucket_size is %s; it must be 1 to 2^36 elements",
                      text_describe(r->a, n));
  *elements = (int64_t)number;
  return true;
}

static bool read_flag(const axolotl_reader *r, const text_node *n, bool usual, bool *value)
{
  *value = usual;
  return n == NULL || is_auto(n) || text_as_bool(n, value, r->d);
}

static bool read_optimization(const axolotl_reader *r, const text_node *map, zero_config *zero)
{
  const text_node *stage = text_get(map, "stage");
  zero->optimizer_on_host = is_on_host(text_get(map, "offload_optimizer"));
  zero->parameters_on_host = is_on_host(text_get(map, "offload_param"));
  return (stage == NULL || text_as_i64(stage, &zero->stage, r->d)) &&
         read_bucket_size(r, text_get(map, "reduce_bucket_size"), &zero->reduce_bucket_size) &&
         read_flag(r, text_get(map, "contiguous_gradients"), true, &zero->contiguous_gradients) &&
         read_flag(r, text_get(map, "overlap_comm"), zero->stage == 3, &zero->overlap_comm);
}

/* `deepspeed` is the name of a file, or what such a file has. */
static bool read_zero(const axolotl_reader *r, const text_node *n, zero_config *zero)
{
  if (n->kind == TEXT_MAPPING) return read_optimization(r, text_get(n, "zero_optimization"), zero);
  if (!text_expect(n, TEXT_SCALAR, r->d)) return false;
  const char *slash = strrchr(n->text, '/'), *file = slash != NULL ? slash + 1 : n->text;
  for (size_t i = 0; i < sizeof known_zeros / sizeof *known_zeros; i++)
    if (strcmp(known_zeros[i].file, file) == 0) {
      *zero = known_zeros[i].config;
      return true;
    }
  return diag_error(
      r->d, n->at,
      "deepspeed is %s, which is none of Axolotl's own files; write what that file has in "
      "place of its name",
      text_describe(r->a, n));
}

/* fp32 weights and states leave the GPU, which keeps shards in the model's type. */
static bool set_optimizer_on_host(const axolotl_reader *r, const text_node *n)
{
  diag_note(r->d, n->at,
            "offload_optimizer: states and fp32 weights are on the host; the time of the step "
            "there is not "
            "modelled");
  return axolotl_set(r, KEY_training_optimizer_cpu_offload, "true", n);
}

static bool set_buckets(const axolotl_reader *r, const text_node *n, const zero_config *zero)
{
  int buckets = zero->contiguous_gradients ? 1 + zero->overlap_comm : 0;
  return axolotl_set(r, KEY_parallel_zero_reduce_bucket_size,
                     arena_printf(r->a, "%" PRId64, zero->reduce_bucket_size), n) &&
         axolotl_set(r, KEY_parallel_zero_buckets, arena_printf(r->a, "%d", buckets), n);
}

/* Stage 3 shards parameters, gradients, fp32 weights and states, and gathers a layer at a time, as FSDP
 * does. Stages 1 and 2 differ in when gradients are reduced: what accumulates until then is not modelled. */
static bool set_zero(const axolotl_reader *r, const text_node *n, const zero_config *zero)
{
  bool accumulates = zero->stage == 1 && r->s->training.gradient_accumulation_steps > 1;
  if (zero->stage == 3)
    diag_note(r->d, n->at,
              "deepspeed: ZeRO stage 3 is predicted as fsdp2; DeepSpeed's buckets are "
              "not modelled");
  else if (accumulates)
    diag_note(r->d, n->at,
              "deepspeed: ZeRO stage 1 accumulates whole gradients; predicted as stage 2, which "
              "shards them");
  if (!axolotl_set(r, KEY_parallel_fsdp, zero->stage == 3 ? "fsdp2" : "zero", n)) return false;
  if (zero->stage < 3 && !set_buckets(r, n, zero)) return false;
  if (zero->parameters_on_host) return set_parameters_on_host(r, "offload_param", n);
  return zero->optimizer_on_host ? set_optimizer_on_host(r, n) : set_master_weights(r, n);
}

static bool set_deepspeed(const axolotl_reader *r)
{
  const text_node *n = axolotl_get(r, "deepspeed");
  zero_config zero = { 0 };
  if (!axolotl_truth(n)) return true;
  if (!read_zero(r, n, &zero)) return false;
  if (zero.stage < 0 || zero.stage > 3)
    return diag_error(r->d, n->at,
                      "the stage of zero_optimization is %" PRId64 "; it must be 0 to 3",
                      zero.stage);
  return zero.stage == 0 || set_zero(r, n, &zero);
}

/* ---- the device mesh ---- */

typedef struct mesh_key {
  const char *name, *what; /* NULL: predicted */
} mesh_key;

/* sequence_parallel_degree is the older name of context_parallel_size. */
static const mesh_key mesh_keys[] = {
  { "dp_shard_size", NULL },
  { "dp_replicate_size", NULL },
  { "tensor_parallel_size", "tensor parallelism of transformers" },
  { "context_parallel_size", "ring attention, a part of each sequence on each GPU," },
  { "sequence_parallel_degree", "ring attention, a part of each sequence on each GPU," },
  { "expert_parallel_size", "expert parallelism of Axolotl" },
};

static bool read_size(const axolotl_reader *r, const mesh_key *key, int64_t *size)
{
  enum { MOST = 1 << 16 };
  const text_node *n = axolotl_get(r, key->name);
  *size = 1;
  if (n == NULL) return true;
  if (!text_as_i64(n, size, r->d)) return false;
  if (*size < 1 || *size > MOST)
    return diag_error(r->d, n->at, "%s is %" PRId64 "; it must be 1 to %d", key->name, *size, MOST);
  return key->what == NULL || *size == 1 ||
         diag_error(r->d, n->at, "%s is %" PRId64 ": %s is not predicted; 1 is", key->name, *size,
                    key->what);
}

/* Sizes that are given say how many GPUs there are. */
static bool set_mesh(const axolotl_reader *r)
{
  enum { KEYS = sizeof mesh_keys / sizeof *mesh_keys, SHARD = 0, REPLICATE = 1 };
  int64_t sizes[KEYS];
  bool good = true;
  for (size_t i = 0; i < KEYS; i++)
    good = diag_step(r->d, read_size(r, &mesh_keys[i], &sizes[i])) && good;
  const text_node *shard = axolotl_get(r, "dp_shard_size");
  const text_node *replicate = axolotl_get(r, "dp_replicate_size");
  if (!good || shard == NULL || r->s->parallel.fsdp == FSDP_NONE) return good;
  if (!axolotl_set(r, KEY_parallel_fsdp_size, arena_printf(r->a, "%" PRId64, sizes[SHARD]), shard))
    return false;
  return replicate == NULL ||
         axolotl_set(r, KEY_parallel_world_size,
                     arena_printf(r->a, "%" PRId64, capped_mul(sizes[SHARD], sizes[REPLICATE])),
                     replicate);
}

bool axolotl_apply_sharding(const axolotl_reader *r)
{
  bool good = diag_step(r->d, set_fsdp(r));
  good = diag_step(r->d, set_deepspeed(r)) && good;
  return set_mesh(r) && good;
}
