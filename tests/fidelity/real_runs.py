#!/usr/bin/env python3
"""Memory and steps of real Megatron-LM runs beside their prediction, from their flags: a line for each rank.

Rows (real_runs.jsonl): name, gpus, env, args, and for each rank PyTorch's counters: allocated after the sixth step
(static), at most during it (peak), active and reserved at most during it, page-locked at the end; step_s, the median
of steps 3 to 6. Megatron-LM d98e8a64, Transformer Engine 2.13, PyTorch 2.11, on one or two H200. Prints MiB, ms and
percent; + predicts too much.
"""
import argparse
import json
import os
import subprocess
import tempfile

import step_range

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RECORDED = os.path.join(HERE, "real_runs.jsonl")
MEASURES = (("static", "static_bytes", "static_bytes"),
            ("peak", "steady_allocated_peak_bytes", "step_peak_allocated_bytes"),
            ("active", "live_peak_bytes", "step_peak_active_bytes"),
            ("reserved", "reserved_peak_bytes", "step_peak_reserved_bytes"),
            ("pinned", "host_pinned_pow2_bytes", "pinned_allocated_bytes"))
# What an engine without offload pins: a few buffers of the data loader.
LEAST_PINNED_BYTES = 16 << 20


def rows(path=RECORDED):
    with open(path) as file:
        return [json.loads(line) for line in file]


def predict(row, machine="H200-SXM"):
    """The prediction with its range; its ranks: data parallel ones are the same."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        words = [f"{name}={value}" for name, value in row["env"].items()]
        script.write(" ".join([*words, "torchrun pretrain_gpt.py", row["args"], "\n"]))
        script.flush()
        done = subprocess.run([os.path.join(ROOT, "out/release/offsim"), "predict", "--megatron-args", script.name,
                               "--world-size", str(row["gpus"]), "--machine", machine, "--json", "--brief", "--range"],
                              stdout=subprocess.PIPE, check=True, text=True)
    prediction = json.loads(done.stdout)
    return prediction, prediction["result"]["ranks"]


def errors(row, ranks):
    """By rank: predicted, measured bytes of each measure."""
    for i, measured in enumerate(row["ranks"]):
        predicted = ranks[min(i, len(ranks) - 1)]
        yield i, {name: (predicted[key], measured[of]) for name, key, of in MEASURES if of in measured}


def cell(predicted, measured):
    if measured < LEAST_PINNED_BYTES and predicted == 0:
        return "%8s %7s" % ("-", "")
    return "%8.0f %+6.2f%%" % (measured / 2**20, (predicted / measured - 1) * 100)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", metavar="FILE.jsonl", default=RECORDED)
    args = parser.parse_args()
    print("%-10s %4s" % ("MiB", "rank") + "".join("%17s" % name for name, _, _ in MEASURES) + "%17s" % "step, ms")
    for row in rows(args.rows):
        prediction, ranks = predict(row)
        predicted_s = step_range.step_s(prediction)
        for rank, found in errors(row, ranks):
            step = "%8.1f %+6.2f%% %s range" % (row["step_s"] * 1e3, (predicted_s / row["step_s"] - 1) * 100,
                                                "in" if step_range.holds(prediction, row["step_s"]) else "OUTSIDE of")
            print("%-10s %4d" % (row["name"], rank) + "".join(" " + cell(*found[m]) for m, _, _ in MEASURES) + " " + step)


if __name__ == "__main__":
    main()
