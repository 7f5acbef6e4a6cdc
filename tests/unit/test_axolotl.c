/*
 * Axolotl files: what runs for a setting (adapter or not), the conditions that Axolotl refuses or
 * warns of, and what is said about keys.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/config/axolotl/axolotl.h"
#include "sim/config/hf/hf_config.h"
#include "sim/offload/systems.h"

typedef struct fixture {
  settings s;
  arena a;
  diag d;
  bool good;
} fixture;

#define BASE "base_model: meta-llama/Meta-Llama-3-8B\nattn_implementation: flash_attention_2\n"
#define LORA "adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
#define QLORA                                                                                      \
  "adapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
#define GC               "gradient_checkpointing: true\n"
#define REENTRANT(value) "gradient_checkpointing_kwargs:\n  use_reentrant: " value "\n"

static fixture with_model(void)
{
  fixture f = { .d = { .quiet = true } };
  settings_init(&f.s, &f.a);
  assert_true(hf_config_read(&f.s, "tests/data/hf/llama-3-8b.json", NULL, &f.a, &f.d));
  return f;
}

static fixture read_text(const char *text, bool ignore_unknown)
{
  fixture f = with_model();
  axolotl_options options = { .ignore_unknown = ignore_unknown };
  f.good = axolotl_parse(&f.s, "run.yaml", text, strlen(text), &options, &f.a, &f.d);
  return f;
}

static fixture read_good(const char *text)
{
  fixture f = read_text(text, false);
  if (!f.good) print_error("%s\n", f.d.message);
  assert_true(f.good);
  return f;
}

static void assert_error(const char *text, const char *message)
{
  fixture f = read_text(text, false);
  if (f.good || strcmp(f.d.message, message) != 0)
    print_error("%s\n%s\n", message, f.good ? "no error" : f.d.message);
  assert_false(f.good);
  assert_int_equal(f.d.exit_status, 2);
  assert_string_equal(f.d.message, message);
  arena_release(&f.a);
}

/* ---- which implementation runs ---- */

typedef struct choice {
  const char *name, *text;
  const char *system, *granularity;
  bool reentrant, registered;
} choice;

static const choice choices[] = {
  { "nothing", "", "", "", false, true },
  { "checkpoints", GC, "", "full", true, true },
  { "checkpoints, not reentrant", GC REENTRANT("false"), "", "full", false, true },
  { "checkpoints, the rest frozen", GC "unfrozen_parameters: [lm_head]\n", "", "full", false,
    true },
  { "true", GC "activation_offloading: true\n", "trl", "full", false, true },
  { "true, lora", GC LORA "activation_offloading: true\n", "trl", "", false, false },
  { "true, qlora", GC QLORA "activation_offloading: true\n", "trl", "", false, false },
  { "legacy", GC "activation_offloading: legacy\n", "trl_sync", "full", false, true },
  { "legacy, lora", GC LORA "activation_offloading: legacy\n", "trl_sync", "", false, false },
  { "hidden_states", GC "activation_offloading: hidden_states\n", "hidden_states", "full", false,
    true },
  { "hidden_states, reentrant", GC REENTRANT("true") "activation_offloading: hidden_states\n",
    "hidden_states_reentrant", "full", true, true },
  { "offload", "gradient_checkpointing: offload\n", "trl", "full", false, true },
  { "disk", GC "activation_offloading: disk\n", "axolotl_disk", "full", true, true },
  { "offload_disk", "gradient_checkpointing: offload_disk\n", "axolotl_disk", "full", true, true },
  { "layers", GC LORA "layer_offloading: true\n", "", "full", true, true },
  { "layers beside true", GC LORA "layer_offloading: true\nactivation_offloading: true\n", "trl",
    "", false, false },
  { "layers, nothing frozen", GC "layer_offloading: true\n", "", "full", true, true },
  { "selective", GC "selective_checkpointing: true\n", "", "full", false, true },
  { "selective, offloaded", GC "selective_checkpointing: {save: [attention], offload: true}\n",
    "selective_checkpointing", "full", false, true },
  { "selective, hidden_states",
    GC "selective_checkpointing: {offload: true}\nactivation_offloading: hidden_states\n",
    "selective_checkpointing", "full", false, true },
};

static void test_which_runs(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
    const choice *c = &choices[i];
    char text[512];
    snprintf(text, sizeof text, BASE "%s", c->text);
    fixture f = read_good(text);
    const char *system = chosen_word(&f.s, KEY_offload_system);
    if (strcmp(system, c->system) != 0) print_error("%s: %s\n", c->name, system);
    assert_string_equal(system, c->system);
    assert_string_equal(chosen_word(&f.s, KEY_recompute_recompute_granularity), c->granularity);
    assert_int_equal(f.s.recompute.use_reentrant, c->reentrant);
    assert_int_equal(f.s.offload.trl_params_registered, c->registered);
    assert_int_equal(f.s.offload.layer_offloading,
                     strncmp(c->name, "layers", 6) == 0 && strstr(c->text, LORA) != NULL);
    assert_int_equal(f.s.model.implementation, IMPLEMENTATION_HF);
    arena_release(&f.a);
  }
}

