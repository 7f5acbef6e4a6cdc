/*
 * One tensor's way under PyTorch's torch.autograd.graph.save_on_cpu(pin_memory=True)
 * (torch/autograd/graph.py), for the systems that use it.
 */
#ifndef OFFSIM_SIM_OFFLOAD_SAVE_ON_CPU_H
#define OFFSIM_SIM_OFFLOAD_SAVE_ON_CPU_H

#include "sim/offload/actions.h"

/* The host waits for the copy, on the compute stream, and the device memory is freed. A view that
 * is not contiguous is first gathered on the device. */
void save_on_cpu_pack(walk *w, instance_id i, uint32_t entry, bool contiguous);

/* The tensor comes back on the compute stream, without a host wait. */
void save_on_cpu_unpack(walk *w, instance_id i, uint32_t entry);

#endif
