"""offsim predict --axolotl: files as users write them, and the costs of adapters, compared with a
GPU's figures."""

import json
import re

import pytest
import yaml

from conftest import sets

LLAMA = "tests/data/hf/llama-3-8b.json"
BASE = "base_model: meta-llama/Meta-Llama-3-8B\nattn_implementation: flash_attention_2\n"
LORA = "adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
CHECKPOINTS = "gradient_checkpointing: true\n"
EXAMPLES = ["axolotl-full", "axolotl-qlora"]


@pytest.fixture
def write(tmp_path):
    def to_file(text):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return path
    return to_file


def scenario(done):
    """section.key -> text of a printed scenario."""
    found, section = {}, ""
    for line in done.stdout.splitlines():
        if line and not line.startswith((" ", "#")):
            section = line.rstrip(":")
        elif line.startswith("  "):
            key, _, value = line.strip().partition(":")
            found[f"{section}.{key}"] = value.strip()
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(offsim, name):
    done = offsim("predict", "--axolotl", f"docs/examples/{name}.yaml", "--hf-config",
                  f"docs/examples/{name}.json", "--world-size", 1, "--json", check=0)
    assert done.stderr == "", "an example takes nothing that is not modelled"
    found = json.loads(done.stdout)
    rank, base = found["result"]["ranks"][0], found["baseline"]["ranks"][0]
    assert rank["steady_allocated_peak_bytes"] < base["steady_allocated_peak_bytes"]
    assert rank["d2h_bytes"] > 0


def test_printed_scenario_reads_back(offsim, write, tmp_path):
    path = write(BASE + LORA + CHECKPOINTS + "gradient_accumulation_steps: 3\n")
    first = offsim("predict", "--axolotl", path, "--hf-config", LLAMA, "--world-size", 2, "--print-scenario",
                   check=0).stdout
    again = tmp_path / "again.yaml"
    again.write_text(first)
    assert offsim("predict", again, "--print-scenario", check=0).stdout == first
    assert "  global_batch_size: 6\n" in first


def test_the_model_is_needed(offsim, write):
    done = offsim("predict", "--axolotl", write(BASE), check=2)
    assert done.stderr.endswith("run.yaml:1:13: error: base_model is 'meta-llama/Meta-Llama-3-8B'; give its "
                                "config.json with --hf-config FILE\n")


def test_the_last_of_a_repeated_key_counts(offsim, write):
    text = BASE + "micro_batch_size: 4\nsequence_len: 1024\nmicro_batch_size: 2\n"
    done = offsim("predict", "--axolotl", write(text), "--hf-config", LLAMA, "--print-scenario", check=0)
    assert scenario(done)["training.micro_batch_size"] == str(yaml.safe_load(text)["micro_batch_size"])
    assert "run.yaml:5:1: note: key 'micro_batch_size' is also at line 3, column 1; the last value counts" in \
        done.stderr


@pytest.mark.parametrize("said, segments", [([], "true"), (sets("expandable_segments=false"), "false")])
def test_its_command_sets_the_allocator(offsim, write, said, segments):
    done = offsim("predict", "--axolotl", write(BASE), "--hf-config", LLAMA, *said, "--print-scenario", check=0)
    assert scenario(done)["software.expandable_segments"] == segments


