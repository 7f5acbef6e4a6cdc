"""A copy of the checkout with its own build, and what its tests say and cover."""

import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = "out/release"  # in the copy: where tests look for offsim
PYTEST = [sys.executable, "-B", "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider"]
NO_TEST_RAN = (4, 5)  # pytest's exit status: a test is not there any more; nothing was selected

CPU_LIMIT_S = 60  # of one process of pytest's tests: a mutant may loop for ever
UNIT_LIMIT_S = 15  # of a unit program
MEMORY_LIMIT_BYTES = 12 << 30
WALL_LIMIT_S = 1800


def limit_child(cpu_s):
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def copy_files(names, origin, target):
    """Makes `target` a folder of these files and of what is in its out/; equal files keep their times."""
    for name in names:
        there = target / name
        if not there.exists() or there.read_bytes() != (origin / name).read_bytes():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin / name, there)
    for name in set(files_of(target)) - set(names):
        (target / name).unlink()


def files_of(folder):
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return [name for name in names if not name.startswith("out/")]


def take_snapshot(folder):
    """Of the checkout, which may change while the tests run."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout
    copy_files([name for name in listed.split("\0") if name and (ROOT / name).is_file()], ROOT, folder)


class Tree:
    def __init__(self, folder, snapshot, arguments=""):
        self.root = folder
        copy_files(files_of(snapshot), snapshot, folder)
        warnings = "treat_warnings_as_errors=false"
        self.run(["gn", "gen", "-q", BUILD, f'--args=is_debug=false nvcc="" {warnings} {arguments}'], check=True)
        self.run(["ninja", "--quiet", "-C", BUILD, "default", "tests"], check=True)
        self.objects = {}
        for entry in json.loads(self.run(["ninja", "-C", BUILD, "-t", "compdb"], check=True).stdout):
            path = os.path.relpath((folder / BUILD / entry["file"]).resolve(), folder)
            self.objects[path] = entry["output"]

    def copy(self, folder):
        """A copy with what is built, unless there is one: ninja goes by times, which stay."""
        if not folder.exists():
            subprocess.run(["cp", "-a", self.root, folder], check=True)
        return folder

    def run(self, command, check=False, cpu_limit_s=None):
        try:
            done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, errors="replace",
                                  timeout=WALL_LIMIT_S, stdin=subprocess.DEVNULL,
                                  preexec_fn=(lambda: limit_child(cpu_limit_s)) if cpu_limit_s else None)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "")
        if check and done.returncode != 0:
            sys.exit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
        return done

    def build(self, *targets):
        return self.run(["ninja", "--quiet", "-C", BUILD, *targets]).returncode == 0

    def compiles(self, path):
        """Whether a source does, and without the warnings that are a change of types."""
        done = self.run(["ninja", "--quiet", "-C", BUILD, self.objects[path]])
        return done.returncode == 0 and not re.search(r"\[-W(?:incompatible-pointer-types|int-conversion)", done.stdout)

    def code_bytes(self, path):
        """The object file of a source without what debuggers read."""
        stripped = self.root / "out/stripped.o"
        self.run(["strip", "--strip-debug", "-o", str(stripped), f"{BUILD}/{self.objects[path]}"], check=True)
        return stripped.read_bytes()

    def unit_programs(self):
        listed = self.run(["gn", "ls", BUILD, "//tests/unit:*", "--type=executable", "--as=output"], check=True).stdout
        return sorted(os.path.basename(line) for line in listed.split())

    def unit_passes(self, program):
        return self.run([f"{BUILD}/{program}"], cpu_limit_s=UNIT_LIMIT_S).returncode == 0

    def failing(self, tests, *options):
        """Of a unit program, or tests of pytest: the names of those that fail."""
        if "/" not in tests[0]:
            return [] if self.unit_passes(tests[0]) else tests[:1]
        done = self.run([*PYTEST, *options, *tests], cpu_limit_s=CPU_LIMIT_S)
        if done.returncode in (0, *NO_TEST_RAN):
            return []
        return re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.M) or [f"pytest {' '.join(tests)}"]

    def fails(self, tests, without=()):
        """The first that fails, or None; not counting those that fail without a mistake, too."""
        failing = self.failing(tests, "-x", *(f"--deselect={name}" for name in without))
        return failing[0] if failing else None


def lines_run(tree, folders):
    """By source: {line: whether it was run} since the counters were removed."""
    build = tree.root / BUILD
    counters = [str(path.relative_to(build)) for folder in folders for path in (build / "obj" / folder).rglob("*.gcda")]
    found = {}
    if counters:
        for line in tree.run(["sh", "-c", f"cd {BUILD} && gcov --json-format --stdout \"$@\"", "-", *counters],
                             check=True).stdout.splitlines():
            for file in json.loads(line)["files"]:
                path = os.path.normpath(file["file"]).lstrip("./")
                lines = found.setdefault(path, {})
                for row in file["lines"]:
                    number = row["line_number"]
                    lines[number] = lines.get(number, False) or row["count"] > 0
    for path in (build / "obj").rglob("*.gcda"):
        path.unlink()
    return {path: lines for path, lines in found.items() if os.path.dirname(path) in folders}


def measure(tree, test, folders):
    """What a test covers, as JSON: seconds; what fails in the copy, where there is only one build; by source: the lines
    that were run, and the others."""
    for path in (tree.root / BUILD / "obj").rglob("*.gcda"):
        path.unlink()
    began = time.monotonic()
    failing = tree.failing([test])
    seconds = time.monotonic() - began
    lines = lines_run(tree, folders)
    return {
        "seconds": round(seconds, 3),
        "failing": failing,
        "run": {path: sorted(line for line, was_run in rows.items() if was_run) for path, rows in lines.items()},
        "not run": {path: sorted(line for line, was_run in rows.items() if not was_run) for path, rows in lines.items()},
    }
