/*
 * Megatron arguments: the table, shell text, mappings, environment, messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/config/megatron/args.h"
#include "sim/config/megatron/flags.h"

typedef struct fixture {
  settings s;
  arena a;
  diag d;
} fixture;

static bool parse(fixture *f, const char *text, bool ignore_unknown)
{
  const megatron_args_options options = { .ignore_unknown = ignore_unknown };
  *f = (fixture){ .d = { .quiet = true } };
  settings_init(&f->s, &f->a);
  return megatron_args_parse(&f->s, "run.sh", text, strlen(text), &options, &f->a, &f->d);
}

/* Reads a text that must be right. */
static fixture given(const char *text)
{
  fixture f;
  bool good = parse(&f, text, false);
  if (!good) {
    print_error("%s\n", f.d.message);
  }
  assert_true(good);
  return f;
}

static void assert_message(const char *text, const char *message)
{
  fixture f;
  assert_false(parse(&f, text, false));
  assert_int_equal(f.d.exit_status, 2);
  assert_string_equal(f.d.message, message);
  arena_release(&f.a);
}

static void assert_list(setting_key key, const choice_list *list, const char *expected)
{
  char joined[256] = "";
  for (uint32_t i = 0; i < list->count; i++) {
    strcat(joined, i > 0 ? " " : "");
    strcat(joined, choice_word(key, list->items[i]));
  }
  assert_string_equal(joined, expected);
}

/* --- The table --- */

static void every_name_stands_once(void **state)
{
  (void)state;
  assert_true(megatron_flag_count > 1200);
  for (uint32_t i = 0; i < megatron_flag_count; i++) {
    assert_int_equal(megatron_flag_find(megatron_flags[i].name), i);
  }
}

/* Each row with a value of its type: nothing but another value can be wrong with it. */
static void every_row_can_be_given(void **state)
{
  (void)state;
  for (uint32_t i = 0; i < megatron_flag_count; i++) {
    const megatron_flag *flag = &megatron_flags[i];
    bool needs_word = flag->type == FLAG_TYPE_TEXT &&
                      (flag->effect.kind == FLAG_SETS || flag->effect.kind == FLAG_OVERRIDES);
    if (flag->effect.kind == FLAG_REFUSED || needs_word) {
      continue;
    }
    char text[160];
    const char *values = flag->values == FLAG_VALUES_NONE    ? ""
                         : flag->values == FLAG_VALUES_THREE ? "1 1 1"
                         : flag->type == FLAG_TYPE_FLAG      ? "true"
                                                             : "1";
    snprintf(text, sizeof text, "%s %s", flag->name, values);
    fixture f = given(text);
    arena_release(&f.a);
  }
}

