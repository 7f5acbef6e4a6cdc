"""Megatron-LM's flags as users have them: what is read, what is refused and by which name, what is skipped."""

import re

import pytest

from conftest import one_error

SHAPE = "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nvocab_size: 100\nseq_length: 32\n"


def read(offsim, text, *options):
    return offsim("predict", "--print-scenario", "--megatron-args", "-", "--world-size", 1, *options, stdin=text)


def value_of(run, key):
    assert run.status == 0, run.stderr
    return re.search(rf"^  {key}: (.*)$", run.stdout, re.M).group(1)


# ---- other models and other work ----

@pytest.mark.parametrize("line, kind", [
    ("bert_no_binary_head: true", "a BERT model"),
    ("output_bert_embeddings: true", "a BERT model"),
    ("vocab_file: /data/vocab.txt", "a vocabulary of BERT"),
    ("tokenizer_type: BertWordPieceLowerCase", "a vocabulary of BERT"),
    ("decoder_num_layers: 2", "an encoder-decoder model"),
    ("encoder_num_layers: 2", "an encoder-decoder model"),
    ("encoder_pipeline_model_parallel_size: 1", "an encoder-decoder model"),
    ("is_hybrid_model: true", "a Mamba or hybrid model"),
    ("hybrid_override_pattern: M-M*", "a Mamba or hybrid model"),
    ("hybrid_attention_ratio: 0.1", "a Mamba or hybrid model"),
    ("mamba_state_dim: 128", "a Mamba or hybrid model"),
    ("spec: megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec", "layers of another kind"),
    ("spec: [megatron.core.models.T5.t5_spec, get]", "layers of another kind"),
    ("model_provider: mamba", "no decoder transformer"),
    ("img_h: 336", "a vision or multimodal model"),
    ("vision_model_type: clip", "a vision or multimodal model"),
    ("dataset_provider: mock", "a vision or multimodal model"),
    ("retro_add_retriever: true", "a model with retrieval"),
    ("perform_rl_step: true", "reinforcement learning"),
    ("advantage_estimator: grpo", "reinforcement learning"),
    ("num_tokens_to_generate: 5", "inference"),
    ("return_log_probs: true", "inference"),
    ("skip_train: true", "evaluation alone"),
    ("export_kd_teacher_load: /x", "distillation"),
    ("use_torch_fsdp2: true", "PyTorch FSDP2"),
    ("deepspeed: true", "DeepSpeed"),
    ("zero_stage: 1", "DeepSpeed"),
    ("train_type: lora", "LoRA"),
    ("stage: dpo", "alignment with other models"),
    ("num_zero_experts: 1", "LongCat"),
    ("enable_zero_bubble: true", "a zero-bubble or V-shaped schedule"),
    ("use_dualpipev: true", "a zero-bubble or V-shaped schedule"),
    ("interleave_group_size: 2", "interleaved 1F1B in groups"),
    ("enable_hetero: true", "stages of different layouts"),
    ("moe_num_experts: 8", "experts of MegaBlocks"),
])
def test_refused_by_name(offsim, line, kind):
    for flags in (SHAPE + line, f"zzzz_size: 3\nnum_layers: x\n{line}"):
        assert kind in one_error(read(offsim, flags), status=2)


@pytest.mark.parametrize("mode", ["report_stats", "report_determinism_stats"])
def test_steps_that_run_twice_are_refused(mode, offsim):
    assert "runs each step forward and backward twice" in one_error(read(offsim, SHAPE + f"rerun_mode: {mode}"), status=2)


@pytest.mark.parametrize("line", [
    "perform_rl_step: false", "is_hybrid_model: false", "hybrid_attention_ratio: 0.0", "zero_stage: 0",
    "encoder_pipeline_model_parallel_size: 0", "model_provider: gpt", "train_type: full", "spec: my.layers get",
    "freeze_llm: false", "stage: sft", "interleave_group_size: 0", "enable_hetero: false\nhetero_process_meshes: [2, 1, 1, 1, 4]", "num_zero_experts: 0", "rerun_mode: validate_results", "padded_samples: true", "tokenizer_type: GPT2BPETokenizer", "vocab_file: /data/vocab.json", "n_shared_experts: 2",
])
def test_not_refused(offsim, line):
    assert read(offsim, SHAPE + line).status == 0


def test_inference_mode_of_a_test_configuration(offsim):
    text = "TEST_TYPE: frozen-start\nMODE: inference\nMODEL_ARGS:\n  --num-layers: 2\n"
    assert "MODE is inference; offsim predicts training" in one_error(read(offsim, text), status=2)


