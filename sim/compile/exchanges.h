/*
 * Exchanges between pipeline ranks: hidden states and their gradients, in the batches that the
 * schedule posts.
 */
#ifndef OFFSIM_SIM_COMPILE_EXCHANGES_H
#define OFFSIM_SIM_COMPILE_EXCHANGES_H

#include "sim/compile/walk.h"

/* Posts the exchanges of one batch, from step `first` on; returns the number of its steps. */
uint32_t exchanges_post(walk *w, uint32_t first);
/* Waits for the exchange that step `target` has posted. After the send of the input's gradient,
 * that gradient is freed. */
void exchanges_wait(walk *w, uint32_t target);

#endif