/* What recorded runs of Megatron-LM's own functional tests were started with. */
static void recorded_runs_are_known(void **state)
{
  (void)state;
  static const char *const names[] = {
    "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
    "--adam-beta1",
    "--adam-beta2",
    "--apply-query-key-layer-scaling",
    "--async-ckpt-use-cpu-shm",
    "--async-save",
    "--async-strategy",
    "--attention-backend",
    "--attention-dropout",
    "--attention-softmax-in-fp32",
    "--auto-detect-ckpt-format",
    "--bf16",
    "--calculate-per-token-loss",
    "--check-weight-hash-across-dp-replicas-interval",
    "--ckpt-assume-constant-structure",
    "--ckpt-format",
    "--ckpt-fully-parallel-load",
    "--ckpt-fully-parallel-save",
    "--clip-grad",
    "--context-parallel-size",
    "--cross-entropy-fusion-impl",
    "--cross-entropy-loss-fusion",
    "--cuda-graph-impl",
    "--cuda-graph-modules",
    "--cuda-graph-scope",
    "--data-cache-path",
    "--data-parallel-sharding-strategy",
    "--data-path",
    "--ddp-average-in-collective",
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--decoupled-lr",
    "--defer-embedding-wgrad-compute",
    "--deterministic-mode",
    "--disable-bias-linear",
    "--disable-gloo-process-groups",
    "--dist-ckpt-optim-fully-reshardable",
    "--dist-ckpt-save-pre-mcore-014",
    "--dist-ckpt-strictness",
    "--distributed-backend",
    "--distributed-timeout-minutes",
    "--enable-experimental",
    "--eval-interval",
    "--eval-iters",
    "--exit-duration-in-mins",
    "--exit-interval",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
    "--ffn-hidden-size",
    "--fim-data",
    "--fim-rate",
    "--fim-spm-rate",
    "--fine-grained-activation-offloading",
    "--first-last-layers-bf16",
    "--fp16",
    "--fp8-format",
    "--fp8-param-gather",
    "--fp8-recipe",
    "--global-batch-size",
    "--group-query-attention",
    "--hidden-dropout",
    "--hidden-size",
    "--init-method-std",
    "--kv-channels",
    "--kv-lora-rank",
    "--load",
    "--log-interval",
    "--log-memory-to-tensorboard",
    "--log-num-zeros-in-grad",
    "--log-params-norm",
    "--log-throughput",
    "--log-timers-to-tensorboard",
    "--log-validation-ppl-to-tensorboard",
    "--logging-level",
    "--lr",
    "--lr-decay-iters",
    "--lr-decay-samples",
    "--lr-decay-style",
    "--lr-warmup-fraction",
    "--lr-warmup-init",
    "--lr-warmup-samples",
    "--make-vocab-size-divisible-by",
    "--manual-gc",
    "--manual-gc-interval",
    "--max-position-embeddings",
    "--merge-file",
    "--micro-batch-size",
    "--microbatch-group-size-per-virtual-pipeline-stage",
    "--min-lr",
    "--mock-data",
    "--moe-aux-loss-coeff",
    "--moe-enable-deepep",
    "--moe-ffn-hidden-size",
    "--moe-flex-dispatcher-backend",
    "--moe-grouped-gemm",
    "--moe-layer-freq",
    "--moe-permute-fusion",
    "--moe-router-bias-update-rate",
    "--moe-router-dtype",
    "--moe-router-enable-expert-bias",
    "--moe-router-fusion",
    "--moe-router-group-topk",
    "--moe-router-load-balancing-type",
    "--moe-router-num-groups",
    "--moe-router-pre-softmax",
    "--moe-router-score-function",
    "--moe-router-topk",
    "--moe-router-topk-scaling-factor",
    "--moe-shared-expert-intermediate-size",
    "--moe-token-dispatcher-type",
    "--mscale",
    "--mscale-all-dim",
    "--mtp-loss-scaling-factor",
    "--mtp-num-layers",
    "--multi-latent-attention",
    "--muon-extra-scale-factor",
    "--muon-momentum",
    "--muon-scale-mode",
    "--no-bias-gelu-fusion",
    "--no-check-for-nan-in-loss-and-grad",
    "--no-ckpt-fully-parallel-save",
    "--no-create-attention-mask-in-dataloader",
    "--no-gradient-accumulation-fusion",
    "--no-masked-softmax-fusion",
    "--no-mmap-bin-files",
    "--no-persist-layer-norm",
    "--no-rope-fusion",
    "--no-use-layer-wise-param-layout",
    "--norm-epsilon",
    "--normalization",
    "--num-attention-heads",
    "--num-distributed-optimizer-instances",
    "--num-experts",
    "--num-layers",
    "--num-layers-per-virtual-pipeline-stage",
    "--num-query-groups",
    "--num-virtual-stages-per-pipeline-rank",
    "--num-workers",
    "--offload-modules",
    "--optimizer",
    "--outer-dp-sharding-strategy",
    "--overlap-grad-reduce",
    "--overlap-moe-expert-parallel-comm",
    "--overlap-p2p-communication-warmup-flush",
    "--overlap-param-gather",
    "--overlap-param-gather-with-optimizer-step",
    "--pipeline-model-parallel-layout",
    "--pipeline-model-parallel-size",
    "--position-embedding-type",
    "--q-lora-rank",
    "--qk-head-dim",
    "--qk-layernorm",
    "--qk-pos-emb-head-dim",
    "--recompute-granularity",
    "--recompute-method",
    "--recompute-modules",
    "--recompute-num-layers",
    "--rotary-base",
    "--rotary-interleaved",
    "--rotary-percent",
    "--rotary-scaling-factor",
    "--save",
    "--save-interval",
    "--save-retain-interval",
    "--seq-length",
    "--sequence-parallel",
    "--split",
    "--swiglu",
    "--tensor-model-parallel-size",
    "--tensorboard-dir",
    "--timing-log-level",
    "--tokenizer-model",
    "--tokenizer-type",
    "--train-iters",
    "--train-samples",
    "--transformer-impl",
    "--untie-embeddings-and-output-weights",
    "--use-checkpoint-opt_param-scheduler",
    "--use-custom-fsdp",
    "--use-distributed-optimizer",
    "--use-flash-attn",
    "--use-mcore-models",
    "--use-megatron-fsdp",
    "--use-persistent-ckpt-worker",
    "--use-tp-pp-dp-mapping",
    "--v-head-dim",
    "--verify-integrity",
    "--vocab-file",
    "--vocab-size",
    "--wandb-entity",
    "--wandb-exp-name",
    "--wandb-project",
    "--wandb-save-dir",
    "--weight-decay",
    "--wgrad-deferral-limit",
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (megatron_flag_find(names[i]) == MEGATRON_FLAG_UNKNOWN) {
      fail_msg("%s is not in the table", names[i]);
    }
  }
}

