/*
 * The keys of a verl configuration as they were given, whichever form they stood in. Private to
 * sim/config/verl/.
 */
#ifndef OFFSIM_SIM_CONFIG_VERL_PARTS_H
#define OFFSIM_SIM_CONFIG_VERL_PARTS_H

#include "sim/base/array.h"
#include "sim/config/verl/verl.h"

#define ACTOR "actor_rollout_ref.actor."
#define MODEL "actor_rollout_ref.model."
#define FSDP  ACTOR "fsdp_config."

typedef struct verl_given {
  const char *name; /* "actor_rollout_ref.actor.strategy" */
  const char *value;
  source_pos at, value_at;
} verl_given;

typedef struct verl_given_array {
  verl_given *items;
  uint32_t count, capacity;
} verl_given_array;

typedef struct verl_reader {
  settings *s;
  const char *path;
  bool ignore_unknown;
  verl_given_array given;
  arena *a;
  diag *d;
} verl_reader;

/* text.c: the two forms, into r->given. False after a diag error. */
bool verl_collect(verl_reader *r, const char *text, size_t length);

/* keys.c: every key by the table keys.def. */
bool verl_apply_keys(const verl_reader *r);

/* The last value given for a key; NULL: none, null, or one that Hydra is to resolve. */
const verl_given *verl_get(const verl_reader *r, const char *name);

/* Where a key's value stands, or the file. */
source_pos verl_place(const verl_reader *r, const char *name);

/* A key's value, or `otherwise`. Numbers are whole, at least `least`, and small enough for
 * products. */
const char *verl_text_of(const verl_reader *r, const char *name, const char *otherwise);
bool verl_number(const verl_reader *r, const char *name, int64_t least, int64_t otherwise,
                 int64_t *value);
bool verl_truth(const verl_reader *r, const char *name, bool otherwise, bool *value);
/* "NAME is "x"; it must be EXPECTED". */
bool verl_wrong(const verl_reader *r, const verl_given *g, const char *expected);

/* Sets a scenario key at the place of verl's key `because`. */
bool verl_set(const verl_reader *r, setting_key key, const char *text, const char *because);
bool verl_set_number(const verl_reader *r, setting_key key, int64_t value, const char *because);

/* batch.c: world size, lengths and batch sizes; tells how many GPUs there are. */
bool verl_apply_batch(const verl_reader *r, int64_t *gpus);

#endif
