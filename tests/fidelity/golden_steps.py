#!/usr/bin/env python3
"""Iteration times that Megatron-LM records of its functional tests beside their prediction, by groups of rows.

FILE holds a JSON object a line, as tests/fidelity/run reads it, with `iteration_time_s`, the median of the later half
of a run. Prints for each day how its steps compare with those of the same cases on other days, then medians of a group's
rows: error, |error|, its 90th percentile, and how many steps are in the predicted range; with --rows each row first. Rows of
NOT_CLEAN, and of days that differ from all others (recorded_days.py), are left out of all groups but their own. The last
lines say by how much two records of one case differ: no prediction is nearer to both than half of that.

    tests/fidelity/golden_steps.py [--only WORD]... [--rows] [--all-days] FILE
"""
import argparse
import concurrent.futures
import importlib.machinery
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import tempfile

import recorded_days
import step_range

HERE = os.path.dirname(os.path.abspath(__file__))


def script(name):
    """The module of a script whose name has no suffix."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(HERE, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


run = script("run")

# Rows of the recorder's machine: on one GB200 node 3 to 33 times the step of two nodes, on dgxc up to 20 times that
# of other H100s; and rows whose number of GPUs nobody recorded. Days of the recorder's machine are found (recorded_days.py).
NOT_CLEAN = [
    ("one node of GB200", lambda r: "_1node" in r["test_case"] and r["gpu"] == "GB200"),
    ("dgxc", lambda r: "dgxc" in r["id"]),
    ("world size inferred", lambda r: r.get("n_gpus_inferred")),
]


def unclean(row):
    return next((name for name, holds in NOT_CLEAN if holds(row)), None)


def day_of(row):
    return row["gpu"], row["recorded_date"]


def factors_of_days(found):
    """By GPU type and day. found: (row, measured over predicted); a case's first and second phase are one case."""
    cells = {}
    for row, ratio in found:
        if not unclean(row):
            cells.setdefault((row["gpu"], row["test_case"], row["n_gpus"]), {}).setdefault(day_of(row), []).append(ratio)
    return recorded_days.factors({(case, day): statistics.median(ratios)
                                  for case, days in cells.items() for day, ratios in days.items()})


def groups_of(row, left_out):
    """The groups that a row belongs to; left_out: days."""
    other = unclean(row) or day_of(row) in left_out and "%s of %s" % day_of(row)
    if other:
        yield "left out: " + other
        return
    yield "clean"
    yield "GPU " + row["gpu"]
    yield "image " + (row.get("container") or "unknown").split("/")[-1]
    args, parallel = row["model_args"], row["parallel"]
    yield "MoE" if "moe" in row["features"] else "dense"
    if parallel["tp"] > 1:
        yield "TP and SP" if args.get("--sequence-parallel") else "TP"
    for key in ("pp", "cp"):
        if parallel[key] > 1:
            yield key.upper()
    if (parallel.get("vpp") or 1) > 1:
        yield "VPP"
    for flag, name in (("--deterministic-mode", "deterministic"), ("--use-megatron-fsdp", "Megatron-FSDP")):
        if args.get(flag):
            yield name
    if "muon" in str(args.get("--optimizer")):
        yield "Muon"


def predict(row, offsim, folder):
    """The prediction, or None."""
    done = subprocess.run([*run.command_of(row, offsim, folder, folder), "--range"], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def differences(rows):
    """By GPU type: by how many percent the longer step of each two records of a case is longer."""
    cases, found = {}, {}
    for row in rows:
        cases.setdefault((row["gpu"], row["test_case"], row["n_gpus"]), []).append(row["iteration_time_s"])
    for (gpu, *_), steps in cases.items():
        found.setdefault(gpu, []).extend((max(two) / min(two) - 1) * 100 for two in itertools.combinations(steps, 2))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--all-days", action="store_true", help="leave out no day")
    options = parser.parse_args()
    offsim = os.path.join(run.ROOT, "out/release/offsim")
    rows = [r for r in run.read_rows(options.file, None) if all(w in r["id"] for w in options.only) and
            r.get("iteration_time_s")]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        predictions = list(pool.map(lambda row: predict(row, offsim, folder), rows))
    found = []
    for row, prediction in zip(rows, predictions):
        if prediction is None:
            print("%-110s %8.1f ms  not predicted" % (row["id"], row["iteration_time_s"] * 1e3))
        else:
            found.append((row, prediction, row["iteration_time_s"] / step_range.step_s(prediction)))
    factors = factors_of_days((row, ratio) for row, _, ratio in found)
    left_out = [] if options.all_days else [day for day, values in factors.items() if recorded_days.is_the_recorders(values)]
    groups = {}
    for row, prediction, ratio in found:
        error = (1 / ratio - 1) * 100
        if options.rows:
            print("%-110s %8.1f %8.1f ms %+6.1f %%" % (row["id"], row["iteration_time_s"] * 1e3,
                                                      row["iteration_time_s"] * 1e3 / ratio, error))
        for group in groups_of(row, left_out):
            groups.setdefault(group, []).append((error, step_range.holds(prediction, row["iteration_time_s"])))
    print("%-36s %5s %8s %8s %8s" % ("steps beside those of other days", "cases", "least", "median", "most"))
    for day, values in sorted(factors.items()):
        print("%-36s %5d %8.2f %8.2f %8.2f%s" % ("%s of %s" % day, len(values), values[0], statistics.median(values), values[-1],
                                                 "  left out" if day in left_out else ""))
    print("%-36s %5s %8s %8s %8s %9s" % ("percent", "rows", "error", "|error|", "p90", "in range"))
    for name, listed in sorted(groups.items()):
        errors, inside = zip(*listed)
        sizes = [abs(e) for e in errors]
        print("%-36s %5d %+8.1f %8.1f %8.1f %9.0f" % (name, len(errors), statistics.median(errors), statistics.median(sizes),
                                                      run.ninetieth(sizes), step_range.share_percent(inside)))
    kept = [row for row, *_ in found if not unclean(row) and day_of(row) not in left_out]
    print("%-36s %5s %8s %8s" % ("two records of one case, percent", "pairs", "median", "p90"))
    for gpu, percents in sorted(differences(kept).items()):
        if percents:
            print("%-36s %5d %8.1f %8.1f" % (gpu, len(percents), statistics.median(percents), run.ninetieth(percents)))


if __name__ == "__main__":
    main()