@pytest.mark.parametrize("text, first", [("MODEL: gpt\nTP: 1\n", "MODEL"),
                                         ("MODEL_ARGS:\n  trainer.num_nodes: 1\n  log.dir: x\n", "trainer.num_nodes")])
def test_no_flags_at_all(offsim, text, first):
    assert f'none of these keys is an option of Megatron-LM; the first is "{first}"' in \
        one_error(read(offsim, text), status=2)


def test_sections_of_flagscale_are_read(offsim):
    sections = ("system:\n  tensor_model_parallel_size: 1\n  precision:\n    bf16: true\n"
                "model:\n  num_layers: 2\n  hidden_size: 64\n  num_attention_heads: 4\n  seq_length: 32\n"
                "  optimizer:\n    lr_scheduler:\n      lr: 3.0e-3\n    clip_grad: 0\n"
                "data:\n  tokenizer:\n    vocab_size: 100\n")
    in_sections, flat = read(offsim, sections), read(offsim, SHAPE + "bf16: true\nclip_grad: 0\n")
    assert in_sections.status == 0 and in_sections.stdout == flat.stdout
    assert 'unknown Megatron option "hidden_sise"; did you mean --hidden-size?' in \
        one_error(read(offsim, sections.replace("hidden_size", "hidden_sise")), status=2)


# ---- the vocabulary ----

