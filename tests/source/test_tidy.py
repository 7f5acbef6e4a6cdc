"""What compilers do not see: who includes whom, files that no target lists, manners of the text."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import ROOT

# Which part may include which, as docs/00-map.md draws it. A part may always include itself.
BASE = {"sim/base"}
INPUT = BASE | {"sim/text"}
MAY_INCLUDE = {
    "sim/base": set(),
    "sim/text": BASE,
    "sim/plan": INPUT,
    "sim/memory": BASE,
    "sim/shell": INPUT,
    "sim/world": BASE,
    "sim/config": INPUT | {"sim/shell"},
    "sim/graph": BASE | {"sim/config", "sim/plan"},
    "sim/residents": BASE | {"sim/config", "sim/plan", "sim/graph"},
    "sim/operators": BASE | {"sim/config", "sim/plan", "sim/graph"},
    "sim/model": BASE | {"sim/config", "sim/plan", "sim/graph", "sim/residents", "sim/operators"},
    "sim/schedule": BASE | {"sim/config"},
    "sim/offload": BASE | {"sim/config", "sim/schedule", "sim/plan", "sim/memory"},
    "sim/compile": BASE | {"sim/config", "sim/graph", "sim/residents", "sim/model", "sim/schedule", "sim/offload", "sim/plan",
                           "sim/memory"},
    "traces": INPUT | {"sim/plan"},
    "sim/verify": BASE | {"sim/plan"},
    "sim/machine": INPUT | {"sim/plan"},
    "sim/engine": BASE | {"sim/plan", "sim/machine", "sim/memory", "traces"},
}
MAY_INCLUDE["sim/predict"] = BASE | {"sim/config", "sim/offload", "sim/compile", "sim/plan", "sim/memory", "sim/verify",
                                     "sim/machine", "sim/engine", "traces"}
MAY_INCLUDE["sim/calibrate"] = BASE | {"sim/config", "sim/offload", "sim/compile", "sim/plan", "sim/machine", "sim/engine"}
MAY_INCLUDE["sim/fit"] = BASE | {"sim/config", "sim/plan", "sim/machine", "sim/engine", "sim/predict", "sim/calibrate", "traces"}
MAY_INCLUDE["sim/sweep"] = INPUT | {"sim/world", "sim/config", "sim/machine", "sim/predict"}
MAY_INCLUDE["sim/tune"] = BASE | {"sim/world", "sim/config", "sim/offload", "sim/compile", "sim/machine", "sim/predict", "sim/sweep"}
MAY_INCLUDE["sim/report"] = INPUT | {"sim/config", "sim/plan", "traces", "sim/predict", "sim/sweep", "sim/tune", "sim/train"}
MAY_INCLUDE["sim/load"] = INPUT | {"sim/config", "sim/offload", "sim/machine", "sim/plan"}
MAY_INCLUDE["sim/api"] = BASE | {"sim/compile", "sim/offload", "sim/plan", "sim/predict", "sim/report", "sim/sweep", "sim/load"}
EVERYTHING_BUT_CLI = set(MAY_INCLUDE)
EXEC = {"sim/exec": BASE | {"sim/plan"}}
EXEC["sim/train"] = INPUT | {"sim/config", "sim/graph", "sim/residents", "sim/operators", "sim/model", "sim/plan", "sim/exec",
                             "traces"}
MAY_INCLUDE.update(EXEC)
REF = {"ref/kernels": BASE | {"sim/plan", "sim/exec"}}
REF["ref/exec"] = BASE | {"sim/plan", "sim/exec", "ref/kernels"}
MAY_INCLUDE.update(REF)
CUDA = {"cuda/device": BASE, "cuda/libraries": BASE}
CUDA["cuda/measure"] = BASE | {"cuda/libraries"}
CUDA["cuda/kernels"] = BASE | {"sim/plan", "sim/exec", "ref/kernels", "cuda/device", "cuda/libraries"}
CUDA["cuda/peers"] = BASE | {"sim/plan", "sim/exec", "cuda/device", "cuda/kernels", "cuda/libraries", "sim/world"}
CUDA["cuda/queue"] = BASE | {"sim/plan", "sim/exec", "cuda/device", "cuda/measure"}
CUDA["cuda/memory"] = BASE | {"sim/plan", "sim/memory", "sim/exec", "cuda/device", "cuda/queue"}
CUDA["cuda/exec"] = BASE | {"sim/plan", "sim/exec", "sim/world", "traces", *CUDA}
CUDA["cuda/recorder"] = {"traces"}
CUDA["cuda/calibrate"] = BASE | {"cuda/device", "cuda/exec", "sim/calibrate", "sim/train"}
MAY_INCLUDE.update(CUDA)
MAY_INCLUDE["sim/cli"] = EVERYTHING_BUT_CLI | {*EXEC, *REF, *CUDA}

TEXT_SUFFIXES = {"", ".c", ".h", ".cu", ".cuh", ".inc", ".def", ".gn", ".gni", ".md", ".py", ".sh", ".yaml", ".json", ".jsonl",
                 ".txt"}
LINE_LIMIT = 110
SUFFIXES_WITH_LINE_LIMIT = {".c", ".h", ".cu", ".cuh"}


def repository_files():
    """Tracked files, and new ones that git does not ignore."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, text=True, capture_output=True)
    if listed.returncode == 0:
        names = listed.stdout.split("\0")
    else:  # an unpacked archive
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
                 if path.relative_to(ROOT).parts[0] not in ("out", ".git")]
    return sorted(pathlib.PurePath(name) for name in names if name and (ROOT / name).is_file())


