"""Whatever is combined is run by the reference executor, the same bits with offload and without, or refused with one
message: never an assertion, a signal, a hang."""

import json
import math
import random
import re
import subprocess
import time

import pytest

from conftest import ENDS, ROOT, errors_of, heed_signals, one_error, sets
from test_combinations import PLACED, draw

SEEDS = 40
SEEDS_OF_ALL = 1500
LIMIT_S = 60  # of one run, also with sanitizers
MOST_RANKS = 8


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        every = metafunc.config.getoption("--all-configurations")
        metafunc.parametrize("seed", range(SEEDS_OF_ALL if every else SEEDS))


# ---- drawing ----


def shrink_model(r, model):
    heads = model["num_attention_heads"] = r.choice([2, 4])
    model.update(hidden_size=heads * r.choice([8, 16, 32]), ffn_hidden_size=r.choice([32, 64, 128]),
                 vocab_size=r.choice([200, 256]), make_vocab_size_divisible_by=r.choice([1, 8, 128]))
    for key, width in (("kv_lora_rank", 16), ("q_lora_rank", 16), ("qk_head_dim", 8), ("qk_pos_emb_head_dim", 8),
                       ("v_head_dim", r.choice([8, 16])), ("linear_key_head_dim", 16), ("linear_value_head_dim", 8),
                       ("moe_ffn_hidden_size", r.choice([16, 32])),
                       ("moe_shared_expert_intermediate_size", 32)):
        if model.get(key):
            model[key] = width


