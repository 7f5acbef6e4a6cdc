#!/usr/bin/env python3
"""Megatron-LM's own configurations: which does offsim read as they are, and do they fit where they ran?

    tests/acceptance/megatron.py CHECKOUT [--refused] [--all] [--list]

CHECKOUT is a folder with Megatron-LM, of which nothing is copied. The script predicts

* each `model_config.yaml` of its functional and performance tests, once for each machine that a recipe of
  tests/test_utils/recipes runs it on, with that recipe's nodes x GPUs as --world-size. A test in no recipe is predicted for
  each machine that it has recorded values of, without --world-size, as its user would: offsim takes the fewest GPUs.
  Release runs are in no recipe; RELEASES has their GPUs;
* each launch script of examples and tests, and each command of the documentation that trains with pretrain_gpt.py, as it is;
* scripts whose README names the machine, with the arguments that it names.

What a configuration trains is read from the recipe's script and its own flags, not from what offsim says. A decoder model
in training has to be accepted; everything else has to be refused.
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
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINES = {"dgx_a100": "A100-SXM-PCIe4", "dgx_h100": "H100-SXM", "dgx_gb200": "GB200"}
# What the recorded bytes of release runs say: static memory depends on the data parallel size.
RELEASES = {"gpt3_15b_8t_release": 256, "deepseekv3_proxy_flex_tp1pp4emp16etp1cp1_release": 64,
            "deepseekv3_proxy_flex_tp2pp2emp16etp1cp1_gb_200_release": 32, "mixtral_8x22b_tp2pp8ep8vpp1_release": 128,
            "mixtral_8x7b_alltoall_tp2pp4ep4_release": 128, "mixtral_8x7b_tp1pp4ep8vpp8_release": 64}
# Scripts that a README describes as run, with the machine and what it changes of the script.
PUBLISHED = {"examples/llama/train_llama3_8b_h100_fp8.sh": ("H100-SXM", "--set", "context_parallel_size=2"),
             "examples/megatron_fsdp/train_llama3_8b_fsdp_h100_fp8.sh": ("H100-SXM",)}
# Scripts that train decoder models with Megatron's own arguments; all others train or do something else.
DECODER_SCRIPTS = re.compile(r"pretrain_gpt\.py$")
NOT_TRAINING = {"inference": "inference", "grpo": "reinforcement learning", "nemo": "NeMo's own command line"}
# Flags that make pretrain_gpt.py train something else than a decoder transformer.
OTHER_MODELS = re.compile(r"--(is-hybrid-model|hybrid-(layer|override)-pattern|perform-rl-step|vision-|bert-(?!load)|retro-"
                          r"|heterogeneous-layers-config)|experimental_attention_variant|mamba", re.I)


class Case:
    """One configuration on one machine, and what is known about it without offsim."""

    def __init__(self, name, path, group, other=None, world_size=None, machine="H100-SXM", ran="", options=()):
        self.name, self.path, self.group, self.other = name, path, group, other
        self.world_size, self.machine, self.ran, self.options = world_size, machine, ran, options
        self.status = self.fits = self.peak = None
        self.errors, self.notes = [], []

    def arguments(self):
        world = ["--world-size", str(self.world_size)] if self.world_size else []
        return ["--megatron-args", str(self.path), "--machine", self.machine, *world, *self.options]

    def predict(self, offsim):
        try:
            run = subprocess.run([offsim, "predict", *self.arguments(), "--json"], capture_output=True, text=True,
                                 timeout=600)
        except subprocess.TimeoutExpired:
            self.status, self.errors = -1, ["no result within 600 s"]
            return self
        self.status = run.returncode
        for line in run.stderr.splitlines():
            (self.notes if "note: " in line else self.errors).append(line)
        if self.status == 0:
            ranks = json.loads(run.stdout)["result"]["ranks"]
            self.fits = all(rank["fits"] for rank in ranks)
            self.peak = max(rank["reserved_peak_bytes"] for rank in ranks)
        return self

    @property
    def accepted(self):
        return self.status == 0

    def reason(self):
        """The first error without its place; the number of others."""
        if not self.errors:
            return ""
        text = re.sub(r"^.*?error: ", "", self.errors[0])
        return text + (f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else "")


# ---- functional and performance tests ----

RECORDED = re.compile(r"^golden_values_\w+?_(dgx_\w+?)(?:_2nd)?\.json$")


def recipe_runs(checkout):
    """(model, test case) -> [(platform, GPUs, script)]"""
    runs = collections.defaultdict(list)
    for path in sorted((checkout / "tests/test_utils/recipes").glob("*/*.yaml")):
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
        spec = recipe.get("spec", {})
        script = re.search(r'TRAINING_SCRIPT_PATH=\\?"?([^"\n\\]*)', spec.get("script", ""))
        script = script.group(1).strip() if script else path.stem
        for product in recipe.get("products") or []:
            for test in product["test_case"]:
                for one in product["products"]:
                    for platform in one.get("platforms", [spec.get("platforms")]):
                        gpus = int(one.get("nodes", spec["nodes"])) * int(one.get("gpus", spec["gpus"]))
                        runs[spec.get("model"), test].append((platform, gpus, script))
    return runs


def other_than_decoder(model, text, script):
    """What is trained, if it is no decoder model; None if it is one."""
    for word, what in NOT_TRAINING.items():
        if word in script or word in model:
            return what
    if model in ("bert", "t5", "mimo", "multimodal-llava", "hybrid", "nemotron", "common"):
        return {"common": "checkpoint conversion", "hybrid": "hybrid or Mamba", "nemotron": "hybrid or Mamba"}.get(model, model)
    found = OTHER_MODELS.search(text)
    if found:
        return found.group(0)
    return None if DECODER_SCRIPTS.search(script) else script


def test_cases(checkout):
    runs = recipe_runs(checkout)
    for path in sorted((checkout / "tests").glob("*/test_cases/*/*/model_config.yaml")):
        model, test = path.parts[-3:-1]
        text = path.read_text(encoding="utf-8")
        if "MODEL_ARGS" not in text:
            yield Case(f"{model}/{test}", path, "tests: others", "no training arguments")
            continue
        known = sorted(set(runs.get((model, test), [])))
        recorded = sorted({found.group(1) for found in map(RECORDED.search, os.listdir(path.parent)) if found})
        # A test that no recipe names is one of pretrain_gpt.py where its family is; its name says if it is inference.
        script = next((word for word in NOT_TRAINING if word in test), None) or "pretrain_gpt.py"
        release = RELEASES.get(test.removesuffix("_sm"))
        for platform, gpus, script in known or [(name, release, script) for name in recorded or [None]]:
            other = other_than_decoder(model, text, script)
            group = "tests: others" if other else "tests in a recipe" if known else "tests in no recipe"
            on = f" {gpus or ''}x{platform.removeprefix('dgx_')}" if platform else ""
            ran = "in a recipe" if known else "release" if release else "recorded" if platform else ""
            yield Case(f"{model}/{test}{on}", path, group, other, gpus, MACHINES.get(platform, "H100-SXM"), ran)


# ---- launch scripts ----

LAUNCH = re.compile(r"torchrun|torch\.distributed|pretrain_\w+\.py|srun|\bpython3? ")
TRAINED = re.compile(r"(pretrain_gpt\.py|pretrain_\w+\.py|[\w/]*train\w*\.py|[\w/.-]+\.py)")


def scripts(checkout):
    for path in sorted([*checkout.glob("examples/**/*.sh"), *checkout.glob("tests/**/*.sh")]):
        text = path.read_text(encoding="utf-8", errors="replace")
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        if "--num-layers" not in code and "pretrain_" not in code:
            continue
        entries = TRAINED.findall(code)
        name = str(path.relative_to(checkout))
        decoder = any(map(DECODER_SCRIPTS.search, entries)) and not OTHER_MODELS.search(code)
        other = None if decoder else ", ".join(sorted(set(entries))[:2]) or "arguments for other scripts"
        yield Case(name, path, "scripts: others" if other else "scripts", other)
        if name in PUBLISHED:
            machine, *options = PUBLISHED[name]
            yield Case(f"{name} {' '.join(options)}", path, "scripts", None, None, machine, "README", options)


def documented(checkout, folder):
    """Commands in fenced blocks of Markdown, written to files of their own."""
    for path in sorted(checkout.glob("**/*.md")):
        text = path.read_text(encoding="utf-8", errors="replace")
        for fence in re.finditer(r"^```\w*\n(.*?)^```", text, re.S | re.M):
            if not all(word in fence[1] for word in ("pretrain_gpt.py", "--num-layers", "--hidden-size")):
                continue
            name = f"{path.relative_to(checkout)}:{text.count(chr(10), 0, fence.start()) + 1}"
            script = folder / (re.sub(r"\W", "_", name) + ".sh")
            script.write_text(fence[1], encoding="utf-8")
            other = OTHER_MODELS.search(fence[1])
            yield Case(name, script, "docs: others" if other else "docs", other and other[0])


# ---- the table ----

def print_counts(cases):
    print(f"{'group':24}{'files':>7}{'runs':>7}{'accepted':>10}{'refused':>9}{'percent':>9}")
    for group in sorted({case.group for case in cases}):
        own = [case for case in cases if case.group == group]
        accepted = sum(case.accepted for case in own)
        print(f"{group:24}{len({case.path for case in own}):7}{len(own):7}{accepted:10}{len(own) - accepted:9}"
              f"{100 * accepted / len(own):9.1f}")


def print_reasons(title, cases):
    print(f"\n{title}: {len(cases)}")
    for case in cases:
        print(f"  {case.name}: {case.reason() or case.other or ''}")


def print_fits(cases):
    """What ran on a machine has to fit there; one that is recorded without its GPUs may have had more of them."""
    print(f"\n{'published as running':24}{'files':>7}{'runs':>7}{'fits':>7}{'largest GiB':>13}")
    for ran in ("in a recipe", "release", "recorded", "README"):
        own = [case for case in cases if case.ran == ran and case.accepted and not case.other]
        largest = max((case.peak for case in own), default=0) / 2**30
        print(f"{ran:24}{len({case.path for case in own}):7}{len(own):7}{sum(case.fits for case in own):7}{largest:13.1f}")
    for case in cases:
        if case.ran and case.accepted and not case.other and not case.fits:
            print(f"  does not fit: {case.name}: {case.peak / 2**30:.1f} GiB on {case.machine}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--offsim", default=str(ROOT / "out/release/offsim"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--all", action="store_true", help="list what was accepted and should not be, and why the rest was refused")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        cases = [*test_cases(options.checkout), *scripts(options.checkout),
                 *documented(options.checkout, pathlib.Path(folder))]
        cases = list(pool.map(lambda case: case.predict(options.offsim), cases))
    print_counts(cases)
    print_reasons("decoder models refused", [case for case in cases if not case.other and not case.accepted])
    print_reasons("accepted, but no decoder model in training", [case for case in cases if case.other and case.accepted])
    if options.all:
        print_reasons("no decoder model in training, refused", [case for case in cases if case.other and not case.accepted])
    print_fits(cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
