/*
 * A property: what settings_print prints reads back, resolves, and prints the same, for random
 * settings. They are a random walk: the next are the last valid ones with some keys redrawn, so that
 * most are valid, where one in six would be if all keys were drawn at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/config/settings.h"
#include "sim/offload/systems.h"
#include "sim/predict/baselines.h"

/* Steele, Lea, Flood: splitmix64. */
static uint64_t next_random(uint64_t *state)
{
  uint64_t z = (*state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/* One of the words of a row is chosen, "-" leaves the key alone. */
static const struct {
  const char *key, *words;
} choices[] = {
  { "num_layers", "8 16 24" },
  { "hidden_size", "512 1024 1536" },
  { "num_attention_heads", "8 16" },
  { "vocab_size", "1000 50257 128256" },
  { "seq_length", "512 1024 4096" },
  { "micro_batch_size", "1 2" },
  { "global_batch_size", "32 64 256" },
  { "world_size", "8 16 64" },
  { "bf16", "true false" },
  { "tensor_model_parallel_size", "1 2 4" },
  { "pipeline_model_parallel_size", "1 2 4" },
  { "context_parallel_size", "1 1 2" },
  { "sequence_parallel", "true false" },
  { "num_virtual_stages_per_pipeline_rank", "- - 1 2" },
  { "group_query_attention", "true false" },
  { "num_query_groups", "- 4 8" },
  { "ffn_hidden_size", "- 2048" },
  { "kv_channels", "- 64 128" },
  { "num_experts", "0 0 8 64" },
  { "moe_layer_freq", "1 2" },
  { "window_size", "- - 127,0 -1,0" },
  { "window_attn_skip_freq", "- 2 4" },
  { "moe_grouped_gemm", "true false" },
  { "expert_model_parallel_size", "1 1 2 8" },
  { "expert_tensor_parallel_size", "- 1" },
  { "add_bias_linear", "true false" },
  { "swiglu", "true false" },
  { "squared_relu", "false false true" },
  { "hidden_dropout", "0 0.1 0.30000000000000004 1e-3" },
  { "position_embedding_type", "rope learned_absolute none" },
  { "max_position_embeddings", "- 4096 131072" },
  { "mtp_num_layers", "0 0 1" },
  { "use_distributed_optimizer", "true false" },
  { "optimizer", "adam adam sgd muon" },
  { "fp8_format", "- - hybrid e4m3" },
  { "fp8_recipe", "- tensorwise mxfp8" },
  { "recompute_granularity", "- - full selective" },
  { "recompute_method", "- - uniform" },
  { "recompute_num_layers", "- - 1" },
  { "recompute_modules", "- core_attn core_attn,mlp layernorm" },
  { "fine_grained_activation_offloading", "true false" },
  { "offload_modules", "- core_attn core_attn,attn_proj expert_fc1,moe_act" },
  { "fine_grained_offloading_max_inflight_offloads", "- 0 2" },
  { "deterministic_mode", "true false" },
  { "cublas_workspace_config", "- :4096:8 \"a\\b\"" },
  { "container", "- pytorch:24.01-py3 registry/nvidia/pytorch:25.09-py3" },
  { "name", "- ideal machines/my.yaml it's:#a" },
};

enum { ROWS = sizeof choices / sizeof choices[0], MAX_WORDS = 4 };

/* Of each row, which word. */
typedef struct walk {
  uint64_t word[ROWS];
} walk;

static uint64_t word_count(size_t row)
{
  uint64_t count = 1;
  for (const char *t = choices[row].words; (t = strchr(t, ' ')) != NULL; t++)
    count++;
  assert_true(count <= MAX_WORDS);
  return count;
}

static walk redraw(walk w, uint64_t *random)
{
  for (size_t i = 0; i < ROWS; i++) {
    if (next_random(random) % 8 == 0) w.word[i] = next_random(random) % word_count(i);
  }
  return w;
}

static void choose(settings *s, const walk *w, arena *a, diag *d)
{
  for (size_t i = 0; i < ROWS; i++) {
    const char *word = choices[i].words;
    for (uint64_t skip = w->word[i]; skip > 0; skip--) {
      word = strchr(word, ' ') + 1;
    }
    const char *text = arena_strndup(a, word, strcspn(word, " "));
    if (strcmp(text, "-") != 0) {
      assert_true(settings_set(s, choices[i].key, text, (source_pos){ 0 }, a, d));
    }
  }
}

/* False: these settings are refused. */
static bool round_trip(const walk *w)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  settings first, second;

  settings_init(&first, &a);
  choose(&first, w, &a, &d);
  if (!settings_resolve(&first, offload_conditions, &a, &d)) {
    arena_release(&a);
    return false;
  }
  const char *text = settings_text(&first, &a);
  settings_init(&second, &a);
  bool good = settings_read_scenario(&second, "printed.yaml", text, strlen(text), &a, &d) &&
              settings_resolve(&second, offload_conditions, &a, &d);
  if (!good) print_error("%s\n%s\n", d.message, text);
  assert_true(good);
  assert_string_equal(settings_text(&second, &a), text);
  assert_true(XXH128_isEqual(settings_digest(&first), settings_digest(&second)));
  assert_int_equal(first.derived.num_microbatches, second.derived.num_microbatches);
  assert_int_equal(first.derived.virtual_stages, second.derived.virtual_stages);
  arena_release(&a);
  return true;
}

static void test_round_trips(void **state)
{
  (void)state;
  int valid = 0;
  bool seen[ROWS][MAX_WORDS] = { 0 };
  uint64_t random = 1;
  walk now = { 0 };
  for (int step = 0; step < 2500; step++) {
    walk next = redraw(now, &random);
    if (!round_trip(&next)) continue;
    now = next;
    valid++;
    for (size_t i = 0; i < ROWS; i++)
      seen[i][now.word[i]] = true;
  }
  print_message("%d valid settings\n", valid);
  assert_true(valid >= 1500);
  for (size_t i = 0; i < ROWS; i++) {
    for (uint64_t k = 0; k < word_count(i); k++) {
      if (!seen[i][k]) fail_msg("no valid settings have word %d of %s", (int)k, choices[i].key);
    }
  }
}

/* Settings have the same digest if they have the same text. */
static void test_digests(void **state)
{
  (void)state;
  arena a = { 0 };
  diag d = { 0 };
  for (size_t i = 0; i < ROWS; i++) {
    settings of[MAX_WORDS];
    const char *text[MAX_WORDS];
    walk w = { 0 };
    for (; w.word[i] < word_count(i); w.word[i]++) {
      uint64_t k = w.word[i];
      settings_init(&of[k], &a);
      choose(&of[k], &w, &a, &d);
      text[k] = settings_text(&of[k], &a);
      for (uint64_t n = 0; n < k; n++)
        assert_int_equal(XXH128_isEqual(settings_digest(&of[n]), settings_digest(&of[k])),
                         strcmp(text[n], text[k]) == 0);
    }
  }
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(test_round_trips),
                                      cmocka_unit_test(test_digests) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
