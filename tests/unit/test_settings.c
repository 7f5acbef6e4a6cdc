/*
 * Settings: keys, the scenario's text, what is derived.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/file.h"
#include "sim/config/settings.h"

typedef struct fixture {
  settings s;
  arena a;
  diag d;
} fixture;

static const char *base_text = "model:\n"
                               "  num_layers: 8\n"
                               "  hidden_size: 1024\n"
                               "  num_attention_heads: 16\n"
                               "  vocab_size: 1000\n"
                               "parallel:\n"
                               "  world_size: 8\n"
                               "training:\n"
                               "  seq_length: 512\n"
                               "  global_batch_size: 64\n"
                               "  bf16: true\n";

static bool read_text(fixture *f, const char *text)
{
  return settings_read_scenario(&f->s, "run.yaml", text, strlen(text), &f->a, &f->d);
}

static fixture fresh(void)
{
  fixture f = { .d = { .quiet = true } };
  settings_init(&f.s, &f.a);
  return f;
}

static fixture base(void)
{
  fixture f = fresh();
  assert_true(read_text(&f, base_text));
  return f;
}

static void set(fixture *f, const char *key, const char *text)
{
  bool good = settings_set(&f->s, key, text, (source_pos){ "--set", 0, 0 }, &f->a, &f->d);
  if (!good) print_error("%s\n", f->d.message);
  assert_true(good);
}

static void resolve(fixture *f)
{
  bool good = settings_resolve(&f->s, NULL, &f->a, &f->d);
  if (!good) print_error("%s\n", f->d.message);
  assert_true(good);
}

static void expect_read_error(const char *text, const char *message)
{
  fixture f = fresh();
  assert_false(read_text(&f, text));
  assert_string_equal(f.d.message, message);
  assert_int_equal(f.d.exit_status, 2);
  arena_release(&f.a);
}

static void expect_set_error(const char *key, const char *text, const char *message)
{
  fixture f = fresh();
  assert_false(settings_set(&f.s, key, text, (source_pos){ "--set", 0, 0 }, &f.a, &f.d));
  assert_string_equal(f.d.message, message);
  arena_release(&f.a);
}

/* ---- reading ---- */

static void test_defaults(void **state)
{
  (void)state;
  fixture f = fresh();
  assert_int_equal(f.s.model.num_layers, UNSET);
  assert_true(f.s.model.add_bias_linear);
  assert_int_equal(f.s.model.normalization, NORM_LAYER);
  assert_int_equal(f.s.recompute.recompute_modules.count, 1);
  assert_true(f.s.model.hidden_dropout == 0.1);
  assert_false(f.s.given[KEY_model_hidden_dropout]);
  arena_release(&f.a);
}

static void test_values_and_positions(void **state)
{
  (void)state;
  fixture f = base();
  assert_int_equal(f.s.model.hidden_size, 1024);
  assert_true(f.s.given[KEY_model_hidden_size]);
  assert_string_equal(f.s.at[KEY_model_hidden_size].file, "run.yaml");
  assert_int_equal(f.s.at[KEY_model_hidden_size].line, 3);
  assert_int_equal(f.s.at[KEY_model_hidden_size].column, 16);
  set(&f, "hidden_size", "2048");
  set(&f, "parallel.tensor_model_parallel_size", "2");
  set(&f, "offload_modules", "core_attn attn_proj");
  assert_int_equal(f.s.model.hidden_size, 2048);
  assert_int_equal(f.s.offload.offload_modules.count, 2);
  assert_true(read_text(&f, "offload: {offload_modules: [qkv_linear, moe_act]}\n"
                            "model: {hidden_size: null}\n"));
  assert_int_equal(f.s.offload.offload_modules.items[1], OFFLOAD_MOE_ACT);
  assert_int_equal(f.s.model.hidden_size, UNSET);
  assert_false(f.s.given[KEY_model_hidden_size]);
  arena_release(&f.a);
}

static void test_wrong_texts(void **state)
{
  (void)state;
  expect_read_error("modle:\n  num_layers: 2\n",
                    "run.yaml:1:1: error: there is no section \"modle\"; did you mean model?");
  expect_read_error("num_layers: 2\n",
                    "run.yaml:1:1: error: num_layers is outside of a section; it belongs in "
                    "section model");
  expect_read_error("model:\n  num_layer: 2\n",
                    "run.yaml:2:3: error: section model has no key \"num_layer\"; did you mean "
                    "num_layers?");
  expect_read_error("model:\n  seq_length: 2\n",
                    "run.yaml:2:3: error: section model has no key seq_length; it belongs in "
                    "section training");
  expect_read_error("model:\n  num_layers: two\n",
                    "run.yaml:2:15: error: model.num_layers is \"two\"; a whole number is needed "
                    "here");
  expect_read_error("model:\n  num_layers: 0\n",
                    "run.yaml:2:15: error: num_layers is 0; it must be from 1 to 4096");
  expect_read_error("model:\n  swiglu: 1\n",
                    "run.yaml:2:11: error: model.swiglu is \"1\"; true or false is needed here");
  expect_read_error("model:\n  normalization: Layernorm\n",
                    "run.yaml:2:18: error: normalization is \"Layernorm\"; it must be LayerNorm or "
                    "RMSNorm");
  expect_read_error("offload:\n  offload_modules: [core_attn, mlp]\n",
                    "run.yaml:2:20: error: offload_modules is \"mlp\"; it must be attn_norm, "
                    "qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act, "
                    "fused_group_mlp, gdp_qkv, layer_input or mlp_act");
  expect_set_error("hiden_size", "1",
                   "--set: error: there is no key \"hiden_size\"; did you mean model.hidden_size?");
  expect_set_error("hidden_dropout", "2",
                   "--set: error: hidden_dropout is 2; it must be from 0 to 1");
}

