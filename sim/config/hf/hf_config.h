/*
 * The shape of a model from a Hugging Face config.json: sets keys of section model.
 *
 * Families are those of the table in families.c and what shares their architecture. What a family
 * fixes (norms, activation, rotary embedding, biases, qk-norm) follows its implementation in the
 * transformers library; keys that say nothing about shape are ignored. Parallelism, batch and
 * sequence length are not a model's and are not touched.
 */
#ifndef OFFSIM_SIM_CONFIG_HF_HF_CONFIG_H
#define OFFSIM_SIM_CONFIG_HF_HF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/settings.h"

/* What a config.json says beyond the model's shape. */
typedef struct hf_config_facts {
  const char *dtype; /* "bfloat16"; NULL: it does not say */
  source_pos dtype_at;
  bool needs_hf; /* model.implementation hf alone has such modules */
} hf_config_facts;

/* `path` is a config.json, or the folder with it. `facts` may be NULL. False after a diag error. */
bool hf_config_read(settings *s, const char *path, hf_config_facts *facts, arena *a, diag *d);

/* If only a config.json describes the run and `s` does not set them: takes precision from its dtype,
 * and model.implementation hf if the model needs it. Notes say what is assumed. */
bool hf_config_assume(settings *s, const hf_config_facts *facts, arena *a, diag *d);

/* hf_config_read from memory; `path` only names the text in messages and must outlive `s`. */
bool hf_config_parse(settings *s, const char *path, const char *text, size_t length,
                     hf_config_facts *facts, arena *a, diag *d);

#endif
