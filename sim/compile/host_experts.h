/*
 * The optimizer's step of experts whose weights are on the host (Megatron-LM pull request #6494): main
 * parameters and states are on the device, and after the step each weight is copied back.
 *
 *   optimizer/optimizer.py, _copy_main_params_to_model_params
 *     param.copy_(main_param) is not non-blocking, and the types differ: PyTorch
 *     (aten/src/ATen/native/cuda/Copy.cu) copies fp32 into pageable memory and converts on the host
 *   distributed/param_and_grad_buffer.py, _all_gather_cpu_param_bucket
 *     with the distributed optimizer this rank's shard goes to the device, all ranks' are gathered, and
 *     those are copied back, a part at a time; also of one rank
 */
#ifndef OFFSIM_SIM_COMPILE_HOST_EXPERTS_H
#define OFFSIM_SIM_COMPILE_HOST_EXPERTS_H

#include "sim/compile/optimizer.h"

/* After the optimizer's kernels. `buffer` is indexed by allocation of the list. */
void host_experts_step(walk *w, const optimizer_buffers *b);

#endif
