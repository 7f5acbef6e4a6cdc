#!/usr/bin/python3
"""Launch scripts of a checked-out repository: does offsim see the words that bash would pass, and what does it say?

    tests/acceptance/scripts.py FOLDER [--verl] [--list KIND] [--build out/release]

Each shell script runs under bash with an empty environment, in an empty directory, without network, and with a PATH of stubs
only: launchers that print their arguments, programs that do nothing (tests/shell/bash.py). The table counts

    same        every command that bash starts has the words that the evaluator found, unknown parts aside
    message     the evaluator says why it does not read the script
    differs     other words: a defect
    bash stops  before the training command, at a file that the empty directory lacks or a queue that is a stub; the words
                before it are the same
    no command  bash starts nothing that could train

and, for the scripts with a training command, what `offsim predict` answers: accepted, or the reasons, counted. Nothing of
the repository is kept.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "shell"))
import bash  # noqa: E402

# A model's shape where the script leaves it to a checkpoint: any decoder will do to read the rest.
SHAPE = ROOT / "docs" / "examples" / "verl-qwen3-8b.json"


def reason(message):
    """A message without what is particular to one script."""
    text = message.split("error: ", 1)[-1]
    text = re.sub(r'"[^"]*"', '"..."', text)
    text = re.sub(r"\d+", "N", text)
    return text[:100]


def variables(path):
    """What the login and sbatch would set."""
    found = {"HOME": "/nowhere", "USER": "user"}
    text = path.read_text(errors="replace")
    for options, names in ((r"--nodes[= ]|-N ?", ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")), (r"--ntasks-per-node[= ]", ("SLURM_NTASKS_PER_NODE",))):
        given = re.search(rf"^#SBATCH\b.*?(?:{options})(\S+)", text, re.M)
        for name in names if given else ():
            found[name] = given.group(1)
    return found


def predict(program, path, verl):
    options = ["--verl", path, "--hf-config", SHAPE] if verl else ["--megatron-args", path, "--padded-vocab-size", "128256"]
    done = subprocess.run([program, "predict", *options, "--machine", "H100-SXM"], capture_output=True, text=True, timeout=300,
                          errors="replace", check=False)
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    return "accepted" if done.returncode == 0 else reason(errors[0]) if errors else f"status {done.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--verl", action="store_true", help="read by --verl instead of --megatron-args")
    parser.add_argument("--list", default="differs", help="name the scripts of this kind")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "out" / "release")
    options = parser.parse_args()
    kinds, answers = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "empty").mkdir()
        oracle = bash.Bash(bash.make_stubs(folder / "stubs"), folder / "empty", bash.without_network())
        for path in sorted(options.folder.resolve().rglob("*.sh")):
            expected = oracle(path, environment=variables(path))
            found, message = bash.evaluate(options.build / "shell_words", path)
            differs = None
            if message:
                kind = "message"
            elif expected is None:
                kind = "bash ran too long"
            else:
                expected = [words for words in expected if bash.is_recorded(words)]
                differs = bash.compare(found, expected)
                kind = "differs" if differs else "same" if expected else "no command"
                if differs and differs.startswith("bash does not run"):
                    kind = "bash stops"
            kinds[kind] += 1
            shown = path.relative_to(options.folder.resolve())
            answer = predict(options.build / "offsim", path, options.verl)
            answers[answer] += 1
            if options.list in (kind, answer):
                print(f"{shown}: {differs or message or answer}")
    print(f"\n{sum(kinds.values())} scripts")
    for kind, count in kinds.most_common():
        print(f"{count:6}  {kind}")
    print("\nwhat offsim predict says")
    for answer, count in answers.most_common():
        print(f"{count:6}  {answer}")
    return 1 if kinds["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
