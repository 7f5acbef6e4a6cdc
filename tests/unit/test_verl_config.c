/*
 * verl's configuration in both forms: the effects of its keys, and every condition that it refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/config/verl/verl.h"
#include "sim/offload/systems.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* Both forms of one configuration; what is common to the tests below. */
#define MICRO "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4\n"

static settings s;
static arena memory;

/* The settings that `text` makes of a model of `layers`; the message if there is one. */
static const char *read_text(const char *text, const char *layers, bool resolves,
                             bool ignore_unknown)
{
  static diag d;
  const char *const shape[][2] = {
    { "model.num_layers", layers },       { "model.hidden_size", "1024" },
    { "model.num_attention_heads", "8" }, { "model.ffn_hidden_size", "4096" },
    { "model.vocab_size", "32000" },      { "model.normalization", "RMSNorm" },
    { "model.swiglu", "true" },           { "model.position_embedding_type", "rope" },
    { "model.add_bias_linear", "false" }, { "model.hidden_dropout", "0" },
    { "model.attention_dropout", "0" },
  };
  verl_options options = { .ignore_unknown = ignore_unknown };
  d = (diag){ .quiet = true };
  arena_release(&memory);
  memory = (arena){ 0 };
  settings_init(&s, &memory);
  for (size_t i = 0; layers != NULL && i < COUNT(shape); i++)
    assert_true(settings_set(&s, shape[i][0], shape[i][1], (source_pos){ 0 }, &memory, &d));
  s.derived.compute_capability = 90;
  bool read = verl_parse(&s, "run", text, strlen(text), &options, &memory, &d);
  assert_true(read == diag_ok(&d));
  if (read && resolves) settings_resolve(&s, offload_conditions, &memory, &d);
  return d.message;
}

static void expect(const char *key_value)
{
  char *printed;
  size_t length;
  FILE *out = open_memstream(&printed, &length);
  settings_print(&s, out);
  fclose(out);
  char line[256];
  snprintf(line, sizeof line, "  %s\n", key_value);
  if (strstr(printed, line) == NULL) print_error("%s is not in\n%s\n", key_value, printed);
  assert_non_null(strstr(printed, line));
  free(printed);
}

/* verl's own example for Qwen3-8B, shortened. */
static const char script[] =
    "# Tested\nset -x\nmicro=16\nexport VLLM=1\n"
    "python3 -m verl.trainer.main_ppo --config-path=./config \\\n"
    "    algorithm.adv_estimator=grpo \\\n"
    "    data.train_files=$HOME/data/gsm8k/train.parquet \\\n"
    "    data.max_prompt_length=512 \\\n"
    "    data.max_response_length=1024 \\\n"
    "    actor_rollout_ref.model.path=Qwen/Qwen3-8B \\\n"
    "    actor_rollout_ref.model.use_remove_padding=True \\\n"
    "    actor_rollout_ref.model.enable_activation_offload=True \\\n"
    "    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\\n"
    "    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=${micro} \\\n"
    "    actor_rollout_ref.actor.strategy=fsdp2 \\\n"
    "    +actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=bf16 \\\n"
    "    actor_rollout_ref.rollout.n=5 \\\n"
    "    trainer.logger='[\"console\",\"wandb\"]' \\\n"
    "    trainer.n_gpus_per_node=8 \\\n"
    "    trainer.nnodes=2 $@\n";

static void test_script(void **state)
{
  (void)state;
  assert_string_equal(read_text(script, "4", true, false), "");
  expect("implementation: hf");
  expect("attn_implementation: flash_attention_2");
  expect("world_size: 16");
  expect("seq_length: 1536");
  expect("micro_batch_size: 16");
  expect("global_batch_size: 1280"); /* 256 x 5 sequences, 80 on a GPU */
  expect("fsdp: fsdp2");
  expect("fsdp_size: 16");
  expect("fsdp_model_dtype: fp32");
  expect("fsdp_wrap_embedding: true");
  expect("recompute_granularity: full");
  expect("recompute_method: uniform");
  expect("use_reentrant: true");
  expect("system: verl");
  expect("optimizer: adamw_torch");
  expect("bf16: true");
  assert_int_equal(s.parallel.fsdp_reduce_dtype,
                   FSDP_REDUCE_DTYPE_EMPTY); /* that of the model, bf16 */
}