/* Options of forks that mean something that Megatron-LM has under another name. */
static void dialects(void **state)
{
  (void)state;
  fixture f = given("--hidden-size 6144 --multiple-of 4096 --hidden-dim-multiplier 1.3 "
                    "--attention-head-type multiquery --recompute-granularity none "
                    "--num-experts 8 --moe-router-load-balancing-type group_limited_greedy");
  assert_int_equal(f.s.model.ffn_hidden_size, 24576); /* Aquila2-34B */
  assert_true(f.s.model.group_query_attention);
  assert_int_equal(f.s.model.num_query_groups, 1);
  arena_release(&f.a);
  f = given("--hidden-size 4096 --multiple-of 256 --num-key-value-heads 8");
  assert_int_equal(f.s.model.ffn_hidden_size, 11008); /* Aquila2-7B */
  assert_int_equal(f.s.model.num_query_groups, 8);
  arena_release(&f.a);
  f = given("--hidden-size 4096 --multiple-of 256 --ffn-hidden-size 100");
  assert_int_equal(f.s.model.ffn_hidden_size, 100);
  arena_release(&f.a);
  f = given("--normalization rmsnorm"); /* Megatron-DeepSpeed */
  assert_int_equal(f.s.model.normalization, NORM_RMS);
  arena_release(&f.a);
  f = given(
      "--num-experts 8 --moe-router-load-balancing-type sparsemixer_topk"); /* MindSpeed-LLM */
  assert_true(has_choice(&f.s.model.moe_router_load_balancing_type, BALANCE_NONE));
  arena_release(&f.a);
}

/* The overlaps of products and exchanges: on by default; options and fields turn them off. */
static void tensor_parallel_overlaps(void **state)
{
  (void)state;
  fixture f = given("--tp-comm-overlap");
  const struct parallel_settings *p = &f.s.parallel;
  assert_true(p->tp_comm_overlap && p->tp_comm_overlap_ag && p->tp_comm_overlap_rs);
  assert_true(p->tp_comm_bulk_dgrad && p->tp_comm_bulk_wgrad);
  arena_release(&f.a);
  f = given("--tp-comm-overlap --no-tp-comm-overlap-ag --disable-tp-comm-bulk-wgrad");
  assert_true(p->tp_comm_overlap && !p->tp_comm_overlap_ag && p->tp_comm_overlap_rs);
  assert_true(p->tp_comm_bulk_dgrad && !p->tp_comm_bulk_wgrad);
  arena_release(&f.a);
  f = given(
      "tp_comm_overlap: true\ntp_comm_overlap_rs: false\ntp_comm_overlap_disable_qkv: true\n");
  assert_true(p->tp_comm_overlap && p->tp_comm_overlap_ag && !p->tp_comm_overlap_rs);
  assert_true(p->tp_comm_overlap_disable_qkv && !p->tp_comm_overlap_disable_fc1);
  assert_int_equal(p->tp_comm_overlap_rs_method, RS_PIPELINE);
  arena_release(&f.a);
  f = given("tp_comm_overlap: true\ntp_comm_overlap_cfg:\n  proj_fprop: {method: ring_exchange}\n"
            "  fc2_fprop: {method: ring_exchange, num_sm: 1}\n  qkv_fprop: {aggregate: false}\n");
  assert_int_equal(p->tp_comm_overlap_rs_method, RS_RING_EXCHANGE);
  arena_release(&f.a);
  f = given("tp_comm_overlap: true\ntp_comm_overlap_cfg: {proj_fprop: {method: ring_exchange}}\n");
  assert_int_equal(p->tp_comm_overlap_rs_method, RS_PIPELINE);
  arena_release(&f.a);
}

