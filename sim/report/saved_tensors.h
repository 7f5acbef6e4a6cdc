/*
 * What happens to each saved tensor of a plan, for a program that follows it: JSON
 * (docs/reference/json.md, "Saved tensors").
 *
 * The list is that of the first micro-batch. A tensor that forward saves and no copy reads is kept; one
 * that a copy reads is offloaded, at the copy's place among the copies; one that backward saves once more
 * is computed again.
 */
#ifndef OFFSIM_SIM_REPORT_SAVED_TENSORS_H
#define OFFSIM_SIM_REPORT_SAVED_TENSORS_H

#include <stdio.h>

#include "sim/plan/plan.h"

void saved_tensors_json(const plan *p, FILE *out);

#endif
