/*
 * The descriptor of an offload system: NAME_system, in sim/offload/NAME.c, for each row of
 * sim/config/offload_systems.h, which has what settings need: its name, its unit (modules, layers,
 * the step) and the models that it supports.
 */
#ifndef OFFSIM_SIM_OFFLOAD_SYSTEMS_H
#define OFFSIM_SIM_OFFLOAD_SYSTEMS_H

#include <stdio.h>

#include "sim/offload/policy.h"
#include "sim/offload/theory.h"

/* A variant that a comparison tries: a FLAG, and the system's title with it. */
typedef struct offload_variant {
  const char *title;
  setting_key flag;
  bool value;
} offload_variant;

enum { OFFLOAD_MOST_VARIANTS = 2 };

typedef struct offload_descriptor {
  /* What it moves, and when. */
  offload_policy policy;

  /* What it must save; every system has a theory. It does not use `policy` or results of
   * sim/compile: else the ratio of the simulated to the theoretical saving would mean nothing. */
  theory_rules theory;

  /* Conditions on the settings, in addition to those that sim/config checks for all systems: false
   * after a diag error. NULL: none. */
  bool (*conditions)(const settings *s, diag *d);

  /* What a comparison of systems tries: variants, or one without a title if the list is empty; and
   * a default: `value` for `key`, unless that is NULL. */
  struct {
    offload_variant variants[OFFLOAD_MOST_VARIANTS];
    uint32_t variant_count;
    setting_key key;
    const char *(*value)(const settings *given, const settings *resolved, arena *a);
  } compared;

  /* Its row in docs/05-offload-systems.md. */
  struct {
    const char *leaves, *waits_for_copy_out, *memory_goes, *comes_back, *into_pool_of;
  } streams;
} offload_descriptor;

#define X(name, ...) extern const offload_descriptor name##_system;
OFFLOAD_SYSTEMS(X)
#undef X

const offload_descriptor *offload_system_of(system_choice system);

/* The policy that moves activations: that of the settings' system, or one for both engines if
 * Megatron-LM's paged stash runs beside its fine-grained offloading. */
const offload_policy *offload_policy_of(const settings *s);

/* Whether layer_offloading may run beside this system. */
bool layer_offloading_goes_beside(system_choice system);

/* The policy that moves frozen weights beside the system of activations
 * (offload.layer_offloading); NULL: none. */
const offload_policy *offload_beside(const settings *s);

/* The conditions of the system that the settings name, for settings_resolve. False after a diag error. */
bool offload_conditions(const settings *s, diag *d);

/* The theoretical saving of the system that the settings name, from only the schedule and the sizes
 * of groups. */
int64_t theoretical_saving_bytes(const rank_shape *r, arena *a);

/* The rows of the table of docs/05-offload-systems.md: each system's streams. */
void offload_document(FILE *out);

#endif
