#!/usr/bin/env python3
"""How near offsim's runs come to PyTorch's time, and to what links and computation allow, side by side on one GPU.

    python3 tests/peers/near_limit.py [--offsim out/release/offsim] [--machine FILE] [--trl FILE] [--steps 10]

16 Llama-like layers, 8192 tokens, bf16, forward and backward: PyTorch keeps everything, computes every layer again, and
offloads with TRL's OffloadActivations (tests/peers/llama_layers.py); offsim keeps, computes again, does both and
offloads the layers' inputs, and has 15 of 16 layers offloaded by Transformer Engine's first engine. Of the last one,
which is Megatron-LM's model, the optimizer and the zeroing of gradients are left out: both are in no other run.

The limit of offloading is what the link needs for the bytes that go out and then back, at the rates of FILE (as offsim
calibrate writes it), or the computation where that takes longer. Prints JSON lines of the runs, then the ratios.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FULL = ["recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]
RUNS = {  # name: model, settings
    "keep": ("torch", ["offload.system=none"]),
    "recompute": ("torch", ["offload.system=none", *FULL]),
    "mix": ("torch", ["offload.system=hidden_states", *FULL]),
    "offload": ("llama", ["cpu_offloading=true", "offload.system=te_v1", "cpu_offloading_num_layers=15"]),
}
WARM_UP = 2


def peers(o):
    """By mode, what PyTorch's runs print."""
    words = ["--steps", str(o.steps), *(["--trl", o.trl] if o.trl else []), "keep", "recompute", "trl"]
    done = subprocess.run([sys.executable, ROOT / "tests/peers/llama_layers.py", *words], text=True,
                          stdout=subprocess.PIPE, check=True)
    print(done.stdout, end="", flush=True)
    return {told["mode"]: told for told in map(json.loads, done.stdout.splitlines())}


def is_beside(op):
    """The optimizer, and zeroing the gradients before the step."""
    return op["kind"] == "kernel" and op["phase"] in ("optimizer", "setup")


def run(o, name, folder):
    model, settings = RUNS[name]
    trace = folder / f"{name}.jsonl"
    words = [f"traces/recorded/models/{model}.yaml", *(word for s in settings for word in ("--set", s))]
    done = subprocess.run([o.offsim, "run", "--on", "cuda", "--gpus", "1", "--timed", "--json", "--steps",
                           str(WARM_UP + o.steps), "--record", trace, *words],
                          cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True)
    gpus = json.loads(done.stdout)["gpus"]
    ops = [op for op in map(json.loads, trace.read_text().splitlines()[1:]) if "op" in op]
    step_ps = statistics.median(gpus["steps_ps"][WARM_UP:])
    beside_ps = sum(op["end_ps"] - op["begin_ps"] for op in ops if is_beside(op))
    told = {"run": name, "step_ms": round(step_ps / 1e9, 2), "beside_ms": round(beside_ps / 1e9, 2),
            "live_gib": round(gpus["ranks"][0]["live_peak_bytes"] / 2**30, 2)}
    for kind in ("d2h", "h2d"):
        told[kind + "_bytes"] = sum(int(op["call"].split()[0]) for op in ops if op["kind"] == kind)
    print(json.dumps(told), flush=True)
    return told | {"ms": told["step_ms"] - told["beside_ms"]}


def limit_ms(o, offload, keep):
    """At the measured rates of one GPU that copies in one direction."""
    text = pathlib.Path(o.machine).read_text()
    link = re.search(r"^link:$(.*?)^\S", text, re.M | re.S)[1]
    rate = {kind: int(re.search(rf"^  {kind}_bytes_per_us: (\d+)", link, re.M)[1]) for kind in ("d2h", "h2d")}
    return max(keep["ms"], sum(offload[kind + "_bytes"] / rate[kind] for kind in rate) / 1e3)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--offsim", default=str(ROOT / "out/release/offsim"))
    p.add_argument("--machine", help="a machine file of this machine; without, the limit is not told")
    p.add_argument("--trl", help="TRL's activation_offloading.py, where trl is not installed")
    p.add_argument("--steps", type=int, default=10)
    o = p.parse_args()
    torch = peers(o)
    with tempfile.TemporaryDirectory() as folder:
        own = {name: run(o, name, pathlib.Path(folder)) for name in RUNS}
    print(f"keep         {own['keep']['ms']:7.1f} ms, PyTorch {torch['keep']['step_ms']:7.1f} ms: "
          f"{own['keep']['ms'] / torch['keep']['step_ms']:.3f}")
    print(f"recompute    {own['recompute']['ms']:7.1f} ms, PyTorch {torch['recompute']['step_ms']:7.1f} ms; "
          f"live {own['recompute']['live_gib']} GiB")
    print(f"mix          {own['mix']['ms']:7.1f} ms, PyTorch recomputing {torch['recompute']['step_ms']:7.1f} ms; "
          f"live {own['mix']['live_gib']} GiB")
    if "error" not in torch["trl"]:
        print(f"offload      {own['offload']['ms']:7.1f} ms, TRL     {torch['trl']['step_ms']:7.1f} ms: "
              f"{own['offload']['ms'] / torch['trl']['step_ms']:.3f}")
    if o.machine:
        limit = limit_ms(o, own["offload"], own["keep"])
        print(f"offload      {own['offload']['ms']:7.1f} ms, limit   {limit:7.1f} ms: {own['offload']['ms'] / limit:.3f}")


if __name__ == "__main__":
    main()