static void test_yaml(void **state)
{
  static const char text[] =
      "data: {max_prompt_length: 1000, max_response_length: 24}\n"
      "actor_rollout_ref:\n"
      "  model:\n"
      "    path: Qwen/Qwen2.5-7B\n"
      "    enable_gradient_checkpointing: false\n"
      "    override_config: {attn_implementation: sdpa}\n"
      "    lora_rank: 32\n"
      "    lora_alpha: 64\n"
      "    target_modules: [q_proj, v_proj]\n"
      "  actor:\n"
      "    use_dynamic_bsz: true\n"
      "    ppo_mini_batch_size: 64\n"
      "    ppo_max_token_len_per_gpu: 5000\n"
      "    use_remove_padding: ${oc.select:actor_rollout_ref.model.use_remove_padding,false}\n"
      "    optim: {optimizer: AdamW8bit, optimizer_impl: bitsandbytes.optim}\n"
      "    fsdp_config: {fsdp_size: 2, reshard_after_forward: false, model_dtype: bfloat16,\n"
      "                  mixed_precision: null}\n"
      "  rollout: {n: 1, some_other_key: 3}\n"
      "critic: {anything: at all}\n"
      "trainer: {n_gpus_per_node: 4}\n";
  (void)state;
  assert_string_equal(read_text(text, "4", true, false), "");
  expect("fsdp: fsdp");
  expect("fsdp_size: 2");
  expect("fsdp_reshard_after_forward: false");
  expect("fsdp_reduce_dtype: fp32");
  expect("attn_implementation: sdpa");
  expect("adapter: lora");
  expect("lora_r: 32");
  expect("lora_alpha: 64");
  expect("optimizer: adamw_8bit");
  expect("system: none");
  expect("seq_length: 1024");
  expect("micro_batch_size: 4"); /* 4 x 1024 of 5000 tokens */
  expect("global_batch_size: 64");
  assert_int_equal(s.parallel.fsdp_model_dtype, FSDP_MODEL_DTYPE_EMPTY);
  assert_int_equal(s.recompute.recompute_granularity, GRANULARITY_NONE);
  assert_int_equal(s.lora.lora_target_modules.count, 2);
}

/* Overrides alone, one each line, and verl's defaults for all else. */
static void test_overrides_alone(void **state)
{
  (void)state;
  assert_string_equal(read_text(MICRO, "4", true, false), "");
  expect("fsdp: fsdp");
  expect("world_size: 8");
  expect("seq_length: 1024");
  expect("micro_batch_size: 4");
  expect("global_batch_size: 256");
  expect("recompute_granularity: full");
  expect("use_reentrant: false");
  expect("system: none");
}

/* ---- Megatron-LM's engine ---- */

#define SIZES                                                                                      \
  "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2\n"                                \
  "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2\n"                              \
  "actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=null\n"

/* Keys of Megatron-LM's engine, or a configuration of that name, choose it. */
static void test_megatron(void **state)
{
  static const char *const chooses[] = {
    "python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer.yaml' a.b=c\n" MICRO
        SIZES,
    "python3 -m verl.trainer.main_ppo --config-name ppo_megatron_trainer a.b=c\n" MICRO SIZES,
    "actor_rollout_ref.actor.strategy=megatron\n" MICRO SIZES,
    MICRO SIZES,
  };
  (void)state;
  for (size_t i = 0; i < COUNT(chooses); i++) {
    assert_string_equal(read_text(chooses[i], "4", true, false), "");
    expect("implementation: te");
    expect("tensor_model_parallel_size: 2");
    expect("pipeline_model_parallel_size: 2");
    expect("sequence_parallel: true");
    expect("use_distributed_optimizer: true");
    expect("gradient_accumulation_fusion: false"); /* TransformerConfig's default */
    expect("apply_rope_fusion: false");
    expect("padded_vocab_size: 32000"); /* not a multiple of 128 x TP */
    expect("accumulate_allreduce_grads_in_fp32: true");
    expect("world_size: 8");
    expect("global_batch_size: 256");
    assert_int_equal(s.derived.num_microbatches, 32); /* 128 sequences on each of two replicas */
    assert_int_equal(s.parallel.fsdp, FSDP_NONE);
  }
}