/* Layers of MindSpeed's that do nothing: fewer layers, and a layout where stages have them. */
static void layers_that_do_nothing(void **state)
{
  (void)state;
  fixture f = given("--num-layers 8 --noop-layers 1,7 --pipeline-model-parallel-size 2 "
                    "--num-layers-per-virtual-pipeline-stage 2 --num-experts 4 "
                    "--first-k-dense-replace 3 --mtp-num-layers 1");
  assert_int_equal(f.s.model.num_layers, 6);
  assert_string_equal(f.s.parallel.pipeline_model_parallel_layout, "Et|tt|tt|tmL");
  assert_false(f.s.given[KEY_parallel_num_layers_per_virtual_pipeline_stage]);
  assert_string_equal(f.s.model.moe_layer_freq, "[0]*2+[1]*4");
  arena_release(&f.a);
  f = given("--num-layers 4 --noop-layers 3");
  assert_int_equal(f.s.model.num_layers, 3);
  assert_false(f.s.given[KEY_parallel_pipeline_model_parallel_layout]);
  arena_release(&f.a);
}

/* --- Shell text --- */

static void shell_sets_keys(void **state)
{
  (void)state;
  fixture f = given("#!/bin/bash\n"
                    "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
                    "NVTE_FLASH_ATTN=0 torchrun --nproc_per_node=8 --nnodes 2 pretrain_gpt.py \\\n"
                    "  --num-layers 12 --hidden-size=512 \\\n"
                    "  --swiglu --disable-bias-linear --lr 1e-4 --data-path $A $B \\\n"
                    "  --recompute-modules moe_act 'layernorm' \\\n"
                    "  --pipeline-model-parallel-layout 'Et*3|(tt|)*29m|L' \\\n"
                    "  --num-layers 24 ${EXTRA_ARGS[@]} > log.txt 2>&1\n");
  assert_int_equal(f.s.model.num_layers, 24);
  assert_int_equal(f.s.model.hidden_size, 512);
  assert_true(f.s.model.swiglu);
  assert_int_equal(f.s.parallel.world_size, 16);
  assert_int_equal(f.s.software.cuda_device_max_connections, 1);
  assert_false(f.s.software.nvte_flash_attn);
  assert_true(f.s.software.environment_given);
  arena_release(&f.a);
}

/* What a script leaves to its surroundings, and what a template leaves to its user. */
static void values_from_outside(void **state)
{
  (void)state;
  fixture f = given("if [ -f a ]; then L='--load a'; else L='--load b --no-load-rng'; fi\n"
                    "T='your tokenizer path'\n"
                    "python pretrain_gpt.py --world-size $RANKS $L --tokenizer-model $T "
                    "--tokenizer-type HuggingFaceTokenizer --num-layers 2 --hidden-size 64");
  assert_int_equal(f.s.model.num_layers, 2);
  assert_int_equal(f.s.model.hidden_size, 64);
  assert_false(f.s.given[KEY_parallel_world_size]);
  assert_int_equal(f.s.derived.tokenizer_vocab_size, UNSET);
  arena_release(&f.a);
  f = given("python pretrain_gpt.py --num-layers 2 --hidden-size 64");
  assert_int_equal(f.s.derived.tokenizer_vocab_size, 50257);
  arena_release(&f.a);
  f = given("python train.py --num-layers 2 --hidden-size 64 --seq-length 4");
  assert_null(f.s.derived.tokenizer);
  arena_release(&f.a);
  f = given("python x.py --num-layers 2 --hidden-size 64 --tokenizer-type PretrainedFromHF "
            "--tokenizer-name-or-path /data/llama-2-7b-hf");
  assert_int_equal(f.s.derived.tokenizer_vocab_size, 32000);
  arena_release(&f.a);
}

