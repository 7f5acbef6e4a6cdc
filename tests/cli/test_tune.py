"""offsim tune: what it finds is the best of all settings, with bounds and without, for any number of threads."""

import csv
import json
import os
import random
import re

import pytest

from conftest import ROOT, documented_json_keys, errors_of, one_error, sets

LAYER = "docs/examples/one-layer.yaml"
FRONTS = int(os.environ.get("OFFSIM_FRONTS", "6"))  # spaces that --front and --exhaustive are compared on
PASTED = int(os.environ.get("OFFSIM_PASTED", "4"))  # scripts whose flags are given back
SPEED = ["tokens_per_s_per_gpu", "mfu"]
COUNTS = ["refused", "same", "too_large", "too_slow", "dominated", "unsafe", "predicted"]


def tune(offsim, *arguments):
    return json.loads(offsim("tune", *arguments, "--json", check=0).stdout)


def draw(seed):
    """A model, pipeline and memory budget that leave some of a few hundred settings."""
    d = random.Random(seed)
    pp, layers = d.choice([(1, 3), (1, 4), (2, 4), (2, 8)])
    micro_batches = d.choice([1, 2, 4])
    arguments = [LAYER, "--machine", d.choice(["H200-SXM", "H100-SXM", "A100-SXM-PCIe4", "GB200"]),
                 "--set", f"num_layers={layers}", "--set", f"pipeline_model_parallel_size={pp}",
                 "--set", f"world_size={pp}", "--set", f"global_batch_size={micro_batches}",
                 "--set", f"seq_length={d.choice([2048, 4096])}"]
    if pp == 2 and layers == 8 and micro_batches > 1:
        arguments += ["--set", "num_layers_per_virtual_pipeline_stage=2"]
    return arguments, d


@pytest.mark.parametrize("seed", range(20))
def test_bounds_change_no_result(offsim, seed):
    arguments, d = draw(seed)
    free = tune(offsim, *arguments, "--best", 1)["best"][0]
    budget = ["--gpu-memory", round(free["reserved_peak_bytes"] / 2**30 * d.choice([0.75, 0.85, 0.95]), 3),
              "--best", d.choice([1, 3])]
    pruned, everything = tune(offsim, *arguments, *budget), tune(offsim, *arguments, *budget, "--exhaustive")
    assert all(pruned[key] == everything[key] for key in ("best", "today", "faster_unsafe"))
    assert everything["too_large"] == everything["too_slow"] == 0
    assert pruned["predicted"] < everything["predicted"]
    for found in (pruned, everything):
        assert found["settings"] == sum(found[key] for key in COUNTS)


@pytest.mark.parametrize("seed", range(20, 20 + FRONTS))
def test_the_front_is_that_of_all_settings(offsim, seed):
    arguments, _ = draw(seed)
    arguments += ["--front", "--set", "offload.mode=fixed"]
    pruned, everything = tune(offsim, *arguments), tune(offsim, *arguments, "--exhaustive")
    assert pruned["best"] == everything["best"] and len(pruned["best"]) > 1
    assert pruned["today"] == everything["today"]
    assert everything["dominated"] == 0 and pruned["predicted"] + pruned["dominated"] == everything["predicted"]
    steps = [one["step_time_s"] for one in pruned["best"]]
    reserved = [one["reserved_peak_bytes"] for one in pruned["best"]]
    assert steps == sorted(set(steps)) and reserved == sorted(set(reserved), reverse=True)


def test_the_bound_for_a_budget_is_below_all_that_fit(offsim):
    """The front has what each budget takes; the smaller one has the larger bound."""
    arguments = [LAYER, "--set", "num_layers=4", "--set", "offload.mode=fixed"]
    front = tune(offsim, *arguments, "--front", "--gpu-memory", 4)
    before = front["budget_bound_s"]
    assert before >= front["fastest_bound_s"]  # all fits
    for one in front["best"][1:4:2] + front["best"][-1:]:
        found = tune(offsim, *arguments, "--best", 1, "--gpu-memory", one["reserved_peak_bytes"] / 2**30)
        assert before <= found["budget_bound_s"] <= found["best"][0]["step_time_s"] <= one["step_time_s"]
        before = found["budget_bound_s"]
    assert before > front["fastest_bound_s"]