static void test_megatron_fields(void **state)
{
  static const char text[] =
      "actor_rollout_ref.actor.strategy=megatron\n" MICRO SIZES
      "+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity="
      "selective\n"
      "+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_modules='[\"core_"
      "attn\",\"mlp\"]'\n"
      "+actor_rollout_ref.actor.megatron.override_transformer_config.apply_rope_fusion=True\n"
      "+actor_rollout_ref.actor.megatron.override_transformer_config.attention_backend=fused\n"
      "+actor_rollout_ref.actor.megatron.override_transformer_config.sequence_parallel=False\n"
      "+actor_rollout_ref.actor.megatron.override_ddp_config.overlap_grad_reduce=True\n"
      "+actor_rollout_ref.actor.optim.override_optimizer_config.use_precision_aware_optimizer="
      "True\n"
      "+actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True\n"
      "+actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_offload_fraction=0.5\n";
  (void)state;
  assert_string_equal(read_text(text, "4", true, false), "");
  expect("recompute_modules: [core_attn, mlp]");
  expect("apply_rope_fusion: true");
  expect("attention_backend: fused");
  expect("sequence_parallel: false");
  expect("overlap_grad_reduce: true");
  expect("optimizer_cpu_offload: true");
  expect("optimizer_offload_fraction: 0.5");
}

/* ---- the allocator ---- */

static void test_segments(void **state)
{
  static const char apart[] = MICRO "actor_rollout_ref.hybrid_engine=False\n",
                    wrong[] = MICRO "actor_rollout_ref.hybrid_engine=2\n";
  (void)state;
  assert_string_equal(read_text(MICRO, "4", true, false), "");
  expect("expandable_segments: true");
  assert_string_equal(read_text(apart, "4", true, false), "");
  expect("expandable_segments: false");
  assert_non_null(strstr(read_text(wrong, "4", true, false), "must be True or False"));
}

/* ---- SFT trainers ---- */

static void test_sft(void **state)
{
  static const char text[] =
      "torchrun --standalone --nnodes=1 --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer \\\n"
      "  data.max_length=2048 data.train_batch_size=64 data.micro_batch_size_per_gpu=2 \\\n"
      "  model.partial_pretrain=Qwen/Qwen2.5-0.5B optim.lr=1e-4 model.lora_rank=8 \\\n"
      "  model.fsdp_config.model_dtype=bf16 trainer.n_gpus_per_node=1\n";
  (void)state;
  assert_string_equal(read_text(text, "4", true, false), "");
  expect("world_size: 4");
  expect("seq_length: 2048");
  expect("micro_batch_size: 2");
  expect("global_batch_size: 64");
  expect("fsdp: fsdp2");
  expect("loss: causal_lm");
  expect("lora_r: 8");
  expect("expandable_segments: false");
  assert_int_equal(s.parallel.fsdp_model_dtype, FSDP_MODEL_DTYPE_EMPTY);
}

/* The trainers' own files: keys alone decide whose they are. */
static void test_files_of_the_trainers(void **state)
{
  static const char sft[] = "data: {max_length: 512, micro_batch_size_per_gpu: 4}\n"
                            "trainer: {nnodes: 1, n_gpus_per_node: 1}\n";
  static const char megatron[] = "defaults: [ppo_megatron_trainer, _self_]\n"
                                 "actor_rollout_ref: {actor: {ppo_micro_batch_size_per_gpu: 1}}\n";
  (void)state;
  assert_string_equal(read_text(sft, "4", true, false), "");
  expect("world_size: 1");
  expect("seq_length: 512");
  expect("loss: log_probs");
  assert_string_equal(read_text(megatron, "4", true, false), "");
  expect("implementation: te");
}

