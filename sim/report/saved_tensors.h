/*
 * What happens to each saved tensor of a plan, for a program that follows it: JSON
 * (docs/reference/json.md, "Saved tensors").
 *
 * The first micro-batch stands for all. What forward saves and no copy reads is kept; what a copy reads is
 * offloaded, at the place of the copy among the others; what backward saves once more is computed again.
 */
#ifndef OFFSIM_SIM_REPORT_SAVED_TENSORS_H
#define OFFSIM_SIM_REPORT_SAVED_TENSORS_H

#include <stdio.h>

#include "sim/plan/plan.h"

void saved_tensors_json(const plan *p, FILE *out);

#endif
