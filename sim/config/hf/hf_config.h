/*
 * The shape of a model from a Hugging Face config.json: sets keys of section model.
 *
 * Families: Llama, Mistral, Qwen2, Qwen2-MoE, Qwen3, Qwen3-MoE, Mixtral, DeepSeek-V2, DeepSeek-V3
 * and what shares their architecture. What a family fixes (RMSNorm, SwiGLU, rotary embedding,
 * biases, qk-norm) follows its implementation in the transformers library; keys that say nothing
 * about shape are ignored. Parallelism, batch and sequence length are not a model's and are not
 * touched.
 */
#ifndef OFFSIM_SIM_CONFIG_HF_HF_CONFIG_H
#define OFFSIM_SIM_CONFIG_HF_HF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/settings.h"

bool hf_config_read(settings *s, const char *path, arena *a, diag *d);

/* The same from memory; `path` only names the text in messages and must outlive `s`. */
bool hf_config_parse(settings *s, const char *path, const char *text, size_t length, arena *a,
                     diag *d);

#endif
