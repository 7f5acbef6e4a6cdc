"""CUDA graphs: where a plan replays them, what that saves, and which plans are wrong."""

import json
import re

import pytest

SMALL = "tests/data/small.yaml"
NO_OFFLOAD = ["--set", "fine_grained_activation_offloading=false", "--set", "offload_modules="]
SHORT = ["--set", "seq_length=512", "--set", "hidden_dropout=0", "--set", "check_for_nan_in_loss_and_grad=false"]
EXPERTS = ["--set", "num_experts=8", "--set", "moe_ffn_hidden_size=1024", "--set", "moe_grouped_gemm=true",
           "--set", "moe_token_dispatcher_type=alltoall", "--set", "expert_model_parallel_size=2",
           "--set", "moe_router_topk=2", "--set", "moe_layer_freq=2"]
LAYERS, MICROBATCHES = 4, 8  # of a rank


def graphs(impl, modules=""):
    return ["--set", f"cuda_graph_impl={impl}"] + (["--set", f"cuda_graph_modules={modules}"] if modules else [])


def ops_of(plan):
    """By rank: the ops as (words, whether they are in a graph), and the number of graphs."""
    ranks = []
    for text in plan.split("\nrank ")[1:]:
        inside, ops, count = False, [], 0
        for line in text.splitlines():
            words = line.split()
            if words[:1] == ["graph_begin"]:
                inside, count = True, count + 1
            elif words[:1] == ["graph_end"]:
                inside = False
            elif words:
                ops.append((line, inside))
        ranks.append((ops, count))
    return ranks


def layer_and_module(line):
    found = re.search(r"@ layer (\d+) (\S+)", line)
    return found and (int(found[1]), found[2])


def kernels(ops):
    return [(line, inside) for line, inside in ops if line.startswith(("  kernel", "  collective"))]


@pytest.mark.parametrize("modules, captured", [
    ("", lambda module: True),
    ("attn", lambda module: module.startswith(("self_att", "input_layernorm"))),
    ("mlp", lambda module: module.startswith(("mlp", "pre_mlp"))),
    ("attn,mlp", lambda module: True),
])
def test_scopes_of_dense_layers(offsim, modules, captured):
    plan = offsim("plan", SMALL, *NO_OFFLOAD, *graphs("transformer_engine", modules), check=0).stdout
    for ops, count in ops_of(plan):
        assert count == 2 * LAYERS * MICROBATCHES
        for line, inside in kernels(ops):
            where = layer_and_module(line)
            assert inside == bool(where and captured(where[1])), line


def test_modules_of_the_local_kind_have_graphs_of_their_own(offsim):
    plan = offsim("plan", SMALL, *NO_OFFLOAD, *graphs("local", "attn,mlp"), check=0).stdout
    assert [count for _, count in ops_of(plan)] == [4 * LAYERS * MICROBATCHES] * 2


def test_router_is_captured_and_experts_are_not(offsim):
    plan = offsim("plan", SMALL, *NO_OFFLOAD, *EXPERTS, *graphs("transformer_engine", "attn,moe_router"),
                  check=0).stdout
    for ops, _ in ops_of(plan):
        for line, inside in kernels(ops):
            where = layer_and_module(line)
            if where and where[1].startswith(("mlp.experts", "mlp.token_dispatcher")):
                assert not inside, line
            if where and where[1].startswith(("mlp.router", "self_attention")):
                assert inside, line
        assert not [line for line, inside in ops if inside and line.startswith(("  host_wait", "  host_read", "  send"))]


def test_full_iteration_is_one_graph_up_to_the_optimizer(offsim):
    one_stage = ["--set", "pipeline_model_parallel_size=1", "--set", "world_size=1"]
    plan = offsim("plan", SMALL, *NO_OFFLOAD, *SHORT, *one_stage, *graphs("full_iteration"), check=0).stdout
    for ops, count in ops_of(plan):
        assert count == 1
        marks = [line for line, inside in ops if line.startswith(("forward", "backward")) and not inside]
        assert len(marks) == 1  # the graph begins after the first
        assert not [line for line, inside in kernels(ops) if inside and " optimizer" in line]


