"""Offload system planned in pipelines: what it keeps on each device, and fine-grained offloading beside it."""

import json
import re
import runpy
import sys
import types

import pytest

from conftest import ROOT, sets

BASE = "docs/examples/two-stages.yaml"
FOUR = ["num_layers=16", "hidden_size=4096", "ffn_hidden_size=14336", "num_attention_heads=32", "vocab_size=32000",
        "pipeline_model_parallel_size=4", "world_size=4", "global_batch_size=8", "name=H100-SXM"]
SCHEDULES = {"1f1b": [], "interleaved": ["num_virtual_stages_per_pipeline_rank=2"]}
schedules = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)


def planned(level_bytes):
    return ["system=planned", f"planned_device_bytes={level_bytes}"]


def predicted(offsim, *settings):
    ranks = json.loads(offsim("predict", "--json", "--brief", BASE, *sets(*FOUR, *settings), check=0).stdout)["result"]["ranks"]
    return {"peak": max(rank["steady_allocated_peak_bytes"] for rank in ranks), "step": max(rank["step_time_s"] for rank in ranks),
            "out": [rank["d2h_bytes"] for rank in ranks]}


def most_saved(plan):
    """By rank, the most bytes that saved tensors and what came back take on the device, from the plan's text."""
    most = []
    for rank in re.split(r"^rank ", plan, flags=re.M)[1:]:
        alive, now, peak = {}, 0, 0
        for op, buffer, rest in re.findall(r"^  (alloc|free) +\w+ +(%\d+)(.*)", rank, re.M):
            found = re.search(r" (\d+) bytes (saved|reload) ", rest)
            if op == "alloc" and found:
                alive[buffer] = int(found[1])
            now += alive[buffer] if op == "alloc" and found else -alive.pop(buffer, 0) if op == "free" else 0
            peak = max(peak, now)
        most.append(peak)
    return most


@schedules
@pytest.mark.parametrize("level", [1 << 29, 2 << 30, 4 << 30])
def test_the_level_holds_on_every_stage(offsim, schedule, level):
    """Beside it there are what one operator saves or needs, statistics that are too small to move, the received inputs, and the
    loss's logits."""
    hidden = 4096 * 4096 * 2
    plan = offsim("plan", BASE, *sets(*FOUR, *schedule, *planned(level)), check=0).stdout
    found = most_saved(plan)
    assert len(found) == 4
    assert max(found[:-1]) <= level + 18 * hidden and found[-1] <= level + 28 * hidden
    assert min(found[:-1]) >= level


def test_first_stages_copy_more(offsim):
    out = predicted(offsim, *planned(2 << 30))["out"]
    assert out == sorted(out, reverse=True) and out[0] > out[3] > 0


def best_level(offsim, schedule, peak_bytes):
    """What planned takes with the highest level, to 64 MiB, that needs no more memory than `peak_bytes`."""
    low, high, best = 0, 1 << 34, None
    while high - low > 64 << 20:
        level = (low + high) // 2
        found = predicted(offsim, *schedule, *planned(level))
        low, high, best = (level, high, found) if found["peak"] <= peak_bytes else (low, level, best)
    return best


@schedules
@pytest.mark.parametrize("modules", ["core_attn,attn_proj", "core_attn,attn_proj,qkv_linear"])
def test_no_slower_than_fine_grained_offloading_of_the_same_peak(offsim, schedule, modules):
    fine = predicted(offsim, *schedule, "fine_grained_activation_offloading=true", f"offload_modules={modules}")
    own = best_level(offsim, schedule, fine["peak"])
    assert own["step"] <= fine["step"]
    assert sum(own["out"]) < sum(fine["out"]) / 2


@schedules
def test_no_step_but_the_first_pins_memory(offsim, schedule):
    first, later = (offsim("plan", BASE, *sets(*FOUR, *schedule, *planned(2 << 30)), "--iteration", iteration, check=0).stdout
                    for iteration in ("warmup", "steady"))
    pinned = re.findall(r"^  host_(?:alloc|free) ", first, re.M)
    assert pinned and set(pinned) == {"  host_alloc "}
    assert "  d2h " in later and not re.search(r"^  host_(alloc|free) ", later, re.M)


