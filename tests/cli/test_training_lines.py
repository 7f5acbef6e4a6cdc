"""Lines of a training file that `tune` prints: put into it, `predict` finds what `tune` said."""
import json
import re
import shlex

import pytest

FULL = ["--axolotl", "docs/examples/axolotl-full.yaml", "--hf-config", "docs/examples/axolotl-full.json"]
QLORA = ["--axolotl", "docs/examples/axolotl-qlora.yaml", "--hf-config", "docs/examples/axolotl-qlora.json"]
VERL = ["--verl", "docs/examples/verl-qwen3-8b.sh", "--hf-config", "docs/examples/verl-qwen3-8b.json"]
VERL_YAML = ["--verl", "docs/examples/verl-qwen3-8b.yaml", "--hf-config", "docs/examples/verl-qwen3-8b.json"]
SMALL = ["--set", "num_layers=4", "--set", "vocab_size=8192", "--set", "seq_length=2048"]
TRL = ["trl_params_registered=true", "exclude_output_layer=true", "recompute_granularity=full", "use_reentrant=false"]


def tune(offsim, arguments, over, *more):
    varied = [word for choice in over for word in ("--over", choice)]
    done = offsim("tune", *arguments, *varied, "--best", 1, "--json", *more, check=0)
    return json.loads(done.stdout)


def with_lines(arguments, flags, tmp_path):
    """The arguments with the lines in a copy of the file."""
    option, path, *rest = arguments
    text = open(path, encoding="utf-8").read()
    variables = re.findall(r"expandable_segments:(True|False)", flags)
    if option == "--axolotl":
        copy = tmp_path / "run.yaml"
        text += flags + "\n"
    elif path.endswith(".yaml"):
        copy = tmp_path / "run.yaml"
        overrides = [word.lstrip("+").split("=", 1) for word in shlex.split(flags)]
        text += "".join(f"{name}: {value}\n" for name, value in overrides)
    else:
        copy = tmp_path / "run.sh"
        text = text.rstrip().removesuffix('"$@"') + " " + flags + "\n"
    copy.write_text(text)
    return [option, copy, *rest, *(["--set", f"expandable_segments={variables[0].lower()}"] if variables else [])]


def check_round_trip(offsim, arguments, found, tmp_path):
    named = found["today"] or found["best"][0]
    assert found["flags"] is not None, named["set"]
    again = json.loads(offsim("predict", *with_lines(arguments, found["flags"], tmp_path), "--json", "--brief", check=0).stdout)["result"]
    assert again["step_time_s"] == named["step_time_s"], (found["flags"], named["set"])
    for key in ("allocated_peak_bytes", "reserved_peak_bytes"):
        assert max(rank[key] for rank in again["ranks"]) == named[key]


@pytest.mark.parametrize("over, lines", [
    (["system=none", "recompute_granularity=full", "use_reentrant=false"], ["activation_offloading: false", "use_reentrant: false"]),
    (["system=none", "recompute_granularity="], ["gradient_checkpointing: false"]),
    (["system=trl", *TRL], ["activation_offloading: true"]),
    (["system=trl_sync", *TRL], ["activation_offloading: legacy"]),
    (["system=hidden_states_reentrant", "use_reentrant=true"], ["use_reentrant: true"]),
    (["system=transformers", "every_n_layers=2"], ["every_n_layers: 2, offload: true"]),
    (["system=selective_checkpointing"], ['selective_checkpointing: {save: ["attention"], offload: true}']),
    (["selective_checkpointing=true", "selective_checkpointing_save=attention,aten::mm", "system=none"], ['"aten::mm"], offload: false']),
    (["system=hidden_states", "expandable_segments=false"], ["PYTORCH_ALLOC_CONF=expandable_segments:False"]),
])
def test_full_fine_tuning(offsim, tmp_path, over, lines):
    arguments = [*FULL, *SMALL]
    found = tune(offsim, arguments, over, "--allow-unsafe")
    assert found["program"] == "Axolotl"
    for line in lines:
        assert line in (found["flags"] or ""), found
    check_round_trip(offsim, arguments, found, tmp_path)


@pytest.mark.parametrize("over, lines", [
    (["system=none", "layer_offloading=true"], ["gradient_checkpointing: false", "layer_offloading: true"]),
    (["system=trl_sync", "lora_r=8", "micro_batch_size=2"], ["activation_offloading: legacy", "lora_r: 8", "micro_batch_size: 2"]),
    (["system=none|trl|trl_sync", "recompute_granularity=|full", "micro_batch_size=1|2"], []),
])
def test_adapters(offsim, tmp_path, over, lines):
    arguments = [*QLORA, "--set", "num_layers=4"]
    found = tune(offsim, arguments, over, "--allow-unsafe")
    for line in lines:
        assert line in (found["flags"] or ""), found
    check_round_trip(offsim, arguments, found, tmp_path)


