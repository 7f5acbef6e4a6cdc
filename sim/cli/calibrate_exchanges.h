/*
 * What GPUs give each other by NCCL, from trainings over two and over all of them: rates of
 * collectives and messages of two, as keys of a machine file, and the collectives one by one. And
 * what copies take longer while streams wait (sim/engine/waiting.h), which needs two GPUs'
 * exchanges.
 */
#ifndef OFFSIM_SIM_CLI_CALIBRATE_EXCHANGES_H
#define OFFSIM_SIM_CLI_CALIBRATE_EXCHANGES_H

#include "sim/cli/calibrate_samples.h"
#include "sim/cli/calibrate_train.h"
#include "sim/machine/machine.h"

/* Corrects the rates of `m` in beside->to, and adds to the calls; nothing where there is one GPU. A
 * training that the machine refuses is left out with a note. False after a diag error. */
bool calibrate_exchanges(const machine *m, sampled_calls *calls, const calibrate_beside *beside,
                         arena *a, diag *d);

#endif