def test_the_bound_for_a_budget_by_hand(offsim):
    """A link that moves nothing: what is over is written again, at least by the kernels that move most bytes in a second."""
    arguments = [LAYER, "--set", "num_layers=4", "--gpu-memory", 1.8, "--best", 1]
    links = [["--machine-set", f"link.d2h_bytes_per_us={rate}", "--machine-set", f"link.h2d_bytes_per_us={rate}"]
             for rate in (1, 1000, 50000)]
    bounds = [tune(offsim, *arguments, *link)["budget_bound_s"] for link in links]
    assert bounds[0] >= bounds[1] > bounds[2]
    over = tune(offsim, *arguments, "--over", "micro_batch_size=1")
    assert over["budget_bound_s"] is None and over["fastest_bound_s"] == tune(offsim, *arguments)["fastest_bound_s"]


def test_bounds_hold_where_a_rest_gains_more_than_it_takes(offsim):
    """Far below the power that a GPU draws, kernels are so slow that a wait may make the step shorter."""
    found = tune(offsim, "docs/examples/hf-layers.yaml", "--machine", "GB200", "--machine-set", "gpu.power_limit_w=384",
                 *sets("num_layers=2", "seq_length=4096", "vocab_size=8000", "ffn_hidden_size=4096", "global_batch_size=4"),
                 "--best", 1)
    assert found["fastest_bound_s"] <= found["budget_bound_s"] <= found["best"][0]["step_time_s"]


def test_a_faster_setting_that_is_not_safe_is_named(offsim):
    arguments = [LAYER, "--set", "num_layers=4", "--gpu-memory", 2, "--best", 1]
    found, repaired = tune(offsim, *arguments), tune(offsim, *arguments, "--allow-unsafe")
    assert repaired["faster_unsafe"] is None and not repaired["best"][0]["safe"]
    assert found["faster_unsafe"] == repaired["best"][0]
    assert "--allow-unsafe lists such settings" in offsim("tune", *arguments, check=0).stdout


GPU, HOST = "larger_gpu_memory", "larger_host_memory"


@pytest.mark.parametrize("scenario, budget, key", [
    ([LAYER, *sets("num_layers=8")], ["--gpu-memory", 3], GPU),
    ([LAYER, *sets("num_layers=8")], ["--gpu-memory", 3.5, "--front"], GPU),
    ([LAYER, *sets("num_layers=4")], ["--gpu-memory", 1], GPU),  # nothing fits
    (["docs/examples/hf-16-layers.yaml"], ["--gpu-memory", 20, "--host-memory", 0.5], GPU),
    (["docs/examples/hf-16-layers.yaml"], ["--gpu-memory", 20, "--host-memory", 0.5], HOST)])
