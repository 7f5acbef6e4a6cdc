#include "sim/config/offload_systems.h"

#include <assert.h>
#include <string.h>

const offload_system offload_systems[] = {
#define X(name, scope, implementation, description)                                                \
  { #name, description, OFFLOAD_##scope, OFFLOAD_ON_##implementation },
  OFFLOAD_SYSTEMS(X)
#undef X
  { 0 },
};

const offload_system *offload_system_find(const char *name)
{
  for (const offload_system *row = offload_systems; row->name != NULL; row++)
    if (strcmp(row->name, name) == 0) return row;
  assert(0 && "not a choice of offload.system");
  return NULL;
}