def test_what_another_operator_reads_stays(offsim):
    """The gradient of the router's auxiliary loss reads the scores before the operator that saved them needs them."""
    settings = sets("system=planned", "fine_grained_activation_offloading=false")
    offsim("check", "docs/examples/tiny-deepseek.yaml", *settings, check=0)
    saved = json.loads(offsim("plan", "--saved-tensors", "docs/examples/tiny-deepseek.yaml", *settings, check=0).stdout)["ranks"][0]["saved"]
    actions = {row["tensor"]: row["action"] for row in saved if row["module"] == "mlp.router"}
    assert actions["scores"] == "keep" and "offload" in {row["action"] for row in saved}


def test_by_default_the_level_grows_with_the_micro_batches_in_flight(offsim):
    """Four layers a stage: one stays of each micro-batch."""
    kept = most_saved(offsim("plan", BASE, *sets(*FOUR, "system=none"), check=0).stdout)
    found = most_saved(offsim("plan", BASE, *sets(*FOUR, *planned(0)), check=0).stdout)
    assert all(0.2 < part / all_ < 0.45 for part, all_ in zip(found[:-1], kept))


@schedules
def test_a_stages_input_is_listed_where_it_is_read(offsim, schedule):
    """Once for each chunk but the model's first, and not as recomputed where a later micro-batch's comes during backward."""
    listed = json.loads(offsim("plan", "--saved-tensors", BASE, *sets(*FOUR, *schedule, *planned(2 << 30)), check=0).stdout)["ranks"]
    inputs = [sum(row["module"] == "pipeline" for row in rank["saved"]) for rank in listed]
    chunks = 1 + len(schedule)
    assert inputs == [chunks - 1] + [chunks] * 3
    assert {row["action"] for rank in listed for row in rank["saved"]} == {"keep", "offload"}


