/* Helpers of the two ways to run a linear with an adapter: lora.c (PEFT), lora_kernels.c
 * (Axolotl). */
#ifndef OFFSIM_SIM_MODEL_HF_LORA_H
#define OFFSIM_SIM_MODEL_HF_LORA_H

#include "sim/model/hf/eager.h"
#include "sim/operators/lora.h"

bool lora_is_quantized(const settings *s);
/* PEFT puts an adapter on this linear. */
bool lora_is_target(const settings *s, const char *module);
/* The type of adapters: PEFT casts those of a 16-bit model to fp32. */
dtype lora_adapter_dtype(const settings *s);
lora_base lora_base_new(graph *g, const settings *s, const hf_linear_spec *spec);
/* An adapter's weight for products of 16 bits: itself, or a copy. */
tensor_id lora_cast_weight(graph *g, const settings *s, tensor_id weight);

#endif
