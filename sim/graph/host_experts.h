/*
 * Experts whose weights are on the host (Megatron-LM pull request #6494, moe/experts.py,
 * OffloadingExpertsMLP): a rank's experts are cut into chunks, and in every layer each of the two linears
 * has buffers on the device, each for the weights of one chunk. Chunk c is copied into buffer c modulo
 * their number.
 */
#ifndef OFFSIM_SIM_GRAPH_HOST_EXPERTS_H
#define OFFSIM_SIM_GRAPH_HOST_EXPERTS_H

#include "sim/base/arena.h"
#include "sim/config/settings.h"

/* Experts of a chunk. */
int64_t host_experts_of_chunk(const settings *s);
/* The static allocation with the buffers of a layer's first or second linear. */
const char *host_experts_buffer(int32_t layer, bool second, arena *a);

#endif
