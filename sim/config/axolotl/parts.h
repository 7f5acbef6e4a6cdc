/*
 * The steps that read an Axolotl file, in the order in which they run. Private to
 * sim/config/axolotl/. Each returns false after a diag error.
 */
#ifndef OFFSIM_SIM_CONFIG_AXOLOTL_PARTS_H
#define OFFSIM_SIM_CONFIG_AXOLOTL_PARTS_H

#include "sim/config/axolotl/axolotl.h"
#include "sim/text/yaml_text.h"

typedef struct axolotl_reader {
  settings *s;
  const text_node *top;
  bool ignore_unknown;
  arena *a;
  diag *d;
} axolotl_reader;

/* What activation_offloading asks for. */
typedef enum axolotl_offloading {
  AXOLOTL_OFFLOADS_NOTHING,
  AXOLOTL_OFFLOADS_ALL,    /* true */
  AXOLOTL_OFFLOADS_LEGACY, /* true, without streams */
  AXOLOTL_OFFLOADS_DISK,
  AXOLOTL_OFFLOADS_HIDDEN_STATES
} axolotl_offloading;

/* What decides together which implementation runs. Nodes are NULL where nothing was given. */
typedef struct axolotl_run {
  bool checkpointing, adapter, selective, layers;
  bool reentrant;
  bool inputs_on_cpu; /* transformers' own offload, of the checkpoints' inputs */
  axolotl_offloading offloading;
  const text_node *checkpointing_node, *offloading_node, *reentrant_node, *selective_node,
      *inputs_node, *every_n_node;
} axolotl_run;

/* ---- values: values.c ------------------------------------------------------------------------ */

/* The value of a key, NULL: not there, or null. */
const text_node *axolotl_get(const axolotl_reader *r, const char *key);
/* As Python asks `if value:`: not null, false, 0, nor empty. NULL is none of it. */
bool axolotl_truth(const text_node *n);
/* The key is there with this word. */
bool axolotl_is(const axolotl_reader *r, const char *key, const char *word);
/* The class of this name is in `plugins`. */
bool axolotl_has_plugin(const axolotl_reader *r, const char *name);
/* The place of a value, or of the file when it is NULL. */
source_pos axolotl_place(const axolotl_reader *r, const text_node *n);
/* Sets a scenario key, at the place of `n`. */
bool axolotl_set(const axolotl_reader *r, setting_key key, const char *text, const text_node *n);

/* The gate's activation is SiLU: fused kernels of other activations are not modelled. */
bool axolotl_gates_by_silu(const axolotl_reader *r);
/* A list of words, with one more. */
const char *axolotl_join(const axolotl_reader *r, const char *list, const char *word);

/* ---- steps ----------------------------------------------------------------------------------- */

/* Every key of the file by the table keys.def. */
bool axolotl_apply_keys(const axolotl_reader *r);
/* The top-level key of the table that sets the scenario key, or NULL. */
const char *axolotl_key_of(setting_key key);

/* Precision, attention, optimizer, sharding. */
bool axolotl_apply_training(const axolotl_reader *r);
/* ... of which the GPUs' part is in sharding.c. */
bool axolotl_apply_sharding(const axolotl_reader *r);

/* The linears that a pattern in lora_target_modules takes, as a list of words (patterns.c). */
bool axolotl_match_targets(const axolotl_reader *r, const text_node *n, const char **known);

/* The adapter and the quantisation below it. */
bool axolotl_apply_adapter(const axolotl_reader *r);

/* The keys of checkpointing and offloading as one, with Axolotl's own rewriting of older values. */
bool axolotl_read_run(const axolotl_reader *r, axolotl_run *run);
/* Combinations that Axolotl refuses or warns of (validate.c). */
bool axolotl_validate(const axolotl_reader *r, const axolotl_run *run);
/* What then runs: sections recompute and offload. */
bool axolotl_apply_run(const axolotl_reader *r, const axolotl_run *run);
bool axolotl_apply_selective(const axolotl_reader *r, const axolotl_run *run);

#endif
