/*
 * PyTorch's DistributedDataParallel over the replicas of a model of plain PyTorch without FSDP: in
 * the step's last micro-batch (before it, trainers skip it: no_sync) the gradients of each layer
 * are summed over all ranks while backward continues (torch/csrc/distributed/c10d/reducer.cpp).
 * They are copied into buckets (sim/residents/hf_statics.h), divided, reduced, and copied back out.
 *
 * PyTorch's buckets have about 25 MiB; here one bucket has all gradients of a layer.
 */
#ifndef OFFSIM_SIM_COMPILE_DDP_H
#define OFFSIM_SIM_COMPILE_DDP_H

#include "sim/compile/walk.h"

/* These do nothing with one rank, or with FSDP. */
void ddp_layer_end(walk *w, instance_id i, int32_t layer, layer_pass pass);
void ddp_backward_end(walk *w, instance_id i);

#endif