def shrink(r, scenario):
    """To what is run in a moment; without most of what is not run at all."""
    model, training, parallel = (scenario.setdefault(name, {}) for name in ("model", "training", "parallel"))
    shrink_model(r, model)
    training.update(micro_batch_size=r.choice([1, 2]), seq_length=r.choice([8, 16, 32]))
    if r.random() < 0.95:
        parallel.pop("use_distributed_optimizer", None)
        parallel.pop("overlap_param_gather", None)
        parallel.pop("use_megatron_fsdp", None)
        parallel.pop("data_parallel_sharding_strategy", None)
        if training.get("optimizer") not in ("sgd", "adamw_torch", None):
            training["optimizer"] = "adam"
        if "fsdp" in parallel:
            parallel.update(world_size=1, fsdp="fsdp2")
            parallel.pop("fsdp_size", None)
    sizes = [max(1, parallel.get(f"{name}_parallel_size", 1))
             for name in ("tensor_model", "pipeline_model", "context")]
    replicas = max(1, parallel["world_size"] // math.prod(sizes))
    microbatches = sizes[1] * r.choice([1, 2])
    training["global_batch_size"] = training["micro_batch_size"] * replicas * microbatches


def draw_small(seed):
    for attempt in range(1000):
        scenario = draw(seed + 100003 * attempt)
        scenario["offload"].setdefault("mode", "fixed")  # what is released may compute something else
        r = random.Random(seed)
        shrink(r, scenario)
        if scenario["parallel"]["world_size"] <= MOST_RANKS:
            return scenario


# ---- what must hold ----


def run(offsim, path, *options):
    return offsim("run", "--on", "ref", "--steps", 2, "--json", *options, path, limit_s=LIMIT_S)


def check_scenario(offsim, path):
    done = run(offsim, path)
    if done.status in (2, 3):
        assert all(map(PLACED.match, errors_of(done, done.status))), done.stderr
        return "refused", done.stderr
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["device_peak_bytes"] == found["plan_peak_bytes"]
    without = json.loads(run(offsim, path, "--without-offload", *sets("offload.mode=fixed")).stdout)
    assert found["steps"] == without["steps"]
    return "run", ""


def test_any_combination(seed, offsim, tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(draw_small(seed), indent=1))
    check_scenario(offsim, path)


# ---- what is asked wrongly, or cannot be had ----

LLAMA, HF = (f"docs/examples/tiny-{name}.yaml" for name in ("llama", "llama-hf"))
ON_REF = ("run", "--on", "ref")


def test_gradients_made_in_forward_are_kept(offsim):
    """Liger's loss makes the output layer's gradient in forward; the next step adds to it."""
    settings = sets("liger_fused_linear_cross_entropy=true", "keep_gradients=true")
    offsim(*ON_REF, "--steps", 3, *settings, HF, check=0)


@pytest.mark.parametrize("option", ["--data", "--dump", "--record", "--disk-dir", "--tensors", "--same-batch",
                                    "--without-offload"])
def test_options_of_scenarios_beside_a_plan(offsim, option, tmp_path):
    value = [] if option in ("--tensors", "--same-batch", "--without-offload") else [tmp_path / "x"]
    done = offsim(*ON_REF, option, *value, "--plan", "-", stdin=offsim("plan", LLAMA).stdout)
    assert "needs a scenario" in one_error(done, 2)
    assert list(tmp_path.iterdir()) == []


def test_sizes_of_a_plan_that_cannot_be_counted(offsim):
    plan = re.sub(r"bf16\[\d+", f"bf16[{1 << 62}", offsim("plan", LLAMA).stdout, count=1)
    assert "less than 2^63 bytes" in one_error(offsim(*ON_REF, "--plan", "-", stdin=plan), 2)


def test_files_are_opened_before_anything_runs(offsim, tmp_path):
    for option in ("--dump", "--record"):
        done = offsim(*ON_REF, "--steps", 100000, option, tmp_path / "none" / "x", LLAMA, limit_s=30)
        assert "cannot write it: No such file or directory" in one_error(done, 2)
    done = offsim(*ON_REF, "--dump", tmp_path / "x", "--record", tmp_path / "x", LLAMA)
    assert "is the file of --record" in one_error(done, 2)
    done = offsim(*ON_REF, "--dump", tmp_path / "x", "--record", tmp_path, LLAMA)
    assert "Is a directory" in one_error(done, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--dump", "--record"])
def test_full_disk_behind_a_file(offsim, option):
    assert "No space left on device" in one_error(offsim(*ON_REF, "--steps", 1, option, "/dev/full", LLAMA), 3)


def test_signals_take_half_written_files_along(offsim, tmp_path):
    for number in ENDS:
        command = [offsim.path, *ON_REF, "--steps", "100000", "--record", tmp_path / "trace", "--dump",
                   tmp_path / "dump", LLAMA]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              preexec_fn=heed_signals) as running:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and len(list(tmp_path.iterdir())) < 2:
                time.sleep(0.01)
            assert len(list(tmp_path.iterdir())) == 2
            running.send_signal(number)
            assert running.wait(60) == -number
        assert list(tmp_path.iterdir()) == []


def test_far_too_large_a_model_is_refused_at_once(offsim):
    settings = sets("num_layers=64", "hidden_size=65536", "ffn_hidden_size=262144")
    message = one_error(offsim(*ON_REF, *settings, LLAMA, limit_s=30), 3)
    needed, there = map(int, re.search(r"at least (\d+) bytes of memory together; there are (\d+)", message).groups())
    assert needed > 64 * 12 * 65536 ** 2 * 2 and needed > there


def test_disk_offload_without_standard_input(offsim, tmp_path):
    """A file may then have the descriptor 0."""
    settings = sets("offload.system=axolotl_disk", "recompute_granularity=full", "recompute_method=uniform",
                    "recompute_num_layers=1", "use_reentrant=true")
    command = [offsim.path, *ON_REF, "--steps", "2", "--disk-dir", tmp_path, *settings, HF]
    found = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout == offsim(*command[1:], check=0).stdout


@pytest.mark.parametrize("change", [
    lambda lines: lines[:1],
    lambda lines: lines[:-1] + [lines[-1][:-20]],
    lambda lines: lines[:4] + [lines[4]] + lines[4:],
    lambda lines: ["\0" * 100, *lines],
    lambda lines: [lines[0], "[" * 100000],
    lambda lines: [lines[0].replace('"ranks":1', '"ranks":4000000000'), *lines[1:]],
    lambda lines: [lines[0], lines[1].replace('"step":0', '"step":99'), *lines[2:]],
], ids=["header_alone", "cut", "twice", "binary", "deep", "ranks", "steps"])
def test_compare_of_broken_traces(offsim, tmp_path, change):
    good, bad = tmp_path / "good", tmp_path / "bad"
    offsim(*ON_REF, "--steps", 1, "--record", good, LLAMA, check=0)
    bad.write_text("\n".join(change(good.read_text().splitlines())) + "\n")
    for pair in ((good, bad), (bad, good)):
        done = offsim("compare", *pair, limit_s=30)
        assert done.status == 1 or one_error(done, 2).startswith(str(bad)), done.stderr
