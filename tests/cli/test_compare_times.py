"""offsim compare of a prediction and a run with times: errors, gates, saving and R, picture. The
run is the prediction itself, relabelled as one of GPUs and made slower and larger by known
parts."""

import json

import pytest

from conftest import sets, validate

SCENARIO = "docs/examples/te-layers.yaml"
SLOWER, LARGER = 1.25, 1.01


def as_run(predicted, measured, larger=1.0):
    lines = [json.loads(line) for line in predicted.read_text().splitlines()]
    for line in lines:
        if "format_version" in line:
            line["source"] = "cuda"
        elif "steps_ps" in line:
            line["steps_ps"] = [round(ps * SLOWER) for ps in line["steps_ps"]]
        elif "figures_of_rank" in line:
            line["live_peak_bytes"] = round(line["live_peak_bytes"] * larger)
        else:
            line["begin_ps"], line["end_ps"] = (round(line[k] * SLOWER) for k in ("begin_ps", "end_ps"))
    measured.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


@pytest.fixture(scope="module")
def traces(offsim, tmp_path_factory):
    folder = tmp_path_factory.mktemp("times")
    names = {}
    for name, settings in (("with", []), ("without", ["offload.system=none"])):
        names[name] = folder / f"{name}.jsonl", folder / f"{name}-run.jsonl"
        offsim("predict", "--record", names[name][0], *sets(*settings), SCENARIO, check=0)
        as_run(*names[name], larger=LARGER if name == "with" else 1.0)
    return names


def compare(offsim, traces, *words):
    return offsim("compare", *traces["with"], "--without", ",".join(map(str, traces["without"])), *words)


def test_errors(offsim, traces):
    told = json.loads(compare(offsim, traces, "--json").stdout)
    validate("traces", told)
    assert told["step_error_ppm"] == -200000
    assert told["overhead_ppm_predicted"] == told["overhead_ppm_measured"] > 0
    for row in told["op_classes"]:
        if row["name"] in ("gemm", "d2h", "h2d", "attention_forward"):
            assert abs(row["median_error_ppm"] + 200000) < 10 and abs(row["p95_error_ppm"] - 200000) < 10
    rank = told["clocked_ranks"][0]
    for direction in ("d2h", "h2d"):
        predicted, measured = (rank[side][direction] for side in ("predicted", "measured"))
        assert predicted["bytes"] == measured["bytes"] > 0
        assert measured["busy_ps"] == pytest.approx(SLOWER * predicted["busy_ps"], rel=1e-6)
        assert measured["exposed_ps"] == pytest.approx(SLOWER * predicted["exposed_ps"], rel=1e-6)
    assert len(told["worst_ops"]) == 10
    saving = rank["live_saving_bytes"]
    assert saving["measured"] == saving["simulated"] - round(rank["predicted"]["live_peak_bytes"] * (LARGER - 1))


def test_exposed_time_is_what_the_engine_says(offsim, traces):
    """Computed from the ops' times alone, without the engine."""
    rank = json.loads(compare(offsim, traces, "--json").stdout)["clocked_ranks"][0]["predicted"]
    for direction in ("d2h", "h2d"):
        assert rank[direction]["exposed_ps"] == pytest.approx(rank[f"exposed_{direction}_ps"], rel=0.02)


@pytest.mark.parametrize("gate, holds, broken", [
    ("--max-step-error", 20.1, 19.9), ("--max-peak-error", 1.1, 0.9), ("--max-overhead-error", 0, None),
    ("--min-ratio", 93, 95),
])
def test_gates(offsim, traces, gate, holds, broken):
    assert compare(offsim, traces, gate, holds).status == 0
    if broken is not None:
        done = compare(offsim, traces, gate, broken)
        assert done.status == 1 and done.stderr.startswith(f"offsim: gate {gate}: ")


def test_table_and_picture(offsim, traces, tmp_path):
    picture = tmp_path / "both.svg"
    text = compare(offsim, traces, "--plot", picture).stdout
    for part in ("step       predicted ", " ms: -20.00 %", "overhead   predicted",
                 "What offload saves", "Copies between device and host", "The ops that the prediction misses most"):
        assert part in text
    assert picture.read_text().startswith("<?xml")


