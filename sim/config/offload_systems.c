#include "sim/config/offload_systems.h"

#include "sim/config/settings.h"

const offload_system offload_systems[OFFLOAD_SYSTEM_COUNT] = {
#define X(name, scope, implementation, description)                                                \
  [SYSTEM_##name] = { #name, description, OFFLOAD_##scope, OFFLOAD_ON_##implementation },
  OFFLOAD_SYSTEMS(X)
#undef X
};