static void test_what_selective_saves(void **state)
{
  (void)state;
  fixture f = read_good(BASE GC "selective_checkpointing:\n  save: [attention, aten::mm, addmm]\n");
  const choice_list *saved = &f.s.recompute.selective_checkpointing_save;
  assert_true(f.s.recompute.selective_checkpointing);
  assert_int_equal(saved->count, 3);
  assert_int_equal(saved->items[0], SAVE_ATTENTION);
  assert_int_equal(saved->items[1], SAVE_MM);
  assert_int_equal(saved->items[2], SAVE_ADDMM);
  arena_release(&f.a);
}

/* ---- activation_offloading: disk, whose switch is dead as released ---- */

static fixture resolved(const char *text, const char *mode)
{
  fixture f = read_good(text);
  f.s.derived.compute_capability = 90;
  assert_true(settings_set(&f.s, "offload.mode", mode, (source_pos){ 0 }, &f.a, &f.d));
  f.good = settings_resolve(&f.s, offload_conditions, &f.a, &f.d);
  if (!f.good) print_error("%s\n", f.d.message);
  assert_true(f.good);
  return f;
}

static void test_disk(void **state)
{
  static const char full[] = BASE GC "activation_offloading: disk\n";
  static const char lora[] = BASE GC LORA "activation_offloading: disk\n";
  static const struct {
    const char *text, *mode, *system, *granularity;
    bool reentrant, registered;
  } cases[] = {
    { full, "fixed", "axolotl_disk", "full", true, true },
    { lora, "fixed", "axolotl_disk", "full", true, true },
    { full, "as_released", "trl", "full", false, true },
    { lora, "as_released", "trl", "", false, false },
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fixture f = resolved(cases[i].text, cases[i].mode);
    assert_string_equal(chosen_word(&f.s, KEY_offload_system), cases[i].system);
    assert_string_equal(chosen_word(&f.s, KEY_recompute_recompute_granularity),
                        cases[i].granularity);
    assert_int_equal(f.s.recompute.use_reentrant, cases[i].reentrant);
    assert_int_equal(f.s.offload.trl_params_registered, cases[i].registered);
    arena_release(&f.a);
  }
}

/* ---- what Axolotl refuses ---- */

typedef struct refusal {
  const char *text, *message;
} refusal;

static const refusal refusals[] = {
  { BASE "activation_offloading: true\n",
    "run.yaml:3:24: error: activation_offloading needs gradient_checkpointing: true" },
  { BASE "selective_checkpointing: true\n",
    "run.yaml:3:26: error: selective_checkpointing needs gradient_checkpointing: true" },
  { BASE GC REENTRANT("true") "selective_checkpointing: true\n",
    "run.yaml:5:3: error: selective_checkpointing needs checkpoints that are not reentrant: "
    "gradient_checkpointing_kwargs.use_reentrant: false" },
  { BASE GC "selective_checkpointing: true\nactivation_offloading: true\n",
    "run.yaml:5:24: error: selective_checkpointing works with activation_offloading hidden_states "
    "or false; the other kinds replace the checkpoints that it works in" },
  { BASE GC LORA "selective_checkpointing:\n  save: [attention, mm]\n",
    "run.yaml:9:3: error: selective_checkpointing.save names matrix products, which cannot be "
    "saved with "
    "an adapter: it changes them in place; save: [attention] works" },
  { BASE GC REENTRANT(
        "true") "activation_offloading: hidden_states\nunfrozen_parameters: [lm_head]\n",
    "run.yaml:7:22: error: activation_offloading: hidden_states with reentrant checkpoints does "
    "not work "
    "with unfrozen_parameters" },
  { "base_model: x\nattn_implementation: flex_attention\nrl: ebft\nebft: {mode: strided}\n" GC
    "activation_offloading: true\n",
    "run.yaml:6:24: error: activation_offloading: true does not work with ebft in mode strided and "
    "flex_attention, which needs reentrant checkpoints" },
  { BASE GC "deepspeed:\n  zero_optimization:\n    reduce_bucket_size: 0\n",
    "run.yaml:6:25: error: reduce_bucket_size is '0'; it must be 1 to 2^36 elements" },
};

static void test_refusals(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
    assert_error(refusals[i].text, refusals[i].message);
}

