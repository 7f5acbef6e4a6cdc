/*
 * Marks, after the walk, the ops of a rank that the host issues by replaying captured CUDA graphs.
 * Kernels keep their streams and order; a replay saves the host's time to issue them.
 */
#ifndef OFFSIM_SIM_COMPILE_GRAPHS_H
#define OFFSIM_SIM_COMPILE_GRAPHS_H

#include "sim/config/settings.h"
#include "sim/plan/plan.h"

/* For an iteration after the capture. */
void mark_graphs(const settings *s, const plan *p, rank_plan *r);

#endif