static void shell_script_with_lists(void **state)
{
  (void)state;
  fixture f = given("set -ex\nmkdir -p out\nGPUS_PER_NODE=4\n"
                    "DISTRIBUTED_ARGS=(--nproc_per_node $GPUS_PER_NODE --nnodes 1)\n"
                    "MODEL_ARGS=(\n  --num-layers 8\n  --moe-layer-freq '([0]*1+[1]*7)'\n"
                    "  --offload-modules expert_fc1 moe_act\n)\n"
                    "if [ -n \"$X\" ]; then\n  echo --hidden\nfi\n"
                    "torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_ARGS[@]} --bf16\n");
  assert_int_equal(f.s.model.num_layers, 8);
  assert_string_equal(f.s.model.moe_layer_freq, "([0]*1+[1]*7)");
  assert_list(KEY_offload_offload_modules, &f.s.offload.offload_modules, "expert_fc1 moe_act");
  assert_true(f.s.training.bf16);
  assert_int_equal(f.s.parallel.world_size, 4);
  arena_release(&f.a);
}

static void shell_lists_in_quotes(void **state)
{
  (void)state;
  fixture f = given("GPT_ARGS=\"\n  --num-layers 8 \\\n  --bf16\n\"\n"
                    "python -m torch.distributed.run train.py $GPT_ARGS --hidden-size 64");
  assert_int_equal(f.s.model.num_layers, 8);
  assert_int_equal(f.s.model.hidden_size, 64);
  assert_true(f.s.training.bf16);
  assert_false(f.s.software.environment_given);
  arena_release(&f.a);
}

static void composite_options(void **state)
{
  (void)state;
  fixture f = given("--recompute-activations --no-bias-gelu-fusion --swiglu "
                    "--use-rotary-position-embeddings --position-embedding-type none");
  assert_int_equal(f.s.recompute.recompute_granularity, GRANULARITY_SELECTIVE);
  assert_true(f.s.model.bias_activation_fusion);
  assert_int_equal(f.s.model.position_embedding_type, POSITIONS_ROPE);
  arena_release(&f.a);

  f = given("--no-bias-gelu-fusion --moe-layer-recompute --no-rope-fusion --use-custom-fsdp");
  assert_false(f.s.model.bias_activation_fusion);
  assert_list(KEY_recompute_recompute_modules, &f.s.recompute.recompute_modules, "core_attn moe");
  assert_false(f.s.model.apply_rope_fusion);
  assert_true(f.s.parallel.use_megatron_fsdp);
  arena_release(&f.a);
}

/* --- Mappings --- */

static void mapping_of_a_test_case(void **state)
{
  (void)state;
  fixture f = given("# recorded\nENV_VARS:\n  CUBLAS_WORKSPACE_CONFIG: :4096:8\n"
                    "  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0\n"
                    "  PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True\n  SKIP_PYTEST: 1\n"
                    "TEST_TYPE: regular\n"
                    "MODEL_ARGS:\n  --num-layers: 12\n  --swiglu: true\n  --fp16: false\n"
                    "  --recompute-modules: [layernorm mla_up_proj]\n"
                    "  --offload-modules: \"[expert_fc1, moe_act]\"\n"
                    "  --pipeline-model-parallel-layout: Et*3\\\\|\\(tt\\|\\)*6L\n"
                    "  --moe-layer-freq: ([0]*3+[1]*5)\n  --lr: 1e-4\n  --load: null\n");
  assert_int_equal(f.s.model.num_layers, 12);
  assert_true(f.s.model.swiglu);
  assert_false(f.s.training.fp16);
  assert_list(KEY_recompute_recompute_modules, &f.s.recompute.recompute_modules,
              "layernorm mla_up_proj");
  assert_list(KEY_offload_offload_modules, &f.s.offload.offload_modules, "expert_fc1 moe_act");
  assert_string_equal(f.s.parallel.pipeline_model_parallel_layout, "Et*3|(tt|)*6L");
  assert_string_equal(f.s.model.moe_layer_freq, "([0]*3+[1]*5)");
  assert_string_equal(f.s.software.cublas_workspace_config, ":4096:8");
  assert_false(f.s.software.nvte_allow_nondeterministic_algo);
  assert_true(f.s.software.expandable_segments);
  assert_true(f.s.software.environment_given);
  arena_release(&f.a);
}

