"""What must hold for every valid configuration: on configurations drawn from fixed seeds."""

import json
import random
import re

import pytest

from conftest import ROOT

SEEDS = 30
SEEDS_OF_ALL = 300
DRAWS = 20  # until a draw is a valid configuration
ITERATIONS = ("baseline", "warmup", "result")
PICOSECOND = 1e-12
LINK_RATES = ("d2h_bytes_per_us", "h2d_bytes_per_us")
RATE = re.compile(r"^(\s+\w+_(?:bytes_per_us|gflops): +)(\d+)", re.MULTILINE)


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        every = metafunc.config.getoption("--all-configurations")
        metafunc.parametrize("seed", range(SEEDS_OF_ALL if every else SEEDS))


# ---- drawing ----


def draw_model(r, layers):
    heads = r.choice([4, 8, 16])
    model = {
        "num_layers": layers,
        "hidden_size": heads * r.choice([64, 128]),
        "num_attention_heads": heads,
        "normalization": r.choice(["LayerNorm", "RMSNorm"]),
        "swiglu": r.random() < 0.7,
        "add_bias_linear": r.random() < 0.3,
        "position_embedding_type": "rope",
        "hidden_dropout": r.choice([0.0, 0.1]),
        "attention_dropout": 0.0,
        "untie_embeddings_and_output_weights": r.random() < 0.5,
        "vocab_size": r.choice([1000, 32000]),
        "qk_layernorm": r.random() < 0.3,
    }
    if r.random() < 0.4:
        model.update(multi_latent_attention=True, q_lora_rank=r.choice([0, 256]), kv_lora_rank=256,
                     qk_head_dim=64, qk_pos_emb_head_dim=32, v_head_dim=64)
    elif r.random() < 0.6:
        model.update(group_query_attention=True, num_query_groups=r.choice([2, 4]))
    return model


def draw_experts(r, ep):
    experts = {
        "num_experts": ep * r.choice([2, 4]),
        "moe_ffn_hidden_size": r.choice([256, 512]),
        "moe_router_topk": 2,
        "moe_grouped_gemm": True,
        "moe_token_dispatcher_type": r.choice(["alltoall", "allgather", "flex"]),
        "add_bias_linear": False,
    }
    if r.random() < 0.4:
        experts["moe_shared_expert_intermediate_size"] = 512
    if r.random() < 0.3:
        experts["moe_layer_freq"] = 2
    return experts


def draw_offload(r, moe, mla):
    modules = ["core_attn"]
    modules += [name for name in ("attn_proj", "qkv_linear") if r.random() < 0.5]
    modules += [name for name in ("attn_norm", "mlp_norm") if (moe or mla) and r.random() < 0.5]
    modules += [name for name in ("expert_fc1", "moe_act") if moe and r.random() < 0.5]
    offload = {
        "fine_grained_activation_offloading": True,
        "offload_modules": modules,
        "min_offloaded_tensor_size": r.choice([1, 4096, 262144, 1048576]),
        "activation_offload_fraction": r.choice([1.0, 1.0, 0.5, 0.0]),
        "delta_offload_bytes_across_pp_ranks": r.choice([0, 0, 3 << 20]),
    }
    if r.random() < 0.3:
        offload["fine_grained_offloading_max_inflight_offloads"] = r.choice([0, 1, 3])
    return offload


def draw_recompute(r, moe, mla):
    kind = r.choice(["", "", "selective", "full"])
    if kind == "full":
        return {"recompute_granularity": "full", "recompute_method": r.choice(["uniform", "block"]),
                "recompute_num_layers": 1}
    if kind == "":
        return {}
    modules = ["core_attn", "mlp", "layernorm"]
    modules += ["moe_act", "moe"] if moe else []
    modules += ["mla_up_proj"] if mla else []
    return {"recompute_granularity": "selective",
            "recompute_modules": [r.choice(modules)]}


