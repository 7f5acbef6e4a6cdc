/*
 * What GPUs give each other by NCCL, from trainings over two and over all of them: rates of
 * collectives and messages of two, as keys of a machine file, and the collectives one by one. And
 * what copies take longer while streams wait (sim/engine/waiting.h), which needs two GPUs'
 * exchanges.
 */
#ifndef OFFSIM_SIM_CLI_CALIBRATE_EXCHANGES_H
#define OFFSIM_SIM_CLI_CALIBRATE_EXCHANGES_H

#include "cuda/calibrate/calibrate.h"
#include "sim/cli/calibrate_samples.h"
#include "sim/machine/machine.h"

/* Corrects the rates of `m`, and adds to the calls; nothing where there is one GPU. A training that
 * the machine refuses is left out with a note. False after a diag error. */
bool calibrate_exchanges(const machine *m, calibration *c, sampled_calls *calls,
                         calibrate_progress *progress, void *context, arena *a, diag *d);

#endif
