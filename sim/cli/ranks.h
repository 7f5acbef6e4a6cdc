/* Ranks that --trace-ranks names: "0", "0,2", "1-3,7". */
#ifndef OFFSIM_SIM_CLI_RANKS_H
#define OFFSIM_SIM_CLI_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"

/* By rank of `count`: whether it is named; all if `text` is NULL. NULL after a diag error. */
const bool *ranks_named(const char *text, uint32_t count, arena *a, diag *d);

/* At least one is. */
uint32_t first_rank(const bool *named);

#endif