static void bare_mapping(void **state)
{
  (void)state;
  fixture f = given("{\"num_layers\": 4, \"--bf16\": true, \"moe_layer_freq\": [0, 1, 1, 1],\n"
                    " \"recompute_modules\": [\"moe_act\", \"mlp\"], \"overlap_p2p_comm\": false}");
  assert_int_equal(f.s.model.num_layers, 4);
  assert_true(f.s.training.bf16);
  assert_string_equal(f.s.model.moe_layer_freq, "[0,1,1,1]");
  assert_list(KEY_recompute_recompute_modules, &f.s.recompute.recompute_modules, "moe_act mlp");
  assert_false(f.s.parallel.overlap_p2p_comm);
  assert_false(f.s.software.environment_given);
  arena_release(&f.a);
}

/* --- Messages --- */

static void messages(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
    { "--bf16 \\\n --num-layrs 4",
      "run.sh:2:2: error: unknown Megatron option \"--num-layrs\"; did you mean --num-layers?" },
    { "--bf16 --zzzz-size 4", "run.sh:1:8: error: unknown Megatron option \"--zzzz-size\"; "
                              "--ignore-unknown skips what offsim does not know" },
    { "--hidden-size --bf16", "run.sh:1:1: error: --hidden-size needs a value" },
    { "--bf16=1", "run.sh:1:1: error: --bf16 takes no value, found \"1\"" },
    { "--num-layers 4 5", "run.sh:1:16: error: unexpected \"5\"; it is no option and no value of "
                          "the option before it" },
    { "--offload-modules qkv_linear\n moe_act", "run.sh:2:2: error: unexpected \"moe_act\"; it is "
                                                "no option and no value of the option before "
                                                "it" },
    { "--num-layers $LAYERS", "run.sh:1:1: error: --num-layers has no value: LAYERS is not set; "
                              "--env LAYERS=VALUE sets it" },
    { "N=$(nproc)\ntorchrun pretrain_gpt.py --num-layers $N --hidden-size $((N * 64)) --save x$N",
      "run.sh:1:3: error: --num-layers, --hidden-size depend on $(nproc) in line 1; --env N=VALUE "
      "gives N" },
    { "if [ -f x ]; then\n N=1\nelse\n N=2\nfi\npython pretrain_gpt.py --num-layers $N",
      "run.sh:1:4: error: --num-layers depends on [ -f x ] in line 1 (\"1\" or \"2\"); --env "
      "N=VALUE gives N" },
    { "if grep x y; then A+=(--lr 1 --fp16); fi\npython pretrain_gpt.py --num-layers 2 ${A[@]}",
      "run.sh:1:3: error: --fp16 depends on grep x y in line 1 (\"--lr 1 --fp16\" or \"\"), which "
      "offsim does not run; write its value in its place" },
    { "if grep x y; then\n python pretrain_gpt.py --num-layers 2\nelse\n python pretrain_gpt.py "
      "--num-layers 4\nfi",
      "run.sh:4:2: error: this training command (pretrain_gpt.py) and another one in line 2 are in "
      "branches of \"grep x y\" in line 1, "
      "which offsim cannot decide; keep the branch that runs and remove the other" },
    { "G=$(nproc)\ntorchrun --nproc_per_node $G pretrain_gpt.py --num-layers 2",
      "run.sh:1:3: error: the number of processes on each node depends on $(nproc) in line 1; "
      "--env G=VALUE gives G, or give --world-size N" },
    { "srun --ntasks-per-node=8 python pretrain_gpt.py --num-layers 2",
      "run.sh:1:6: error: 8 processes on each node, but the number of nodes is not given; "
      "--world-size N gives the number of GPUs" },
    { "python pretrain_bert.py --num-layers 2",
      "run.sh:1:8: error: pretrain_bert.py trains a BERT model; offsim predicts the training of "
      "decoder-only models" },
    { "[ $# -lt 1 ] && exit 1\npython pretrain_gpt.py --num-layers 2",
      "run.sh:1:17: error: the script ends here before it trains: exit 1; --arg VALUE and --env "
      "NAME=VALUE give its arguments and variables" },
    { "--num-layers four",
      "run.sh:1:14: error: model.num_layers is \"four\"; a whole number is needed here" },
    { "--num-layers: true", "run.sh:1:15: error: --num-layers is true; it needs a value" },
    { "hiden_size: 4", "run.sh:1:1: error: unknown Megatron option \"hiden_size\"; did you mean "
                       "--hidden-size?" },
    { "NVTE_FUSED_ATTN=yes python pretrain_gpt.py --bf16",
      "run.sh:1:17: error: NVTE_FUSED_ATTN is \"yes\"; 0 or 1 is needed here" },
    { "--hybrid-layer-pattern M-M*",
      "run.sh:1:1: error: --hybrid-layer-pattern: a Mamba or hybrid model; "
      "offsim predicts decoder transformers" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_message(cases[i].text, cases[i].message);
  }
}

