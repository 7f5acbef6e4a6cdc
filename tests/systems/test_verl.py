"""offsim predict --verl: the examples, what is noted, and what is refused."""

import json
import re

import pytest

from conftest import one_error, sets

YAML, SCRIPT = "docs/examples/verl-qwen3-8b.yaml", "docs/examples/verl-qwen3-8b.sh"
SHAPE = ["--hf-config", "docs/examples/verl-qwen3-8b.json", "--machine", "H200-SXM"]
GIB = 1 << 30


@pytest.fixture(scope="module")
def predict(offsim):
    def run(*arguments):
        return json.loads(offsim("predict", *arguments, *SHAPE, "--json", check=0).stdout)
    return run


def rank(prediction, which="result"):
    return prediction[which]["ranks"][0]


def test_static_memory_is_an_eighth_of_the_model_and_its_states(predict):
    """fp32 shards and two fp32 moments; the gradients are gone; cuBLAS has two workspaces."""
    parameters = 8_190_735_360
    found = rank(predict("--verl", YAML))["static_bytes"]
    assert found == pytest.approx(parameters / 8 * 12 + (64 << 20), rel=1e-3)


def test_offloading_keeps_two_layers(predict):
    with_offload = predict("--verl", YAML)
    without = predict("--verl", YAML, "--set", "offload.system=none")
    saved = rank(without)["steady_allocated_peak_bytes"] - rank(with_offload)["steady_allocated_peak_bytes"]
    theory = rank(with_offload)["theoretical_saving_bytes"]
    assert theory > 80 * GIB
    assert saved == pytest.approx(theory, rel=0.01)


def test_checkpoints_leave_only_their_inputs(predict):
    """Hidden states of 35 of 36 layers, in two micro-batches of 8 x 1536 tokens."""
    found = rank(predict("--verl", SCRIPT, "--set", "offload.system=verl"))
    tokens = 8 * 1536
    assert found["d2h_bytes"] == found["h2d_bytes"] == 2 * 35 * tokens * 4096 * 2


def test_both_forms_are_the_same(offsim):
    """The script has checkpoints and no offloading: apart from that it says the same."""
    def scenario(path):
        lines = offsim("predict", "--verl", path, *SHAPE, "--print-scenario", check=0).stdout.splitlines()
        return [line for line in lines if not line.lstrip().startswith(("recompute_", "system:"))]
    assert scenario(YAML) == scenario(SCRIPT)


# ---- measured: tests/peers/fsdp_reference.py, two H200, PyTorch 2.11; peak over static memory, bytes ----

