/* Sizes, types and variants of modules that follow from the settings and that several files
 * need. */
#ifndef OFFSIM_SIM_GRAPH_SIZES_H
#define OFFSIM_SIM_GRAPH_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/config/settings.h"
#include "sim/plan/plan.h"

/* Ranks that share a layer by tensor parallelism. */
int64_t size_tp(const settings *s);
/* Positions of this rank: seq_length / cp. */
int64_t size_sequence(const settings *s);
/* Positions of this rank in the norm and residual region: / tp with sequence parallel. */
int64_t size_residual_sequence(const settings *s);
/* Positions of the hidden states that a virtual stage receives. After a stage with multi-token
 * prediction they are those of all depths, one after the other. */
int64_t size_received_sequence(const settings *s, uint32_t pp_rank, uint32_t chunk);
/* Whether this virtual stage has the decoder's final norm: the stage with the loss has it; with
 * multi-token prediction, the stage with the last decoder layer (transformer_block.py). */
bool stage_has_final_norm(const settings *s, const struct stage_content *stage);
/* Whether attention of this layer has a sliding window; layers of multi-token prediction count from 0 again
 * (Megatron-LM's MultiTokenPredictionLayer). */
bool layer_slides(const settings *s, int32_t layer);
/* The keys that a query of this layer sees in one kernel, its own the last; 0: all before it. Of llama4,
 * whose queries see chunks, 0. */
int64_t size_window(const settings *s, int32_t layer);
/* The type of weights and activations: DTYPE_BF16, DTYPE_FP16 or DTYPE_FP32. */
dtype model_dtype(const settings *s);
/* The type of the residual stream: DTYPE_FP32 with fp32_residual_connection. */
dtype residual_dtype(const settings *s);
/* Layers are Transformer Engine's. */
bool uses_te(const settings *s);
/* software.container was released in this month or later. */
bool image_is_from(const settings *s, int year, int month);
/* Whether the run has a change that Megatron-LM's main got on that day (20260106). Where the day of
 * its code is unknown, images from that month on are taken to have it. */
bool megatron_is_from(const settings *s, int day, int year, int month);
/* Whether the data iterator keeps the micro-batches of a step on the device until the next one. */
bool keeps_batches(const settings *s);
bool is_layernorm(const settings *s); /* LayerNorm, not RMSNorm */
bool is_gated(const settings *s);     /* the activation multiplies two halves */
/* The activation of an MLP. GeLU is the tanh approximation except in the unfused sequence of
 * kernels. */
activation_function activation_of(const settings *s);
/* Whether the linears of this layer compute in fp8 (first_last_layers_bf16 excludes some). */
bool layer_is_fp8(const settings *s, int32_t layer);
/* recompute_granularity is selective and names the module. */
bool recomputes(const settings *s, recompute_modules_choice module);
/* Whether calls of this module are groups of the offload system: offload_modules names it. */
bool marks_group(const settings *s, offload_modules_choice module);

#endif
