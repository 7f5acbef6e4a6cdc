/* --over: an axis of a space of settings. Its table's struct is the space. */
#ifndef OFFSIM_SIM_CLI_OVER_H
#define OFFSIM_SIM_CLI_OVER_H

#include "sim/load/options.h"
#include "sim/sweep/space.h"

extern const option_row over_rows[];

#endif
