#include "sim/offload/systems.h"

#include <string.h>

static const struct {
  const char *name;
  const offload_policy *policy;
} policies[] = {
#define X(name, ...) { #name, &name##_policy },
  OFFLOAD_SYSTEMS(X)
#undef X
};

const offload_policy *offload_policy_find(const char *name)
{
  for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
    if (strcmp(policies[i].name, name) == 0) return policies[i].policy;
  return NULL;
}
