/*
 * Megatron-LM's options: the table flags.def as data, and what giving one does to
 * settings.
 *
 * Names are compared with `_` read as `-`: Megatron's parser knows options by their dashes,
 * mappings and dataclasses use underscores, and a few options mix both. Abbreviations are not
 * accepted, as in Megatron (allow_abbrev=False).
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_FLAGS_H
#define OFFSIM_SIM_CONFIG_MEGATRON_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/settings.h"

typedef enum flag_values {
  FLAG_VALUES_NONE,
  FLAG_VALUES_ONE,
  FLAG_VALUES_THREE,
  FLAG_VALUES_SOME, /* one or more */
  FLAG_VALUES_ANY,
  FLAG_VALUES_FIELD, /* a dataclass field: one value, or none for a FLAG that is switched on */
} flag_values;

typedef enum flag_type { FLAG_TYPE_FLAG, FLAG_TYPE_INT, FLAG_TYPE_REAL, FLAG_TYPE_TEXT } flag_type;

typedef enum flag_effect_kind {
  FLAG_SETS,       /* key := the value */
  FLAG_GIVES,      /* key := text */
  FLAG_OVERRIDES,  /* text is a list of assignments, made after all others */
  FLAG_READ,       /* code outside the table reads it */
  FLAG_IGNORED,    /* cannot change memory or time */
  FLAG_UNMODELLED, /* text: what is not modelled, unless the value is `harmless` */
  FLAG_REFUSED,    /* text: what it describes instead; unless the value is `harmless` */
  FLAG_REFUSED_IF, /* the same if the value has one of `words`; else `harmless` is not modelled */
} flag_effect_kind;

typedef struct flag_effect {
  flag_effect_kind kind;
  setting_key key; /* KEY_COUNT: none */
  const char *text;
  const char *harmless;
  const char *words; /* "mamba|hybrid" */
} flag_effect;

typedef struct megatron_flag {
  const char *name; /* "--tensor-model-parallel-size" */
  flag_values values;
  flag_type type;
  flag_effect effect;
} megatron_flag;

extern const megatron_flag megatron_flags[];
extern const uint32_t megatron_flag_count;

#define MEGATRON_FLAG_UNKNOWN UINT32_MAX

/* `name` with or without leading dashes. */
uint32_t megatron_flag_find(const char *name);

/* The value must be known, as it can change memory or time. Tokenizers (READ) are asked for a vocabulary
 * where no size is given, and say themselves what is missing then. */
bool megatron_flag_matters(const megatron_flag *flag);

/* The known name that `name` is probably meant to be, or NULL. */
const char *megatron_flag_nearest(arena *a, const char *name);

/* One option as it was given. Texts live as long as the arena they came from. */
typedef struct flag_use {
  uint32_t flag;       /* index into megatron_flags */
  const char *value;   /* several values are separated by blanks; "" = switched on */
  source_pos at;       /* of the name */
  source_pos value_at; /* of the first value */
} flag_use;

typedef struct flag_use_array {
  flag_use *items;
  uint32_t count, capacity;
} flag_use_array;

/* The last use of a known option; NULL: not given. */
const flag_use *megatron_flag_last_use(const flag_use_array *uses, const char *name);

/* False after one error that says what the uses describe, if they do not train a decoder model;
 * earlier errors are dropped. */
bool megatron_flags_refuse(const flag_use_array *uses, diag *d);

/*
 * What the uses mean, in the order in which they were given, the last of each option only, then the
 * OVERRIDES. False after errors, one for each use that is wrong. A note names options that can
 * change memory or time and are not modelled.
 */
bool megatron_flags_apply(settings *s, const flag_use_array *uses, arena *a, diag *d);

/* The first option of flags.def that gives a key this value, "--micro-batch-size 2"; for one that is
 * only there without an option, that option, and *leaves_out is true. NULL: there is none. */
const char *megatron_flag_for(setting_key key, const char *value, bool *leaves_out, arena *a);

#endif
