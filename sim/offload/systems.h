/* The rows of the table in systems.c, each in a file of its own name. */
#ifndef OFFSIM_SIM_OFFLOAD_SYSTEMS_H
#define OFFSIM_SIM_OFFLOAD_SYSTEMS_H

#include "sim/offload/policy.h"

extern const offload_policy none_policy;
extern const offload_policy megatron_policy;
extern const offload_policy megatron_pr1752_policy;
extern const offload_policy te_v1_policy;
extern const offload_policy te_v2_policy;

#endif