def test_picture_of_the_largest_numbers(offsim, traces, tmp_path):
    predicted, run = traces["with"]
    huge = tmp_path / "huge.jsonl"
    lines = [json.loads(line) for line in run.read_text().splitlines()]
    last = max((line for line in lines if "end_ps" in line), key=lambda line: line["op"])
    last["end_ps"] = last["requested_bytes"] = (1 << 63) - 1
    huge.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    offsim("compare", predicted, huge, "--plot", tmp_path / "huge.svg", limit_s=60)
    assert (tmp_path / "huge.svg").stat().st_size < 1 << 20



@pytest.mark.parametrize("words, message", [
    (["--without", "one"], "expected two traces with a comma between"),
    (["--max-step-error", "much"], "expected PERCENT, a number from 0 to 1000"),
    (["--plot", "x.gif"], "ends neither in .svg nor in .png nor in .pdf"),
    (["--plot-rank", 3, "--plot", "x.svg"], "there are 1 ranks"),
    (["--min-ratio", 99], "needs --without"),
])
def test_refused(offsim, traces, words, message):
    done = offsim("compare", *traces["with"], *words)
    assert done.status == 2 and message in done.stderr


def test_gates_need_times(offsim, traces):
    done = offsim("compare", traces["with"][0], traces["with"][0], "--max-step-error", 5)
    assert done.status == 2 and "need a prediction and a run with times" in done.stderr


def test_measured_calls_of_a_machine(offsim, root, tmp_path):
    """A call that was measured takes what was measured; its neighbours are corrected by it."""
    call = "gemm bf16 m=16384 n=57344 k=8192 batch=1 3087007744 bytes"
    text = (root / "sim/machine/presets/ideal.yaml").read_text()
    times = {}
    for ns in (1000000, 2000000):
        machine = tmp_path / f"{ns}.yaml"
        machine.write_text(f"{text}\nmeasured:\n  - {call} = {ns} ns\n")
        record = tmp_path / f"{ns}.jsonl"
        offsim("predict", "--machine", machine, "--record", record, SCENARIO, check=0)
        ops = [json.loads(line) for line in record.read_text().splitlines()[1:]]
        times[ns] = {op["call"]: op["end_ps"] - op["begin_ps"] for op in ops if op.get("name") == "gemm"}
        assert times[ns][call] == ns * 1000
    for other in times[1000000]:
        assert times[2000000][other] == pytest.approx(2 * times[1000000][other], rel=1e-5)


def test_measured_collectives(offsim, root, tmp_path):
    """One takes what was measured, and corrects that of another group."""
    preset, machine, record = (root / "sim/machine/presets/H200-SXM.yaml", tmp_path / "machine.yaml", tmp_path / "record.jsonl")
    machine.write_text(preset.read_text() + "\nmeasured:\n  - all_reduce dp of 4 stride 1 723200 bytes = 50000 ns\n")

    def duration(on, ranks):
        offsim("predict", "--machine", on, "--record", record,
               *sets(f"world_size={ranks}", "global_batch_size=4", "use_distributed_optimizer=false"),
               "docs/examples/tiny-llama.yaml", check=0)
        ops = [json.loads(line) for line in record.read_text().splitlines()[1:]]
        return next(op["end_ps"] - op["begin_ps"] for op in ops if op.get("call", "").startswith("all_reduce dp"))

    assert duration(machine, 4) == 50000 * 1000
    assert duration(machine, 2) / duration(preset, 2) == pytest.approx(50000 * 1000 / duration(preset, 4), rel=1e-4)


# On an H200 these products draw more than it may.
HUNGRY, FRUGAL = ["num_layers=2", "seq_length=4096"], ["num_layers=2", "seq_length=256"]
PRODUCT = "gemm bf16 m=4096 n=4096 k=14336 batch=1 layout=1 268435456 bytes"
PRODUCT_NS = 600000
COPY = "join bf16 rows=4096 first=14336 second=14336 469762048 bytes"
COPY_NS = 150000


@pytest.fixture
def durations(offsim, root, tmp_path):
    """Times of calls on an H200 of which some calls were measured, and the step's."""
    def predicted(*lines, settings=HUNGRY, limit_w=650):
        text = (root / "sim/machine/presets/H200-SXM.yaml").read_text()
        machine, record = tmp_path / "machine.yaml", tmp_path / "record.jsonl"
        machine.write_text(text.replace("power_limit_w: 650", f"power_limit_w: {limit_w}")
                           + "".join(["\nmeasured:", *(f"\n  - {line}" for line in lines), "\n"]))
        told = offsim("predict", "--machine", machine, "--record", record, "--json", *sets(*settings),
                      "docs/examples/hf-16-layers.yaml", check=0)
        ops = [json.loads(line) for line in record.read_text().splitlines()[1:]]
        times = {op["call"]: op["end_ps"] - op["begin_ps"] for op in ops if "call" in op}
        return times | {"step": json.loads(told.stdout)["result"]["step_time_s"]}
    return predicted


