/*
 * Where the host replays captured CUDA graphs: marks them in a rank's ops after the walk. Kernels
 * keep their streams and order; what a replay saves is the host's time to issue them.
 */
#ifndef OFFSIM_SIM_COMPILE_GRAPHS_H
#define OFFSIM_SIM_COMPILE_GRAPHS_H

#include "sim/config/settings.h"
#include "sim/plan/plan.h"

/* Of an iteration after the capture. */
void mark_graphs(const settings *s, const plan *p, rank_plan *r);

#endif
