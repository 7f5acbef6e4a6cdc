/*
 * Settings: one training configuration, resolved.
 *
 *     settings_init -> a reader of scenario, Megatron flags or HF config -> --set
 *                   -> settings_resolve
 *
 * The struct has one member for each row of keys.def: `s->model.hidden_size`. Before
 * settings_resolve a member has the given value or the default. After it, every member that the rest
 * of offsim reads is set, every constraint between keys holds, and the sizes are small enough that
 * no product of them overflows int64_t.
 */
#ifndef OFFSIM_SIM_CONFIG_SETTINGS_H
#define OFFSIM_SIM_CONFIG_SETTINGS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/offload_systems.h"
#include "sim/config/software.h"

#define NO_LIMIT INT64_MAX
#define UNSET    INT64_MIN /* an INT that was not given and is not derived yet */

typedef struct name_list {
  const char **names;
  uint32_t count;
} name_list;

/* Words of a key's own list, as their constants: in the order given, and as a set of bits. */
typedef struct choice_list {
  uint32_t *items;
  uint32_t count;
  uint32_t set;
} choice_list;

typedef enum setting_key {
#define KEY(section, key, type, fallback, least, most, meaning) KEY_##section##_##key,
#include "sim/config/keys.def"
  KEY_COUNT
} setting_key;

/* An enum for each key that has words: METHOD_NONE, METHOD_UNIFORM ... of recompute_method_choice.
 */
#define ENUM_INT(key, least)
#define ENUM_REAL(key, least)
#define ENUM_FLAG(key, least)
#define ENUM_TEXT(key, least)
#define ENUM_LIST(key, least)
#define ENUM_CHOICE(key, ...) typedef enum { __VA_ARGS__ } key##_choice;
#define ENUM_CHOICES          ENUM_CHOICE
#define WORD(constant, word)  constant,

#define KEY(section, key, type, fallback, least, most, meaning) ENUM_##type(key, least)
#include "sim/config/keys.def"
#undef WORD

/* The C types of keys.def's types. */
#define MEMBER_INT(key)     int64_t key;
#define MEMBER_REAL(key)    double key;
#define MEMBER_FLAG(key)    bool key;
#define MEMBER_TEXT(key)    const char *key;
#define MEMBER_LIST(key)    name_list key;
#define MEMBER_CHOICE(key)  key##_choice key;
#define MEMBER_CHOICES(key) choice_list key;

/* Values that the readers and settings_resolve derive, without keys of their own. */
typedef struct derived_settings {
  int64_t data_parallel_size;        /* DP = world / (tp pp cp) */
  int64_t expert_data_parallel_size; /* EDP = world / (etp ep pp) */
  int64_t num_microbatches;          /* per data parallel rank and step */
  int64_t virtual_stages;            /* VPP, 1 without interleaving */
  const char *tokenizer; /* the vocabulary's size follows from it; NULL: none is named */
  source_pos tokenizer_at;
  int64_t tokenizer_vocab_size; /* UNSET: no published tokenizer */
  int compute_capability;       /* ten times the GPU's: 80, 90, 100; from the machine */
  bool layer_wise_optimizer;    /* whole layers' states are spread over DP: emerging optimizers */
  bool layer_wise_layout;       /* and parameters are in buffers that keep matrices whole */
  software_release software;    /* what software.container brings */
  bool of_verl;                 /* its configuration says them, not Megatron-LM's options */
  int megatron_day;             /* of Megatron-LM's code, as a number, 20260530; 0: the newest */
  bool shares_placeholders;     /* Megatron-LM's linears do (sim/residents/workspaces.h) */
  bool weighs_expert_outputs;   /* the router's probabilities multiply outputs, not activations */
  bool copies_recomputed;       /* selective recomputation copies into the emptied storage */
  bool *layer_is_moe;           /* [num_layers] */
  int64_t window_keys;    /* that a query sees in layers with a sliding window; 0: none has one */
  setting_key window_key; /* that gives it */
  bool *layer_slides;     /* [num_layers]: has the sliding window */
  bool *layer_rotates;    /* hf [num_layers]: with rotary tables */
  bool *layer_recomputes; /* hf [num_layers]: with recompute_granularity full */
  bool *layer_recomputes_mlp; /* hf [num_layers]: recompute_mlp_layers; NULL: not given */
  bool *layer_keeps_mlp; /* hf [num_layers]: selective_checkpointing_mlp_layers; NULL: not given */
  bool *layer_keeps_activation; /* ... selective_checkpointing_activation_layers; NULL: not given */
  bool *layer_is_linear;        /* hf [num_layers]: linear attention in place of attention */
  bool window_is_shorter;       /* hf: the sliding window hides keys of the sequence */
  bool *layer_is_offloaded;     /* by layer of a chunk: cpu_offloading_layers; NULL without it */
  /* The layers of virtual stage `chunk` of pipeline rank `pp`: row chunk * PP + pp. */
  struct stage_content {
    uint32_t *layers; /* 0-based decoder layers, ascending */
    uint32_t layer_count;
    bool embedding, loss;
    uint32_t mtp_layers; /* MTP depths, after the decoder layers */
  } * stages;            /* [virtual_stages * PP] */
} derived_settings;

