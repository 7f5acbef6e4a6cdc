/*
 * An offload system, all of it: NAME_system, in sim/offload/NAME.c, for each row of
 * sim/config/offload_systems.h, which has what settings need to know of it: its name, what it looks
 * at and whose models it works on.
 */
#ifndef OFFSIM_SIM_OFFLOAD_SYSTEMS_H
#define OFFSIM_SIM_OFFLOAD_SYSTEMS_H

#include <stdio.h>

#include "sim/offload/policy.h"
#include "sim/offload/theory.h"

/* One of the variants that a comparison tries: a FLAG, and what the system is then called. */
typedef struct offload_variant {
  const char *title;
  setting_key flag;
  bool value;
} offload_variant;

enum { OFFLOAD_MOST_VARIANTS = 2 };

typedef struct offload_descriptor {
  /* When it moves what. */
  offload_policy policy;

  /* What it must save; no system is without. It sees neither `policy` nor what sim/compile makes of
   * it, or the ratio of the simulated saving to the theoretical one would say nothing. */
  theory_rules theory;

  /* What must hold of the settings, beside what sim/config checks for all: false after a diag
   * error. NULL: nothing. */
  bool (*conditions)(const settings *s, diag *d);

  /* What a comparison of systems tries: variants, one without a title if none is given; and what it
   * sets where nothing was given: `value` of `key`, unless that is NULL. */
  struct {
    offload_variant variants[OFFLOAD_MOST_VARIANTS];
    uint32_t variant_count;
    setting_key key;
    const char *(*value)(const settings *given, const settings *resolved, arena *a);
  } compared;

  /* Its row in docs/02-streams.md. */
  struct {
    const char *leaves, *waits_for_copy_out, *memory_goes, *comes_back, *into_pool_of;
  } streams;
} offload_descriptor;

#define X(name, ...) extern const offload_descriptor name##_system;
OFFLOAD_SYSTEMS(X)
#undef X

const offload_descriptor *offload_system_of(system_choice system);

/* The conditions of the system that the settings name, for settings_resolve. */
bool offload_conditions(const settings *s, diag *d);

/* What the system that the settings name must save, from the schedule and the sizes of groups
 * alone. */
int64_t theoretical_saving_bytes(const rank_shape *r, arena *a);

/* The rows of the table of docs/02-streams.md: each system's streams. */
void offload_document(FILE *out);

#endif