def test_what_more_memory_would_buy(offsim, scenario, budget, key):
    """The named setting takes the named step in the named memory, and is not worth it or does not fit in 0.001 GiB less."""
    found = tune(offsim, *scenario, *budget)
    more, named = found[key], found[key]["setting"]
    bytes_of = {GPU: found["capacity_bytes"], HOST: int(budget[3] * 2**30) if len(budget) == 4 else 2**50}
    worth = found["best"][0]["step_time_s"] * 0.99 if found["best"] else 1e9
    assert named["safe"] and named["step_time_s"] < worth and more["bytes"] > bytes_of[key]

    def predict(memory):
        bytes_of[key] = memory
        words = [f"gpu.memory_bytes={bytes_of[GPU]}", "gpu.reserved_by_system_bytes=0", f"host.memory_bytes={bytes_of[HOST]}"]
        changes = [word for change in words for word in ("--machine-set", change)]
        return json.loads(offsim("predict", *scenario, *sets(*named["set"]), *changes, "--json", check=None).stdout)

    enough, less = predict(more["bytes"]), predict(more["bytes"] - 2**30 // 1000 - 1)
    assert enough["fits"] and enough["result"]["step_time_s"] == named["step_time_s"]
    assert not less["fits"] or less["result"]["step_time_s"] >= worth


def test_more_memory_may_buy_nothing(offsim):
    arguments = [LAYER, *sets("num_layers=4"), "--best", 1]
    found = tune(offsim, *arguments)
    assert found[GPU] is None and found[HOST] is None
    assert "more memory makes no step 1 % shorter" in offsim("tune", *arguments).stdout


def test_what_no_framework_knows_is_not_searched(offsim):
    arguments = [LAYER, "--set", "num_layers=4", "--set", "offload.mode=fixed"]
    offsim("check", *arguments, "--set", "offload_modules=mlp_act", check=0)  # a what-if
    found = tune(offsim, *arguments, "--gpu-memory", 2, "--best", 1000)["best"]
    words = [text for one in found for text in one["set"]]
    assert any("moe_act" in text or "core_attn" in text for text in words)
    assert not any("mlp_act" in text for text in words)
    suggested = json.loads(offsim("predict", *arguments, "--suggest", "--json", check=0).stdout)["suggestions"]
    assert suggested and not any("mlp_act" in one["name"] for one in suggested)


@pytest.mark.parametrize("iteration", ["warmup", "steady"])
def test_segments_change_no_plan(offsim, iteration):
    """What settings that differ in them alone may therefore share."""
    arguments = ["plan", "--iteration", iteration, LAYER, "--set", "num_layers=4", "--set"]
    plans = {offsim(*arguments, f"expandable_segments={is_on}", check=0).stdout for is_on in ("true", "false")}
    assert len(plans) == 1 and len(plans.pop()) > 1000


def test_the_best_is_what_predict_says(offsim):
    arguments, _ = draw(3)
    found = tune(offsim, *arguments, "--best", 4)
    times = [one["step_time_s"] for one in found["best"]]
    assert times == sorted(set(times)) and found["fastest_bound_s"] <= times[0]
    for one in found["best"]:
        words = [word for text in one["set"] for word in ("--set", text)]
        predicted = json.loads(offsim("predict", *arguments, *words, "--json", check=0).stdout)
        assert predicted["fits"] and predicted["result"]["step_time_s"] == one["step_time_s"]
        assert [predicted[key] for key in SPEED] == [one[key] for key in SPEED]
        assert max(rank["reserved_peak_bytes"] for rank in predicted["result"]["ranks"]) == one["reserved_peak_bytes"]
        offsim("check", *arguments, *words, check=0)


@pytest.mark.parametrize("model, budget", [("docs/examples/hf-16-layers.yaml", "gpu.memory_bytes=20400000000"),
                                           ("docs/examples/hf-layers.yaml", "gpu.memory_bytes=100000000000")])
def test_what_slower_copies_cost(offsim, model, budget):
    """The best without copies has nothing to lose."""
    arguments = [model, "--machine-set", budget, "--best", 1]
    found = tune(offsim, *arguments)
    best, words = found["best"][0], [word for text in found["best"][0]["set"] for word in ("--set", text)]
    rates = {f"link.{key}": int(rate) * 95 // 100 for key, rate in re.findall(
        r"(?m)^  ([dh]2[dh]_bytes_per_us|duplex_bytes_per_us): (\d+)",
        (ROOT / "sim/machine/presets/H200-SXM.yaml").read_text().split("\nlink:")[1])}
    assert len(rates) == 3
    slower = [word for key, rate in rates.items() for word in ("--machine-set", f"{key}={rate}")]
    table = offsim("tune", *arguments, check=0).stdout
    if best["host_pinned_total_bytes"] == 0:
        assert found["slower_copies_step_time_s"] is None and "slack" not in table
        return
    predicted = json.loads(offsim("predict", *arguments[:3], *slower, *words, "--json", check=0).stdout)
    assert found["slower_copies_step_time_s"] == predicted["result"]["step_time_s"] > best["step_time_s"]
    assert re.search(r"(?m)^slack +copies that are 5 % slower make it [\d.]+ ms, [\d.]+ % more$", table)


def test_any_number_of_threads(offsim):
    arguments, _ = draw(5)
    texts = {offsim("tune", *arguments, "--threads", threads, check=0).stdout for threads in (1, 3, 8)}
    assert len(texts) == 1


def test_keys_are_documented(offsim):
    found = tune(offsim, LAYER)
    documented = documented_json_keys("## The best settings")
    assert documented == [*found, *found["best"][0]]