/* The same settings one step apart from what is refused. */
static void test_neighbours_of_refusals_are_taken(void **state)
{
  static const char *const texts[] = {
    BASE GC LORA "activation_offloading: hidden_states\n",
    BASE GC REENTRANT("false") "selective_checkpointing: true\n",
    BASE GC "selective_checkpointing: true\nactivation_offloading: hidden_states\n",
    BASE GC LORA "selective_checkpointing:\n  save: [attention]\n",
    BASE GC "selective_checkpointing:\n  save: [attention, aten::mm]\n",
    BASE GC REENTRANT(
        "false") "activation_offloading: hidden_states\nunfrozen_parameters: [lm_head]\n",
    BASE GC "deepspeed:\n",
    BASE GC "deepspeed: deepspeed_configs/zero3.json\n",
  };
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    fixture f = read_good(texts[i]);
    arena_release(&f.a);
  }
}

/* ---- other errors ---- */

static void test_wrong_values(void **state)
{
  (void)state;
  assert_error("sequence_len: 8\n",
               "run.yaml:1:1: error: base_model is missing; every Axolotl configuration has it");
  assert_error(
      BASE "gradient_checkpointing: unsloth\n",
      "run.yaml:3:25: error: gradient_checkpointing is 'unsloth'; it must be true, false, offload "
      "or offload_disk");
  assert_error(
      BASE GC "activation_offloading: offload_disk\n",
      "run.yaml:4:24: error: activation_offloading is 'offload_disk'; it must be true, false, "
      "legacy, disk or hidden_states");
  assert_error(
      BASE "flash_attention: true\n",
      "run.yaml:3:1: error: flash_attention and attn_implementation are both given; give the "
      "second alone");
  assert_error(
      BASE "rl: dpo\n",
      "run.yaml:3:5: error: rl is 'dpo', whose step runs chosen and rejected answers through the "
      "model and a reference; only supervised fine-tuning is predicted; leave rl out to predict "
      "that");
  assert_error(BASE "sequence_len: 0\n",
               "run.yaml:3:15: error: seq_length is 0; it must be from 1 to 67108864");
}

static void test_wrong_adapters(void **state)
{
  (void)state;
  assert_error(BASE "adapter: qlora\nlora_r: 8\nlora_alpha: 8\n",
               "run.yaml:3:10: error: adapter is qlora; it needs load_in_4bit: true");
  assert_error(BASE "load_in_4bit: true\n",
               "run.yaml:3:15: error: load_in_4bit needs adapter: qlora");
  assert_error(BASE "adapter: qlora\nload_in_8bit: true\n",
               "run.yaml:4:15: error: load_in_8bit needs adapter: lora; it is qlora");
  assert_error(BASE "load_in_8bit: true\n",
               "run.yaml:3:15: error: load_in_8bit needs adapter: lora");
  assert_error(BASE "adapter: llama-adapter\n",
               "run.yaml:3:10: error: adapter is 'llama-adapter'; lora and qlora are predicted");
  assert_error(BASE "adapter: lora\nlora_alpha: 8\n",
               "run.yaml:3:10: error: adapter is lora; it needs lora_r");
  assert_error(BASE "adapter: lora\nlora_r: 8\nlora_alpha: 8\n",
               "run.yaml:3:10: error: adapter is lora; it needs lora_target_modules or "
               "lora_target_linear: true");
  assert_error(
      BASE "adapter: lora\nlora_r: 8\nlora_alpha: 8\nlora_target_modules: [embed_tokens]\n",
      "run.yaml:6:22: error: lora_target_modules names no linear of a decoder layer: q_proj, "
      "k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, qkv_proj, gate_up_proj, c_fc, "
      "c_proj, in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, in_proj_qkvz, in_proj_ba, "
      "out_proj, shared_expert.gate_proj, shared_expert.up_proj or shared_expert.down_proj");
}

/* ---- keys ---- */

static void test_unknown_keys(void **state)
{
  const char *text = BASE "sequence_length: 8\n";
  fixture f = read_text(text, true);
  (void)state;
  assert_true(f.good);
  arena_release(&f.a);
  assert_error(text, "run.yaml:3:1: error: unknown Axolotl key \"sequence_length\"; did you mean "
                     "sequence_len?");
  assert_error(
      BASE "fsdp_config:\n  fsdp_ofload_params: true\n",
      "run.yaml:4:3: error: unknown Axolotl key \"fsdp_config.ofload_params\"; did you mean "
      "fsdp_config.offload_params?");
  f = read_good(BASE "zzzzzzzzzzzzzzzz: 1\n"); /* a note: Axolotl ignores it */
  arena_release(&f.a);
}