static void test_sft_engine(void **state)
{
  static const char text[] =
      "torchrun --nproc-per-node 8 -m verl.trainer.sft_trainer model.path=Qwen/Qwen3-8B \\\n"
      "  engine=megatron engine.tensor_model_parallel_size=4 data.train_batch_size=32 \\\n"
      "  engine.override_transformer_config.apply_rope_fusion=True data.max_length=1000\n";
  (void)state;
  assert_string_equal(read_text(text, "4", true, false), "");
  expect("tensor_model_parallel_size: 4");
  expect("apply_rope_fusion: true");
  expect("micro_batch_size: 8"); /* 16 sequences of 1000 tokens are two micro-batches of 8192 */
}

/* ---- dynamic micro-batches ---- */

/* 32 sequences a GPU. Whole sequences are dealt out evenly, so that a micro-batch may exceed the
 * tokens asked for. */
static void test_dynamic_micro_batches(void **state)
{
  static const struct {
    const char *tokens, *length;
    int64_t micro, count;
  } cases[] = {
    { "16384", "1024", 16, 2 }, { "15000", "1024", 11, 3 }, { "1024", "1024", 1, 32 },
    { "3000", "1024", 3, 11 },  { "16384", "100", 32, 1 },  { "3000", "300", 8, 4 },
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    char text[256];
    diag d = { .quiet = true };
    snprintf(text, sizeof text,
             "actor_rollout_ref.actor.use_dynamic_bsz=True\nactor_rollout_ref.actor.ppo_max_token_"
             "len_per_gpu=%s\n",
             cases[i].tokens);
    assert_string_equal(read_text(text, "4", false, false), "");
    assert_true(
        settings_set(&s, "training.seq_length", cases[i].length, (source_pos){ 0 }, &memory, &d));
    assert_true(settings_resolve(&s, offload_conditions, &memory, &d));
    assert_int_equal(s.training.micro_batch_size, cases[i].micro);
    assert_int_equal(s.derived.num_microbatches, cases[i].count);
  }
}

/* ---- what is refused ---- */

#define ACTOR   "actor_rollout_ref.actor."
#define OFFLOAD "actor_rollout_ref.model.enable_activation_offload=True\n"

#define MCORE ACTOR "megatron."

static void test_conditions(void **state)
{
  static const struct {
    const char *text, *message;
  } cases[] = {
    { MICRO OFFLOAD ACTOR "strategy=megatron\n",
      "run:3:34: error: strategy is megatron; activation offload needs fsdp or fsdp2" },
    { MICRO ACTOR "strategy=torchtitan\n", "strategy is torchtitan; offsim predicts verl's fsdp, "
                                           "fsdp2, fsdp_turbo, veomni and megatron" },
    { MICRO ACTOR "strategy=veomni\n" ACTOR "veomni.expert_parallel_size=8\n",
      "expert_parallel_size is 8; expert parallelism of verl's FSDP engines is not predicted" },
    { MICRO OFFLOAD ACTOR "strategy=veomni\n" ACTOR "veomni.activation_gpu_limit=-1\n",
      "activation_gpu_limit is -1; it must be from 0" },
    { ACTOR "strategy=fsdp\n", "neither actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu nor" },
    { MICRO ACTOR "ppo_micro_batch_size=32\n", "give the latter alone" },
    { MICRO ACTOR "ppo_mini_batch_size=4\n", "at least one for each of the 8 data parallel" },
    { ACTOR "ppo_micro_batch_size_per_gpu=5\n", "the mini-batch's 32 must be divisible by them" },
    { ACTOR "use_dynamic_bsz=True\n" ACTOR "ppo_max_token_len_per_gpu=1000\n",
      "it must hold one of max_prompt_length and max_response_length, 1024 tokens" },
    { MICRO ACTOR "ulysses_sequence_parallel_size=3\n",
      "8 GPUs are given; the parallel sizes need a multiple of 3" },
    { MICRO MCORE "tensor_model_parallel_size=16\n",
      "8 GPUs are given; the parallel sizes need a multiple of 16" },
    { MICRO MCORE "override_transformer_config.recompute_granularty=full\n",
      "unknown field of Megatron-LM's TransformerConfig \"recompute_granularty\"; did you mean "
      "recompute_granularity?" },
    { MICRO MCORE "override_transformer_config.moe_permute_fusion=maybe\n",
      "it must be True or False" },
    { MICRO MCORE "dtype=float32\n", "it must be bfloat16 or float16" },
    { MICRO ACTOR "strategy=megatron\nactor_rollout_ref.model.lora.rank=8\n",
      "adapters of Megatron-LM's engine are not predicted" },
    { MICRO ACTOR "use_dynamic_bsz=$dynamic\n",
      "run:2:41: error: actor_rollout_ref.actor.use_dynamic_bsz has no value: dynamic is not set; "
      "--env dynamic=VALUE sets it" },
    { "n=$(nproc)\n" MICRO ACTOR "ppo_mini_batch_size=$n\n",
      "run:1:3: error: actor_rollout_ref.actor.ppo_mini_batch_size depends on $(nproc) in line 1; "
      "--env n=VALUE gives n" },
    { MICRO ACTOR "ppo_mini_batch_size=0\n", "a whole number above 0" },
    { MICRO ACTOR "fsdp_config.model_dtype=fp8\n", "it must be fp32, bf16 or fp16" },
    { MICRO ACTOR "stratgy=fsdp\n",
      "unknown verl key \"actor_rollout_ref.actor.stratgy\"; did you mean "
      "actor_rollout_ref.actor.strategy?" },
    { MICRO "actor_rollout_ref.model.another_batch_entirely=1\n", "--ignore-unknown skips" },
    { "echo nothing here\n", "no key of verl in it" },
    { "- a\n- b\n", "no key of verl in it" },
    { "data: {max_prompt_length: [\n", "run:2" },
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    const char *message = read_text(cases[i].text, "4", true, false);
    if (strstr(message, cases[i].message) == NULL)
      print_error("%s\ngave: %s\n", cases[i].text, message);
    assert_non_null(strstr(message, cases[i].message));
  }
}