@pytest.mark.parametrize("file", [VERL, VERL_YAML])
@pytest.mark.parametrize("over, checkpoints, offloads", [
    (["system=none", "recompute_granularity=", "micro_batch_size=4"], False, False),
    (["system=none", "recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"], True, False),
    (["system=verl", "recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"], True, True),
])
def test_verl(offsim, tmp_path, file, over, checkpoints, offloads):
    arguments = [*file, "--set", "num_layers=4"]
    found = tune(offsim, arguments, over)
    assert found["program"] == "verl"
    text = open(file[1], encoding="utf-8").read() + found["flags"]
    assert re.findall(r"enable_gradient_checkpointing[:=] ?(\w+)", text)[-1].lower() == str(checkpoints).lower()
    assert (re.findall(r"enable_activation_offload[:=] ?(\w+)", text) or ["false"])[-1].lower() == str(offloads).lower()
    check_round_trip(offsim, arguments, found, tmp_path)


def test_an_sft_trainer_has_its_own_names(offsim, tmp_path):
    script = tmp_path / "sft.sh"
    script.write_text("torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=Qwen/Qwen3-8B "
                      "data.train_batch_size=64 data.micro_batch_size_per_gpu=4 data.max_length=1024\n")
    arguments = ["--verl", str(script), *VERL[2:], "--set", "num_layers=4"]
    found = tune(offsim, arguments, ["system=verl", "recompute_granularity=", "micro_batch_size=2", "expandable_segments=true"])
    words = found["flags"].split()
    assert set(words) == {"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "model.enable_gradient_checkpointing=False",
                          "model.enable_activation_offload=True", "data.micro_batch_size_per_gpu=2"}
    check_round_trip(offsim, arguments, found, tmp_path)


@pytest.mark.parametrize("over, field", [
    (["recompute_granularity=selective", "recompute_modules=core_attn,mlp"], "'++{}recompute_modules=[core_attn,mlp]'"),
    (["recompute_granularity=full", "recompute_method=block", "recompute_num_layers=2"], "++{}recompute_num_layers=2"),
    (["fine_grained_activation_offloading=true", "offload_modules=mlp_norm,core_attn"], "++{}fine_grained_activation_offloading=True"),
])
def test_verl_on_megatron(offsim, tmp_path, over, field):
    actor, script = "actor_rollout_ref.actor.", tmp_path / "train.sh"
    script.write_text(f"python -m verl.trainer.main_ppo {actor}strategy=megatron {actor}ppo_micro_batch_size_per_gpu=1 "
                      f"{actor}ppo_mini_batch_size=16 {actor}megatron.tensor_model_parallel_size=2 data.max_response_length=3072 "
                      f"{actor}megatron.pipeline_model_parallel_size=2 trainer.n_gpus_per_node=8\n")
    arguments = ["--verl", str(script), "--hf-config", "tests/data/hf/qwen2.5-7b.json", "--set", "num_layers=8"]
    found = tune(offsim, arguments, over, "--allow-unsafe")
    assert field.format(f"{actor}megatron.override_transformer_config.") in (found["flags"] or "").split(" "), found
    check_round_trip(offsim, arguments, found, tmp_path)


def test_what_a_program_cannot_say(offsim):
    arguments = ["tune", *VERL, "--set", "num_layers=4", "--over", "system=trl", "--best", 1]
    assert "flags     none: verl has nothing that says it" in offsim(*arguments).stdout
    found = json.loads(offsim(*arguments, "--json").stdout)
    assert (found["program"], found["flags"], found["left_out"]) == ("verl", None, None)


def test_what_a_file_says_already(offsim):
    arguments = ["tune", *VERL, "--set", "num_layers=4", "--over", "recompute_granularity=full", "--over", "system=none", "--best", 1]
    assert "flags     none: what was given says it" in offsim(*arguments).stdout


def test_today_is_what_verl_has(offsim, tmp_path):
    """Others are faster: they recompute a part of a layer, which verl's FSDP engines do not."""
    arguments = [*VERL_YAML, "--set", "num_layers=4", "--gpu-memory", 20]
    found = tune(offsim, arguments, [])
    keys = {text.split("=")[0].split(".")[-1] for text in found["today"]["set"]}
    assert found["today"]["step_time_s"] > found["best"][0]["step_time_s"] and "selective_checkpointing" not in keys
    check_round_trip(offsim, arguments[:-2], found, tmp_path)