def test_first_iteration_is_issued_op_by_op(offsim):
    plan = offsim("plan", SMALL, *NO_OFFLOAD, *graphs("transformer_engine"), "--iteration", "warmup", check=0)
    assert "graph_begin" not in plan.stdout


@pytest.mark.parametrize("setting", [graphs("transformer_engine"), SHORT + graphs("full_iteration")])
def test_plan_with_graphs_reads_back(offsim, setting):
    plan = offsim("plan", SMALL, *NO_OFFLOAD, *setting, check=0).stdout
    assert offsim("plan", "--plan", "-", stdin=plan, check=0).stdout == plan
    assert not [line for line in plan.splitlines() if line != line.rstrip()]


def test_launches_are_saved(offsim):
    """Short sequences are bound by launches: the more is captured, the shorter the step; memory stays."""
    settings = [graphs("none"), graphs("transformer_engine", "attn"), graphs("transformer_engine"),
                graphs("full_iteration")]
    runs = [json.loads(offsim("predict", SMALL, *NO_OFFLOAD, *SHORT, *setting, "--json", check=0).stdout)
            for setting in settings]
    steps = [float(run["result"]["step_time_s"]) for run in runs]
    assert steps == sorted(steps, reverse=True) and len(set(steps)) == len(steps)


def test_static_buffers_of_graphs(offsim):
    """Transformer Engine's graphs keep hidden states and a mask for every layer of every micro-batch in
    flight, and one gradient of an output: here 16 MiB each."""
    static = [[rank["static_bytes"] for rank in json.loads(
        offsim("predict", SMALL, *NO_OFFLOAD, *setting, "--json", check=0).stdout)["result"]["ranks"]]
        for setting in (graphs("none"), graphs("transformer_engine", "attn"), graphs("transformer_engine", "mlp"))]
    added = [[(with_graphs - without) // 2 ** 20 for with_graphs, without in zip(one, static[0])]
             for one in static[1:]]
    assert added == [[2 * LAYERS * 32 + 16, LAYERS * 32 + 16], [2 * LAYERS * 16 + 16, LAYERS * 16 + 16]]


def test_copies_in_graphs_hold_up_the_next_layer(offsim):
    """Without graphs compute never waits for a copy to the host; the graph of a layer joins those in it. With larger
    micro-batches the link is busy when a layer ends."""
    offload = ["--set", "offload_modules=core_attn,attn_proj", "--set", "micro_batch_size=2"]
    exposed = [json.loads(offsim("predict", SMALL, *offload, *setting, "--json", check=0).stdout)
               ["result"]["ranks"][0]["exposed_d2h_s"]
               for setting in (graphs("none"), graphs("transformer_engine", "attn"))]
    assert float(exposed[0]) == 0 < float(exposed[1])


@pytest.mark.parametrize("lines, message", [
    (["graph_begin host", "graph_begin host", "graph_end host"], "3:3: error: a graph begins inside a graph"),
    (["graph_end host"], "a graph ends that has not begun"),
    (["graph_begin host"], "the graph never ends"),
    (["record compute e0", "graph_begin host", "host_wait host e0"], "the host thread cannot wait inside a graph"),
    (["graph_begin compute"], "graph_begin is in stream compute; expected host"),
])
def test_wrong_graphs_get_one_message(offsim, lines, message):
    text = "\n".join(["offsim-plan 1", "ranks 1", "", "rank 0"] + ["  " + line for line in lines]) + "\n"
    run = offsim("plan", "--plan", "-", stdin=text)
    assert run.status == 2 and message.split(": ")[-1] in run.stderr, run.stderr


@pytest.mark.parametrize("modules", ["moe_act", "expert_fc1,moe_act", "core_attn,expert_fc1,moe_act"])
def test_backward_reads_what_a_delayed_commit_keeps(offsim, modules):
    """No graph follows the last experts of a micro-batch: their commit is delayed until backward has read them."""
    words = (SMALL, *SHORT, *EXPERTS, *graphs("transformer_engine", "attn"), "--set", f"offload_modules={modules}",
             "--set", "delay_offload_until_cuda_graph=true", "--set", "mode=fixed")
    assert "steady: safe" in offsim("check", *words).stdout
