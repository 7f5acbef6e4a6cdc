/*
 * A config.json while it is read: its family, and the values under its keys. Private to
 * sim/config/hf/.
 */
#ifndef OFFSIM_SIM_CONFIG_HF_PARTS_H
#define OFFSIM_SIM_CONFIG_HF_PARTS_H

#include "sim/config/settings.h"
#include "sim/text/yaml_text.h"

typedef enum family_parts {
  PART_EXPERTS = 1,        /* routed experts */
  PART_SHARED_GATE = 2,    /* the shared expert has a gate */
  PART_LATENT = 4,         /* multi-latent attention */
  PART_QKV_BIAS = 8,       /* the QKV projection always has a bias */
  PART_QK_NORM = 16,       /* norm of queries and keys */
  PART_BIAS_KEY = 32,      /* attention_bias: projections of attention have a bias */
  PART_NO_O_BIAS = 64,     /* ... but for the output projection */
  PART_USE_BIAS = 128,     /* use_bias: all linears have a bias, usually */
  PART_TIED = 256,         /* embeddings are tied, usually */
  PART_GEMMA = 512,        /* scaled embeddings, query_pre_attn_scalar */
  PART_NO_ROPE = 1024,     /* no_rope_layers */
  PART_HF = 2048,          /* Megatron-LM has no such modules */
  PART_QK_NORM_KEY = 4096, /* use_qk_norm: norm of queries and keys */
  PART_ALL_BIAS = 8192,    /* attention_bias is true where it is missing */
  PART_LINEAR = 16384,     /* some layers have linear attention */
  PART_NO_DENSE = 32768,   /* every layer has experts */
  PART_LLAMA4 = 65536,     /* Llama 4's names of its experts and of its dense layers' width */
} family_parts;

/* Which layers have the sliding window where layer_types does not say so. */
typedef enum window_rule {
  WINDOW_NONE,       /* the family has no window */
  WINDOW_ALL,        /* all layers; the family ignores layer_types */
  WINDOW_TYPED,      /* all layers */
  WINDOW_LATE,       /* with use_sliding_window: those from max_window_layers on */
  WINDOW_NO_ROPE,    /* with use_sliding_window: those without rotary embedding */
  WINDOW_CHUNKS,     /* those with rotary embedding see chunks of attention_chunk_size keys */
  WINDOW_ALTERNATING /* all but each sliding_window_pattern-th */
} window_rule;

/* A key that the family fixes. */
typedef struct family_constant {
  const char *key, *text;
} family_constant;

typedef struct family {
  const char *model_type;
  const char *architecture;
  unsigned parts;
  int64_t key_value_heads; /* where num_key_value_heads is missing; 0: as many as heads */
  int64_t head_width;      /* where head_dim is missing; 0: hidden_size / heads */
  window_rule window;
  int64_t window_keys;    /* where sliding_window is missing; 0: none */
  int64_t window_pattern; /* WINDOW_ALTERNATING: where sliding_window_pattern is missing */
  const family_constant *constants; /* beyond those of all; ends with a NULL key; may be NULL */
} family;

typedef struct hf_reader {
  settings *s;
  const text_node *whole; /* the file's mapping */
  const text_node *top;   /* the model's: the same, or its text_config */
  const family *family;
  arena *a;
  diag *d;
} hf_reader;

/* families.c: finds the family of the model; of a vision-language model, r->top becomes its
 * text_config, with a note. False after a diag error that says why the model is not known. */
bool hf_find_family(hf_reader *r);

bool hf_has_parts(const hf_reader *r, unsigned parts); /* all of them */

/* The value of `name`, or NULL: not there, or null. */
const text_node *hf_get(const hf_reader *r, const char *name);
/* The number under `name`, `fallback` if there is none. False after a diag error. */
bool hf_number(const hf_reader *r, const char *name, int64_t fallback, int64_t *value);
/* The same where there must be one that counts something. */
bool hf_count(const hf_reader *r, const char *name, int64_t *value);

/* Sets a scenario key; `at` is the place of its value. False after a diag error. */
bool hf_set(const hf_reader *r, const char *key, const char *text, source_pos at);
bool hf_set_number(const hf_reader *r, const char *key, int64_t value, source_pos at);

/* A pattern of a 1 or 0 for each layer, or "1" if all are 1, as the key's text. */
bool hf_set_layers(const hf_reader *r, const char *key, const bool *layers, source_pos at);

/* attention.c: heads, biases, norms of queries and keys, rotary embedding, sliding windows. */
bool hf_set_attention(const hf_reader *r);

/* The mixture of experts, if the family has one. False after a diag error. */
bool hf_set_experts(const hf_reader *r);

#endif