typedef struct settings {
#define KEY(section, key, type, fallback, least, most, meaning) MEMBER_##type(key)
  struct model_settings {
#include "sim/config/keys/model.def"
  } model;
  struct parallel_settings {
#include "sim/config/keys/parallel.def"
  } parallel;
  struct training_settings {
#include "sim/config/keys/training.def"
  } training;
  struct recompute_settings {
#include "sim/config/keys/recompute.def"
  } recompute;
  struct lora_settings {
#include "sim/config/keys/lora.def"
  } lora;
  struct offload_settings {
#include "sim/config/keys/offload.def"
  } offload;
  struct machine_settings {
#include "sim/config/keys/machine.def"
  } machine;
  struct software_settings {
#include "sim/config/keys/software.def"
  } software;
#undef KEY
  derived_settings derived; /* filled by settings_resolve */
  source_pos at[KEY_COUNT]; /* where each key was given; file NULL: a default */
  bool given[KEY_COUNT];
} settings;

/* All keys at their defaults. */
void settings_init(settings *s, arena *a);

/* Sets "section.key" (or a key name that only one section has) from text; `at` is its place. False after a
 * diag error: there is no such key, or the text is no value of it. */
bool settings_set(settings *s, const char *key, const char *text, source_pos at, arena *a, diag *d);

/* The same for a key that is already known. */
bool settings_set_key(settings *s, setting_key key, const char *text, source_pos at, arena *a,
                      diag *d);

/* The groups that the model marks for offload.system; resolved settings. */
offload_scope offload_scope_of(const settings *s);
/* Whether experts' saved tensors go to Megatron-LM's paged stash: alone, or beside fine-grained
 * offloading. */
bool stashes_experts(const settings *s);
/* The weights of routed experts are on the host. */
bool keeps_experts_on_host(const settings *s);
bool offloads_layers(const settings *s); /* whole layers */

/* model.implementation is hf: eager PyTorch, not Megatron-LM; of resolved settings. */
bool uses_hf(const settings *s);
/* Muon, or an optimizer that orthogonalises as it does. */
bool optimizer_is_muon(optimizer_choice optimizer);

/* The word of a CHOICE, as it was given or derived. */
const char *chosen_word(const settings *s, setting_key key);
/* The word of a constant of a CHOICE's or CHOICES' enum. */
const char *choice_word(setting_key key, uint32_t choice);
/* The constant of a word; false if it is none of the key's. */
bool choice_find(setting_key key, const char *word, uint32_t *choice);

/* Appends to a list whose `items` have room. */
void choice_add(choice_list *list, uint32_t choice);

/* Whether the list has the constant. */
static inline bool has_choice(const choice_list *list, uint32_t choice)
{
  assert(choice < 32);
  return (list->set >> choice & 1) != 0;
}

/* Reads a scenario YAML: a mapping of the sections. Keys that are not in it keep their value.
 * False after a diag error. */
bool settings_read_scenario(settings *s, const char *path, const char *text, size_t length,
                            arena *a, diag *d);

/* A constraint: false after a diag error. */
typedef bool settings_check(const settings *s, diag *d);

/* Fills in defaults, checks every constraint and computes `derived`. Notes go to stderr. `of_system`
 * checks the conditions of the offload system (offload_conditions of sim/offload/systems.h); it is
 * NULL in tests of this folder alone. */
bool settings_resolve(settings *s, settings_check *of_system, arena *a, diag *d);

/*
 * The global ranks of pipeline rank `pp_rank`, ascending, in Megatron's order tp-cp-ep-dp-pp, or
 * tp-cp-ep-pp-dp with use_tp_pp_dp_mapping (megatron/core/parallel_state.py, RankGenerator). Returns
 * their number; `ranks` has space for world_size / PP, or is NULL. Settings must be resolved.
 */
int64_t settings_global_ranks(const settings *s, int64_t pp_rank, int64_t *ranks);

/* The fully resolved scenario as YAML; reads back to the same settings. */
void settings_print(const settings *s, FILE *out);
const char *settings_text(const settings *s, arena *a);

/* docs/reference/scenario.md: every key with its type, default and meaning. */
void settings_document(FILE *out);

#endif
