/*
 * The keys of a verl configuration as they were given, whichever form they stood in. Private to
 * sim/config/verl/.
 *
 * The trainers of verl name the same things differently: what an SFT trainer calls
 * `data.max_length` or `model.strategy` is read under the actor's name for it (trainer.c), and
 * messages say the name that was given.
 */
#ifndef OFFSIM_SIM_CONFIG_VERL_PARTS_H
#define OFFSIM_SIM_CONFIG_VERL_PARTS_H

#include "sim/base/array.h"
#include "sim/config/verl/verl.h"

#define ACTOR "actor_rollout_ref.actor."
#define MODEL "actor_rollout_ref.model."
#define FSDP  ACTOR "fsdp_config."
#define OPTIM ACTOR "optim."
#define MCORE ACTOR "megatron."
#define OMNI  ACTOR "veomni."
#define TURBO FSDP "turbo_config."

/* Words of a launch script that are options, not keys, are given under the name of the option. */
#define CONFIG_NAME "--config-name"
#define NNODES      "--nnodes"
#define NPROC       "--nproc-per-node"

typedef struct verl_given {
  const char *name; /* "actor_rollout_ref.actor.strategy" */
  const char *said; /* the same as it was given: "model.strategy" */
  const char *value;
  source_pos at, value_at;
} verl_given;

typedef struct verl_given_array {
  verl_given *items;
  uint32_t count, capacity;
} verl_given_array;

typedef enum verl_trainer {
  VERL_PPO,        /* main_ppo and what is like it */
  VERL_SFT,        /* fsdp_sft_trainer */
  VERL_SFT_ENGINE, /* sft_trainer */
} verl_trainer;

/* Who shards where the engine is PyTorch's FSDP; the others do it by its second version. */
typedef enum verl_fsdp_kind { FSDP_OF_VERL, FSDP_OF_VEOMNI, FSDP_TURBO } verl_fsdp_kind;

typedef struct verl_reader {
  settings *s;
  const char *path;
  bool ignore_unknown;
  verl_trainer trainer;
  bool megatron; /* the engine is Megatron-LM's, not PyTorch's FSDP */
  verl_fsdp_kind fsdp;
  shell_presets presets;
  verl_given_array given;
  arena *a;
  diag *d;
} verl_reader;

/* text.c: the two forms, into r->given, and after them `lines` of overrides (NULL: none). False after a
 * diag error. */
bool verl_collect(verl_reader *r, const char *text, size_t length, const char *lines);

/* trainer.c: whose keys they are, and the names that the other files know. */
void verl_find_trainer(verl_reader *r);

/* keys.c: every key by the table keys.def. */
bool verl_apply_keys(const verl_reader *r);

/* engine.c: FSDP, VeOmni, FSDP-Turbo or Megatron-LM. Refuses other engines. */
bool verl_find_engine(verl_reader *r);

/* fsdp.c, megatron.c: what the engine's own keys set. */
bool verl_apply_fsdp(const verl_reader *r);
bool verl_apply_megatron(const verl_reader *r);
/* A step of the reader or a scenario key depends on the key. */
bool verl_key_matters(const char *name);
/* The same, or the key is said to be unknown or not modelled. */
bool verl_key_is_decisive(const char *name);

/* The last value given for a key; NULL: none, null, or one that Hydra is to resolve. */
const verl_given *verl_get(const verl_reader *r, const char *name);

/* The place of a key's value, or the file. */
source_pos verl_place(const verl_reader *r, const char *name);

/* The name of a key as it was given. */
const char *verl_said(const verl_reader *r, const char *name);

/* A key's value, or `otherwise`. Numbers are whole, at least `least`, and small enough for
 * products. */
const char *verl_text_of(const verl_reader *r, const char *name, const char *otherwise);
bool verl_number(const verl_reader *r, const char *name, int64_t least, int64_t otherwise,
                 int64_t *value);
bool verl_truth(const verl_reader *r, const char *name, bool otherwise, bool *value);
bool verl_real(const verl_reader *r, const char *name, double otherwise, double *value);
/* "NAME is "x"; it must be EXPECTED". */
bool verl_wrong(const verl_reader *r, const verl_given *g, const char *expected);

/* The first of two keys that is given, or NULL. */
const verl_given *verl_either(const verl_reader *r, const char *name, const char *other);

/* A type by one of torch's names for it, under the first of two keys that is given: fp32, bf16
 * or fp16. */
bool verl_type(const verl_reader *r, const char *name, const char *other, const char *otherwise,
               const char **type);

/* Sets a scenario key at the place of verl's key `because`. */
bool verl_set(const verl_reader *r, setting_key key, const char *text, const char *because);
bool verl_set_number(const verl_reader *r, setting_key key, int64_t value, const char *because);

/* batch.c: world size, lengths and batch sizes. `replica` GPUs work on the same sequences. */
bool verl_apply_batch(const verl_reader *r, int64_t replica);
/* beside.c: notes about what of a PPO run is not predicted. */
void verl_note_beside(const verl_reader *r);

/* trainer.nnodes x trainer.n_gpus_per_node, or what torchrun says. */
bool verl_gpus(const verl_reader *r, int64_t *gpus);

#endif