PATTERNS = [
    r"model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj",
    r"model.language_model.layers.[\d]+.(_checkpoint_wrapped_module.)?(mlp|self_attn).(up|down|gate|q|k|v|o)_proj",
    r".*\.layers\.\d+\.self_attn\.(q|k|v|o)_proj|.*\.mlp\.(?:gate|up)_proj",
    r".*\.self_attn\.[qk]_proj", r"^.*?\.[^qkv]_proj$", r"model\.\w+\.\d\d?\.mlp\.down_proj", r".*(q|v)_proj",
    r"\w+(\.\w+)*\.[a-z_]+_attn\.o_proj",
]
LINEARS = [*(f"self_attn.{name}_proj" for name in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down"))]
STEMS = ["model.layers", "model.language_model.layers"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_of_targets_match_as_in_python(offsim, write, pattern):
    text = BASE + f"adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_modules: '{pattern}'\n"
    done = offsim("predict", "--axolotl", write(text), "--hf-config", LLAMA, "--print-scenario", check=0)
    taken = [linear.split(".")[1] for linear in LINEARS
             if any(re.fullmatch(pattern, f"{stem}.0.{linear}") for stem in STEMS)]
    found = scenario(done)["lora.lora_target_modules"].strip("[]").split(", ")
    known = {linear.split(".")[1] for linear in LINEARS}  # fused ones are other models'
    assert sorted(known.intersection(found)) == sorted(taken)


@pytest.mark.parametrize("pattern, message", [
    (r".*\.layers\.(3|7)\.self_attn\.q_proj|.*\.mlp\.up_proj", "takes other linears in layer 3 than in layer 0"),
    (r".*\.w1", "matches no linear of a decoder layer"),
    (r"(?!model).*q_proj", "is a pattern that is not read"), (r"[q_proj", "is a pattern that is not read"),
    (r"(q_proj", "is a pattern that is not read"), (r".*\.\d{1,2}\..*", "is a pattern that is not read"),
])
def test_patterns_that_are_refused(offsim, write, pattern, message):
    text = BASE + f"adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_modules: '{pattern}'\n"
    done = offsim("predict", "--axolotl", write(text), "--hf-config", LLAMA, check=2)
    assert f"run.yaml:6:22: error: lora_target_modules {message}" in done.stderr


EIGHT_BITS = LORA + "load_in_8bit: true\n"


def test_what_int8_linears_hold_stays(offsim, write):
    """Hooks move what PEFT saves; the contexts of the linears keep their inputs on the GPU."""
    text = BASE + EIGHT_BITS + CHECKPOINTS + "activation_offloading: true\n"
    rank = json.loads(offsim("predict", "--axolotl", write(text), "--hf-config", LLAMA, "--set", "num_layers=4",
                             "--json", check=0).stdout)["result"]["ranks"][0]
    assert rank["theoretical_saving_bytes"] == rank["simulated_saving_bytes"] > 0
    assert rank["d2h_bytes"] > rank["theoretical_saving_bytes"]
    offsim("check", "--axolotl", write(text), "--hf-config", LLAMA, *sets("num_layers=4", "offload.mode=fixed"), check=0)


@pytest.mark.parametrize("kwargs, reentrant", [("", True), (", use_reentrant: false", False), (", use_reentrant: true", True)])
def test_checkpoints_that_transformers_offloads(offsim, write, kwargs, reentrant):
    text = BASE + CHECKPOINTS + f"gradient_checkpointing_kwargs: {{offload: true, every_n_layers: 2{kwargs}}}\n"
    settings = json.loads(offsim("predict", "--axolotl", write(text), "--hf-config", LLAMA, "--set", "num_layers=4",
                                 "--json", check=0).stdout)["scenario"]
    assert settings["offload"]["system"] == "transformers"
    assert settings["recompute"]["every_n_layers"] == 2 and settings["recompute"]["use_reentrant"] == reentrant


def test_words_of_transformers_that_change_nothing(offsim, write):
    text = BASE + CHECKPOINTS + "gradient_checkpointing_kwargs: {offload: false, every_n_layers: null}\n"
    done = offsim("predict", "--axolotl", write(text), "--hf-config", LLAMA, "--set", "num_layers=4", "--json", check=0)
    assert json.loads(done.stdout)["scenario"]["offload"]["system"] == "none" and "5.17" not in done.stderr


@pytest.mark.parametrize("more", ["", "sequence_length: 1\n", "adapter: lora\n", "hub_token: hf_x1y2z\n"])
def test_secrets_are_not_printed(offsim, write, more):
    secrets = "hub_token: hf_x1y2\nwandb_api_key: hf_x1y2\nswanlab_api_key: hf_x1y2\nmy_password: hf_x1y2\n"
    done = offsim("predict", "--axolotl", write(BASE + secrets + more), "--hf-config", LLAMA)
    assert "hf_x1y2" not in done.stdout + done.stderr and "hub_token" in done.stderr


# What is refused, with its place; each is a condition of Axolotl's schema.
REFUSED = {
    "activation_offloading: true\n": ":3:24: error: activation_offloading needs",
    "selective_checkpointing: true\n": ":3:26: error: selective_checkpointing needs",
    CHECKPOINTS + "gradient_checkpointing_kwargs: {use_reentrant: true}\nselective_checkpointing: true\n":
        ":4:32: error: selective_checkpointing needs checkpoints that are not reentrant",
    CHECKPOINTS + "selective_checkpointing: true\nactivation_offloading: legacy\n":
        ":5:24: error: selective_checkpointing works with activation_offloading hidden_states or false",
    CHECKPOINTS + LORA + "selective_checkpointing: {save: [mm]}\n":
        "error: selective_checkpointing.save names matrix products",
    CHECKPOINTS + "gradient_checkpointing_kwargs: {use_reentrant: true}\nunfrozen_parameters: [lm_head]\n"
    "activation_offloading: hidden_states\n": ":5:22: error: activation_offloading: hidden_states with",
    "deepspeed: mine.json\n": ":3:12: error: deepspeed is 'mine.json', which is none of Axolotl's own files",
    "deepspeed: {zero_optimization: {stage: 4}}\n": "error: the stage of zero_optimization is 4; it must be 0 to 3",
    "fsdp_config: {sharding_strategy: HYBRID_SHARD}\n": ":3:34: error: sharding_strategy is 'HYBRID_SHARD'",
    "context_parallel_size: 2\n": ":3:24: error: context_parallel_size is 2: ring attention",
    "tensor_parallel_size: 2\n": ":3:23: error: tensor_parallel_size is 2: tensor parallelism",
    "rl: orpo\n": ":3:5: error: rl is 'orpo', whose step runs chosen and rejected answers through the model; only",
    EIGHT_BITS + "lora_o_kernel: true\n": ":7:15: error: load_in_8bit does not work with lora_qkv_kernel",
    "sequence_length: 1\n": "error: unknown Axolotl key \"sequence_length\"; did you mean sequence_len?",
}


@pytest.mark.parametrize("text", REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_is_refused(offsim, write, text):
    done = offsim("predict", "--axolotl", write(BASE + text), "--hf-config", LLAMA, check=2)
    assert done.stderr.count("error:") == 1
    assert REFUSED[text] in done.stderr


LIGER_PLUGIN = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
CUT_PLUGIN = "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n"
LLAMA_ELEMENTS = 8030261248
GPUS = 8
MESH = ["--world-size", GPUS]
SHARDED = {  # text: bytes on each GPU after a step, for each element that trains
    "deepspeed: zero1.json\n": 2 + (4 + 8) / GPUS,
    "deepspeed: {zero_optimization: {stage: 2, overlap_comm: true}}\n": 2 + (4 + 8) / GPUS,
    "deepspeed: deepspeed_configs/zero2.json\n": 2 + 2 / GPUS,
    "deepspeed: zero3.json\n": (4 + 8) / GPUS,
    "deepspeed: zero3_bf16_cpuoffload_all.json\n": 2 / GPUS,
    "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n": (4 + 8) / GPUS,
    "fsdp_config: {fsdp_offload_params: true}\n": 4 / GPUS,
}


@pytest.mark.parametrize("text", SHARDED, ids=[str(i) for i in range(len(SHARDED))])
def test_what_is_sharded(offsim, write, text):
    path = write(BASE + CHECKPOINTS + "optimizer: adamw_torch_fused\n" + text)
    found = json.loads(offsim("predict", "--axolotl", path, "--hf-config", LLAMA, *MESH, "--json", check=0).stdout)
    others = 65 << 20  # cuBLAS' workspaces, frequencies, token ids
    assert found["result"]["ranks"][0]["static_bytes"] - others == pytest.approx(
        SHARDED[text] * LLAMA_ELEMENTS, rel=0.002)
    offsim("check", "--axolotl", path, "--hf-config", LLAMA, *MESH, "--set", "num_layers=3", check=0)


def test_zero_keeps_frozen_weights_and_two_buckets(offsim, write):
    """Adapters are sharded; the frozen model is whole, as without DeepSpeed."""
    zero = "deepspeed: {zero_optimization: {stage: 2, reduce_bucket_size: 3e8, overlap_comm: %s}}\n"
    peaks = []
    for text in ("", zero % "false", zero % "true"):
        path = write(BASE + CHECKPOINTS + LORA + text)
        done = offsim("predict", "--axolotl", path, "--hf-config", LLAMA, *MESH, "--json", check=0)
        rank = json.loads(done.stdout)["result"]["ranks"][0]
        peaks.append(rank["steady_allocated_peak_bytes"])
        assert 2 * LLAMA_ELEMENTS < rank["static_bytes"] < 2 * LLAMA_ELEMENTS + (1 << 30)
    assert peaks[2] - peaks[1] == 3e8 * 2
    assert peaks[1] < peaks[0] + 3e8 * 2


NOTED = {
    "lora_modules_to_save: [lm_head]\n": 1,
    "lora_modules_to_save: []\n": 0,
    "torch_compile: true\n": 1,
    "torch_compile: false\n": 0,
    "gptq_groupsize: 128\n": 1,
    EIGHT_BITS: 1,
    LORA + "load_in_4bit: true\n": 1,
    "sample_packing: true\n": 1,
    "sample_packing: false\n": 1,
    "wandb_project: x\nval_set_size: 0.05\n": 0,
    LIGER_PLUGIN + "liger_rope: true\nliger_cross_entropy: true\n": 2,
    LIGER_PLUGIN + "liger_rms_norm: true\nliger_glu_activation: true\nliger_fused_linear_cross_entropy: true\n": 0,
    "liger_rms_norm: true\nliger_glu_activation: false\n": 1,
    CUT_PLUGIN: 1,
    CUT_PLUGIN + "cut_cross_entropy: false\n": 0,
    "cut_cross_entropy: true\n": 1,
    CHECKPOINTS + LORA + "activation_offloading: hidden_states\n": 1,
}


@pytest.mark.parametrize("text", NOTED, ids=[str(i) for i in range(len(NOTED))])
def test_what_is_not_modelled_is_said_once(offsim, write, text):
    path = write(BASE + text + ("" if "sample_packing" in text else "pad_to_sequence_len: true\n"))
    done = offsim("predict", "--axolotl", path, "--hf-config", LLAMA, "--world-size", 1, "--print-scenario", check=0)
    assert done.stderr.count("note:") == NOTED[text], done.stderr


@pytest.mark.parametrize("mode, adapter, system, granularity", [
    ("fixed", "", "axolotl_disk", "full"), ("as_released", "", "trl", "full"),
    ("as_released", LORA, "trl", '""')])
def test_disk_is_a_dead_switch_as_released(offsim, write, mode, adapter, system, granularity):
    path = write(BASE + CHECKPOINTS + adapter + "activation_offloading: disk\n")
    found = scenario(offsim("predict", "--axolotl", path, "--hf-config", LLAMA, "--set", f"offload.mode={mode}",
                            "--print-scenario", check=0))
    assert found["offload.system"] == system
    assert found["recompute.recompute_granularity"] == granularity


# ---- compared with PEFT 0.19, bitsandbytes 0.49.1, Axolotl's kernels and Liger 0.8.0 on an H200 (PyTorch 2.11) ----

MODEL = """
model: {implementation: hf, num_layers: 4, hidden_size: 4096, ffn_hidden_size: 14336, num_attention_heads: 32,
        group_query_attention: true, num_query_groups: 8, swiglu: true, normalization: RMSNorm,
        fused_rms_norm: true, add_bias_linear: false, position_embedding_type: none, vocab_size: 32000,
        make_vocab_size_divisible_by: 1, untie_embeddings_and_output_weights: true}
training: {seq_length: 8192, bf16: true, optimizer: none, clip_grad: 0}
parallel: {world_size: 1}
lora: {lora_r: 16}
machine: {name: H200-SXM}
"""
KERNELS = ["lora_qkv_kernel=true", "lora_o_kernel=true", "lora_mlp_kernel=true"]
ONCE_MORE = ["recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]
AGAIN = [*ONCE_MORE, "use_reentrant=true"]
LIGER = ["liger_glu_activation=true", "liger_fused_linear_cross_entropy=true"]
DROPOUT = ["lora_dropout=0.05"]
PEFT, QUANTIZED = ["lora.adapter=lora"], ["lora.adapter=qlora"]
# name: settings, bytes of the peak above what is there between steps, ms of a step
MEASURED = {
    "peft": (PEFT + DROPOUT, 11086894080, 95.7),
    "peft-4bit": (QUANTIZED + DROPOUT, 11086894080, 88.6),
    "kernels": (PEFT + DROPOUT + KERNELS, 8059655168, 77.9),
    "kernels-no-dropout": (PEFT + KERNELS, 6851695616, 76.5),
    "kernels-4bit": (QUANTIZED + DROPOUT + KERNELS, 8059655168, 80.2),
    "peft-again": (PEFT + DROPOUT + AGAIN, 3545434112, 135.2),
    "peft-4bit-again": (QUANTIZED + DROPOUT + AGAIN, 3481306112, 123.7),
    "kernels-again": (PEFT + DROPOUT + KERNELS + AGAIN, 3481306112, 107.9),
    "kernels-4bit-again": (QUANTIZED + DROPOUT + KERNELS + AGAIN, 3481306112, 111.6),
    "liger": (LIGER, 5883441664, 98.8),
    "liger-again": (LIGER + ONCE_MORE, 3132221440, 120.4),
    "liger-two-micro-batches": (LIGER + ["global_batch_size=2"], 8152634368, 203.5),
}


@pytest.mark.parametrize("name", MEASURED)
def test_kernels_cost_what_was_measured(offsim, write, name):
    settings, peak_bytes, step_ms = MEASURED[name]
    arguments = sets(*settings)
    found = json.loads(offsim("predict", write(MODEL), *arguments, "--json", check=0).stdout)["result"]
    rank = found["ranks"][0]
    above = rank["steady_allocated_peak_bytes"] - rank["static_bytes"]
    assert above == pytest.approx(peak_bytes, rel=0.001)
    assert found["step_time_s"] * 1000 == pytest.approx(step_ms, rel=0.08)


def test_all_errors_are_reported(offsim, write):
    text = "base_model: x\nadapter: lora\nlora_r: many\nlora_alpha: 16\nsequence_len: -5\nmicro_batch_size: zero\n" \
        "gradient_checkpointing: sometimes\nattn_implementation: quick\noptimizer: [a]\nrl: dpo\n"
    run = offsim("predict", "--axolotl", write(text), "--hf-config", LLAMA)
    errors = [line for line in run.stderr.splitlines() if ": error: " in line]
    assert run.status == 2 and len(errors) == 8 and len(set(errors)) == 8, run.stderr


LLAMA4 = "tests/data/hf/tiny/llama4-linearized.json"


def test_llama4_has_linears_for_experts(offsim, write):
    """They are quantised, get adapters where a target's name ends their path, and only Llama 4 has them."""
    text = "base_model: x\nattn_implementation: flex_attention\nllama4_linearized_experts: true\nload_in_4bit: true\n" \
           "adapter: qlora\nlora_r: 4\nlora_alpha: 8\nlora_target_modules: [self_attn.q_proj, shared_expert.up_proj]\nsequence_len: 16\n"
    done = offsim("plan", "--axolotl", write(text), "--hf-config", LLAMA4, "--world-size", 1, "--machine", "H100-SXM", check=0)
    with_adapter = set(re.findall(r"layer 1 (\S+)\n", "\n".join(l + "\n" for l in done.stdout.splitlines() if "lora_A.weight" in l)))
    assert with_adapter == {"self_attn.q_proj", "mlp.shared_expert.up_proj"}
    assert re.search(r"weight \S+\[384\] 384 bytes .* layer 1 mlp.experts.down_projs.2$", done.stdout, re.M)  # 24 x 32 halves
    assert "flex_attention is not modelled; predicted with the tensors and the time of flash_attention_2" in done.stderr
    assert "finds no code in Llama 4's attention" in done.stderr  # kernels are on unless the file says otherwise
    other = offsim("predict", "--axolotl", write(text), "--hf-config", LLAMA, "--world-size", 1, "--print-scenario", check=0)
    assert scenario(other)["model.linearized_experts"] == "false"


def test_flash_attention_is_not_for_llama4(offsim, write):
    done = offsim("predict", "--axolotl", write("base_model: x\nattn_implementation: flash_attention_2\nsequence_len: 16\n"),
                  "--hf-config", LLAMA4, "--world-size", 1)
    assert done.status == 2
    assert "attn_implementation must be flex_attention, sdpa or eager where attention_class is llama4" in done.stderr


def test_fsdp2_with_hundreds_of_parameters_in_a_layer(offsim, write, tmp_path):
    """More than a kernel of the plan has operands."""
    config = json.loads(open(LLAMA4).read()) | {"num_local_experts": 96}
    (tmp_path / "config.json").write_text(json.dumps(config))
    text = "base_model: x\nattn_implementation: sdpa\nllama4_linearized_experts: true\nsequence_len: 16\n" \
           "fsdp_version: 2\nfsdp_config: {transformer_layer_cls_to_wrap: Llama4TextDecoderLayer}\n"
    done = offsim("check", "--axolotl", write(text), "--hf-config", tmp_path / "config.json", "--world-size", 2,
                  "--machine", "H100-SXM")
    assert done.status == 0, done.stderr
