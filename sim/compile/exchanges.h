/*
 * What pipeline ranks send each other: hidden states and their gradients, in the batches in which the
 * schedule posts them.
 */
#ifndef OFFSIM_SIM_COMPILE_EXCHANGES_H
#define OFFSIM_SIM_COMPILE_EXCHANGES_H

#include "sim/compile/walk.h"

/* Posts the exchanges of one batch, from step `first` on; returns how many steps that are. */
uint32_t exchanges_post(walk *w, uint32_t first);
/* Waits for the exchange that step `target` has posted. After its send the input's gradient dies. */
void exchanges_wait(walk *w, uint32_t target);

#endif
