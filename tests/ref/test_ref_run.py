"""offsim run --on ref: training steps with real arithmetic, what it prints and what it refuses."""

import json

import pytest

from conftest import one_error, sets

LLAMA, HF, DEEPSEEK = (f"docs/examples/tiny-{name}.yaml" for name in ("llama", "llama-hf", "deepseek"))
FP32 = ["bf16=false"]
FAST = ["--learning-rate", "0.002"]


def run(offsim, *arguments, settings=(), scenario=LLAMA, check=0):
    return offsim("run", "--on", "ref", *arguments, *sets(*settings), scenario, check=check)


def result(offsim, *arguments, settings=(), scenario=LLAMA):
    return json.loads(run(offsim, "--json", *arguments, settings=settings, scenario=scenario).stdout)


def losses(found):
    return [step["loss"] for step in found["steps"]]


@pytest.mark.parametrize("settings", [[], FP32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("scenario", [LLAMA, HF])
def test_loss_falls_on_a_repeated_batch(offsim, scenario, settings):
    found = losses(result(offsim, "--same-batch", "--steps", 8, *FAST, settings=settings, scenario=scenario))
    assert 5.4 < found[0] < 5.7, "log 256 is 5.545"
    assert all(later < earlier for earlier, later in zip(found, found[1:])) and found[-1] < 0.9 * found[0]


def test_loss_falls_on_a_text(offsim, tmp_path):
    text = tmp_path / "text"
    text.write_text("to be, or not to be: that is the question. " * 40)
    found = losses(result(offsim, "--data", text, "--steps", 25, *FAST))
    assert sum(found[-5:]) < 0.8 * sum(found[:5])


def test_json(offsim):
    found = result(offsim, "--steps", 2, "--tensors")
    assert found["format_version"] == 1 and len(found["steps"]) == 2
    for step in found["steps"]:
        assert list(step) == ["loss", "loss_bits", "grad_norm", "loss_fingerprint", "grads_fingerprint",
                              "params_fingerprint"]
        assert all(len(step[key]) == 32 for key in step if key.endswith("_fingerprint"))
        assert step["grad_norm"] > 0
    first, second = found["steps"]
    assert all(first[key] != second[key] for key in first)
    names = [tensor["name"] for tensor in found["tensors"]]
    assert names == sorted(names) and "layers.0.self_attention.linear_qkv.weight" in names


def test_table_tells_the_same(offsim):
    found = result(offsim, "--steps", 2)
    rows = [line.split() for line in run(offsim, "--steps", 2).stdout.splitlines()]
    for number, step in enumerate(found["steps"], 1):
        row = next(row for row in rows if row[:1] == [str(number)])
        assert float(row[1]) == pytest.approx(step["loss"])
        assert row[2] == step["loss_bits"]
        assert row[4:] == [step[f"{what}_fingerprint"] for what in ("loss", "grads", "params")]


@pytest.mark.parametrize("scenario,settings", [
    (LLAMA, []),
    (LLAMA, ["fine_grained_activation_offloading=true", "offload_modules=core_attn attn_proj"]),
    (LLAMA, ["world_size=4", "tensor_model_parallel_size=2", "sequence_parallel=true",
             "pipeline_model_parallel_size=2"]),
    (HF, []),
    (DEEPSEEK, []),
], ids=["llama", "offloaded", "tp2_sp_pp2", "hf", "deepseek"])
def test_device_memory_is_the_plans(offsim, scenario, settings):
    found = result(offsim, "--steps", 2, settings=settings, scenario=scenario)
    assert found["device_peak_bytes"] == found["plan_peak_bytes"] and min(found["device_peak_bytes"]) > 0


def initial_weights(offsim, path, settings):
    run(offsim, "--steps", 1, "--dump", path, settings=[*FP32, *settings])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["name"]: (row["shape"], row["values"]) for row in rows if row["kind"] == "initial"}


EXPERTS = ["num_experts=4", "moe_ffn_hidden_size=32", "moe_router_topk=2", "moe_grouped_gemm=true",
           "moe_token_dispatcher_type=alltoall", "moe_router_dtype=fp32", "global_batch_size=4"]


@pytest.mark.parametrize("common,layout", [
    ([], ["tensor_model_parallel_size=2", "world_size=2"]),
    ([], ["pipeline_model_parallel_size=2", "num_virtual_stages_per_pipeline_rank=2", "world_size=2"]),
    (EXPERTS, ["expert_model_parallel_size=2", "world_size=2"]),
    (EXPERTS, ["moe_grouped_gemm=false"]),
], ids=["tp2", "pp2_vpp2", "ep2", "experts_apart"])
def test_weights_begin_the_same_in_every_layout(offsim, tmp_path, common, layout):
    one = initial_weights(offsim, tmp_path / "one", common)
    assert one == initial_weights(offsim, tmp_path / "other", [*common, *layout])
    assert len(one) > 10


def test_another_seed_is_another_model(offsim):
    one, other = (result(offsim, "--steps", 1, "--seed", seed)["steps"][0] for seed in (1, 2))
    assert one["params_fingerprint"] != other["params_fingerprint"] and one["loss"] != other["loss"]


def test_threads_change_no_bit(offsim):
    assert result(offsim, "--steps", 2) == result(offsim, "--steps", 2, "--threads", 2)


def test_clipping_changes_the_step_and_not_the_gradient(offsim):
    free, clipped = (result(offsim, "--steps", 1, settings=[f"clip_grad={limit}"])["steps"][0] for limit in (0, 0.1))
    assert free["grads_fingerprint"] == clipped["grads_fingerprint"] and clipped["grad_norm"] > 0.1
    assert free["params_fingerprint"] != clipped["params_fingerprint"]


@pytest.mark.parametrize("settings", [[], ["tensor_model_parallel_size=2", "sequence_parallel=true",
                                           "pipeline_model_parallel_size=2", "world_size=4",
                                           "fine_grained_activation_offloading=true", "offload_modules=core_attn"]],
                         ids=["one_rank", "four_ranks"])
def test_orders_agree(offsim, settings):
    found = result(offsim, "--steps", 2, "--interleavings", 5, settings=settings)
    assert found["interleavings"] == 5 and found["agree"] and "finding" not in found
    one = result(offsim, "--steps", 2, "--interleave", 77, settings=settings)
    assert one["steps"] == found["steps"]


def test_plan_without_arithmetic(offsim, tmp_path):
    plan = tmp_path / "plan"
    plan.write_text(offsim("plan", LLAMA, check=0).stdout)
    done = offsim("run", "--on", "ref", "--json", "--interleavings", 50, "--plan", plan, check=0)
    assert json.loads(done.stdout) == {"format_version": 1, "interleavings": 50, "agree": True}


@pytest.mark.parametrize("arguments,message", [
    (["--on", "tpu"], 'no executor "tpu"'),
    ([], "--on ref"),
    (["--on", "ref", "--steps", "0"], "from 1 to"),
    (["--on", "ref", "--learning-rate", "fast"], "a number from 0 to 1"),
    (["--on", "ref", "--interleave", "1", "--interleavings", "2"], "give one of them"),
    (["--on", "ref", "--data", "/dev/null"], "empty"),
    (["--on", "ref", "--set", "optimizer=muon"], "does not run optimizer muon"),
    (["--on", "ref", "--set", "use_distributed_optimizer=true", "--set", "world_size=2",
      "--set", "global_batch_size=4"], "use_distributed_optimizer: false"),
], ids=["unknown", "none", "steps", "rate", "orders", "empty_text", "optimizer", "shards"])
def test_refusals(offsim, arguments, message):
    assert message in one_error(offsim("run", *arguments, LLAMA), 2)


def test_text_needs_a_token_for_each_byte(offsim):
    done = run(offsim, "--data", "README.md", settings=["vocab_size=128", "padded_vocab_size=128"], check=None)
    assert "vocabulary of 128" in one_error(done, 2)


def test_disk_that_cannot_be_written(offsim, tmp_path):
    settings = ["offload.system=axolotl_disk", "offload.mode=fixed", "recompute_granularity=full", "recompute_method=uniform",
                "recompute_num_layers=1", "use_reentrant=true"]
    folder = tmp_path / "none"
    done = run(offsim, "--disk-dir", folder, settings=settings, scenario=HF, check=None)
    assert str(folder) in one_error(done, 3)
