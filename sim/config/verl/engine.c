/*
 * The engine that trains the actor. Hydra's group of that name chooses it (model_engine=megatron), or
 * an older configuration (ppo_megatron_trainer); `strategy` alone, where it is given, is decisive.
 * Source: verl/trainer/config: ppo_trainer.yaml, ppo_megatron_trainer.yaml, model_engine, actor;
 * verl/trainer/main_ppo.py.
 */
#include <string.h>

#include "sim/base/text.h"
#include "sim/config/verl/parts.h"

static const verl_given *below(const verl_reader *r, const char *prefix)
{
  for (uint32_t i = 0; i < r->given.count; i++) {
    if (begins_with(r->given.items[i].name, prefix)) {
      return &r->given.items[i];
    }
  }
  return NULL;
}

/* Configurations of verl itself give verl's defaults, as do their groups and `_self_`. */
static bool is_verls(const char *word, size_t length)
{
  static const char *const own[] = { "ppo_trainer", "ppo_megatron_trainer", "sft_trainer",
                                     "_self_" };

  for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
    if (begins_with(word, own[i])) {
      return true;
    }
  }
  return memchr(word, '@', length) != NULL || memchr(word, '=', length) != NULL;
}

/* A name, or the words of a file's own `defaults`. */
static void note_config(const verl_reader *r, const verl_given *config)
{
  for (const char *word = config->value; *word != '\0';) {
    size_t length = strcspn(word, " ");
    if (length > 0 && !is_verls(word, length)) {
      diag_note(r->d, config->value_at,
                "the configuration %.*s is not read; keys that only it sets have verl's defaults",
                (int)length, word);
    }
    word += length + (word[length] == ' ');
  }
}

/* Names of VeOmni and FSDP-Turbo for what FSDP's engine has too (verl/workers/config/engine.py,
 * verl/trainer/config/engine/fsdp.yaml). */
static void rename_keys(verl_reader *r)
{
  static const struct {
    verl_fsdp_kind of;
    const char *name, *fsdps;
  } renamed[] = {
    { FSDP_OF_VEOMNI, OMNI "fsdp_size", FSDP "fsdp_size" },
    { FSDP_OF_VEOMNI, OMNI "ulysses_parallel_size", FSDP "ulysses_sequence_parallel_size" },
    { FSDP_OF_VEOMNI, OMNI "param_offload", FSDP "param_offload" },
    { FSDP_OF_VEOMNI, OMNI "optimizer_offload", FSDP "optimizer_offload" },
    { FSDP_OF_VEOMNI, OMNI "enable_fsdp_offload", FSDP "offload_policy" },
    { FSDP_OF_VEOMNI, OMNI "enable_full_shard", FSDP "reshard_after_forward" },
    { FSDP_OF_VEOMNI, OMNI "forward_prefetch", FSDP "forward_prefetch" },
    { FSDP_OF_VEOMNI, OMNI "full_determinism", FSDP "full_determinism" },
    { FSDP_TURBO, TURBO "distributed.fully_shard_parallel_size", FSDP "fsdp_size" },
    { FSDP_TURBO, TURBO "distributed.ulysses_parallel_size",
      FSDP "ulysses_sequence_parallel_size" },
    { FSDP_TURBO, TURBO "distributed.fsdp_plan.param_dtype", FSDP "mixed_precision.param_dtype" },
    { FSDP_TURBO, TURBO "distributed.fsdp_plan.reduce_dtype", FSDP "mixed_precision.reduce_dtype" },
    { FSDP_TURBO, TURBO "memory.recompute", MODEL "enable_gradient_checkpointing" },
  };

  for (uint32_t i = 0; i < r->given.count; i++) {
    for (size_t k = 0; k < sizeof renamed / sizeof renamed[0]; k++) {
      if (r->fsdp == renamed[k].of && strcmp(r->given.items[i].name, renamed[k].name) == 0) {
        r->given.items[i].name = renamed[k].fsdps;
      }
    }
  }
}

/* What names the engine, or NULL; of the groups dp is FSDP, the default. */
static const verl_given *named_engine(const verl_reader *r)
{
  const verl_given *named = verl_either(r, ACTOR "strategy", "model_engine");
  return named != NULL && strcmp(named->value, "dp") == 0 ? NULL : named;
}

bool verl_find_engine(verl_reader *r)
{
  static const struct {
    const char *name;
    verl_fsdp_kind fsdp;
  } engines[] = { { "fsdp", FSDP_OF_VERL },
                  { "fsdp2", FSDP_OF_VERL },
                  { "fsdp_turbo", FSDP_TURBO },
                  { "veomni", FSDP_OF_VEOMNI },
                  { "megatron", FSDP_OF_VERL } };
  const verl_given *strategy = named_engine(r), *config = verl_either(r, CONFIG_NAME, "defaults");
  const verl_given *keys = below(r, MCORE);
  bool known = strategy == NULL;

  if (config != NULL) {
    note_config(r, config);
  }
  for (size_t i = 0; !known && i < sizeof engines / sizeof engines[0]; i++) {
    known = strcmp(strategy->value, engines[i].name) == 0;
    r->fsdp = engines[i].fsdp;
  }
  if (!known) {
    return diag_error(
        r->d, strategy->value_at,
        "%s is %s; offsim predicts verl's fsdp, fsdp2, fsdp_turbo, veomni and megatron",
        strategy->said, strategy->value);
  }
  bool named = config != NULL && strstr(config->value, "megatron") != NULL;
  r->megatron = strategy != NULL ? strcmp(strategy->value, "megatron") == 0 : named || keys != NULL;
  rename_keys(r);
  if (!r->megatron && keys != NULL) {
    diag_note(r->d, keys->at, "%s and the keys beside it have no effect: %s is %s", keys->said,
              strategy->said, strategy->value);
  }
  if (r->megatron && !named && strategy == NULL) {
    diag_note(r->d, keys->at, "predicted with Megatron-LM's engine, because %s is given",
              keys->said);
  }
  return true;
}
