/*
 * Optimizer states that are on the host except while their chunk of parameters is stepped
 * (chunked_optimizer_state_offload), as the branch dev of Megatron-LM has it since 18 August 2026
 * (9050d4c5, #6244: core/optimizer/cpu_offloading/chunked_optimizer_state_offload.py). The device does the
 * step. Each optimizer, of dense parameters and then of experts, in turn:
 *
 *   1. A step begins: main parameters go to page-locked memory, and their blocks are freed, marked by the
 *      stream of the copies.
 *   2. After the last backward, before gradients are reduced: main parameters come back, all of them; then
 *      the states of the first chunk.
 *   3. The optimizer: parameters that stay are stepped, then chunk after chunk. Before a chunk's step the
 *      next one begins to come; after it the chunk's states leave.
 *
 * States come into windows, two of which take turns: a buffer for each type, made when the first chunk needs
 * it and again for a larger one, freed after the last chunk. A tensor begins there at a multiple of 256
 * bytes. In the first step the optimizer makes the states of a chunk when it steps them; they leave at once,
 * and the host waits for that. Where a checkpoint is loaded, it makes them so before, and main parameters
 * leave too.
 *
 * Parameters are in the order of the optimizer's groups. A chunk ends before the one whose states would
 * exceed its size; size 0 is one chunk. Of a fraction below 1 parameters leave, those with a main parameter
 * first, until they have that part of the bytes of all states and main parameters.
 */
#ifndef OFFSIM_SIM_COMPILE_STATE_CHUNKS_H
#define OFFSIM_SIM_COMPILE_STATE_CHUNKS_H

#include "sim/compile/optimizer.h"

typedef struct state_chunks state_chunks;

/* Which parameters leave, in which chunks. It needs no buffers yet. */
state_chunks *state_chunks_of(walk *w, const static_allocation_list *list);

/* The allocation is one that the optimizer makes in its chunk's first step. */
bool state_chunks_make(const state_chunks *c, uint32_t allocation);
/* It is on the host at times, so whether a steady step finds it on the device is decided here. */
bool state_chunks_hold(const state_chunks *c, uint32_t allocation);

/* Once the other buffers exist, which by allocation are those of `buffer`. What a steady step finds. */
void state_chunks_residents(walk *w, state_chunks *c, uint32_t *buffer);

void state_chunks_leave(walk *w, state_chunks *c);  /* 1 */
void state_chunks_return(walk *w, state_chunks *c); /* 2 */
/* 3, over all parameters; `bytes`: the total that the kernels move. */
void state_chunks_step(walk *w, state_chunks *c, const optimizer_buffers *b, int64_t bytes);

#endif
