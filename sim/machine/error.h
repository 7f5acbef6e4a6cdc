/*
 * How far the figures of a machine may be off, by what they are and where they come from.
 *
 * The width of a source is one standard deviation, relative: the truth is within it in two of three
 * cases. Rates of a class are wrong together, those of different classes independently.
 */
#ifndef OFFSIM_SIM_MACHINE_ERROR_H
#define OFFSIM_SIM_MACHINE_ERROR_H

#include "sim/machine/machine.h"

/* "matrix products" */
const char *rate_class_name(rate_class c);

/* The machine whose rates of that class are all wrong by one width, in the direction that makes steps
 * slower or faster. */
machine machine_erring(const machine *m, rate_class c, bool slower);

#endif
