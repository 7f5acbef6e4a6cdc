"""Names that the program lists are names that it takes, and all of them."""

import json
import re

import pytest

from conftest import ROOT, sets


def names(offsim, option):
    return [line.split()[0] for line in offsim(option, check=0).stdout.splitlines()]


def test_machines(offsim):
    listed = names(offsim, "--list-machines")
    assert sorted(listed) == sorted(path.stem for path in ROOT.glob("sim/machine/presets/*.yaml"))
    assert offsim("predict", "--machine", listed[0], "--brief", "docs/examples/one-layer.yaml").status == 0


def test_defects(offsim):
    """Each has versions that software.megatron takes, in order, and the page of Megatron's system shows the list."""
    row = re.search(r"^\| `megatron` \|([^|]*)\|", (ROOT / "docs/reference/scenario.md").read_text(), re.M)[1]
    versions = re.findall(r"`([\w.]+)`", row)
    for line in offsim("--list-defects", check=0).stdout.splitlines():
        _, first, last, *_ = line.split()
        assert versions.index(first) <= versions.index(last)


ONE_LAYER_CHUNKS = ["tests/data/small.yaml", "--set", "num_layers=2", "--set", "pipeline_model_parallel_size=2", "--set",
                    "offload_modules=core_attn,attn_proj", "--set", "nvte_cpu_offload_v1=true"]


def copies_of(plan):
    """Copies and waits, without the numbers of buffers, which what the data loader keeps moves."""
    return [re.sub(r"%\d+", "%", line) for line in plan.splitlines() if re.match(r"  (d2h|h2d|record|wait) ", line)]


@pytest.mark.parametrize("version, stops", [("core_v0.16", False), ("core_v0.18", False), ("core_v0.19", True),
                                            ("main_2026_08", True)])
def test_a_version_has_its_defects(version, stops, offsim):
    """FINISHED_EARLY stops a chunk of one layer, but not where KEPT_PENDING keeps its handler busy."""
    done = offsim("predict", "--brief", *ONE_LAYER_CHUNKS, "--set", f"software.megatron={version}")
    assert done.status == (2 if stops else 0) and ("Chunk mismatch" in done.stderr) == stops
    fixed = offsim("plan", *ONE_LAYER_CHUNKS, "--set", "mode=fixed", "--set", f"software.megatron={version}", check=0)
    newest = offsim("plan", *ONE_LAYER_CHUNKS, "--set", "mode=fixed", check=0)
    assert copies_of(fixed.stdout) == copies_of(newest.stdout)


def test_kept_batches_with_pairs_of_passes(offsim):
    """0.18's data iterator keeps each batch from the end of its forward, which a pair of passes ends after its layers."""
    done = offsim("check", "tests/data/small.yaml", *sets(
        "megatron=core_v0.18", "num_layers=2", "pipeline_model_parallel_size=1", "world_size=2", "global_batch_size=4",
        "expert_model_parallel_size=2", "overlap_moe_expert_parallel_comm=true", "num_experts=8", "moe_router_topk=2",
        "moe_ffn_hidden_size=1024", "moe_grouped_gemm=true", "moe_token_dispatcher_type=alltoall",
        "fine_grained_activation_offloading=false", "offload_modules="))
    assert done.status == 0 and "steady: safe" in done.stdout


def test_no_batch_is_kept_without_reruns(offsim):
    """0.18's data iterator keeps the four micro-batches of a step for a rerun, unless --rerun-mode is disabled."""
    dense = sets("num_layers=2", "pipeline_model_parallel_size=1", "world_size=1", "global_batch_size=4",
                 "fine_grained_activation_offloading=false", "offload_modules=", "megatron=core_v0.18")
    static = {}
    for mode in ("validate_results", "disabled"):
        done = offsim("predict", "tests/data/small.yaml", "--json", *dense, "--set", f"rerun_mode={mode}", check=0)
        static[mode] = json.loads(done.stdout)["result"]["ranks"][0]["static_bytes"]
    tokens = 4096
    batch = tokens * tokens + tokens * (8 + 8 + 8 + 4)  # the mask; tokens, labels, positions and the loss mask
    assert static["validate_results"] - static["disabled"] == 4 * batch


GATHERED = sets("multi_latent_attention=true", "q_lora_rank=512", "kv_lora_rank=512", "group_query_attention=false",
                "num_query_groups=null", "qk_layernorm=true", "min_offloaded_tensor_size=1024",
                "offload_modules=qkv_linear,core_attn,attn_proj")


def test_older_versions_gather_views(offsim):
    """GATHERED_VIEW: the fused projection's parts go through a copy on the copying stream."""
    plans = {version: offsim("plan", "tests/data/small.yaml", *GATHERED, "--set", f"software.megatron={version}",
                             check=0).stdout for version in ("core_v0.19", "main_2026_08")}
    copies = {version: len(re.findall(r"^ +kernel +d2h +copy ", text, re.M)) for version, text in plans.items()}
    assert copies["core_v0.19"] > copies["main_2026_08"]


@pytest.mark.parametrize("option, key", [("--list-systems", "system"), ("--list-modules", "offload_modules"),
                                         ("--list-modules", "recompute_modules")])
def test_words_are_those_of_the_reference(offsim, option, key):
    row = re.search(rf"^\| `{key}` \|([^|]*)\|", (ROOT / "docs/reference/scenario.md").read_text(), re.M)[1]
    documented = set(re.findall(r"`(\w+)`", row))
    if option == "--list-systems":
        assert set(names(offsim, option)) == documented
    else:
        lines = dict(line.split(": ", 1) for line in offsim(option, check=0).stdout.splitlines())
        assert set(lines[key].split()) == documented


def test_help_of_a_verb(offsim):
    assert offsim("help", "tune", check=0).stdout == offsim("tune", "--help", check=0).stdout
    assert "did you mean \"tune\"?" in offsim("help", "tun", check=2).stderr
