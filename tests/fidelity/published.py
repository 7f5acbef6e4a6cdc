#!/usr/bin/env python3
"""Step times that Megatron-Bridge publishes beside their prediction: a line for each row, medians at the end,
and how many steps are in the predicted range.

Rows (published_steps.jsonl): release of the container, model, GPU type and number, precision, the published step in
seconds (from tokens per second and GPU), and Megatron-LM's arguments for it: sizes from the table, the rest from the
release's own recipe (recomputation, dispatcher, CUDA graphs). Source: docs/performance-summary.md and its archive in
NVIDIA-NeMo/Megatron-Bridge; recipes of its tags v0.1.0rc4, v0.2.0 and v0.3.0. `not_modelled` says what offsim does not have.

    tests/fidelity/published.py [--only WORD]...
"""
import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import tempfile

import step_range

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MACHINES = {"H100": "H100-SXM"}
DENSE = ("LLAMA",)


def rows(path=os.path.join(HERE, "published_steps.jsonl")):
    with open(path) as file:
        return [json.loads(line) for line in file]


def name_of(row):
    return " ".join(filter(None, (row["release"], row["system"], row["model"], row["model_note"], row["precision"])))


def family(row):
    return "dense" if row["model"].startswith(DENSE) else "MoE"


def predict(row, *options, offsim=os.path.join(ROOT, "out/release/offsim")):
    """(the prediction, None), or (None, the message)."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"MODEL_ARGS": row["args"], "ENV_VARS": row.get("env", {})}, file)
        file.flush()
        done = subprocess.run([offsim, "predict", "--megatron-args", file.name, "--world-size", str(row["gpus"]),
                               "--machine", MACHINES.get(row["system"], row["system"]), "--json", "--brief", *options],
                              capture_output=True, text=True)
    if not done.stdout:
        return None, done.stderr.strip().splitlines()[-1]
    return json.loads(done.stdout), None


def error_percent(row, prediction):
    return (step_range.step_s(prediction) / row["step_s"] - 1) * 100


def print_medians(found):
    """`found`: (row, percent, whether the range holds it) of rows that were predicted."""
    print("\n%-16s %4s %8s %8s %9s" % ("median", "rows", "|error|", "error", "in range"))
    groups = [("all", lambda r: True)] + [(f, lambda r, f=f: family(r) == f) for f in ("dense", "MoE")]
    for system in sorted({r["system"] for r, *_ in found}):
        for f in ("dense", "MoE"):
            groups.append(("%s %s" % (system, f), lambda r, s=system, f=f: r["system"] == s and family(r) == f))
    for name, belongs in groups:
        errors = [e for r, e, _ in found if belongs(r)]
        if errors:
            print("%-16s %4d %7.1f%% %+7.1f%% %7.0f %%" % (
                name, len(errors), statistics.median(map(abs, errors)), statistics.median(errors),
                step_range.share_percent([inside for r, _, inside in found if belongs(r)])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    words = parser.parse_args().only
    chosen = [r for r in rows() if all(w in name_of(r) for w in words)]
    modelled = [r for r in chosen if "args" in r]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda row: predict(row, "--range"), modelled))
    found = []
    for row, (prediction, why) in zip(modelled, results):
        if prediction is None:
            print("%-58s %8.3f s  %s" % (name_of(row), row["step_s"], why))
            continue
        found.append((row, error_percent(row, prediction), step_range.holds(prediction, row["step_s"])))
        print("%-58s %8.3f s %8.3f s %+6.1f %%%s" % (name_of(row), row["step_s"], step_range.step_s(prediction), found[-1][1],
                                                     "" if found[-1][2] else "  outside of the range"))
    for row in chosen:
        if "not_modelled" in row:
            print("%-58s %8.3f s  not modelled: %s" % (name_of(row), row["step_s"], row["not_modelled"]))
    if found:
        print_medians(found)


if __name__ == "__main__":
    main()
