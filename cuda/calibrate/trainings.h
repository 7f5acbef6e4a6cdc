/* Trainings for calibrate, on the GPUs of this machine. */
#ifndef OFFSIM_CUDA_CALIBRATE_TRAININGS_H
#define OFFSIM_CUDA_CALIBRATE_TRAININGS_H

#include "sim/calibrate/calibrate.h"

/* See calibration_bench. */
bool train_on_gpus(const calibration_run *run, arena *a, diag *d);

#endif