static void test_values(void **state)
{
  (void)state;
  fixture f =
      read_good(BASE "sequence_len: 16_384\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\n"
                     "optimizer: paged_adamw_32bit\nmax_grad_norm: 0.5\nliger_rms_norm: true\n"
                     "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
                     "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
                     "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: false\n");
  assert_int_equal(f.s.training.seq_length, 16384);
  assert_int_equal(f.s.model.max_position_embeddings, 16384);
  assert_int_equal(f.s.training.micro_batch_size, 2);
  assert_int_equal(f.s.training.gradient_accumulation_steps, 4);
  assert_int_equal(f.s.training.optimizer, OPTIMIZER_PAGED_ADAMW_32BIT);
  assert_true(f.s.training.clip_grad == 0.5);
  assert_true(f.s.training.bf16 && !f.s.training.fp16);
  assert_true(f.s.model.fused_rms_norm);
  assert_int_equal(f.s.model.attn_implementation, ATTN_FLASH_2);
  assert_int_equal(f.s.parallel.fsdp, FSDP_2);
  assert_false(f.s.parallel.fsdp_reshard_after_forward);
  arena_release(&f.a);
}

static void test_defaults(void **state)
{
  (void)state;
  fixture f = read_good("base_model: x\n");
  assert_int_equal(f.s.training.seq_length, 512);
  assert_int_equal(f.s.training.micro_batch_size, 1);
  assert_int_equal(f.s.training.gradient_accumulation_steps, 1);
  assert_int_equal(f.s.training.optimizer, OPTIMIZER_ADAMW_TORCH_FUSED);
  assert_int_equal(f.s.model.attn_implementation, ATTN_SDPA);
  assert_int_equal(f.s.parallel.fsdp, FSDP_NONE);
  assert_true(f.s.training.bf16);
  arena_release(&f.a);
}

static void test_adapter_values(void **state)
{
  (void)state;
  fixture f =
      read_good(BASE "adapter: qlora\nload_in_4bit: true\nlora_r: 64\nlora_alpha: 32\n"
                     "lora_dropout: 0.05\npeft_autocast_adapter_dtype: false\n"
                     "lora_target_modules:\n  - q_proj\n  - self_attn.v_proj\n  - lm_head\n");
  assert_int_equal(f.s.lora.adapter, ADAPTER_QLORA);
  assert_int_equal(f.s.lora.lora_r, 64);
  assert_int_equal(f.s.lora.lora_alpha, 32);
  assert_true(f.s.lora.lora_dropout == 0.05);
  assert_false(f.s.lora.autocast_adapter_dtype);
  assert_int_equal(f.s.lora.lora_target_modules.count, 2);
  assert_int_equal(f.s.lora.lora_target_modules.items[1], LORA_V_PROJ);
  arena_release(&f.a);
}

/* The fused kernels are on unless the file says something of one, or they cannot run. */
static void test_kernels(void **state)
{
  static const struct {
    const char *text;
    bool qkv, o, mlp;
  } cases[] = {
    { BASE LORA, true, true, true },
    { BASE LORA "lora_mlp_kernel: false\n", false, false, false },
    { BASE LORA "lora_o_kernel: true\n", false, true, false },
    { BASE LORA "trust_remote_code: true\n", false, false, false },
    { BASE LORA "fsdp_config: {offload_params: false}\n", false, false, false },
    { BASE LORA "fsdp_version: 2\nfsdp_config: {offload_params: false}\n", true, true, true },
    { BASE, false, false, false },
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fixture f = read_good(cases[i].text);
    assert_int_equal(f.s.lora.lora_qkv_kernel, cases[i].qkv);
    assert_int_equal(f.s.lora.lora_o_kernel, cases[i].o);
    assert_int_equal(f.s.lora.lora_mlp_kernel, cases[i].mlp);
    arena_release(&f.a);
  }
}

static void test_model_is_needed(void **state)
{
  (void)state;
  fixture f = { .d = { .quiet = true } };
  const char *text = "base_model: a/b\n";
  settings_init(&f.s, &f.a);
  assert_false(
      axolotl_parse(&f.s, "run.yaml", text, strlen(text), &(axolotl_options){ 0 }, &f.a, &f.d));
  assert_string_equal(f.d.message,
                      "run.yaml:1:13: error: base_model is 'a/b'; give its config.json with "
                      "--hf-config FILE");
  arena_release(&f.a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_which_runs),
    cmocka_unit_test(test_what_selective_saves),
    cmocka_unit_test(test_disk),
    cmocka_unit_test(test_refusals),
    cmocka_unit_test(test_neighbours_of_refusals_are_taken),
    cmocka_unit_test(test_wrong_values),
    cmocka_unit_test(test_wrong_adapters),
    cmocka_unit_test(test_unknown_keys),
    cmocka_unit_test(test_values),
    cmocka_unit_test(test_defaults),
    cmocka_unit_test(test_adapter_values),
    cmocka_unit_test(test_kernels),
    cmocka_unit_test(test_model_is_needed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