static void test_the_model_is_needed(void **state)
{
  (void)state;
  const char *message =
      read_text(MICRO "actor_rollout_ref.model.path=Qwen/Qwen3-8B\n", NULL, false, false);
  assert_non_null(strstr(message, "run:2:30: error: the model's shape is not known; give the "
                                  "config.json of Qwen/Qwen3-8B with --hf-config"));
}

static void test_unknown_keys_may_be_skipped(void **state)
{
  (void)state;
  assert_string_equal(read_text(MICRO ACTOR "stratgy=fsdp2\n", "4", true, true), "");
  expect("fsdp: fsdp");
}

/* ---- rules of the scenario, for any reader ---- */

static const char *resolve_with(const char *key, const char *value)
{
  static diag d;
  read_text(MICRO OFFLOAD, "4", false, false);
  d = (diag){ .quiet = true };
  assert_true(settings_set(&s, key, value, (source_pos){ 0 }, &memory, &d));
  settings_resolve(&s, offload_conditions, &memory, &d);
  return d.message;
}

static void test_rules_of_the_scenario(void **state)
{
  (void)state;
  assert_string_equal(resolve_with("offload.mode", "fixed"), "");
  assert_non_null(
      strstr(resolve_with("parallel.fsdp", ""), "offload system verl needs parallel.fsdp"));
  assert_non_null(strstr(resolve_with("parallel.fsdp_size", "3"), "divisible by fsdp_size (3)"));
}

/* Too few layers, and checkpoints of both kinds, are said in notes: nothing is refused. */
static void test_what_is_only_noted(void **state)
{
  (void)state;
  assert_string_equal(read_text(MICRO OFFLOAD, "2", true, false), "");
  expect("use_reentrant: true");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_script),
    cmocka_unit_test(test_yaml),
    cmocka_unit_test(test_overrides_alone),
    cmocka_unit_test(test_megatron),
    cmocka_unit_test(test_megatron_fields),
    cmocka_unit_test(test_segments),
    cmocka_unit_test(test_sft),
    cmocka_unit_test(test_sft_engine),
    cmocka_unit_test(test_files_of_the_trainers),
    cmocka_unit_test(test_dynamic_micro_batches),
    cmocka_unit_test(test_conditions),
    cmocka_unit_test(test_the_model_is_needed),
    cmocka_unit_test(test_unknown_keys_may_be_skipped),
    cmocka_unit_test(test_rules_of_the_scenario),
    cmocka_unit_test(test_what_is_only_noted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
