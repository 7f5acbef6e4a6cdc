/*
 * Workspaces that libraries keep, and the small tensors of a training process.
 *
 * cuBLAS (PyTorch aten/src/ATen/cuda/CublasHandlePool.cpp): one workspace for every handle and
 * stream, and each thread has a handle: the main thread (forward) and autograd's (backward). Its
 * size is CUBLAS_WORKSPACE_CONFIG's, else 32 MiB on compute capability 9.0 (with images from 26.04
 * also above: that much is measured, not read), else 2 x 4 MiB + 8 x 16 KiB.
 *
 * Transformer Engine (pytorch/cpp_extensions/gemm.py): 32 MiB from compute capability 9.0 on, else
 * 4 MiB; four more for grouped GEMMs, one per stream. The MoE router's GEMM uses it too where the
 * transformer layers do not (Megatron-LM core/transformer/moe/moe_utils.py,
 * RouterGatingLinearFunction).
 *
 * Fused weight gradients (gradient_accumulation_fusion): GEMMs add to the gradient buffer, and
 * autograd gets a placeholder in the weight's shape. Transformer Engine (pytorch/module/base.py,
 * get_dummy_wgrad) keeps one placeholder for each distinct shape: for linears from 2.3 on, for grouped
 * ones from 2.10 on, and for Megatron-LM's own linears, the output layer among them, since 1 August 2025
 * (core/tensor_parallel/layers.py, e7c55de9). Before, autograd freed each.
 *
 * fp8 weights: Transformer Engine quantises a weight at the first micro-batch and keeps the copies
 * (pytorch/module/base.py, _fp8_workspaces): one by rows, and one by columns for the input
 * gradient, which per-tensor scaling does not need on compute capability 10, whose GEMMs read
 * either layout. Block scaling adds an fp32 scale for 128 x 128 elements, MXFP8 one byte for 32.
 *
 * Rotary embeddings (core/models/common/embeddings/rotary_pos_embedding.py and
 * yarn_rotary_pos_embedding.py) cache the fp32 angles of a sequence (functools.lru_cache).
 *
 * Megatron's own unfused attention takes its scores from a global buffer that is never freed
 * (core/transformer/dot_product_attention.py, core/utils.py GlobalMemoryBuffer). With sequence
 * parallelism Megatron's own linears gather their input into it, and the output layer is one of
 * them (core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
 *
 * Of the activations, these survive a step: the last input of each pipeline chunk and its gradient
 * (core/transformer/transformer_block.py, set_input_tensor), and the last routing of each MoE layer
 * (core/transformer/moe/token_dispatcher.py, MoEAlltoAllTokenDispatcher).
 */
#ifndef OFFSIM_SIM_RESIDENTS_WORKSPACES_H
#define OFFSIM_SIM_RESIDENTS_WORKSPACES_H

#include "sim/residents/static_writer.h"

/* Bytes of one cuBLAS workspace. */
int64_t cublas_workspace_bytes(const settings *s, int compute_capability);

/* Each records what the rank allocates, in the order of allocation. */

/* Transformer Engine's user buffers, before the model: sim/graph/user_buffers.h. */
void write_user_buffers(static_writer *w);
/* Small tensors that are made with the model. */
void write_build_tensors(static_writer *w);
/* What the first forward takes and keeps, and then the first backward. */
void write_forward_workspaces(static_writer *w);
void write_backward_workspaces(static_writer *w);
/* What a step leaves of its activations. */
void write_retained(static_writer *w);

#endif
