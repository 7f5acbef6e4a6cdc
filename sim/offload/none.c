/* No offload: every saved tensor stays. The baseline of every comparison. */
#include "sim/offload/systems.h"

const offload_descriptor none_system = {
  .theory = { .group_leaves = theory_no_group, .entry_leaves = theory_no_entry },
  .streams = {
    .leaves = "nothing",
    .waits_for_copy_out = "",
    .memory_goes = "",
    .comes_back = "",
    .into_pool_of = "",
  },
};
