#!/usr/bin/python3
"""What offsim does with every training script and YAML of a checked-out verl repository.

    tests/acceptance/verl.py /path/to/verl [--expand] [--offsim out/release/offsim] [--list]

Prints how many are accepted as they are, with arguments where the script ends without them, or told a variable that the
script takes from its environment or asks the machine for (ANSWERS); the reasons of the others, counted, and the same of
those whose family of models offsim is to read (UNLISTED has the others); and of those that are published as running whether they are predicted to fit on the GPUs that their
name or a comment says. --expand has bash expand the scripts first: in an empty folder, with an empty environment and a
PATH that holds nothing but launchers that write their arguments down. Nothing of the repository runs. Models come from
models/ by the name in model.path.
"""
import argparse
import collections
import concurrent.futures
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "shell"))
import bash  # noqa: E402

MODULES = re.compile(r"main_ppo|main_dapo|sft_trainer|fully_async_main|one_step_off|main_ppo_split")
LAUNCHERS = "python python3 torchrun ray deepspeed accelerate srun uv".split()
ARGUMENTS = ["8", "checkpoints"]  # scripts of the SFT trainer want GPUs and a folder
# What scripts that name no default want to be told.
ANSWERS = {"device_name": "cuda", "INFER_BACKEND": "vllm", "LORA_ADAPTER_PATH": "adapter", "USE_DUMMY_MODEL": "False"}
# Models of families that offsim is not to read.
UNLISTED = re.compile(r"DeepSeek-V4|GLM-4\.1V|GLM5|Hy3|MiniCPM|Nemotron|MiMo", re.I)
TIMEOUT_SECONDS = 120  # of one prediction
SILENT = "mkdir date nvidia-smi cat ls rm cp sleep tee sed awk grep head tail basename dirname hostname nproc git pip pip3".split()
# More specific names come first. What follows a name in model.path (-Instruct, -chat, -Base) changes no shape.
ALIASES = [
    (r"Skywork-Reward-V2-Llama-3\.2-1B", "Llama-3.2-1B"),
    (r"Skywork-Reward-V2-Llama-3\.2-3B", "Llama-3.2-3B"),
    (r"FsfairX-LLaMA3|Skywork-Reward-Llama-3\.1-8B|Llama-3-8B", "Llama-3.1-8B"),
    (r"DeepSeek-V3", "DeepSeek-V3"),
    (r"Qwen3-30B-MoE", "Qwen3-30B-A3B"),
    (r"gemma-1\.1-7b", "gemma-7b"),
    (r"Qwen2\.5-Coder-14B", "Qwen2.5-14B"),
]


def names_of_models():
    return sorted((p.stem for p in (HERE / "models").glob("*.json")), key=len, reverse=True)


def model_file(path):
    for pattern, name in ALIASES:
        if re.search(pattern, path, re.I):
            return HERE / "models" / f"{name}.json"
    for name in names_of_models():
        if re.search(re.escape(name) + r"(?![0-9.])", path, re.I):
            return HERE / "models" / f"{name}.json"
    return None


def stubs(folder):
    """Launchers write their words to the file that OUT names; other commands do nothing."""
    folder.mkdir()
    for name in LAUNCHERS:
        stub = folder / name
        stub.write_text('#!/bin/bash\n[ "$*" = "-c import torch_npu" ] && exit 1\nprintf "%s\\0" "${0##*/}" "$@" $\'\\n\' >>"$OUT"\n')
        stub.chmod(0o755)
    for name in SILENT:
        stub = folder / name
        stub.write_text("#!/bin/bash\nexit 0\n")
        stub.chmod(0o755)


