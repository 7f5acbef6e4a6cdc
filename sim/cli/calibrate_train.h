/* Trainings for calibrate, on the GPUs of this machine. */
#ifndef OFFSIM_SIM_CLI_CALIBRATE_TRAIN_H
#define OFFSIM_SIM_CLI_CALIBRATE_TRAIN_H

#include "sim/calibrate/calibrate.h"

/* As calibration_bench has it. */
bool train_on_gpus(const calibration_run *run, arena *a, diag *d);

#endif