/* ---- what is derived ---- */

static void test_derived_sizes(void **state)
{
  (void)state;
  fixture f = base();
  set(&f, "tensor_model_parallel_size", "2");
  set(&f, "pipeline_model_parallel_size", "2");
  set(&f, "micro_batch_size", "4");
  resolve(&f);
  assert_int_equal(f.s.model.ffn_hidden_size, 4096);
  assert_int_equal(f.s.model.kv_channels, 64);
  assert_int_equal(f.s.model.num_query_groups, 16);
  assert_int_equal(f.s.model.padded_vocab_size, 1024);
  assert_int_equal(f.s.derived.data_parallel_size, 2);
  assert_int_equal(f.s.derived.expert_data_parallel_size, 2);
  assert_int_equal(f.s.derived.num_microbatches, 8);
  assert_int_equal(f.s.derived.virtual_stages, 1);
  assert_false(f.s.parallel.overlap_p2p_comm);
  assert_true(f.s.training.accumulate_allreduce_grads_in_fp32);
  assert_int_equal(f.s.offload.system, SYSTEM_none);
  arena_release(&f.a);
}

static void test_derived_switches(void **state)
{
  (void)state;
  fixture f = base();
  set(&f, "sequence_parallel", "true");
  set(&f, "swiglu", "true");
  set(&f, "group_query_attention", "true");
  set(&f, "fine_grained_activation_offloading", "true");
  set(&f, "offload_modules", "core_attn");
  set(&f, "deterministic_mode", "true");
  set(&f, "container", "nvcr.io/nvidia/pytorch:25.09-py3");
  resolve(&f);
  assert_false(f.s.parallel.sequence_parallel);
  assert_int_equal(f.s.model.ffn_hidden_size, 2688);
  assert_int_equal(f.s.model.num_query_groups, 1);
  assert_int_equal(f.s.offload.system, SYSTEM_megatron);
  assert_string_equal(f.s.software.cublas_workspace_config, ":4096:8");
  assert_false(f.s.software.nvte_allow_nondeterministic_algo);
  assert_int_equal(f.s.derived.software.year, 2025);
  assert_int_equal(f.s.derived.software.month, 9);
  assert_int_equal(f.s.derived.software.transformer_engine, SOFTWARE_VERSION(2, 7));
  arena_release(&f.a);
}

/* Layers of every stage, "0,1|2,3 m|..." with E, L and m's, as text. */
static const char *stages_text(fixture *f)
{
  const char *text = "";
  int64_t count = f->s.parallel.pipeline_model_parallel_size * f->s.derived.virtual_stages;
  for (int64_t k = 0; k < count; k++) {
    const struct stage_content *stage = &f->s.derived.stages[k];
    text = arena_printf(&f->a, "%s%s%s", text, k == 0 ? "" : "|", stage->embedding ? "E" : "");
    for (uint32_t i = 0; i < stage->layer_count; i++) {
      text = arena_printf(&f->a, "%s%s%u", text, i == 0 ? "" : ",", stage->layers[i]);
    }
    for (uint32_t i = 0; i < stage->mtp_layers; i++) {
      text = arena_printf(&f->a, "%sm", text);
    }
    text = arena_printf(&f->a, "%s%s", text, stage->loss ? "L" : "");
  }
  return text;
}

static void expect_stages(const char *const keys[], const char *stages)
{
  fixture f = base();
  set(&f, "position_embedding_type", "rope");
  for (size_t i = 0; keys[i] != NULL; i += 2) {
    set(&f, keys[i], keys[i + 1]);
  }
  resolve(&f);
  assert_string_equal(stages_text(&f), stages);
  arena_release(&f.a);
}

#define PP "pipeline_model_parallel_size"