def test_hugging_face_models_try_every_system(offsim):
    found = tune(offsim, "docs/examples/hf-16-layers.yaml", "--gpu-memory", 24, "--best", 400)
    assert found["best"] and found["flags"] is None
    assert all(one["reserved_peak_bytes"] <= 24 * 2**30 for one in found["best"])
    systems = {text for one in found["best"] for text in one["set"] if re.match(r"(offload\.)?system=", text)}
    assert len(systems) >= 10


def test_what_frameworks_have_today_is_named_beside_offsims_own(offsim):
    """Also where the table is too short for it. Of settings that take equally long, the table has one, which may be offsim's."""
    arguments = ["docs/examples/hf-layers.yaml", "--gpu-memory", 6]
    def is_own(setting):
        return any("planned" in text or "recompute_layers=" in text or "mlp_layers=" in text for text in setting["set"])
    found, longer = (tune(offsim, *arguments, "--best", best) for best in (1, 200))
    assert is_own(found["best"][0]) and not is_own(found["today"])
    assert found["today"] == longer["today"]
    first = next(one for one in longer["best"] if not is_own(one))
    steps = [one["step_time_s"] for one in longer["best"] if one["step_time_s"] <= first["step_time_s"]]
    assert found["today"] == first or found["today"]["step_time_s"] in steps[:-1]
    assert tune(offsim, *arguments, "--front")["today"] == found["today"]


def test_over_replaces_what_is_varied(offsim):
    found = tune(offsim, LAYER, "--set", "num_layers=4", "--over", "recompute_granularity=", "--over", "micro_batch_size=1|2",
                 "--set", "global_batch_size=2", "--best", 50)
    keys = {text.split("=")[0] for one in found["best"] for text in one["set"]}
    assert "micro_batch_size" in keys and "recompute_method" not in keys


def test_flags_are_those_of_megatron(offsim, tmp_path):
    arguments, _ = draw(0)
    free = tune(offsim, *arguments, "--best", 1)["best"][0]
    found = tune(offsim, *arguments, "--best", 1, "--gpu-memory", round(free["reserved_peak_bytes"] / 2**30 * 0.85, 3))
    words = [word for word in found["flags"].split() if word.startswith("--")]
    assert words
    for word in words:
        script = tmp_path / "train.sh"
        script.write_text(f"python pretrain_gpt.py {word}\n")
        assert "unknown" not in "\n".join(errors_of(offsim("predict", "--megatron-args", script), 2))


def test_verl_takes_no_options_of_megatron(offsim, tmp_path):
    actor, script = "actor_rollout_ref.actor.", tmp_path / "train.sh"
    script.write_text(f"python -m verl.trainer.main_ppo {actor}strategy=megatron {actor}ppo_micro_batch_size_per_gpu=1 "
                      f"{actor}ppo_mini_batch_size=16 {actor}megatron.tensor_model_parallel_size=2 data.max_response_length=3072 "
                      f"{actor}megatron.pipeline_model_parallel_size=2 trainer.n_gpus_per_node=8\n")
    arguments = ["--verl", script, "--hf-config", "tests/data/hf/qwen2.5-7b.json", *sets("num_layers=8")]
    budget = tune(offsim, *arguments, "--best", 1)["best"][0]["allocated_peak_bytes"] * 93 // 100
    found = tune(offsim, *arguments, "--best", 1, "--gpu-memory", budget / 2**30)
    assert found["best"][0]["set"] and found["program"] == "verl" and " --" not in f" {found['flags']}"
    small = ["--machine-set", f"gpu.memory_bytes={budget}", "--machine-set", "gpu.reserved_by_system_bytes=0"]
    suggested = offsim("predict", *arguments, *small).stdout
    assert ": --set recompute_granularity=" in suggested and "  --recompute-granularity" not in suggested


