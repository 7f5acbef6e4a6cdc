/*
 * Settings that are tried: every combination of the choices of some axes. A choice sets any number
 * of keys.
 *
 *     a list:  recompute_granularity=full recompute_method=uniform
 *              recompute_granularity=selective
 *     a key:   micro_batch_size=1|2|4
 *
 * is six settings, counted from 0; the last axis changes fastest.
 */
#ifndef OFFSIM_SIM_SWEEP_SPACE_H
#define OFFSIM_SIM_SWEEP_SPACE_H

#include "sim/predict/candidates.h"

enum { SPACE_AXES = 8, SPACE_MOST_SETTINGS = 10000000 };

/* One choice of an axis; "key=" clears a list. */
typedef struct space_choice {
  const char **sets; /* "key=value" */
  uint32_t set_count;
} space_choice;

typedef struct space_axis {
  const char *key; /* NULL: its choices set several */
  space_choice *items;
  uint32_t count, capacity;
} space_axis;

typedef struct space {
  space_axis axes[SPACE_AXES];
  uint32_t axis_count;
} space;

/* One axis: "KEY=V1|V2|...". Texts are copied. False after a diag error. */
bool space_add_axis(space *s, const char *text, source_pos at, arena *a, diag *d);
/* An axis from a list: in each line KEY=VALUE with blanks between them; # begins a comment. `text` is the
 * content of `file`. False after diag errors. */
bool space_add_list(space *s, const char *file, const char *text, arena *a, diag *d);
/* An axis whose choices are these; texts are not copied. False after a diag error. */
bool space_add_choices(space *s, const space_choice *choices, uint32_t count, source_pos at,
                       diag *d);
/* Some axis sets the key. */
bool space_varies(const space *s, setting_key key);
/* There are settings, no more than SPACE_MOST_SETTINGS, and each sets no more keys than a candidate
 * has room for. False after a diag error. */
bool space_check(const space *s, source_pos at, diag *d);

/* Of a space that passed the check. */
uint32_t space_count(const space *s);
/* The setting `index` of space_count: what it sets, in order. */
candidate space_at(const space *s, uint32_t index);
void space_release(space *s);

#endif