@pytest.mark.parametrize("call, ns, alone", [(PRODUCT, PRODUCT_NS, 370), (COPY, COPY_NS, 0)], ids=["product", "copy"])
def test_slowdown_of_a_measured_call(durations, call, ns, alone):
    """As measured; without a figure, a product has the machine's, and what moves bytes none."""
    slower = {permille: durations(f"{call} = {ns} ns, {permille} permille")[call] - ns * 1000
              for permille in (0, 370, 740)}
    assert slower[0] == 0 < slower[370]
    assert slower[740] == pytest.approx(2 * slower[370], rel=1e-5)
    assert durations(f"{call} = {ns} ns")[call] - ns * 1000 == slower[alone]
    assert durations(f"{call} = {ns} ns, 100000 permille")[call] > 10 * ns * 1000


def test_slowdown_of_calls_like_a_measured_one(durations):
    """Its neighbours have its slowdown; attention is of another kind."""
    kept, slowed, never = (durations(f"{PRODUCT} = {PRODUCT_NS} ns, {permille} permille", limit_w=watts)
                           for permille, watts in ((0, 650), (450, 650), (450, 0)))
    products = [call for call in kept if call.startswith("gemm ")]
    attention, = (call for call in kept if call.startswith("attention_forward "))
    assert len(products) > 10
    for call in products:
        assert never[call] == kept[call]
        assert slowed[call] / kept[call] == pytest.approx(slowed[PRODUCT] / kept[PRODUCT], rel=1e-5)
    assert slowed[attention] == kept[attention] > never[attention]


def test_a_near_neighbour_outweighs_a_far_one(durations):
    """Two octaves off and forty, with different times: weights by the square of the distance."""
    near = "gemm bf16 m=8192 n=4096 k=14336 batch=1 layout=1 419430400 bytes = 1200000 ns"
    far = "gemm bf16 m=64 n=64 k=64 batch=1 layout=1 24576 bytes = 24000 ns"
    alone, beside, wrong = (durations(*lines, limit_w=0)[PRODUCT] for lines in ((near,), (near, far), (far,)))
    assert wrong > 2 * alone
    assert beside == pytest.approx(alone, rel=0.02)


@pytest.mark.parametrize("settings, limit_w", [(FRUGAL, 650), (HUNGRY, 0), (HUNGRY, 2000)])
def test_slowdown_needs_a_lack_of_power(durations, settings, limit_w):
    none, much = (durations(f"{PRODUCT} = {PRODUCT_NS} ns, {permille} permille", settings=settings, limit_w=limit_w)
                  for permille in (0, 900))
    assert none == much


WRONG_TIMES = ["", " = 0 ns", " = -5 ns", " = 5 us", " = 3600000000001 ns", " = 99999999999999999999 ns"]
WRONG_SLOWDOWNS = [" = 5 ns 450 permille", " = 5 ns,450 permille", " = 5 ns,", " = 5 ns, ns", " = 5 ns, permille", " = 5 ns, 450",
                   " = 5 ns, 450 percent", " = 5 ns, -1 permille", " = 5 ns, 0.5 permille", " = 5 ns, 100001 permille",
                   " = 5 ns, 99999999999999999999 permille", " = 5 ns, 450 permille, 450 permille"]


@pytest.mark.parametrize("line, message", [
    *(("gemm bf16 m=1 n=1 k=1 batch=1 8 bytes" + time,
       'expected " = ", from 1 to 3600000000000 nanoseconds and " ns" after the call, then nothing or ", ", '
       'from 0 to 100000 and " permille"') for time in WRONG_TIMES + WRONG_SLOWDOWNS),
    ("gem bf16 8 bytes = 5 ns", "a kernel of"),
])
def test_wrong_measured_calls(offsim_san, root, tmp_path, line, message):
    machine = tmp_path / "machine.yaml"
    machine.write_text((root / "sim/machine/presets/ideal.yaml").read_text() + f"\nmeasured:\n  - {line}\n")
    done = offsim_san("predict", "--machine", machine, SCENARIO)
    assert done.status == 2 and message in done.stderr and done.stderr.count("\n") == 1
