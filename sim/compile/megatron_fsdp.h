/*
 * Host time of Megatron-FSDP's hooks (core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py): before a
 * layer they look up its buckets, gather them and wait; after its backward they accumulate each gradient and
 * reduce the buckets.
 *
 * The reductions themselves are in fsdp_buckets.h, and those of whole gradients with the gathers in the step
 * (gradients.h), as with DistributedDataParallel.
 */
#ifndef OFFSIM_SIM_COMPILE_MEGATRON_FSDP_H
#define OFFSIM_SIM_COMPILE_MEGATRON_FSDP_H

#include "sim/compile/walk.h"

/* These do nothing without it. */
void megatron_fsdp_layer_begin(walk *w, const chunk_program *p, int32_t layer);
void megatron_fsdp_layer_end(walk *w, const chunk_program *p, int32_t layer, layer_pass pass);

#endif
