/* No offload: every saved tensor stays where it is. The baseline of every comparison. */
#include "sim/offload/systems.h"

const offload_policy none_policy = { 0 };