FILES = repository_files()
SOURCES = [path for path in FILES if path.suffix in (".c", ".h", ".def", ".cu", ".cuh", ".inc")]
OWN_TEXTS = [path for path in FILES
             if path.suffix in TEXT_SUFFIXES and "seeds" not in path.parts
             and path.name != "test_tidy.py"]


TOP_LEVEL = {"BUILD.gn", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "build", "cuda", "docs", "ref", "sim",
             "tests", "traces"}


def lines_of(path):
    return enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)


def report(errors):
    if errors:
        pytest.fail("\n".join(errors), pytrace=False)


def part_of(path):
    return path.parts[0] if path.parts[0] not in ("sim", "ref", "cuda") else "/".join(path.parts[:2])


def quoted_includes(path):
    for line, text in lines_of(path):
        include = re.match(r'\s*#\s*include\s+"([^"]+)"', text)
        if include:
            yield line, pathlib.PurePath(include[1])


def gn(*arguments):
    done = subprocess.run(["gn", *arguments], cwd=ROOT, text=True, capture_output=True)
    if done.returncode != 0:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    return done.stdout


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Folders of a build without CUDA, of one with, and of WebAssembly: GN describes them where their compilers are
    missing, too."""
    folder = tmp_path_factory.mktemp("builds")
    for name, arguments in (("without-cuda", 'nvcc=""'), ("with-cuda", 'nvcc="/usr/local/cuda/bin/nvcc"'),
                            ("wasm", 'nvcc="" is_wasm=true')):
        gn("gen", folder / name, f"--args={arguments}")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def targets_of_builds(builds):
    return [json.loads(gn("desc", build, "//*", "--format=json")) for build in builds]


def test_top_level():
    """Dot files aside: what a program leaves in the folder where it ran is not part of the project."""
    assert {path.parts[0] for path in FILES if not path.parts[0].startswith(".")} == TOP_LEVEL


def test_gn_check(builds):
    for build in builds:
        gn("check", build)


def test_gn_format():
    differing = [str(path) for path in FILES
                 if (path.suffix in (".gn", ".gni") or path.name == ".gn")
                 and subprocess.run(["gn", "format", "--dry-run", path], cwd=ROOT,
                                    capture_output=True).returncode != 0]
    report([f"{name}: run gn format" for name in differing])


def test_every_source_is_in_a_target(targets_of_builds):
    """GN checks no include of a header that no target lists. Examples are built as their readers do."""
    known = set()
    for target in (target for targets in targets_of_builds for target in targets.values()):
        known.update(target.get("sources", []))
        known.update(target["public"] if target.get("public", "*") != "*" else [])
        known.update(target.get("inputs", []))
    report([f"{path}: in no target (BUILD.gn)" for path in SOURCES
            if path.suffix != ".def" and path.parts[0] != "docs" and f"//{path}" not in known])


def reached_from(targets, *groups):
    reached, left = set(), [*groups]
    while left:
        label = left.pop()
        if label not in reached:
            reached.add(label)
            left += targets.get(label, {}).get("deps", [])
    return reached


def test_every_target_is_reached(targets_of_builds):
    """A test that its group does not name would never be built, nor run. WebAssembly takes a part of all."""
    for targets in (targets for targets in targets_of_builds if "//:tests" in targets):
        reached = reached_from(targets, "//:tests", "//:bench")
        report([f"{label}: no group names it" for label in sorted(set(targets) - reached)])


# wasi-libc has them, or build/wasm.
HEADERS_OF_WEBASSEMBLY = {"assert.h", "ctype.h", "errno.h", "getopt.h", "inttypes.h", "limits.h", "math.h", "pthread.h", "regex.h", "stdarg.h", "stdatomic.h",
                          "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "strings.h", "sys/ioctl.h", "sys/mman.h",
                          "sys/stat.h", "unistd.h", "xxhash.h"}


def test_headers_of_webassembly(targets_of_builds):
    """Only build/test --all compiles the playground; here a header is found that it may lack."""
    targets = next(targets for targets in targets_of_builds if "//:tests" not in targets)
    sources = {source for label in reached_from(targets, "//:default") & set(targets)
               if "(" not in label for source in targets[label].get("sources", [])}  # not of the programs that run in the build
    assert len(sources) > 300
    found = {(include, source) for source in sources if (ROOT / source[2:]).is_file()
             for include in re.findall(r"^#include <(.*)>", (ROOT / source[2:]).read_text(), re.M)}
    report([f"{source[2:]}: WebAssembly may lack <{include}>" for include, source in sorted(found)
            if include not in HEADERS_OF_WEBASSEMBLY])


def test_includes_follow_the_map():
    errors = []
    for path in SOURCES:
        part = part_of(path)
        if part == "tests":
            continue
        for line, included in quoted_includes(path):
            other = part_of(included)
            if other != part and other not in MAY_INCLUDE.get(part, set()):
                errors.append(f"{path}:{line}: {part} may not include {included}")
    report(errors)


def part_of_target(label):
    """//sim/config/verl:verl belongs to sim/config."""
    return "/".join(label[2:].split(":")[0].split("/")[:2 if label.startswith(("//sim/", "//ref/", "//cuda/")) else 1])


