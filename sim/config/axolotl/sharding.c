/*
 * How many GPUs train together in an Axolotl file, and what they share: PyTorch's FSDP, DeepSpeed, and the
 * sizes of the device mesh (utils/distributed.py, build_parallelism_config; accelerate's prepare_model).
 */
#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/config/axolotl/parts.h"
#include "sim/config/foreign_messages.h"

/* What trains in mixed precision is kept in fp32, however it was loaded (accelerate, prepare_model
 * and fsdp2_prepare_model); adapters are so already. */
static bool set_master_weights(const axolotl_reader *r, const text_node *n)
{
  bool mixed = r->s->training.bf16 || r->s->training.fp16;
  return !mixed || axolotl_get(r, "adapter") != NULL ||
         axolotl_set(r, KEY_parallel_fsdp_model_dtype, "fp32", n);
}

/* ---- PyTorch's FSDP ---- */

/* A version stands beside fsdp_config or in it; the first is what is meant without one. */
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
         set_master_weights(r, n) && (version == 2 || set_strategy(r));
}

/* ---- DeepSpeed ---- */

typedef struct zero_config {
  int64_t stage;
  bool optimizer_on_host, parameters_on_host;
} zero_config;

/* The files of Axolotl's folder deepspeed_configs. */
static const struct known_zero {
  const char *file;
  zero_config config;
} known_zeros[] = {
  { "zero1.json", { 1, false, false } },
  { "zero1_torch_compile.json", { 1, false, false } },
  { "zero2.json", { 2, true, false } },
  { "zero2_torch_compile.json", { 2, true, false } },
  { "zero3.json", { 3, false, false } },
  { "zero3_bf16.json", { 3, false, false } },
  { "zero3_bf16_cpuoffload_all.json", { 3, true, true } },
  { "zero3_bf16_cpuoffload_params.json", { 3, false, true } },
};

static bool is_on_host(const text_node *offload)
{
  const text_node *device = text_get(offload, "device");
  return device != NULL && device->kind == TEXT_SCALAR && strcmp(device->text, "none") != 0;
}

/* `deepspeed` is the name of a file, or what such a file has. */
static bool read_zero(const axolotl_reader *r, const text_node *n, zero_config *zero)
{
  if (n->kind == TEXT_MAPPING) {
    const text_node *optimization = text_get(n, "zero_optimization");
    const text_node *stage = text_get(optimization, "stage");
    zero->optimizer_on_host = is_on_host(text_get(optimization, "offload_optimizer"));
    zero->parameters_on_host = is_on_host(text_get(optimization, "offload_param"));
    return stage == NULL || text_as_i64(stage, &zero->stage, r->d);
  }
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

static bool check_zero(const axolotl_reader *r, const text_node *n, const zero_config *zero)
{
  if (zero->stage < 0 || zero->stage > 3)
    return diag_error(r->d, n->at, "the stage of zero_optimization is %lld; it must be 0 to 3",
                      (long long)zero->stage);
  return zero->stage == 0 || zero->stage == 3 ||
         diag_error(
             r->d, n->at,
             "deepspeed has ZeRO stage %lld: sharded optimizer states beside whole parameters are "
             "not predicted; stage 3 and fsdp_config are",
             (long long)zero->stage);
}

/* Stage 3 shards parameters, gradients, fp32 weights and states, and gathers a layer at a time, as FSDP
 * does. */
static bool set_deepspeed(const axolotl_reader *r)
{
  const text_node *n = axolotl_get(r, "deepspeed");
  zero_config zero = { 0 };
  if (!axolotl_truth(n)) return true;
  if (!read_zero(r, n, &zero) || !check_zero(r, n, &zero)) return false;
  if (zero.stage == 0) return true;
  diag_note(
      r->d, n->at,
      "deepspeed: ZeRO stage 3 is predicted as fsdp2 with fp32 shards; DeepSpeed's buckets are not "
      "modelled");
  if (zero.parameters_on_host)
    foreign_unmodelled(r->d, n->at, "offload_param", "parameters on the host");
  if (zero.optimizer_on_host)
    foreign_unmodelled(r->d, n->at, "offload_optimizer", "optimizer states on the host");
  return axolotl_set(r, KEY_parallel_fsdp, "fsdp2", n) && set_master_weights(r, n);
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
    good = read_size(r, &mesh_keys[i], &sizes[i]) && good;
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
  bool good = set_fsdp(r);
  good = set_deepspeed(r) && good;
  return set_mesh(r) && good;
}