def draw(r):
    """A scenario; most are valid."""
    tp, cp, pp = r.choice([1, 1, 2]), r.choice([1, 1, 2]), r.choice([1, 2, 4])
    ep = r.choice([0, 0, 1, 2])  # 0: no experts
    stages = r.choice([1, 2]) if pp > 1 else 1
    dp = max(ep, 1) * r.choice([1, 2])
    microbatches = pp * r.choice([1, 2, 3])
    model = draw_model(r, pp * stages * r.choice([1, 2, 3]))
    if ep:
        model.update(draw_experts(r, ep))
    micro_batch = r.choice([1, 2])
    mla = model.get("multi_latent_attention", False)
    parallel = {
        "world_size": tp * cp * pp * dp,
        "tensor_model_parallel_size": tp,
        "sequence_parallel": tp > 1,
        "context_parallel_size": cp,
        "pipeline_model_parallel_size": pp,
        "expert_model_parallel_size": max(ep, 1),
        "use_distributed_optimizer": r.random() < 0.5,
    }
    if stages > 1:
        parallel["num_virtual_stages_per_pipeline_rank"] = stages
        parallel["overlap_p2p_comm"] = r.random() < 0.5
    return {
        "model": model,
        "parallel": parallel,
        "training": {"micro_batch_size": micro_batch, "bf16": True,
                     "global_batch_size": microbatches * micro_batch * dp,
                     "seq_length": r.choice([1024, 2048, 4096])},
        "recompute": draw_recompute(r, ep > 0, mla),
        "offload": draw_offload(r, ep > 0, mla),
    }


# ---- running ----


def machine_file(folder, preset, name, change):
    """A copy of a shipped machine; change(key, value) gives each rate's new value."""
    text = (ROOT / "sim" / "machine" / "presets" / f"{preset}.yaml").read_text()
    path = folder / f"{name}.yaml"
    path.write_text(RATE.sub(lambda m: m[1] + str(change(m[1].strip(" :"), int(m[2]))), text))
    return path


def link_times(preset, folder, direction, factor):
    """The machine with one direction's rate of each GPU changed, and nothing else."""
    text = (ROOT / "sim" / "machine" / "presets" / f"{preset}.yaml").read_text()
    rate = rf"^link:\n\s+(?:.*\n)*?\s+{direction}_bytes_per_us: +(\d+)"
    found = re.search(rate, text, re.MULTILINE)
    start, end = found.span(1)
    path = folder / f"{preset}-{direction}.yaml"
    path.write_text(f"{text[:start]}{int(found[1]) * factor}{text[end:]}")
    return path


class Case:
    """The prediction of a scenario on a machine, perhaps with other settings; None where these are no valid configuration."""

    def __init__(self, offsim, path, scenario):
        self.offsim, self.path, self.scenario = offsim, path, scenario

    def __call__(self, machine, **sections):
        changed = self.scenario | {name: self.scenario[name] | keys for name, keys in sections.items()}
        self.path.write_text(json.dumps(changed))
        run = self.offsim("predict", self.path, "--json", "--brief", "--machine", machine)
        assert run.status in (0, 2), run.stderr
        return json.loads(run.stdout) if run.status == 0 else None


@pytest.fixture
def case(seed, offsim, tmp_path):
    """The seed's first draw that is a valid configuration."""
    r = random.Random(seed)
    for _ in range(DRAWS):
        drawn = Case(offsim, tmp_path / "scenario.yaml", draw(r))
        if drawn("ideal") is not None:
            return drawn
    return pytest.fail(f"no draw of {DRAWS} was valid")


def ranks_of(prediction):
    return [(iteration, rank)
            for iteration in ITERATIONS for rank in prediction[iteration]["ranks"]]


# ---- the properties ----


def check_rank(iteration, rank):
    sizes = {key: value for key, value in rank.items()
             if key.endswith("_bytes") and key != "simulated_saving_bytes"}
    assert all(value >= 0 for value in sizes.values()), sizes
    assert all(value >= 0 for value in rank["peak_by_class"].values())
    assert rank["d2h_bytes"] == rank["h2d_bytes"]
    steady = rank["steady_allocated_peak_bytes"]
    assert rank["allocated_peak_bytes"] >= steady >= rank["static_bytes"]
    assert steady >= rank["requested_peak_bytes"]
    assert rank["reserved_peak_bytes"] >= rank["live_peak_bytes"]
    assert rank["host_pinned_pow2_bytes"] >= rank["host_pinned_peak_bytes"]
    assert 0 <= rank["offloaded_groups"] <= rank["groups"]
    times = [rank[key] for key in ("compute_busy_s", "exposed_d2h_s", "exposed_h2d_s", "bubble_s")]
    assert min(times) >= 0 and sum(times) <= rank["step_time_s"] + 1e-9
    if iteration == "baseline":
        assert rank["d2h_bytes"] == rank["host_pinned_peak_bytes"] == rank["offloaded_groups"] == 0


def test_every_rank(case):
    prediction = case("H100-SXM")
    for iteration, rank in ranks_of(prediction):
        check_rank(iteration, rank)


def requests(prediction):
    return [(iteration, rank["pp_rank"], rank["requested_peak_bytes"], rank["d2h_bytes"], rank["offloaded_groups"])
            for iteration, rank in ranks_of(prediction)]