def test_csv_has_what_json_has(offsim, tmp_path):
    arguments, _ = draw(3)
    arguments += ["--front", "--set", "offload.mode=fixed"]
    found = tune(offsim, *arguments, "--csv", tmp_path / "front.csv")["best"]
    text = offsim("tune", *arguments, "--csv", "-", check=0).stdout
    assert text == (tmp_path / "front.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert [int(row.pop("place")) for row in rows] == [*range(1, len(found) + 1)]
    assert set(rows[0]) == set(found[0])
    for row, one in zip(rows, found):
        assert row.pop("set").split(" ") == one["set"]
        assert {key: json.loads(value) for key, value in row.items()} == {key: one[key] for key in row}


def test_the_picture_has_a_point_for_each(offsim, tmp_path):
    arguments, _ = draw(3)
    found = tune(offsim, *arguments, "--best", 4, "--plot", tmp_path / "best.svg")["best"]
    picture = (tmp_path / "best.svg").read_text()
    points = re.findall(r'fill:rgb\((?:34\.9|30\.[56])[^"]*" d="[^"]* C ', picture)
    assert len(points) == len(found)
    nothing = offsim("tune", LAYER, "--gpu-memory", 0.25, "--plot", tmp_path / "none.svg", check=0)
    assert "no setting fits" in nothing.stderr and not (tmp_path / "none.svg").exists()


def test_the_flag_of_a_micro_batch_is_one_that_megatron_still_takes(offsim):
    """It ends with an assertion when --batch-size is given."""
    found = tune(offsim, LAYER, "--over", "micro_batch_size=1|2", "--set", "global_batch_size=2", "--best", 1)
    assert re.search(r"--micro-batch-size [12]\b", found["flags"]) and "--batch-size" not in found["flags"].split()


def test_a_note_is_printed_once(offsim):
    notes = offsim("tune", "--best", 1, "docs/examples/hf-16-layers.yaml", check=0).stderr.splitlines()
    assert notes and len(notes) == len(set(notes))


def test_where_all_are_refused_the_first_says_why(offsim):
    table = offsim("tune", "docs/examples/tiny-llama.yaml", "--over", "tensor_model_parallel_size=3|5").stdout
    assert "none of them fits" not in table
    reason = " ".join(table[table.index("refused   all"):].split())
    assert "world_size is 1; it must be divisible by tensor_model_parallel_size (3)" in reason


def test_a_value_that_its_key_does_not_take(offsim):
    done = offsim("tune", "docs/examples/tiny-llama.yaml", "--over", "tensor_model_parallel_size=1,2")
    assert 'tensor_model_parallel_size is "1,2"; a whole number is needed here' in one_error(done, status=2)


def test_nothing_fits(offsim):
    found = tune(offsim, LAYER, "--gpu-memory", 0.25)
    assert found["best"] == [] and found["why"] is None
    table = offsim("tune", LAYER, "--gpu-memory", 0.25, check=0).stdout
    least = re.search(r"(?m)^none of them fits: each allocates at least ([\d.]+) MiB; --over varies more", table)
    smallest = min(one["allocated_peak_bytes"] for one in tune(offsim, LAYER, "--front", "--allow-unsafe")["best"])
    assert 256 < float(least[1]) <= smallest / 2**20 + 0.05


def test_wrong_arguments(offsim):
    assert "there is no key" in one_error(offsim("tune", LAYER, "--over", "nonsense=1"), 2)
    assert "best" in one_error(offsim("tune", LAYER, "--best", 0), 2)
    assert "ends neither" in one_error(offsim("tune", LAYER, "--plot", "front.gif"), 2)
    assert "--json's" in one_error(offsim("tune", LAYER, "--csv", "-", "--json"), 2)


def test_planned_of_a_pipeline_and_the_flags_of_today(offsim):
    """Megatron-LM has no planned: the flags are those of the best that it has."""
    arguments = ["docs/examples/two-stages.yaml", "--machine", "H100-SXM", *sets("hidden_size=4096", "ffn_hidden_size=14336"), "--best", 1]
    kept = json.loads(offsim("predict", *arguments[:-2], "--json", check=0).stdout)["result"]["ranks"]
    most, static = (max(rank[key] for rank in kept) / 2**30 for key in ("reserved_peak_bytes", "static_bytes"))
    found = tune(offsim, *arguments, "--gpu-memory", round(static + (most - static) * 0.8, 3))
    assert "system=planned" in found["best"][0]["set"]
    assert found["best"][0]["step_time_s"] < found["today"]["step_time_s"]
    assert "--recompute" in found["flags"] or "--offload-modules" in found["flags"]


def draw_script(seed):
    """Options of a launch script, each with its values, and a budget that keep-all exceeds."""
    d = random.Random(seed)
    pp, tp = d.choice([1, 2, 4]), d.choice([1, 2])
    layers = pp * d.choice([2, 3, 4])
    options = ["--use-mcore-models", "--transformer-impl transformer_engine", f"--num-layers {layers}", "--hidden-size 2048",
               f"--ffn-hidden-size {d.choice([5632, 8192])}", "--num-attention-heads 16", "--seq-length 4096",
               "--max-position-embeddings 4096", "--position-embedding-type rope", "--micro-batch-size 1",
               f"--global-batch-size {d.choice([2, 4, 8])}", "--bf16", f"--pipeline-model-parallel-size {pp}",
               f"--tensor-model-parallel-size {tp}", "--cross-entropy-loss-fusion", "--no-create-attention-mask-in-dataloader",
               *d.choice([[], ["--use-distributed-optimizer", "--overlap-grad-reduce"]]),
               *d.choice([[], ["--swiglu", "--normalization RMSNorm", "--disable-bias-linear"]]),
               *d.choice([[], ["--num-experts 8", "--moe-router-topk 2", "--moe-grouped-gemm", "--moe-token-dispatcher-type alltoall",
                               "--disable-bias-linear"]]),
               *d.choice([[], [], ["--recompute-granularity selective", "--recompute-modules core_attn layernorm"],
                          ["--recompute-granularity full", "--recompute-method block", "--recompute-num-layers 1"],
                          ["--fine-grained-activation-offloading", "--offload-modules core_attn attn_proj"],
                          ["--cpu-offloading-num-layers 1"] if pp == 1 and tp == 1 else []])]
    if tp > 1:
        options.append("--sequence-parallel")
    if pp > 1 and layers > 2 * pp and layers % (2 * pp) == 0 and d.random() < 0.5:
        options.append(f"--num-layers-per-virtual-pipeline-stage {layers // pp // 2}")
    return options, pp * tp, d.choice(["H100-SXM", "H200-SXM", "GB200"]), d.choice([0.95, 0.9, 0.8]), \
        d.choice([[], ["--set", "offload.mode=fixed"]])


@pytest.mark.parametrize("seed", range(PASTED))
def test_pasted_flags_are_the_setting(offsim, tmp_path, seed):
    """In a script that has them in place of its own, `predict` finds what `tune` said."""
    options, gpus, machine, part, mode = draw_script(seed)

    def of_script(environment, options, machine):
        script = tmp_path / "train.sh"
        script.write_text(f"export CUDA_DEVICE_MAX_CONNECTIONS=1 NVTE_CPU_OFFLOAD_V1=1 {environment}\n"
                          f"torchrun pretrain_gpt.py {' '.join(options)}\n")
        return ["--megatron-args", script, "--world-size", gpus, "--machine", *machine, *mode]

    def predict(*arguments):
        return json.loads(offsim("predict", *of_script(*arguments), "--json", "--brief", check=0).stdout)["result"]

    kept = predict("", options, [machine])["ranks"]
    most, static = (max(rank[key] for rank in kept) for key in ("reserved_peak_bytes", "static_bytes"))
    small = [machine, "--machine-set", f"gpu.memory_bytes={int(static + part * (most - static))}",
             "--machine-set", "gpu.reserved_by_system_bytes=0"]
    found = tune(offsim, *of_script("", options, small), "--best", 1)
    named = found["today"] or (found["best"] + [None])[0]
    if named is None:
        pytest.skip("nothing fits")
    words, left_out = found["flags"].split(" "), set((found["left_out"] or "").split())
    environment = [word for word in words if re.fullmatch(r"[A-Z0-9_]+=\S*", word)]
    pasted = [option for option in options if option.split()[0] not in left_out]
    pasted += [word for word in words if word not in environment]
    again = predict(" ".join(environment), pasted, small)
    assert again["step_time_s"] == named["step_time_s"], (pasted, environment, named["set"])
    for key in ("allocated_peak_bytes", "reserved_peak_bytes"):
        assert max(rank[key] for rank in again["ranks"]) == named[key]
