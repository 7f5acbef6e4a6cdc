/* Settings for tests of static memory: a small GPT, changed key by key and resolved. */
#ifndef OFFSIM_TESTS_UNIT_STATIC_SETTINGS_H
#define OFFSIM_TESTS_UNIT_STATIC_SETTINGS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/config/settings.h"

static inline void set_keys(settings *s, const char *const (*keys)[2], arena *a, diag *d)
{
  for (; (*keys)[0] != NULL; keys++)
    assert_true(settings_set(s, (*keys)[0], (*keys)[1], (source_pos){ 0 }, a, d));
}

/* 12 layers of 512, 8 heads, vocabulary 50304, on H100; `keys` ends with NULL. */
static inline void small_gpt(settings *s, const char *const (*keys)[2], arena *a)
{
  static const char *const base[][2] = {
    { "model.num_layers", "12" },
    { "model.hidden_size", "512" },
    { "model.num_attention_heads", "8" },
    { "model.max_position_embeddings", "1024" },
    { "model.padded_vocab_size", "50304" },
    { "training.seq_length", "1024" },
    { "training.micro_batch_size", "4" },
    { "training.global_batch_size", "32" },
    { "training.bf16", "true" },
    { "training.gradient_accumulation_fusion", "false" },
    { "parallel.world_size", "8" },
    { "software.container", "pytorch:26.04-py3" },
    { "software.cublas_workspace_config", ":4096:8" },
    { NULL, NULL },
  };
  diag d = { 0 };
  settings_init(s, a);
  set_keys(s, base, a, &d);
  set_keys(s, keys, a, &d);
  assert_true(settings_resolve(s, NULL, a, &d));
}

#endif
