/*
 * Equal byte strings get equal numbers: 0, 1, 2, ... in the order of their first appearance.
 */
#ifndef OFFSIM_SIM_PLAN_INTERN_H
#define OFFSIM_SIM_PLAN_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"

typedef struct intern_key {
  const char *bytes; /* with a NUL after them */
  size_t length;
} intern_key;

/* Empty when zeroed except `memory`, the arena of keys and table. */
typedef struct intern_table {
  arena *memory;
  uint32_t *slots; /* number + 1 of the key that hashes there, 0: free */
  uint32_t slot_count;
  intern_key *keys; /* [count], by number */
  uint32_t count;
} intern_table;

uint32_t intern(intern_table *t, const void *bytes, size_t length);

#endif