def commands_of(script, work):
    """The words of every launcher that bash comes to."""
    out = work / "words"
    out.write_text("")
    empty = work / "empty"
    empty.mkdir(exist_ok=True)
    environment = {"PATH": str(work / "bin"), "OUT": str(out), "HOME": str(empty), "USER": "user"}
    subprocess.run(["/bin/bash", "--norc", str(script), *ARGUMENTS], cwd=empty, env=environment, timeout=20, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [c.split("\0")[:-1] for c in out.read_text(errors="replace").split("\0\n\0") if c]


def expanded(script, work):
    """A script of one command: the last that trains. None if there is none."""
    for words in reversed(commands_of(script, work)):
        if MODULES.search(" ".join(words)):
            return " \\\n  ".join(shlex.quote(w) for w in words) + "\n"
    return None


def trains(text):
    return re.search(r"-m\s+(verl|recipe)\.\S*(main|sft_trainer)|fsdp_sft_trainer|main_ppo_split", text) and not re.search(
        r"-m\s+verl\.trainer\.main_(generation|eval)(_server)?\b(?![\s\S]*main_ppo)", text)


def inputs(repository):
    for top in ("examples", "recipe", "tests"):
        for script in sorted((repository / top).rglob("*.sh")):
            if trains(script.read_text(errors="replace")):
                yield script


def path_of_model(text):
    found = re.findall(r"(?:^|[\s'\"])\+*(?:actor_rollout_ref\.)?model\.(?:path|partial_pretrain)=['\"]?([^\s'\"\\]+)", text)
    if not found:
        return None
    path = found[-1]
    variable = re.fullmatch(r"\$\{?(\w+)\}?", path)
    if variable:
        values = re.findall(rf"^\s*(?:export )?{variable[1]}=['\"]?(.*?)['\"]?\s*$", text, re.M)
        path = values[-1] if values else path
    return path


# What a script or its name says it ran on, as the nearest machine that offsim ships, with the memory of its own.
HARDWARE = [
    (r"h100|h800", "H100-SXM", 80), (r"96 ?gb?|h20\b|96g", "H100-SXM", 96), (r"a100", "A100-SXM-PCIe4", 80),
    (r"npu", None, 0),
]


def hardware_of(name, text):
    """(machine, GiB), or None: what the script does not say is not judged."""
    comments = " ".join(re.findall(r"^#.*$", text, re.M)[:8])
    for pattern, machine, gib in HARDWARE:
        if re.search(pattern, name, re.I) or re.search(pattern, comments, re.I):
            return (machine, gib) if machine else None
    return None


def verdict(stdout):
    """Fits, fits up to a length, or does not."""
    if re.search(r"^device +fits", stdout, re.M):
        return "fits"
    longest = re.search(r"^lengths +fits where packed sequences have at most (\d+) tokens on average; (\d+)", stdout, re.M)
    return f"fits up to a mean of {longest[1]} tokens, maximum {longest[2]}" if longest else "does not fit"


def reason(message):
    line = next((l for l in message.splitlines() if ": error: " in l or "error:" in l), message.strip().splitlines()[-1] if message.strip() else "?")
    line = re.sub(r"^.*?error: ", "", line)
    return re.sub(r"\d+", "N", line)[:150]


def machine_file(hardware, work):
    """The shipped machine, or one with another memory."""
    machine, gib = hardware
    text = (ROOT / f"sim/machine/presets/{machine}.yaml").read_text()
    if gib == 80:
        return machine
    file = work / f"{gib}.yaml"
    file.write_text(re.sub(r"memory_bytes: \d+", f"memory_bytes: {gib * 10**9 * 1066 // 1000}", text, count=1))
    return str(file)


def wanted_arguments(text):
    """For a script that ends without its arguments, the same as --expand gives."""
    return [word for value in ARGUMENTS for word in ("--arg", value)] if re.search(r'"\$#" -lt', text) else []


def predict(offsim, file, text, model, machine):
    command = [offsim, "predict", "--verl", str(file), "--machine", machine, "--hf-config", str(model),
               *wanted_arguments(text), *OPTIONS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        asked = [name for name in ANSWERS if done.returncode == 2 and f"--env {name}=VALUE" in done.stderr]
        if asked:
            command += ["--env", f"{asked[0]}={ANSWERS[asked[0]]}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        return done, asked
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 3, "", f"error: no prediction after {TIMEOUT_SECONDS} s"), []


OPTIONS = []  # more of them, for every prediction


class Table:
    """Outcomes counted, and verdicts of what is published as running."""

    def __init__(self):
        self.outcomes, self.reasons, self.verdicts = (collections.Counter() for _ in range(3))
        self.lines = []

    def add(self, name, outcome, why, published):
        self.outcomes[outcome] += 1
        if outcome not in ("accepted", "told"):
            self.reasons[f"{outcome}: {why}"] += 1
        elif published:
            self.verdicts[why.split(" of ")[0]] += 1
        self.lines.append(f"{outcome:13} {name}  {why}{'' if not published else f'  [{published[0]}, {published[1]} GB]'}")

    def show(self, listed):
        if listed:
            print("\n".join(self.lines))
        for why, count in self.reasons.most_common():
            print(f"{count:4}  {why}")
        trained = sum(self.outcomes.values()) - self.outcomes["no command"]
        accepted, told, listed = self.outcomes["accepted"], self.outcomes["told"], trained - self.outcomes["unlisted"]
        print(f"accepted {accepted} of {trained} as they are, {told} more told a variable; of those published with their "
              f"hardware: {dict(self.verdicts)}")
        print(f"of {listed} with a family that is to be read: {100 * (accepted + told) / max(1, listed):.1f} %")


def evaluated(offsim, script):
    """The words of its last command that trains, as offsim's evaluator of the shell gives them; empty if it gives none."""
    commands, _ = bash.evaluate(pathlib.Path(offsim).parent / "shell_words", script)
    texts = [" ".join(word for _, word in words) for words, _ in commands]
    return next((text for text in reversed(texts) if MODULES.search(text)), "")


def judged(arguments, script, bin_folder):
    """(outcome, reason or verdict, hardware) of one script, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "bin").symlink_to(bin_folder)
        started = time.monotonic()
        result = judge(arguments, script, work)
        if sys.stderr.isatty() or arguments.progress:
            print(f"{time.monotonic() - started:6.1f} s  {result[0]:13} {script.relative_to(arguments.repository)}", file=sys.stderr)
        return result


def judge(arguments, script, work):
    text, file = script.read_text(errors="replace"), script
    published = hardware_of(str(script.relative_to(arguments.repository)), text)
    if arguments.expand:
        text = expanded(script, work)
        if text is None:
            return "no command", "bash comes to none", published
        file = work / "script.sh"
        file.write_text(text)
    path = path_of_model(text if arguments.expand else evaluated(arguments.offsim, file) or text)
    model = model_file(path) if path else None
    if model is None or UNLISTED.search(str(path)):
        return "unlisted" if UNLISTED.search(f"{path} {script.name.replace('_', '-')}") else "model unknown", str(path), published
    machine = machine_file(published, work) if published else arguments.machine
    done, told = predict(arguments.offsim, file, text, model, machine)
    if done.returncode not in (0, 1):
        return "refused", reason(done.stderr), published
    return "told" if told else "accepted", "read" if arguments.read else verdict(done.stdout), published


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("repository", type=pathlib.Path)
    parser.add_argument("--expand", action="store_true")
    parser.add_argument("--offsim", default=str(ROOT / "out/release/offsim"))
    parser.add_argument("--machine", default="H100-SXM")
    parser.add_argument("--list", action="store_true", help="one line for each script")
    parser.add_argument("--only", default="", help="a part of the path")
    parser.add_argument("--jobs", type=int, default=2, help="predictions at a time")
    parser.add_argument("--read", action="store_true", help="reads and checks only: seconds, but no verdicts")
    parser.add_argument("--progress", action="store_true", help="a line for each script as it is done, also into a file")
    arguments = parser.parse_args()
    OPTIONS.extend(["--print-scenario"] if arguments.read else [])
    table = Table()
    scripts = [s for s in inputs(arguments.repository) if arguments.only in str(s.relative_to(arguments.repository))]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        commands = pathlib.Path(folder) / "bin"
        stubs(commands)
        for script, result in zip(scripts, pool.map(lambda s: judged(arguments, s, commands), scripts)):
            table.add(str(script.relative_to(arguments.repository)), *result)
    table.show(arguments.list)


if __name__ == "__main__":
    main()