static void test_stages(void **state)
{
  (void)state;
  expect_stages((const char *[]){ PP, "4", NULL }, "E0,1|2,3|4,5|6,7L");
  expect_stages((const char *[]){ PP, "1", "mtp_num_layers", "1", NULL }, "E0,1,2,3,4,5,6,7mL");
  expect_stages((const char *[]){ PP, "2", "num_layers_per_virtual_pipeline_stage", "2", NULL },
                "E0,1|2,3|4,5|6,7L");
  expect_stages((const char *[]){ PP, "2", "num_virtual_stages_per_pipeline_rank", "4", NULL },
                "E0|1|2|3|4|5|6|7L");
  expect_stages((const char *[]){ PP, "4", "decoder_first_pipeline_num_layers", "1",
                                  "decoder_last_pipeline_num_layers", "3", NULL },
                "E0|1,2|3,4|5,6,7L");
  expect_stages((const char *[]){ PP, "2", "num_layers", "14",
                                  "account_for_embedding_in_pipeline_split", "true",
                                  "account_for_loss_in_pipeline_split", "true",
                                  "num_virtual_stages_per_pipeline_rank", "2", NULL },
                "E0,1,2|3,4,5,6|7,8,9,10|11,12,13L");
  expect_stages((const char *[]){ PP, "2", "pipeline_model_parallel_layout", "Et*3|(tt|)*2,mL",
                                  "num_layers", "7", "mtp_num_layers", "1", NULL },
                "E0,1,2|3,4|5,6|mL");
  expect_stages((const char *[]){ PP, "2", "pipeline_model_parallel_layout", "E|t*8|m|L",
                                  "mtp_num_layers", "1", NULL },
                "E|0,1,2,3,4,5,6,7|m|L");
  expect_stages((const char *[]){ PP, "2", "pipeline_model_parallel_layout", "Et*8|L",
                                  "mtp_num_layers", "1", NULL },
                "E0,1,2,3,4,5,6,7|mL");
}

static void expect_moe_layers(const char *freq, const char *layers)
{
  fixture f = base();
  set(&f, "num_experts", "8");
  set(&f, "moe_layer_freq", freq);
  resolve(&f);
  for (int64_t i = 0; i < 8; i++) {
    assert_int_equal(f.s.derived.layer_is_moe[i], layers[i] == '1');
  }
  arena_release(&f.a);
}

static void test_moe_layer_freq(void **state)
{
  (void)state;
  expect_moe_layers("1", "11111111");
  expect_moe_layers("3", "10010010");
  expect_moe_layers("([0]*3+[1]*5)", "00011111");
  expect_moe_layers("[0]*1+[1]*7", "01111111");
  expect_moe_layers("([0]+[1]*3)*2", "01110111");
  expect_moe_layers("2*[0,1] + 4 * [1]", "01011111");
  expect_moe_layers("[0, 1, 1, 1, 1, 1, 1, 1]", "01111111");
}

/* Megatron-LM counts layers from 1 for a whole number. */
static void expect_windows(const char *size, const char *freq, int64_t keys, const char *layers)
{
  fixture f = base();
  set(&f, "window_size", size);
  set(&f, "window_attn_skip_freq", freq);
  resolve(&f);
  assert_int_equal(f.s.derived.window_keys, keys);
  for (int64_t i = 0; i < 8; i++)
    assert_int_equal(f.s.derived.layer_slides[i], layers[i] == '1');
  arena_release(&f.a);
}

static void test_windows(void **state)
{
  (void)state;
  expect_windows("", "4", 0, "00000000");
  expect_windows("2048,0", "", 2049, "11111111");
  expect_windows("(2048, 0)", "4", 2049, "11101110");
  expect_windows("[0,-1]", "1", 1, "00000000");
  expect_windows("127,127", "([1]*3+[0])*2", 128, "11101110");
  expect_windows("-1,0", "", 0, "00000000");
}

static void test_global_ranks(void **state)
{
  (void)state;
  fixture f = base();
  int64_t ranks[4];
  set(&f, PP, "2");
  set(&f, "tensor_model_parallel_size", "2");
  resolve(&f);
  assert_int_equal(settings_global_ranks(&f.s, 1, ranks), 4);
  for (int64_t i = 0; i < 4; i++)
    assert_int_equal(ranks[i], 4 + i);
  set(&f, "use_tp_pp_dp_mapping", "true");
  resolve(&f);
  settings_global_ranks(&f.s, 1, ranks);
  const int64_t expected[] = { 2, 3, 6, 7 };
  assert_memory_equal(ranks, expected, sizeof expected);
  arena_release(&f.a);
}

/* ---- documentation ---- */

static void test_document(void **state)
{
  (void)state;
  static const char path[] = "docs/reference/scenario.md";
  fixture f = fresh();
  char *text;
  size_t length, found_length;
  FILE *memory = open_memstream(&text, &length);
  settings_document(memory);
  fclose(memory);
  if (getenv("BLESS") != NULL) {
    file_writer w;
    assert_true(file_open(&w, path, &f.d));
    fputs(text, w.stream);
    assert_true(file_close(&w, &f.d));
  }
  const char *found = file_read(&f.a, path, FILE_TEXT_LIMIT_BYTES, &found_length, &f.d);
  if (found == NULL) print_error("%s\n", f.d.message);
  assert_non_null(found);
  assert_string_equal(found, text);
  free(text);
  arena_release(&f.a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_defaults),         cmocka_unit_test(test_values_and_positions),
    cmocka_unit_test(test_wrong_texts),      cmocka_unit_test(test_derived_sizes),
    cmocka_unit_test(test_derived_switches), cmocka_unit_test(test_stages),
    cmocka_unit_test(test_moe_layer_freq),   cmocka_unit_test(test_windows),
    cmocka_unit_test(test_global_ranks),     cmocka_unit_test(test_document),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