def test_dependencies_follow_the_map(targets_of_builds):
    errors = []
    for label, target in (row for targets in targets_of_builds for row in targets.items()):
        part = part_of_target(label)
        for dependency in target.get("deps", []) if part in MAY_INCLUDE else []:
            other = part_of_target(dependency)
            if other != part and other not in MAY_INCLUDE[part]:
                errors.append(f"{label}: may not depend on {dependency}")
    report(errors)


def test_includes_are_named_from_the_root():
    report([f"{path}:{line}: no such file: {included}" for path in SOURCES
            for line, included in quoted_includes(path) if not (ROOT / included).is_file()])


def test_include_guards():
    errors = []
    for path in SOURCES:
        if path.suffix == ".h":
            guard = "OFFSIM_" + re.sub(r"[^A-Za-z0-9]", "_", str(path)).upper()
            if f"#ifndef {guard}\n#define {guard}\n" not in (ROOT / path).read_text():
                errors.append(f"{path}: its include guard is not {guard}")
    report(errors)


# ---- the theory of a saving uses neither plan nor engine, or it would agree with them by construction ----

THEORY = ("shape.h", "theory.h", "theory.c", "chunk_order.h", "chunk_order.c", "group_table.h", "group_table.c",
          "keep_rules.h", "keep_rules.c", "te_entries.h", "torch_entries.h", "torch_entries.c", "verl_entries.h")
BEYOND_THEORY = ("sim/plan/", "sim/compile/", "sim/engine/", "sim/machine/", "sim/memory/", "sim/offload/actions.h",
                 "sim/offload/policy.h", "sim/offload/systems.h")


def test_files_of_the_theory():
    """What they include, directly or not."""
    errors = []
    for name in THEORY:
        todo, seen = [pathlib.PurePath("sim/offload") / name], set()
        while todo:
            path = todo.pop()
            if path not in seen:
                seen.add(path)
                todo += [include for _, include in quoted_includes(path)]
        errors += [f"sim/offload/{name}: includes {path}" for path in seen if str(path).startswith(BEYOND_THEORY)]
    report(errors)


def functions_of(path):
    text = (ROOT / path).read_text()
    return {name: whole for whole, name in
            re.findall(r"^((?:static )?(?:inline )?[\w ]+?\*?\b(\w+)\([^;{}]*?\)\n\{\n.*?^\}$)", text, re.M | re.S)}


