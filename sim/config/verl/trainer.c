/*
 * verl's trainers: main_ppo, whose keys the other files know, and the two SFT trainers, whose keys
 * are renamed to them. Sources: verl/trainer/config/sft_trainer.yaml and sft_trainer_engine.yaml,
 * verl/trainer/fsdp_sft_trainer.py, verl/trainer/sft_trainer.py.
 */
#include <string.h>

#include "sim/base/text.h"
#include "sim/config/verl/parts.h"

enum { BOTH = 1 << VERL_SFT | 1 << VERL_SFT_ENGINE };

/* A name that ends in a dot covers everything below it. Special rows come before general ones. */
static const struct {
  unsigned trainers;
  const char *name, *actors;
} renamed[] = {
  { BOTH, "model.partial_pretrain", MODEL "path" },
  { BOTH, "model.fsdp_config.", FSDP },
  { BOTH, "model.strategy", ACTOR "strategy" },
  { BOTH, "model.", MODEL },
  { BOTH, "optim.", OPTIM },
  { BOTH, "data.train_batch_size", ACTOR "ppo_mini_batch_size" },
  { BOTH, "data.micro_batch_size_per_gpu", ACTOR "ppo_micro_batch_size_per_gpu" },
  { BOTH, "data.micro_batch_size", ACTOR "ppo_micro_batch_size_per_gpu" },
  { BOTH, "data.max_length", "data.max_response_length" },
  { BOTH, "data.use_dynamic_bsz", ACTOR "use_dynamic_bsz" },
  { BOTH, "data.max_token_len_per_gpu", ACTOR "ppo_max_token_len_per_gpu" },
  { 1 << VERL_SFT, "ulysses_sequence_parallel_size", ACTOR "ulysses_sequence_parallel_size" },
  { 1 << VERL_SFT, "use_remove_padding", MODEL "use_remove_padding" },
  { 1 << VERL_SFT_ENGINE, "engine.strategy", ACTOR "strategy" },
  { 1 << VERL_SFT_ENGINE, "engine.ulysses_sequence_parallel_size",
    ACTOR "ulysses_sequence_parallel_size" },
};

/* Where the trainer's own default is not main_ppo's. */
static const struct {
  unsigned trainers;
  const char *name, *value;
} defaults[] = {
  { 1 << VERL_SFT, ACTOR "strategy", "fsdp2" },
  { 1 << VERL_SFT, MODEL "use_remove_padding", "False" },
  { 1 << VERL_SFT_ENGINE, ACTOR "use_dynamic_bsz", "True" },
  { 1 << VERL_SFT_ENGINE, ACTOR "ppo_max_token_len_per_gpu", "8192" },
  { 1 << VERL_SFT_ENGINE, "trainer.n_gpus_per_node", "1" },
  { BOTH, ACTOR "ppo_micro_batch_size_per_gpu", "4" },
  { BOTH, "data.max_prompt_length", "0" },
  { BOTH, "data.max_response_length", "1024" },
};

/* An SFT trainer has no actor; only the older one names its model partial_pretrain. */
static verl_trainer trainer_of(const verl_reader *r)
{
  static const char *const of_engine[] = { "model.", "engine.", "optim.", "data.max_length",
                                           "data.micro_batch_size_per_gpu" };
  verl_trainer found = VERL_PPO;

  for (uint32_t i = 0; i < r->given.count; i++) {
    const char *name = r->given.items[i].name;
    if (begins_with(name, "actor_rollout_ref.")) {
      return VERL_PPO;
    }
    if (strcmp(name, "model.partial_pretrain") == 0) {
      return VERL_SFT;
    }
    for (size_t k = 0; k < sizeof of_engine / sizeof of_engine[0]; k++) {
      found = begins_with(name, of_engine[k]) ? VERL_SFT_ENGINE : found;
    }
  }
  return found;
}

/* Keys of the newer trainer's engine are those of the engine that it names. */
static const char *engine_prefix(const verl_reader *r)
{
  for (uint32_t i = 0; i < r->given.count; i++) {
    const verl_given *g = &r->given.items[i];
    bool names = strcmp(g->name, ACTOR "strategy") == 0 || strcmp(g->name, "engine") == 0;
    if (names && strcmp(g->value, "megatron") == 0) {
      return MCORE;
    }
    if (names && strcmp(g->value, "veomni") == 0) {
      return OMNI;
    }
  }
  return FSDP;
}

static const char *actors_name(const verl_reader *r, const char *name)
{
  for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++) {
    size_t length = strlen(renamed[i].name);
    bool whole = renamed[i].name[length - 1] != '.';
    if ((renamed[i].trainers >> r->trainer & 1) != 0 && begins_with(name, renamed[i].name) &&
        (!whole || name[length] == '\0')) {
      return arena_printf(r->a, "%s%s", renamed[i].actors, name + length);
    }
  }
  return name;
}

/* Defaults precede what was given, which therefore counts. */
static void add_defaults(verl_reader *r)
{
  verl_given_array all = { 0 };

  for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
    if ((defaults[i].trainers >> r->trainer & 1) != 0) {
      *ARRAY_PUSH(&all) = (verl_given){ .name = defaults[i].name,
                                        .said = defaults[i].name,
                                        .value = defaults[i].value,
                                        .at = { r->path, 0, 0 },
                                        .value_at = { r->path, 0, 0 } };
    }
  }
  for (uint32_t i = 0; i < r->given.count; i++) {
    *ARRAY_PUSH(&all) = r->given.items[i];
  }
  ARRAY_FREE(&r->given);
  r->given = all;
}

void verl_find_trainer(verl_reader *r)
{
  r->trainer = trainer_of(r);
  if (r->trainer == VERL_PPO) {
    return;
  }
  for (uint32_t i = 0; i < r->given.count; i++) {
    r->given.items[i].name = actors_name(r, r->given.items[i].name);
  }
  const char *prefix = engine_prefix(r);
  for (uint32_t i = 0; i < r->given.count; i++) {
    verl_given *g = &r->given.items[i];
    if (begins_with(g->name, "engine.")) {
      g->name = arena_printf(r->a, "%s%s", prefix, g->name + strlen("engine."));
    } else if (strcmp(g->name, "engine") == 0) {
      g->name = ACTOR "strategy"; /* Hydra's choice of the group */
    }
  }
  add_defaults(r);
}