def test_requests_do_not_depend_on_rates(case, seed, tmp_path):
    """Allocated bytes do: by the unsplit ends of blocks, which depend on when copies end."""
    r = random.Random(seed)
    changed = machine_file(tmp_path, "H100-SXM", "other rates",
                           lambda key, value: max(1, int(value * r.choice([0.1, 0.5, 2, 10]))))
    assert requests(case(changed)) == requests(case("H100-SXM"))


@pytest.mark.parametrize("direction", ["d2h", "h2d"])
def test_faster_link_never_lengthens_the_step(case, direction, tmp_path):
    slow, fast = case("ideal"), case(link_times("ideal", tmp_path, direction, 3))
    assert fast["result"]["step_time_s"] <= slow["result"]["step_time_s"]
    assert fast["baseline"]["step_time_s"] == slow["baseline"]["step_time_s"]


# ---- more offload ----

# A fraction and a delta count groups: with one more that is small, a large one may stay on the GPU.
ALL_GROUPS = {"activation_offload_fraction": 1.0, "delta_offload_bytes_across_pp_ranks": 0}
MODULES = ("core_attn", "attn_proj", "qkv_linear", "attn_norm", "mlp_norm", "expert_fc1", "moe_act")


def check_more(less, more):
    """Where more is offloaded, no rank copies less, and none saves less in theory."""
    if less is None or more is None:
        return
    for one, other in zip(less["result"]["ranks"], more["result"]["ranks"], strict=True):
        for key in ("d2h_bytes", "offloaded_groups", "theoretical_saving_bytes"):
            assert one[key] <= other[key], key


def test_larger_fraction_never_saves_less(case, seed):
    less, more = sorted(random.Random(seed).sample((0.0, 0.1, 0.25, 0.5, 0.75, 1.0), 2))
    check_more(case("ideal", offload={"activation_offload_fraction": less}),
               case("ideal", offload={"activation_offload_fraction": more}))


def test_one_more_module_never_saves_less(case, seed):
    modules = case.scenario["offload"]["offload_modules"]
    left = [name for name in MODULES if name not in modules]
    if not left:
        pytest.skip("it offloads all of them")
    added = random.Random(seed).choice(left)
    check_more(case("ideal", offload=ALL_GROUPS), case("ideal", offload=ALL_GROUPS | {"offload_modules": [*modules, added]}))


def test_smaller_tensors_never_save_less(case):
    check_more(case("ideal", offload=ALL_GROUPS), case("ideal", offload=ALL_GROUPS | {"min_offloaded_tensor_size": 1}))


def test_no_delta_never_saves_less(case):
    without = {"delta_offload_bytes_across_pp_ranks": 0}
    check_more(case("ideal"), case("ideal", offload=without))


# ---- limits of the machine ----


def test_link_without_end_costs_no_time(case, tmp_path):
    """What is left of the overhead is no more than the copies themselves take."""
    fast = machine_file(tmp_path, "ideal", "fast link", lambda key, value: value * (10000 if key in LINK_RATES else 1))
    prediction = case(fast)
    copies = sum(rank["d2h_busy_s"] + rank["h2d_busy_s"] for rank in prediction["result"]["ranks"])
    overhead = prediction["result"]["step_time_s"] - prediction["baseline"]["step_time_s"]
    assert -PICOSECOND <= overhead <= copies + PICOSECOND


def test_double_rates_halve_the_step(case, tmp_path):
    """Times are whole picoseconds: each op may be one too long."""
    slow, fast = case("ideal"), case(machine_file(tmp_path, "ideal", "double rates", lambda key, value: 2 * value))
    for iteration in ITERATIONS:
        assert fast[iteration]["step_time_s"] * 2 == pytest.approx(slow[iteration]["step_time_s"], rel=1e-6)


def test_order_of_ranks_on_one_host(case, tmp_path):
    """Where all GPUs are alike, it does not matter which of them are a group: only the numbers of the ranks change."""
    text = (ROOT / "sim/machine/presets/ideal.yaml").read_text()
    path = tmp_path / "one host.yaml"
    path.write_text(re.sub(r"^( +gpus(?:_per_group)?: +)8 ", r"\g<1>32 ", text, flags=re.M))
    one, other = case(path), case(path, parallel={"use_tp_pp_dp_mapping": True})
    if case.scenario["parallel"]["world_size"] > 32 or other is None:
        pytest.skip("no such host, or experts that have another data parallel size")
    for prediction in (one, other):
        del prediction["scenario"]
        for _, rank in ranks_of(prediction):
            del rank["global_ranks"]
    assert one == other