def test_functions_of_the_theory():
    """In a system's file: those that its descriptor names for its theory, and all that these call."""
    files = [path for path in SOURCES if path.parent == pathlib.PurePath("sim/offload")]
    functions = {path: functions_of(path) for path in files}
    everywhere = {name: body for path in files for name, body in functions[path].items() if "static " not in body[:7]
                  or path.suffix == ".h"}
    errors, systems = [], 0
    for path in files:
        for rules in re.findall(r"^const offload_descriptor \w+ = \{.*?^  \.theory =\s*\{(.*?)\}", (ROOT / path).read_text(),
                                re.M | re.S):
            systems += 1
            todo, seen = re.findall(r"= (\w+)", rules), set()
            assert len(todo) >= 2, path
            while todo:
                name = todo.pop()
                body = functions[path].get(name, everywhere.get(name))
                if body is None or name in seen:
                    continue
                seen.add(name)
                todo += re.findall(r"\b(\w+)\(", body.partition("\n{\n")[2])
                errors += [f"{path}: {name}, of the theory, uses {word}"
                           for word in re.findall(r"\b(?:act_\w+|walk|plan(?:_\w+)?|OP_\w+|STREAM_\w+)\b", body)]
            assert len(seen) >= 2, path
    table = (ROOT / "sim/config/offload_systems.h").read_text()
    assert systems == len(re.findall(r"^  X\((\w+),", table, re.M))
    report(errors)


READERS = ("sim/config/megatron/", "sim/config/axolotl/", "sim/config/verl/", "sim/config/hf/",
           "sim/config/environment.c")


def test_every_key_is_read():
    """By what predicts, after the readers; or its meaning says that it changes nothing."""
    text = "\n".join((ROOT / path).read_text() for path in SOURCES
                     if path.parts[0] == "sim" and path.suffix != ".def" and not str(path).startswith((*READERS, *EXEC)))
    members = set(re.findall(r"(?:->|\.)([a-z_0-9]+)", text))
    rows = [row for path in SOURCES if path.parent.name == "keys"
            for row in re.findall(r'^KEY\((\w+), (\w+), .*"(.*)"\)$', (ROOT / path).read_text(), re.M)]
    assert len(rows) > 200
    for section, key, meaning in rows:
        unread = key not in members
        assert unread == ("no effect on the prediction" in meaning), f"{section}.{key}: {meaning}"


@pytest.mark.parametrize("pattern, why", [
    (r"(?<![\w.}])/(?:work|root|tmp|home)/", "a path of one machine"),
    (r"\b(?:TODO|FIXME|XXX|HACK)\b", "finish it, or open an issue"),
    (r"[ \t]+$", "blanks at the end of a line"),
    (r"\t", "a tab"),
], ids=["machine-paths", "unfinished", "trailing-blanks", "tabs"])
def test_text(pattern, why):
    report([f"{path}:{line}: {why}" for path in OWN_TEXTS for line, text in lines_of(path)
            if re.search(pattern, text)])


def test_lines_are_short():
    report([f"{path}:{line}: {len(text)} columns; at most {LINE_LIMIT}" for path in SOURCES
            if path.suffix in SUFFIXES_WITH_LINE_LIMIT for line, text in lines_of(path)
            if len(text) > LINE_LIMIT and "clang-format off" not in (ROOT / path).read_text()])


FORMATTER_VERSION = 14  # each version formats otherwise


def test_clang_format():
    """Tables that are laid out by hand, those of .def files among them, are between clang-format off and on."""
    formatter = shutil.which(f"clang-format-{FORMATTER_VERSION}") or shutil.which("clang-format")
    if formatter is None:
        pytest.skip("clang-format is not installed")
    version = subprocess.run([formatter, "--version"], text=True, capture_output=True, check=True).stdout
    if f"version {FORMATTER_VERSION}." not in version:
        pytest.skip(f"the sources are formatted by version {FORMATTER_VERSION}; this is {version.strip()}")
    done = subprocess.run([formatter, "--dry-run", "--Werror", *SOURCES], cwd=ROOT, text=True, capture_output=True)
    differing = re.findall(r"^(\S+?):\d+:\d+: error: ", done.stderr, re.M)
    report([f"{path}: run clang-format -i" for path in dict.fromkeys(differing)])
    assert done.returncode == 0, done.stderr


def test_scripts_are_executable():
    errors = []
    for path in FILES:
        with open(ROOT / path, "rb") as file:
            is_script = file.read(2) == b"#!"
        if is_script and "seeds" not in path.parts and not os.access(ROOT / path, os.X_OK):
            errors.append(f"{path}: begins with #! and is not executable")
    report(errors)
