#!/usr/bin/python3
"""Which training files of a checked-out Axolotl offsim predicts as they are.

    tests/acceptance/axolotl.py CHECKOUT [--offsim PROGRAM] [--list] [--reasons]

CHECKOUT is axolotl-ai-cloud/axolotl; all YAML files below examples/ that train are read. The shapes of the models
are in models/, named as the base model's repository without its organisation. Nothing of the checkout is run. --stand-in
takes one shape for all models: what then is refused, the file itself is refused for.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE / "models"

# Families that an acceptance counts; offsim may read more.
LISTED = {
    "llama", "llama4", "llama4_text", "qwen2", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_next", "mistral", "mistral3", "gemma2", "gemma3",
    "gemma3_text", "phi3", "granite", "olmo2", "olmo3", "glm4", "glm4_moe", "mixtral", "qwen2_moe", "qwen3_moe",
    "gpt_oss", "deepseek_v2", "deepseek_v3", "qwen2_vl", "qwen2_5_vl",
}

ACCEPTED, BY_MODEL, BY_FILE = "accepted", "refused: the model", "refused: the file"
OTHER_TRAINING = "refused: other trainer"  # by name: preferences, rewards, diffusion
NO_SHAPE, UNLISTED, NO_TRAINING = "no shape in models/", "family not listed", "does not train"
OTHER_TRAINERS = ("rl", "reward_model", "process_reward_model", "diffusion", "kd_trainer")


def training_files(checkout):
    """(file, its mapping or None if it is no training run), in order."""
    for path in sorted((checkout / "examples").rglob("*.y*ml")):
        mapping = yaml.safe_load(path.read_text())
        trains = isinstance(mapping, dict) and mapping.get("base_model") and (
            mapping.get("datasets") or mapping.get("pretraining_dataset"))
        yield path, mapping if trains else None


def shape_of(base_model):
    path = MODELS / (str(base_model).rstrip("/").split("/")[-1] + ".json")
    return path if path.exists() else None


def without_figures(message):
    """One reason for messages that differ in values alone."""
    message = re.sub(r'("[^"]*"|\'[^\']*\')', "X", message)
    return re.sub(r"\d[\d,.]*", "N", message)


def judge(offsim, stand_in, path, mapping):
    """(class, reasons)"""
    if mapping is None:
        return NO_TRAINING, []
    shape = stand_in or shape_of(mapping["base_model"])
    if shape is None:
        return NO_SHAPE, [str(mapping["base_model"])]
    family = json.loads(shape.read_text())["model_type"]
    if family not in LISTED:
        return UNLISTED, [family]
    command = [offsim, "predict", "--axolotl", path, "--hf-config", shape]
    run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=600)
    if run.returncode == 0:
        return ACCEPTED, []
    errors = [line for line in run.stderr.splitlines() if "error: " in line] or [run.stderr.strip()]
    reasons = [without_figures(line.split("error: ")[-1]) for line in errors]
    if any(mapping.get(key) for key in OTHER_TRAINERS):
        return OTHER_TRAINING, reasons
    of_model = all(line.startswith(str(shape)) for line in errors)
    return BY_MODEL if of_model else BY_FILE, reasons


def print_table(results, reasons_too):
    counts = collections.Counter(kind for _, kind, _ in results)
    for kind in (ACCEPTED, BY_FILE, OTHER_TRAINING, BY_MODEL, NO_SHAPE, UNLISTED, NO_TRAINING):
        print(f"{kind:23} {counts[kind]:4}")
    read = counts[ACCEPTED] + counts[BY_FILE]
    listed = read + counts[BY_MODEL]
    for what, of in (("supervised, read family", read), ("supervised, listed", listed),
                     ("all, listed family", listed + counts[OTHER_TRAINING])):
        print(f"{what:23} {100 * counts[ACCEPTED] / max(1, of):5.1f} % of {of}")
    if reasons_too:
        reasons = collections.Counter((kind, reason) for _, kind, all_of in results for reason in all_of)
        for (kind, reason), count in sorted(reasons.items(), key=lambda item: (item[0][0], -item[1], item[0][1])):
            print(f"{kind:23} {count:4}  {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--offsim", default=HERE.parents[1] / "out/release/offsim")
    parser.add_argument("--stand-in", type=pathlib.Path, metavar="SHAPE", help="the config.json of every model")
    parser.add_argument("--list", action="store_true", help="one line for each file")
    parser.add_argument("--reasons", action="store_true", help="reasons, counted")
    options = parser.parse_args()
    files = list(training_files(options.checkout))
    if not files:
        sys.exit(f"{options.checkout}/examples has no YAML files")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        judged = list(pool.map(lambda item: judge(options.offsim, options.stand_in, *item), files))
    results = [(path, *verdict) for (path, _), verdict in zip(files, judged)]
    if options.list:
        for path, kind, reasons in results:
            print(f"{kind:23} {path.relative_to(options.checkout)}  {'; '.join(reasons)}")
    print_table(results, options.reasons)


if __name__ == "__main__":
    main()
