#include "sim/offload/systems.h"

#include <assert.h>

const offload_policy *offload_policy_of(system_choice system)
{
  static const offload_policy *const policies[] = {
#define X(name, ...) [SYSTEM_##name] = &name##_policy,
    OFFLOAD_SYSTEMS(X)
#undef X
  };

  assert(system != SYSTEM_EMPTY);
  return policies[system];
}
