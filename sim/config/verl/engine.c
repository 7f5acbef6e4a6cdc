/*
 * The engine that trains the actor. Hydra's configuration of that name chooses it
 * (ppo_megatron_trainer), and only Megatron-LM's has keys of its own; `strategy` alone, where it is
 * given, is decisive. Source: verl/trainer/config: ppo_trainer.yaml, ppo_megatron_trainer.yaml;
 * verl/trainer/main_ppo.py.
 */
#include <string.h>

#include "sim/config/verl/parts.h"

static const verl_given *below(const verl_reader *r, const char *prefix)
{
  for (uint32_t i = 0; i < r->given.count; i++) {
    if (strncmp(r->given.items[i].name, prefix, strlen(prefix)) == 0) {
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
    if (strncmp(word, own[i], strlen(own[i])) == 0) {
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
                "the configuration %.*s is not read; what it sets and this file does not is taken "
                "at verl's "
                "defaults",
                (int)length, word);
    }
    word += length + (word[length] == ' ');
  }
}

bool verl_find_engine(verl_reader *r)
{
  static const char *const engines[] = { "fsdp", "fsdp2", "megatron" };
  const char *name = ACTOR "strategy";
  const verl_given *strategy = verl_get(r, name), *config = verl_either(r, CONFIG_NAME, "defaults");
  const verl_given *keys = below(r, MCORE);
  bool known = strategy == NULL;

  if (config != NULL) {
    note_config(r, config);
  }
  for (size_t i = 0; !known && i < sizeof engines / sizeof engines[0]; i++) {
    known = strcmp(strategy->value, engines[i]) == 0;
  }
  if (!known) {
    return diag_error(r->d, strategy->value_at,
                      "strategy is %s; offsim predicts verl's fsdp, fsdp2 and megatron",
                      strategy->value);
  }
  bool named = config != NULL && strstr(config->value, "megatron") != NULL;
  r->megatron = strategy != NULL ? strcmp(strategy->value, "megatron") == 0 : named || keys != NULL;
  if (!r->megatron && keys != NULL) {
    diag_note(r->d, keys->at, "%s and what is beside it has no effect: strategy is %s", keys->said,
              strategy->value);
  }
  if (r->megatron && !named && strategy == NULL) {
    diag_note(r->d, keys->at, "predicted with Megatron-LM's engine, because %s is given",
              keys->said);
  }
  return true;
}
