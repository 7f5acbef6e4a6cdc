/* What the ways to run a linear with an adapter share: lora.c (PEFT), lora_kernels.c (Axolotl). */
#ifndef OFFSIM_SIM_MODEL_HF_LORA_H
#define OFFSIM_SIM_MODEL_HF_LORA_H

#include "sim/model/hf/eager.h"

/* The frozen weight, [outputs, inputs] or packed with the scales of its blocks, and its bias or 0.
 */
typedef struct lora_base {
  tensor_id weight;
  tensor_id absmax, nested_absmax, nested_offset; /* 4 bits; else 0 */
  tensor_id bias;
} lora_base;

/* What B(A(x)) is multiplied by. */
double lora_scale(const settings *s);
bool lora_is_quantized(const settings *s);
/* PEFT puts an adapter on this linear. */
bool lora_is_target(const settings *s, const char *module);
/* The type of adapters: PEFT casts those of a 16-bit model to fp32. */
dtype lora_adapter_dtype(const settings *s);
lora_base lora_base_new(graph *g, const settings *s, const hf_linear_spec *spec);
/* The same base again, from its weight: its tensors stand one behind the other. */
lora_base lora_base_at(tensor_id weight, bool quantized, bool biased);
/* An adapter's weight for products of 16 bits: itself, or a copy. */
tensor_id lora_cast_weight(graph *g, const settings *s, tensor_id weight);

#endif