MEASURED = [
    ("fsdp_fp32_keep_none", 8107901952),
    ("fsdp_fp32_keep_verl", 8028176384),
    ("fsdp_fp32_ckpt_none", 8028176384),
    ("fsdp_fp32_ckpt_verl", 8028176384),
    ("fsdp2_fp32_keep_none", 8172412928),
    ("fsdp2_fp32_keep_verl", 8028176384),
    ("fsdp2_fp32_ckpt_none", 8028176384),
    ("fsdp2_fp32_ckpt_verl", 8028176384),
    ("fsdp_bf16_keep_none", 8107901952),
    ("fsdp_bf16_keep_verl", 4730293248),
    ("fsdp_bf16_ckpt_none", 4075423744),
    ("fsdp_bf16_ckpt_verl", 4108978176),
    ("fsdp2_bf16_keep_none", 8107901952),
    ("fsdp2_bf16_keep_verl", 5166517248),
    ("fsdp2_bf16_ckpt_none", 4511647744),
    ("fsdp2_bf16_ckpt_verl", 4545202176),
]
RECOMPUTE = ["recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]
MIXED = ["fsdp_model_dtype=fp32", "fsdp_reduce_dtype=fp32"]


@pytest.mark.parametrize("name, peak_bytes", MEASURED)
def test_measured_peaks(offsim, name, peak_bytes):
    version, stored, recompute, offload = name.split("_")
    keys = [f"parallel.fsdp={version}", f"offload.system={offload}"]
    keys += MIXED if stored == "fp32" else []
    keys += RECOMPUTE if recompute == "ckpt" else []
    arguments = sets(*keys)
    run = offsim("predict", "tests/data/fsdp-8-layers.yaml", *arguments, "--json", check=0)
    found = rank(json.loads(run.stdout))
    assert found["steady_allocated_peak_bytes"] - found["static_bytes"] == pytest.approx(peak_bytes, rel=1e-3)


# ---- conditions ----

ACTOR = "actor_rollout_ref.actor."
OFFLOAD = "actor_rollout_ref.model.enable_activation_offload=True\n"
MICRO = ACTOR + "ppo_micro_batch_size_per_gpu=1\n"
SMALL = ["--hf-config", "tests/data/hf/qwen2.5-7b.json", "--set", "model.num_layers=4",
         "--set", "training.global_batch_size=8"]


@pytest.fixture
def run_text(offsim, tmp_path):
    def run(text, *arguments):
        path = tmp_path / "run.sh"
        path.write_text(text)
        return offsim("predict", "--verl", path, *SMALL, *arguments)
    return run


@pytest.mark.parametrize("text, arguments, message", [
    (MICRO + OFFLOAD + ACTOR + "strategy=megatron\n", [],
     "run.sh:3:34: error: strategy is megatron; activation offload needs fsdp or fsdp2"),
    (MICRO + OFFLOAD, ["--set", "parallel.fsdp="],
     "error: offload system verl needs parallel.fsdp fsdp or fsdp2"),
    (MICRO + OFFLOAD + ACTOR + "stratgy=fsdp\n", [], "did you mean actor_rollout_ref.actor.strategy?"),
    (OFFLOAD, [], "neither actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu nor use_dynamic_bsz"),
    (MICRO + ACTOR + "ulysses_sequence_parallel_size=3\n", [], "the parallel sizes need a multiple of 3"),
])
def test_conditions(run_text, text, arguments, message):
    run = run_text(text, *arguments)
    errors = [line for line in run.stderr.splitlines() if "note: " not in line]
    assert run.status == 2
    assert len(errors) == 1 and message in errors[0]


@pytest.mark.parametrize("text, arguments, note", [
    (MICRO + OFFLOAD, [], "replaces the checkpoints of transformers by reentrant ones of its own"),
    (MICRO + OFFLOAD, ["--set", "model.num_layers=2"],
     "offload system verl has no effect: it needs 3 layers, there are 2"),
    (MICRO + ACTOR + "strategy=megatron\n" + ACTOR + "entropy_coeff=0.001\n", [], "two more copies of the logits"),
    (MICRO + ACTOR + "megatron.tensor_model_parallel_size=2\n", [], "predicted with Megatron-LM's engine, because"),
    (MICRO + ACTOR + "megatron.param_offload=True\n", [], "parameters are on the device for the step"),
    ("python3 -m verl.trainer.main_ppo --config-name=mine " + MICRO, [], "the configuration mine is not read"),
    (MICRO + "data.max_response_length=140000\n", [], "longer than max_position_embeddings of the model, 131072"),
    (MICRO, [], "padding is removed: every sequence is taken at its maximum, 1024 tokens; --set seq_length=N assumes N"),
    (MICRO + "actor_rollout_ref.model.of_a_fork=1\n", [], "of_a_fork\" skipped"),
    (MICRO + ACTOR + "fsdp_config.param_offload=True\n", [], "parameters are on the device for the step"),
    (MICRO + ACTOR + "stratgy=fsdp\n", ["--ignore-unknown"], "stratgy\" skipped"),
    (MICRO + ACTOR + "optim.optimizer=Muon\n", [], "predicted as torch.optim.AdamW"),
])
def test_notes(run_text, text, arguments, note):
    run = run_text(text, *arguments)
    assert run.status == 0, run.stderr
    assert sum(note in line for line in run.stderr.splitlines()) == 1


def test_too_few_layers_move_nothing(run_text):
    found = json.loads(run_text(MICRO + OFFLOAD, "--set", "model.num_layers=2", "--json").stdout)
    assert rank(found)["d2h_bytes"] == 0


def test_the_model_is_needed(offsim):
    run = offsim("predict", "--verl", SCRIPT)
    assert run.status == 2
    assert "give the config.json of Qwen/Qwen3-8B with --hf-config" in run.stderr


# ---- what of the logits is in memory: 16 sequences of 1024 tokens, 152064 entries of two bytes ----

LOGITS = 16 * 1024 * 152064 * 2
MANY = ACTOR + "ppo_micro_batch_size_per_gpu=16\n" + ACTOR + "ppo_mini_batch_size=128\n"


def peak_bytes(run_text, text):
    return rank(json.loads(run_text(MANY + text, "--json", "--set", "training.global_batch_size=128").stdout))[
        "steady_allocated_peak_bytes"]


def test_entropy_keeps_copies_of_the_logits(run_text):
    """Without entropy, the logits that backward overwrites and the gradient before the division by the temperature.
    Entropy in the loss has a gradient of its own, and leaves the logits as they are."""
    usual = peak_bytes(run_text, "")
    assert peak_bytes(run_text, ACTOR + "entropy_coeff=0.001\n") - usual == pytest.approx(LOGITS, rel=0.01)
    assert peak_bytes(run_text, ACTOR + "calculate_entropy=True\n") == pytest.approx(usual, rel=1e-4)


def test_fused_kernels_have_no_logits(run_text):
    """Neither the logits nor their gradient. Chunks of 512 rows take less than they."""
    usual, fused = (peak_bytes(run_text, text) for text in ("", "actor_rollout_ref.model.use_fused_kernels=True\n"))
    assert 0 < usual - fused < 2 * LOGITS


@pytest.mark.parametrize("text, message", [
    ("actor_rollout_ref.model.use_fused_kernels=True\n", "verl's fused output layer"),
    (ACTOR + "entropy_coeff=0.01\n", "the entropy of the logits"),
])
def test_the_reference_refuses(offsim, tmp_path, text, message):
    path = tmp_path / "run.sh"
    path.write_text(MICRO + text + ACTOR + "ppo_mini_batch_size=1\ntrainer.n_gpus_per_node=1\n")
    run = offsim("run", "--on", "ref", "--verl", path, *SMALL[:4], "--set", "parallel.fsdp=", check=2)
    assert message in run.stderr


# ---- Megatron-LM's engine ----

SIZES = (ACTOR + "strategy=megatron\n" + ACTOR + "megatron.tensor_model_parallel_size=2\n"
         + ACTOR + "megatron.pipeline_model_parallel_size=2\n")


def test_megatron_is_predicted_as_its_flags_are(offsim, tmp_path):
    """The same run as Megatron-LM's command line would describe it."""
    verl, flags = tmp_path / "run.sh", tmp_path / "flags.sh"
    verl.write_text(SIZES + MICRO + "data.max_prompt_length=1024\ndata.max_response_length=3072\n"
                    + ACTOR + "ppo_mini_batch_size=16\n")
    flags.write_text(
        "export CUDA_DEVICE_MAX_CONNECTIONS=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
        "--sequence-parallel --seq-length 4096 --micro-batch-size 1 --global-batch-size 16 --bf16 "
        "--use-distributed-optimizer --attention-backend flash --no-rope-fusion --no-bias-swiglu-fusion "
        "--no-bias-dropout-fusion --no-gradient-accumulation-fusion --no-create-attention-mask-in-dataloader --swiglu\n")
    shape = ["--hf-config", "tests/data/hf/qwen2.5-7b.json", "--json"]
    found, wanted = (json.loads(offsim("predict", option, path, *shape, "--padded-vocab-size", "152064", check=0).stdout)
                     for option, path in (("--verl", verl), ("--megatron-args", flags)))
    assert [r["static_bytes"] for r in found["result"]["ranks"]] == [r["static_bytes"] for r in wanted["result"]["ranks"]]
    assert found["result"] == wanted["result"]


# ---- lengths ----

def test_the_longest_length_that_fits_is_said(offsim, tmp_path):
    """Of packed sequences, whose mean nobody knows before the run; and it does fit, where the next does not."""
    path = tmp_path / "run.sh"
    path.write_text("data.max_prompt_length=1024\ndata.max_response_length=3072\n" + ACTOR + "ppo_mini_batch_size=512\n"
                    + ACTOR + "ppo_micro_batch_size_per_gpu=64\n")
    arguments = ["predict", "--verl", path, "--hf-config", "tests/data/hf/qwen2.5-7b.json", "--machine", "H100-SXM"]
    line = re.search(r"^lengths .* at most (\d+) tokens on average; 4096 are assumed$",
                     offsim(*arguments, check=0).stdout, re.M)
    longest = int(line[1])
    assert 0 < longest < 4096
    for length, verdict in ((longest, "fits"), (longest + 32, "DOES NOT FIT")):
        out = offsim(*arguments, "--set", f"seq_length={length}", check=0).stdout
        assert re.search(rf"^device +{verdict}", out, re.M), out
    padded = offsim(*arguments, "--set", "packed_sequences=false", check=0).stdout
    assert "lengths" not in padded


def test_all_errors_are_reported(run_text):
    run = run_text(MICRO + "".join(f"{line}\n" for line in (
        ACTOR + "fsdp_config.model_dtype=int3", ACTOR + "entropy_coeff=abc", ACTOR + "my_head_size=3",
        ACTOR + "ulysses_sequence_parallel_size=0", "trainer.n_gpus_per_node=q", "data.max_prompt_length=1.5",
        "actor_rollout_ref.model.lora_rank=-2")))
    errors = [line for line in run.stderr.splitlines() if ": error: " in line]
    assert run.status == 2 and len(errors) == 7 and len(set(errors)) == 7, run.stderr


def test_lengths_in_json(predict, offsim):
    """The length that is assumed, and of packed sequences that do not fit the longest with which they do."""
    given = json.loads(offsim("predict", "docs/examples/one-layer.yaml", "--json", check=0).stdout)["lengths"]
    assert given == {"assumed_tokens": 4096, "packed": False, "longest_that_fits_tokens": None}
    packed = ["predict", "--json", "--brief", "--verl", "docs/examples/verl-qwen3-8b.sh", *SHAPE,
              *sets("packed_sequences=true", "seq_length=262144", "max_position_embeddings=262144")]
    found = json.loads(offsim(*packed, check=0).stdout)
    assert not found["fits"] and found["lengths"]["packed"]
    longest = found["lengths"]["longest_that_fits_tokens"]
    assert 0 < longest < 262144
    assert json.loads(offsim(*packed, *sets(f"seq_length={longest}"), check=0).stdout)["fits"]


@pytest.mark.parametrize("option", ["--env", "--arg"])
def test_values_for_a_script_beside_a_mapping(option, offsim):
    message = one_error(offsim("predict", "--verl", YAML, *SHAPE, option, "N=1"), 2)
    assert message == f"{option}: error: it is for a launch script; {YAML} is a mapping"
