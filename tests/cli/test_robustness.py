"""What hostile users do: broken texts, odd combinations, outputs that cannot be written."""

import fcntl
import os
import pathlib
import stat
import subprocess

import pytest

from conftest import ROOT, one_error, sets

SCENARIO = "tests/data/small.yaml"
EXPERTS = ["num_experts=8", "moe_grouped_gemm=true"]
MLA = ["multi_latent_attention=true", "group_query_attention=false"]
# An output-discarding recomputation inside what another one recomputes, and groups in between.
RECOMPUTED = {
    "norm before a recomputed MoE layer": [*EXPERTS, "recompute_modules=moe,layernorm",
                                           "offload_modules=attn_norm,mlp_norm"],
    "shared experts in a recomputed MoE layer": [*EXPERTS, "moe_shared_expert_intermediate_size=1024",
                                                 "recompute_modules=moe,shared_experts"],
    "up-projection before recomputed attention": [*MLA, "recompute_modules=mla_up_proj,core_attn"],
    "all of both": [*EXPERTS, *MLA,
                    "recompute_modules=mla_up_proj,core_attn,layernorm,moe_act,shared_experts"],
}


@pytest.mark.parametrize("overrides", RECOMPUTED.values(), ids=RECOMPUTED)
def test_no_op_uses_what_is_gone(overrides, offsim_san):
    options = sets("recompute_granularity=selective", *overrides)
    alive = set()
    for line in offsim_san("plan", SCENARIO, "--rank", 0, *options, check=0).stdout.splitlines():
        words = line.split("@")[0].split()
        names = [word.split("{")[0] for word in words if word.startswith("%")]
        kind = words[0] if words else ""
        if kind in ("alloc", "resident", "host_alloc"):
            alive.add(names[0])
        else:
            assert alive.issuperset(names), line
        if kind in ("free", "host_free"):
            alive.remove(names[0])


