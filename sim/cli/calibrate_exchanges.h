/*
 * What two GPUs give each other by NCCL, from trainings over both: rates of collectives and
 * messages, as keys of a machine file.
 */
#ifndef OFFSIM_SIM_CLI_CALIBRATE_EXCHANGES_H
#define OFFSIM_SIM_CLI_CALIBRATE_EXCHANGES_H

#include "cuda/calibrate/calibrate.h"
#include "sim/machine/machine.h"

/* Corrects the rates of `m`; nothing where there is one GPU. A training that the machine refuses is
 * left out with a note. False after a diag error. */
bool calibrate_exchanges(const machine *m, calibration *c, calibrate_progress *progress,
                         void *context, diag *d);

#endif