@pytest.mark.parametrize("lines, size", [
    ("vocab_file: ${DATA}/bpe/vocab.json", 50257),
    ("tokenizer_type: TikTokenizer\ntokenizer_model: x.json", 131072),
    ("tokenizer_type: GPTSentencePieceTokenizer\ntokenizer_model: /x/nemotron_2_256k.model", 256000),
    ("tokenizer_type: HuggingFaceTokenizer\ntokenizer_model: meta-llama/Llama-3.1-8B", 128256),
    ("tokenizer_type: HuggingFaceTokenizer\ntokenizer_model: deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 151665),
    ("tokenizer_type: HuggingFaceTokenizer\ntokenizer_model: deepseek-ai/DeepSeek-R1", 128815),
    ("tokenizer_type: HuggingFaceTokenizer\ntokenizer_model: Qwen/Qwen3-30B-A3B", 151669),
    ("tokenizer_type: Llama2Tokenizer\ntokenizer_model: tokenizer.model", 32000),
])
def test_vocabulary_of_a_published_tokenizer(offsim, lines, size):
    shape = SHAPE.replace("vocab_size: 100\n", "")
    run = read(offsim, shape + lines)
    assert value_of(run, "vocab_size") == str(size) and f"taking {size}, that of the published tokenizer" in run.stderr
    assert value_of(read(offsim, SHAPE + lines), "vocab_size") == "100"
    run = read(offsim, shape + lines, "--set", "vocab_size=7")
    assert value_of(run, "vocab_size") == "7" and "published" not in run.stderr


def test_unknown_tokenizer(offsim):
    shape = SHAPE.replace("vocab_size: 100\n", "")
    run = read(offsim, shape + "tokenizer_type: HuggingFaceTokenizer\ntokenizer_model: /data/tok")
    error = one_error(run, status=2)
    assert error.startswith("-:6:") and 'vocabulary of "HuggingFaceTokenizer /data/tok"; add --set vocab_size=N' in error


# ---- what nobody knows, and how much is said ----

@pytest.mark.parametrize("name", ["swanlab-project", "my-save-dir-size", "rollout-url", "data-prefetch-size", "foo"])
def test_unknown_and_harmless(offsim, name):
    run = read(offsim, SHAPE + f"{name}: x")
    assert run.status == 0 and f'note: unknown Megatron option "{name}" skipped' in run.stderr


@pytest.mark.parametrize("name", ["my-hidden-size", "swap-layers", "attn-heads", "activation-offload-x", "recompute_y",
                                  "tower-parallel", "foo-fp8", "my-lora-x"])
def test_unknown_that_may_matter(offsim, name):
    assert f'unknown Megatron option "{name}"; --ignore-unknown skips' in one_error(read(offsim, SHAPE + f"{name}: x"), 2)
    assert read(offsim, SHAPE + f"{name}: x", "--ignore-unknown").status == 0


@pytest.mark.parametrize("name, meant", [("num_layrs", "num-layers"), ("hiden_size", "hidden-size"),
                                         ("recompute_granularty", "recompute-granularity"), ("swigul", "swiglu")])
def test_misspelt(offsim, name, meant):
    assert f"did you mean --{meant}?" in one_error(read(offsim, SHAPE + f"{name}: 1"), status=2)


def test_a_path_that_the_shell_splits(offsim):
    lines = "SAVE='your checkpoint path'\npython pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 " \
            "--seq-length 512 --micro-batch-size 1 --padded-vocab-size 1024 "
    run = read(offsim, lines + "--save $SAVE --bf16\n")
    assert run.status == 0 and 'note: "checkpoint" follows the value of --save' in run.stderr, run.stderr
    run = read(offsim, lines + "--lr $SAVE\n")
    assert run.status == 2 and 'unexpected "checkpoint"' in run.stderr, run.stderr


@pytest.mark.parametrize("name", ["dataset-provider-size", "total-layer-size", "language-hidden-size", "xlr-dim"])
def test_no_far_fetched_suggestion(offsim, name):
    assert "did you mean" not in read(offsim, SHAPE + f"{name}: 1").stderr


def test_every_error_in_the_order_of_its_place(offsim):
    text = "zzzz_size: 1\nnum_layers: x\nhidden_size: 64\nyyyy_heads: 2\nnormalization: Foo\nseq_length: -1\n"
    run = read(offsim, text, "--set", "bf16=maybe", "--set", "nothing=1")
    errors = [line for line in run.stderr.splitlines() if "error: " in line]
    assert run.status == 2 and [line.split(" ")[0] for line in errors] == \
        ["-:1:1:", "-:2:13:", "-:4:1:", "-:5:16:", "-:6:13:", "--set:", "--set:"]


def test_all_missing_keys(offsim):
    run = read(offsim, "swiglu: true\n")
    missing = re.findall(r"error: (\S+) is not given and has no default", run.stderr)
    assert missing == ["model.num_layers", "model.hidden_size", "model.num_attention_heads", "training.seq_length"]


def test_many_errors_are_cut(offsim):
    run = read(offsim, SHAPE + "".join(f"my_size_{i}: 1\n" for i in range(50)))
    lines = [line for line in run.stderr.splitlines() if "error: " in line]
    assert len(lines) == 33 and lines[-1] == "offsim: error: 18 more errors are not listed"


def test_a_key_given_twice(offsim):
    run = read(offsim, SHAPE + "ffn_hidden_size: 64\nswiglu: true\nffn_hidden_size: 128\nffn_hidden_size: 256\n")
    assert value_of(run, "ffn_hidden_size") == "256"
    assert "-:8:1: note: key 'ffn_hidden_size' is also at line 6, column 1; the last value counts" in run.stderr
    assert "-:9:1: note: key 'ffn_hidden_size' is also at line 8, column 1; the last value counts" in run.stderr


def test_the_least_world_size_has_all_optimizer_instances(offsim):
    run = offsim("predict", "--print-scenario", "--megatron-args", "-", stdin=SHAPE +
                 "tensor_model_parallel_size: 2\nnum_distributed_optimizer_instances: 2\nuse_distributed_optimizer: true\n")
    assert value_of(run, "world_size") == "4" and "taking the least that the other sizes allow, 4" in run.stderr


@pytest.mark.parametrize("line, what", [
    ("use_mup: true", "MuP"), ("moe_input_jitter_eps: 0.1", "noise"), ("mla_down_proj_fusion: true", "down projections"),
    ("disable_jit_fuser: true", "fuses"), ("moe_deepep_num_sms: 24", "multiprocessors"), ("nccl_ub: true", "NCCL user buffers"),
    ("no_clone_scatter_output_in_embedding: true", "embedding"), ("deallocate_pipeline_outputs: false", "outputs"),
    ("store_param_remainders: false", "main parameters"), ("sliding_window: 512", "sliding-window"),
])
def test_what_changes_memory_or_time_gets_a_note(offsim, line, what):
    note = re.search(r"^-:6:1: note: --[-a-z]+: (.*): not modelled, predicted without it$", read(offsim, SHAPE + line).stderr, re.M)
    assert note and what in note.group(1)


@pytest.mark.parametrize("line", ["deallocate_pipeline_outputs: true", "store_param_remainders: true", "nccl_ub: false",
                                  "moe_deepep_num_sms: 20"])
def test_what_is_predicted_gets_none(offsim, line):
    run = read(offsim, SHAPE + line)
    assert run.status == 0 and "not modelled" not in run.stderr


def test_a_refused_run_has_no_notes(offsim):
    script = "ray job submit -- python3 train.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --rollout-shuffle " \
        "--seq-length 32 --actor-num-nodes 1 --micro-batch-size 1 --my-own-switch\n"
    run = read(offsim, script)
    assert "--actor-num-nodes: reinforcement learning" in one_error(run, 2) and run.stderr.count("\n") == 1


# ---- forks and wrappers ----

@pytest.mark.parametrize("lines, key, value", [
    ("multi_head_latent_attention: true\nqk_rope_head_dim: 32\nqk_nope_head_dim: 64\nq_lora_rank: 16", "qk_head_dim", "64"),
    ("max_length: 64", "seq_length", "64"),
    ("n_head_kv: 2\ngroup_query_attention: true", "num_query_groups", "2"),
    ("activations_checkpoint_method: uniform\nactivations_checkpoint_num_layers: 1", "recompute_granularity", "full"),
])
def test_names_of_forks(offsim, lines, key, value):
    assert value_of(read(offsim, SHAPE + lines), key) == value


@pytest.mark.parametrize("line", ["swap_attention: true", "reuse_fp32_param: true", "packing: true",
                                  "extra_vocab_size: 421", "context_parallel_algo: ulysses_cp_algo"])
def test_a_fork_s_memory_is_named(offsim, line):
    assert "not modelled, predicted without it" in read(offsim, SHAPE + line).stderr


def test_a_wrapper_that_names_its_model(offsim):
    """ms-swift: the model by name, its shape from config.json, switches with a value."""
    script = "megatron sft --model Qwen/Qwen3-8B --dataset x.jsonl --train_type full --sequence_parallel true " \
        "--tensor_model_parallel_size 2 --max_length 4096 --micro_batch_size 1 --packing true --save out " \
        "--recompute_granularity selective --no_save_optim true --attention_backend flash --bf16 true\n"
    missing = read(offsim, script)
    assert missing.status == 2 and missing.stderr.count("error: ") == 1
    assert "ms-swift takes the model's shape from Qwen/Qwen3-8B, which is not read; give its config.json with --hf-config FILE" in missing.stderr
    run = offsim("predict", "--print-scenario", "--megatron-args", "-", "--hf-config",
                 "docs/examples/verl-qwen3-8b.json", "--world-size", 8, stdin=script)
    assert value_of(run, "seq_length") == "4096" and value_of(run, "num_layers") == "36"
    assert value_of(run, "sequence_parallel") == "true" and value_of(run, "bf16") == "true"
    assert "--packing: packed sequences" in run.stderr


SWIFT = "NPROC_PER_NODE=8 megatron {} --model Qwen/Qwen3-8B --dataset a 'b#500' --tensor_model_parallel_size 2 " \
    "--sequence_parallel true --max_length 4096 {}\n"


def test_defaults_of_a_wrapper(offsim):
    """ms-swift has defaults of its own; what the command gives comes after them."""
    def swift(verb="sft", more=""):
        return offsim("predict", "--print-scenario", "--megatron-args", "-", "--hf-config",
                      "docs/examples/verl-qwen3-8b.json", stdin=SWIFT.format(verb, more))
    run = swift()
    assert "ms-swift gives these where the command does not" in run.stderr
    for key, value in (("use_distributed_optimizer", "true"), ("bf16", "true"), ("global_batch_size", "16"),
                       ("apply_rope_fusion", "false"), ("recompute_granularity", "selective"), ("world_size", "8")):
        assert value_of(run, key) == value
    given = swift(more="--use_distributed_optimizer false --recompute_granularity full --recompute_method uniform "
                       "--recompute_num_layers 1 --global_batch_size 32")
    assert value_of(given, "use_distributed_optimizer") == "false" and value_of(given, "global_batch_size") == "32"
    assert value_of(given, "recompute_granularity") == "full"
    refused = swift("export")
    assert refused.status == 2 and "megatron export converts a checkpoint" in refused.stderr


EXPERTS = SHAPE.replace("layers: 2", "layers: 6") + "num_experts: 4\nmoe_ffn_hidden_size: 48\ndisable_bias_linear: true\n"


@pytest.mark.parametrize("lines, layers", [
    ("first_k_dense_replace: 2", "[0]*2+[1]*4"),
    ("first_k_dense_replace: 2\nmoe_layer_freq: -1", "[0]*2+[1]*4"),
    ("first_k_dense_replace: -1\nmoe_layer_freq: -1", "[0]*0+[1]*6"),
    ("first_k_dense_replace: 1\nmoe_layer_freq: 2", "[0,0,1,0,1,0]"),
    ("first_k_dense_replace: 0\nmoe_layer_freq: -1", "-1"),
])
def test_dense_layers_of_mindspeed(offsim, lines, layers):
    """Layer i has experts if i >= first_k_dense_replace and i is a multiple of moe_layer_freq."""
    assert value_of(read(offsim, EXPERTS + lines), "moe_layer_freq").strip('"\'') == layers


@pytest.mark.parametrize("lines, message", [
    ("first_k_dense_replace: 6", "it must be less than num_layers, 6"),
    ("first_k_dense_replace: 2\nmoe_layer_freq: '[1]*6'", "needs a whole number as --moe-layer-freq"),
    ("moe_layer_freq: 0", "moe_layer_freq is 0"),
])
def test_wrong_dense_layers(offsim, lines, message):
    assert message in one_error(read(offsim, EXPERTS + lines), status=2)


@pytest.mark.parametrize("lines, width", [
    ("n_shared_experts: 2", "96"),
    ("n_shared_experts: 2\nmoe_shared_expert_intermediate_size: 32", "32"),
    ("n_shared_experts: 0", "0"),
])
def test_shared_experts_of_mindspeed(offsim, lines, width):
    assert value_of(read(offsim, EXPERTS + lines), "moe_shared_expert_intermediate_size") == width


PLACEHOLDERS = """CHECKPOINTS=<Specify path>
DATA=<Specify path and file prefix>_text_document
LAYERS=<layers>
python pretrain_gpt.py --num-layers {} --hidden-size 64 --num-attention-heads 4 --vocab-size 100 --seq-length 32 \\
    --max-position-embeddings 32 --micro-batch-size 1 --load $CHECKPOINTS --data-path $DATA --vocab-file <vocabulary> \\
    --merge-file=<merges>
"""


def test_placeholders_of_paths_do_not_matter(offsim):
    run = read(offsim, PLACEHOLDERS.format(2))
    assert value_of(run, "num_layers") == "2" and "note" not in run.stderr


def test_a_placeholder_that_matters(offsim):
    message = one_error(read(offsim, PLACEHOLDERS.format("$LAYERS")), status=2)
    assert "--num-layers depends on <layers> in line 3; --env LAYERS=VALUE gives LAYERS" in message
    assert read(offsim, PLACEHOLDERS.format("$LAYERS"), "--env", "LAYERS=4").status == 0


@pytest.mark.parametrize("redirections", ["< in.txt > out.txt", "<in.txt >out.txt", "<in.txt>out.txt"])
def test_redirections_are_no_placeholders(offsim, redirections):
    run = read(offsim, PLACEHOLDERS.format(2).replace(" --load", f" {redirections} --load"))
    assert value_of(run, "num_layers") == "2"


def test_all_errors_of_a_command(offsim):
    """An unknown option and stray words do not hide what comes after them."""
    run = read(offsim, "torchrun pretrain_gpt.py --num-layers 2 --my-layer-size 3 --hidden-size x stray words "
                       "--other-head-dim 4 --seq-length y\n")
    errors = [line for line in run.stderr.splitlines() if ": error: " in line]
    assert run.status == 2 and len(errors) == 5, run.stderr
    refused = read(offsim, "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --my-layer-size 3 --deepspeed\n")
    assert refused.stderr.count("error: ") == 1 and "DeepSpeed in place of" in refused.stderr


@pytest.mark.parametrize("lines", ["ENV_VARS:\n  WANDB_API_KEY: s3cret\n  HF_TOKEN: s3cret\n  NVTE_FLASH_ATTN: 7\n"
                                   "MODEL_ARGS:\n  --num-layers: 2\n  --hub-token: s3cret\n  --api-key: s3cret\n",
                                   "MODEL_ARGS:\n  --my-password-size: s3cret\n  --num-layers: x\n"])
def test_secrets_are_not_printed(offsim, lines):
    run = read(offsim, lines)
    assert run.status == 2 and "s3cret" not in run.stdout + run.stderr


# ---- files of parameters: options in a variable, and no command ----

PARAMETERS = "BASE=(--num-layers 2 --hidden-size 64)\nexport NCCL_DEBUG=WARN\nARGS=()\nARGS+=(\n  # shape\n  --num-attention-heads 4\n" \
             "  --vocab-size $((50 * 2)) --seq-length 32 --micro-batch-size ${MBS:-2}\n)\n"


def test_parameters_of_one_variable(offsim):
    run = read(offsim, PARAMETERS.replace("BASE", "ARGS", 1).replace("ARGS=()\n", ""), "--env", "MBS=4")
    assert "-:1:7: note: no command of the script trains; predicted with the options in ARGS\n" in run.stderr
    assert [value_of(run, key) for key in ("num_layers", "vocab_size", "micro_batch_size")] == ["2", "100", "4"]


@pytest.mark.parametrize("line", ["ALL=(\"${BASE[@]}\" ${ARGS[@]})", "ARGS+=(${BASE[@]})",
                                  'ALL="--swiglu ${BASE[*]} ${ARGS[*]}"; WANDB=(--use-wandb --wandb-project x)'])
def test_parameters_of_which_one_variable_has_all(offsim, line):
    run = read(offsim, PARAMETERS + line)
    assert value_of(run, "num_layers") == "2" and value_of(run, "seq_length") == "32"
    assert f"with the options in {line.split('=')[0].rstrip('+')}\n" in run.stderr


def test_parameters_in_several_variables(offsim):
    message = one_error(read(offsim, PARAMETERS), status=2)
    assert message.endswith("add the command: torchrun pretrain_gpt.py ${BASE[@]} ${ARGS[@]}")
    run = read(offsim, PARAMETERS + "torchrun pretrain_gpt.py ${BASE[@]} ${ARGS[@]}\n")
    assert value_of(run, "num_layers") == "2" and "no command" not in run.stderr


def test_unknown_parameters(offsim):
    """What a branch decides is asked for, as in a launch script."""
    message = one_error(read(offsim, PARAMETERS.replace("BASE", "ARGS", 1).replace("ARGS=()\n", "N=$(nproc)\n").replace("-2}", "-$N}")), status=2)
    assert "--micro-batch-size depends on" in message and "--env N=VALUE" in message


# ---- variables in a mapping ----

VARIABLES = SHAPE + "tensor_model_parallel_size: ${TP}\nmicro_batch_size: $MBS\nmoe_layer_freq: [0, '${LAST}']\nnum_experts: 4\n" \
                    "num_layers_per_virtual_pipeline_stage: ${VPP}\nload: ${LOAD_PATH}\nlr: $5\n"


def test_variables_of_a_mapping_that_are_not_set(offsim):
    message = one_error(read(offsim, VARIABLES), status=2)
    assert message == "-:6:29: error: TP, MBS, LAST, VPP are not set; --env NAME=VALUE sets a variable"
    message = one_error(read(offsim, VARIABLES, *given(MBS=1, LAST=1, VPP="false")), status=2)
    assert message == "-:6:29: error: TP is not set; --env NAME=VALUE sets a variable"


def given(**variables):
    return [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]


def test_variables_of_a_mapping(offsim):
    run = read(offsim, VARIABLES, *given(MBS=3, MBS_OTHER=5, TP=7, LAST=1, VPP="false"), *given(TP=1))
    assert [value_of(run, key) for key in ("tensor_model_parallel_size", "micro_batch_size", "moe_layer_freq")] == ["1", "3", '"[0,1]"']
    assert value_of(run, "num_layers_per_virtual_pipeline_stage") == "null"


def test_variables_of_a_mapping_s_environment(offsim):
    text = "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: ${N}\n  OTHER: $OTHER\nMODEL_ARGS:\n" + re.sub("^(.)", r"  \1", SHAPE, flags=re.M)
    assert "-:2:32: error: N is not set" in one_error(read(offsim, text), status=2)
    assert value_of(read(offsim, text, *given(N=4)), "cuda_device_max_connections") == "4"
    # what the mapping sets comes after the environment around it
    run = read(offsim, text.replace("${N}", "8"), *given(CUDA_DEVICE_MAX_CONNECTIONS=4))
    assert value_of(run, "cuda_device_max_connections") == "8"
    assert value_of(read(offsim, SHAPE, *given(CUDA_DEVICE_MAX_CONNECTIONS=4)), "cuda_device_max_connections") == "4"


def test_variables_given_in_another_form(offsim):
    assert "write --env NAME=VALUE" in one_error(read(offsim, SHAPE, "--env", "TP"), status=2)


def test_arguments_of_a_mapping(offsim):
    message = one_error(read(offsim, SHAPE, "--arg", "4"), status=2)
    assert message == "--arg: error: it is for a launch script; - is a mapping"
