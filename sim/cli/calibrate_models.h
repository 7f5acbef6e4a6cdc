/*
 * Times of kernels, from models that ship with offsim (cuda/calibrate/models). Each is trained on
 * one GPU until that has the clock of a GPU at work; then the kernels of a few steps are samples of
 * their calls. Where the machine has a limit of power (sim/engine/power.h), steps follow in which
 * the GPU rests behind each kernel: these show what the kernels take at full clock, and so how much
 * the limit slows products and attention: keys of the machine.
 */
#ifndef OFFSIM_SIM_CLI_CALIBRATE_MODELS_H
#define OFFSIM_SIM_CLI_CALIBRATE_MODELS_H

#include "sim/cli/calibrate_samples.h"
#include "sim/cli/calibrate_train.h"

/* `m`: has the limit of power. One after the other; those that do not fit the GPU are left out with
 * a note. A call of several models is what it was in the first. False after a diag error. */
bool calibrate_kernels(const machine *m, sampled_calls *calls, const calibrate_beside *beside,
                       arena *a, diag *d);

#endif