@pytest.mark.parametrize("text, expected", [
    (b"model:\n  num_layers: 4\0\n", ":2:16: error: a NUL byte"),
    (b"model:\n  num_layers: \xff\n", ":2:15: error: byte 0xFF is not UTF-8"),
    (b"[" * 65 + b"]" * 65, "error: nested more than 64 levels deep"),
    (b"[" * 64 + b"]" * 64, ":1:1: error: found a list; expected a mapping"),
    (b"#" * ((1 << 20) + 1), "error: is longer than 1048576 bytes"),
], ids=["NUL", "not UTF-8", "65 levels", "64 levels", "too long"])
def test_broken_texts(text, expected, offsim_san, tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_bytes(text)
    assert expected in one_error(offsim_san("predict", path), 2)


def test_an_empty_text(offsim_san, tmp_path):
    path = tmp_path / "empty.yaml"
    path.write_bytes(b"")
    run = offsim_san("predict", path)
    assert run.status == 2 and "error: model.num_layers is not given" in run.stderr.splitlines()[0]


def test_a_message_is_one_line(offsim_san):
    run = offsim_san("predict", SCENARIO, "--set", "model.num_layers=4\n5\x1b[31m")
    assert '"4?5?[31m"' in one_error(run, 2)


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_refused(offsim):
    full = pathlib.Path("/dev/full")
    assert "/dev/full" in one_error(offsim("predict", SCENARIO, "--trace", full), 3)
    assert stat.S_ISCHR(os.stat(full).st_mode)


@pytest.mark.parametrize("option", ["--record", "--trace"])
def test_an_input_is_not_replaced(option, offsim, tmp_path):
    scenario = tmp_path / "s.yaml"
    text = (ROOT / "docs/examples/one-layer.yaml").read_text()
    scenario.write_text(text)
    (tmp_path / "link.yaml").symlink_to(scenario)
    for output in (scenario, tmp_path / "link.yaml"):
        message = one_error(offsim("predict", option, output, scenario), 2)
        assert "is an input of this command" in message and scenario.read_text() == text


@pytest.mark.parametrize("more, expected", [(-1, "the line ends here"), (1, "is longer than 33554432 bytes")])
def test_a_line_of_a_trace_has_a_limit(more, expected, offsim, tmp_path):
    path = tmp_path / "long.trace"
    header = '{"format_version":2,"source":"ref","scenario":"s","ranks":1,"steps":1}'
    path.write_text(header + "\n" + " " * ((1 << 25) + more - 1) + "\n")
    assert expected in one_error(offsim("compare", path, path), 2)


def test_a_leading_zero_is_refused(offsim):
    """PyYAML reads 010 as 8."""
    for key in ("num_layers=010", "hidden_dropout=00"):
        assert "without leading zeros" in one_error(offsim("predict", "docs/examples/one-layer.yaml", "--set", key), 2)


def test_an_unwritable_path(offsim, tmp_path):
    one_error(offsim("predict", SCENARIO, "--trace", tmp_path / "no" / "trace.json"), 2)
    one_error(offsim("predict", SCENARIO, "--trace", tmp_path), 2)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_run_leaves_nothing_for_long(offsim, tmp_path):
    """SIGKILL leaves a temporary file: the next run that writes the same output removes it, but no file of others."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    stale = tmp_path / f"trace.json.{gone.pid}.part"
    kept = [tmp_path / name for name in (f"trace.json.{os.getpid()}.part", f"other.json.{gone.pid}.part",
                                         f"trace.json.0{gone.pid}.part", "trace.json.part", "trace.json.1.part2")]
    for path in (stale, *kept):
        path.write_text("half of it")
    offsim("predict", "docs/examples/one-layer.yaml", "--trace", tmp_path / "trace.json", check=0)
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "trace.json", *kept])


def test_a_locked_file_is_in_use(offsim, tmp_path):
    """Its process may be one of another container: the name says nothing here."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    written = tmp_path / f"trace.json.{gone.pid}.part"
    with written.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        offsim("predict", "docs/examples/one-layer.yaml", "--trace", tmp_path / "trace.json", check=0)
        assert written.exists()



@pytest.mark.parametrize("arguments, expected", [
    (["axolotl-qlora.yaml"], ":5:1: error: \"base_model\" is a key of an Axolotl configuration; give the file with "
                             "--axolotl FILE"),
    (["verl-qwen3-8b.yaml"], "give the file with --verl FILE"),
    (["axolotl-qlora.json"], "give the file with --hf-config FILE"),
    (["--axolotl", "verl-qwen3-8b.yaml"], "give the file with --verl FILE"),
    (["--verl", "axolotl-qlora.yaml"], "give the file with --axolotl FILE"),
    (["--megatron-args", "axolotl-qlora.yaml"], "give the file with --axolotl FILE"),
    (["--megatron-args", "tiny-llama.yaml"], "\"training\" is a key of a scenario; give the file without --megatron-args"),
    (["--verl", "llama3-8b.sh"], "llama3-8b.sh: error: no key of verl in it"),
    (["--megatron-args", "verl-qwen3-8b.sh"], "verl-qwen3-8b.sh: error: no option of Megatron-LM in it"),
    (["--hf-config", "axolotl-qlora.yaml"], "give the file with --axolotl FILE"),
    (["--hf-config", "axolotl-qlora.json"], "training.seq_length is not given and has no default; write it in a "
                                            "scenario, or --set seq_length=N"),
    (["--machine", "one-layer.yaml", "one-layer.yaml"], "unknown key 'model' in the top level of a machine"),
])
def test_another_kind_of_file(arguments, expected, offsim_san):
    words = [word if word.startswith("--") else f"docs/examples/{word}" for word in arguments]
    assert expected in one_error(offsim_san("predict", *words), 2)


@pytest.mark.parametrize("text, whose, instead", [
    ("stage: sft\nper_device_train_batch_size: 1\n", "a Hugging Face trainer", "implementation=hf"),
    ("compute_environment: LOCAL_MACHINE\n", "Accelerate", "implementation=hf"),
    ("pipe_parallel_size: 1\nnum_layers: 12\nhidden_size: 768\n", "GPT-NeoX", "by Megatron-LM's names"),
    ("model:\n  num_layers: 2\nrerun_state_machine:\n  rerun_mode: disabled\n", "Megatron Bridge", "by Megatron-LM's names"),
    ("modules:\n  pre_trainer:\n    framework: megatron\n", "Primus", "pre_trainer.yaml"),
    ("defaults:\n  - train: 7b\n", "Hydra", "the file with the options"),
])
@pytest.mark.parametrize("option", ["--megatron-args", "--axolotl", "--verl", "--hf-config", ""])
def test_files_of_programs_that_are_not_read(option, text, whose, instead, offsim_san, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    error = one_error(offsim_san("predict", *option.split(), path), 2)
    assert f"is a key of {whose}" in error and instead in error


# Rank 1 keeps one byte: core attention of a layer stays, and the projection after it leaves.
KEPT_BETWEEN = sets("num_layers=4", "pipeline_model_parallel_size=2", "delta_offload_bytes_across_pp_ranks=1",
                    "offload_modules=core_attn,attn_proj", "min_offloaded_tensor_size=1")


def test_a_kept_group_keeps_its_tensors(offsim_san):
    plan = offsim_san("plan", SCENARIO, *KEPT_BETWEEN, *sets("offload.mode=fixed"), check=0).stdout
    assert offsim_san("plan", "--plan", "-", stdin=plan, check=0).stdout == plan


def test_a_step_of_one_token(offsim_san):
    offsim_san("plan", "docs/examples/hf-16-layers.yaml", *sets("num_layers=1", "seq_length=1",
                                                                  "fused_rms_norm=false"), check=0)


def test_unfinished_arithmetic_is_soon_refused(offsim, tmp_path):
    """Each $(( may be arithmetic or a command: levels that do not end would double the work."""
    script = tmp_path / "run.sh"
    script.write_text("torchrun $((((((8 --bf16\n" * 40)
    assert "error: " in offsim("predict", "--megatron-args", script, check=2, limit_s=20).stderr
