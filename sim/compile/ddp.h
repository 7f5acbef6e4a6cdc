/*
 * PyTorch's DistributedDataParallel over the replicas of a model of plain PyTorch without FSDP: in
 * the step's last micro-batch (before it, trainers skip it: no_sync) the gradients of each layer
 * are summed over all ranks beside the rest of backward (torch/csrc/distributed/c10d/reducer.cpp).
 * They go through buckets, which sim/residents/hf_statics.h has: copied in, divided, and back out.
 *
 * Buckets are about 25 MiB; here a layer's go together.
 */
#ifndef OFFSIM_SIM_COMPILE_DDP_H
#define OFFSIM_SIM_COMPILE_DDP_H

#include "sim/compile/walk.h"

/* Nothing happens in these with one rank, or with FSDP. */
void ddp_layer_end(walk *w, instance_id i, int32_t layer, layer_pass pass);
void ddp_backward_end(walk *w, instance_id i);

#endif
