/*
 * A config.json while it is read: its family, and the values under its keys. Private to
 * sim/config/hf/.
 */
#ifndef OFFSIM_SIM_CONFIG_HF_PARTS_H
#define OFFSIM_SIM_CONFIG_HF_PARTS_H

#include "sim/config/settings.h"
#include "sim/text/yaml_text.h"

typedef enum family_parts {
  PART_EXPERTS = 1,     /* routed experts */
  PART_SHARED_GATE = 2, /* the shared expert has a gate */
  PART_LATENT = 4,      /* multi-latent attention */
  PART_QKV_BIAS = 8,    /* the QKV projection always has a bias */
  PART_QK_NORM = 16,    /* norm of queries and keys */
} family_parts;

typedef struct family {
  const char *model_type;
  const char *architecture;
  unsigned parts;
  int64_t key_value_heads; /* where num_key_value_heads is missing; 0: as many as heads */
} family;

typedef struct hf_reader {
  settings *s;
  const text_node *top;
  const family *family;
  arena *a;
  diag *d;
} hf_reader;

bool hf_has_parts(const hf_reader *r, unsigned parts); /* all of them */

/* The value of `name`, or NULL: not there, or null. */
const text_node *hf_get(const hf_reader *r, const char *name);
/* The number under `name`, `fallback` if there is none. False after a diag error. */
bool hf_number(const hf_reader *r, const char *name, int64_t fallback, int64_t *value);
/* The same where there must be one that counts something. */
bool hf_count(const hf_reader *r, const char *name, int64_t *value);

/* Sets a scenario key; `at` is where its value stands. False after a diag error. */
bool hf_set(const hf_reader *r, const char *key, const char *text, source_pos at);
bool hf_set_number(const hf_reader *r, const char *key, int64_t value, source_pos at);

/* The mixture of experts, if the family has one. False after a diag error. */
bool hf_set_experts(const hf_reader *r);

#endif
