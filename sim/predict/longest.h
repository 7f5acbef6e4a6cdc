/*
 * How long packed sequences may be for a run to fit. What a run of training.packed_sequences needs
 * depends on their mean length, which is not known before it.
 */
#ifndef OFFSIM_SIM_PREDICT_LONGEST_H
#define OFFSIM_SIM_PREDICT_LONGEST_H

#include "sim/config/settings.h"
#include "sim/machine/machine.h"

/* The longest mean, in tokens, with which the settings fit, as given before they are resolved; a
 * multiple of 32 and of the ranks that share a sequence. 0: none fits. */
int64_t longest_that_fits(const settings *given, const machine *m);

#endif