/* Names that say nothing of shapes, precision or memory. */
static void harmless_unknown_are_skipped(void **state)
{
  (void)state;
  fixture f = given("--num-layers 4 --swanlab-project x --my-flag a b --save-hf-dataset-size 3");
  assert_int_equal(f.s.model.num_layers, 4);
  arena_release(&f.a);
}

/* A file of another kind is one error, even if more is wrong. */
static void refusal_comes_alone(void **state)
{
  (void)state;
  assert_message("num_layers: four\nzzzz_size: 4\ndecoder_num_layers: 4",
                 "run.sh:3:1: error: --decoder-num-layers: an encoder-decoder model; offsim "
                 "predicts decoder models");
  fixture f;
  assert_false(parse(&f, "zzzz_size: 1\nnum_layers: four\nhidden_size: 64\n", false));
  assert_int_equal(f.d.further_count, 1);
  arena_release(&f.a);
}

static void switches_with_a_value(void **state)
{
  (void)state;
  fixture f = given("--swiglu true --sequence-parallel false --no-bias-swiglu-fusion true "
                    "--recompute-activations false --use-torch-fsdp2 false --num-layers 4");
  assert_true(f.s.model.swiglu);
  assert_false(f.s.parallel.sequence_parallel);
  assert_false(f.s.model.bias_activation_fusion);
  assert_int_equal(f.s.recompute.recompute_granularity, GRANULARITY_NONE);
  arena_release(&f.a);
}

static void unknown_can_be_ignored(void **state)
{
  (void)state;
  fixture f;
  assert_true(parse(&f, "--my-flag a b --num-layers 4 --other=1", true));
  assert_int_equal(f.s.model.num_layers, 4);
  arena_release(&f.a);
  assert_true(parse(&f, "my_flag: [1, 2]\nnum_layers: 4\n", true));
  assert_int_equal(f.s.model.num_layers, 4);
  arena_release(&f.a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_name_stands_once),
    cmocka_unit_test(every_row_can_be_given),
    cmocka_unit_test(recorded_runs_are_known),
    cmocka_unit_test(dialects),
    cmocka_unit_test(tensor_parallel_overlaps),
    cmocka_unit_test(layers_that_do_nothing),
    cmocka_unit_test(shell_sets_keys),
    cmocka_unit_test(values_from_outside),
    cmocka_unit_test(shell_script_with_lists),
    cmocka_unit_test(shell_lists_in_quotes),
    cmocka_unit_test(composite_options),
    cmocka_unit_test(mapping_of_a_test_case),
    cmocka_unit_test(bare_mapping),
    cmocka_unit_test(messages),
    cmocka_unit_test(harmless_unknown_are_skipped),
    cmocka_unit_test(refusal_comes_alone),
    cmocka_unit_test(switches_with_a_value),
    cmocka_unit_test(unknown_can_be_ignored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