HF = "docs/examples/hf-16-layers.yaml"
AGAIN = ["recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]
PRODUCTS = [*AGAIN, "selective_checkpointing=true", "selective_checkpointing_save=attention,aten::mm"]


@pytest.mark.parametrize("settings", [[], [*PRODUCTS, "recompute_layers=([0,1]*8)"], [*PRODUCTS, "recompute_mlp_layers=([0,1]*8)"]],
                         ids=["all", "layers again", "halves again"])
def test_compute_waits_for_copies_when_it_makes_what_needs_the_room(offsim, settings):
    """The log-probabilities need most room: the output layer runs before that."""
    plan = offsim("plan", HF, *sets(*planned(4 << 30), *settings), check=0).stdout
    forward = re.search(r"^forward m0 c0\n(.*?)^backward", plan, re.M | re.S)[1]
    ops = [line for line in forward.splitlines() if " compute " in line and not re.match("  (wait +(d2h|h2d)|record) ", line)]
    after = [ops[k + 1] for k, op in enumerate(ops) if op.startswith("  free ") and ops[k - 1].startswith("  wait ")]
    made = [op for op in after if op.startswith("  alloc ")]
    assert len(made) > 4 and all(" saved @" in op for op in made)
    assert " log_probabilities " in made[-1]
    assert set(op.split()[0] for op in after) == {"alloc", "wait"}


def test_no_piece_leaves_that_would_fit(offsim):
    """The last of the first pieces may be gate and up, 448 MiB: then earlier ones stay."""
    least = 8192 * 4096 * 2
    for level in range(4 << 30, 5 << 30, 100 << 20):
        saved = json.loads(offsim("plan", "--saved-tensors", HF, *sets(*planned(level)), check=0).stdout)["ranks"][0]["saved"]
        stay, leave = (sum(row["bytes"] for row in saved if row["action"] == action and row["bytes"] > 1 << 22)
                       for action in ("keep", "offload"))
        assert level - least < stay <= level and leave > 0


class StubOfTorch(types.ModuleType):
    def __getattr__(self, name):
        return type(name, (), {})


def test_the_hook_of_pytorch_chooses_the_same_pieces(offsim, monkeypatch):
    """docs/examples/planned.py, after a micro-batch that saved the same."""
    for name in ["torch", "torch.autograd.graph", "torch.multiprocessing.reductions", "torch.utils._python_dispatch", "torch.utils._pytree"]:
        monkeypatch.setitem(sys.modules, name, StubOfTorch(name))
    hook = runpy.run_path(str(ROOT / "docs/examples/planned.py"))["Planned"]
    for level in [0, 1 << 30, 4 << 30, 13100000000, 1 << 40]:
        saved = json.loads(offsim("plan", "--saved-tensors", HF, *sets(*planned(max(level, 1))), check=0).stdout)["ranks"][0]["saved"]
        rows = [row for row in saved if row["bytes"] > 1 << 22]
        pieces = [types.SimpleNamespace(bytes=row["bytes"]) for row in rows]
        chosen = hook.choose_leaving(types.SimpleNamespace(expected=[], level=level, pieces=pieces))
        assert chosen == [row["action"] == "offload" for row in rows]


def saved_bytes(offsim, *settings):
    listed = json.loads(offsim("plan", "--saved-tensors", HF, *sets(*settings), check=0).stdout)["ranks"][0]["saved"]
    return {action: {(row["module"], row["tensor"]): row["bytes"] for row in listed
                     if row["layer"] == 3 and row["bytes"] > 1 << 22 and row["action"] == action}
            for action in ("keep", "recompute")}


def test_halves_of_layers_keep_what_they_take_and_what_products_make(offsim):
    """PyTorch's checkpoints around norm and attention, and around norm and MLP, whose policy keeps attention and products but each
    half's own result (tests/peers/llama_layers.py --recompute-mlp-layers): their inputs are the sums, which no layer makes again."""
    row = 8192 * 4096 * 2
    kept = {("mlp.residual", "sum"): row, ("self_attn.residual", "sum"): row, ("self_attn", "attention"): row,
            ("self_attn.qkv_proj", "output"): row + row // 2, ("mlp.gate_up_proj", "output"): 7 * row}
    norm, mlp = {("input_layernorm", "normed"): row}, {("post_attention_layernorm", "normed"): row,
                                                       ("mlp", "activated"): 7 * row // 2, ("mlp", "product"): 7 * row // 2}
    assert saved_bytes(offsim, *PRODUCTS, "recompute_mlp_layers=1") == {"keep": kept, "recompute": norm | mlp}
    assert saved_bytes(offsim, *PRODUCTS, "recompute_mlp_layers=([1,0]*8)") == {"keep": kept | mlp, "recompute": norm}
    assert saved_bytes(offsim, *PRODUCTS, "recompute_mlp_layers=1", "recompute_layers=([1,0]*8)") == \
        {"keep": kept | norm, "recompute": mlp}
    activated = {name: mlp.pop(name) for name in [("mlp", "activated"), ("mlp", "product")]}
    assert saved_bytes(offsim, *PRODUCTS, "recompute_mlp_layers=1", "selective_checkpointing_activation_layers=([0,1]*8)") == \
        {"keep": kept | activated, "recompute": norm | mlp}
    mlp |= activated
    left = kept.pop(("mlp.gate_up_proj", "output"))
    assert saved_bytes(offsim, *PRODUCTS, "recompute_mlp_layers=1", "selective_checkpointing_mlp_layers=([1,0]*8)") == \
        {"keep": kept, "recompute": norm | mlp | {("mlp.gate_up_proj", "output"): left}}
    whole = saved_bytes(offsim, *PRODUCTS, "recompute_layers=1")
    assert sum(whole["keep"].values()) == sum(kept.values()) + left + row, "its last product, which nothing reads"
    assert ("self_attn.residual", "sum") in whole["recompute"]
