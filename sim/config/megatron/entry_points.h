/*
 * Scripts and modules that take Megatron-LM's options: which train a decoder-only model, and what
 * the others do. Private to sim/config/megatron/.
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_ENTRY_POINTS_H
#define OFFSIM_SIM_CONFIG_MEGATRON_ENTRY_POINTS_H

#include <stdbool.h>

typedef struct entry_point {
  const char *name; /* without directory and .py, unless it has a slash; `*` matches any text */
  const char *does; /* what offsim does not predict, after the script's name; NULL: it is read */
} entry_point;

/* `entry`: a path or a module. NULL: not in the table. */
const entry_point *entry_point_find(const char *entry, bool is_module);

#endif
