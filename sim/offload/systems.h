/* The policies of sim/config/offload_systems.h, each in a file of its own name. */
#ifndef OFFSIM_SIM_OFFLOAD_SYSTEMS_H
#define OFFSIM_SIM_OFFLOAD_SYSTEMS_H

#include "sim/config/offload_systems.h"
#include "sim/offload/policy.h"

#define X(name, ...) extern const offload_policy name##_policy;
OFFLOAD_SYSTEMS(X)
#undef X

#endif
