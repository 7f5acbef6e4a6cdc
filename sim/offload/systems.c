#include "sim/offload/systems.h"

#include <string.h>

const offload_policy *const offload_policies[] = {
  &none_policy,
  &megatron_policy,
  &megatron_pr1752_policy,
  &te_v1_policy,
  &te_v2_policy,
  NULL,
};

const offload_policy *offload_policy_find(const char *name)
{
  for (const offload_policy *const *p = offload_policies; *p; p++)
    if (strcmp((*p)->name, name) == 0) return *p;
  return NULL;
}
