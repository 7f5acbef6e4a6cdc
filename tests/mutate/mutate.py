#!/usr/bin/env python3
"""Makes small mistakes in the C code on purpose, one at a time, and lists those that no test notices.

First a build with --coverage finds which unit tests and which test files of pytest run which lines. Then every mistake
(mutant) is made in a copy of this checkout, where only what a test needs is built again, and the tests that run its line
try it: unit tests first, and of both kinds those that noticed mistakes in the same file before, then the fastest. The
first test that fails kills the mutant. A mutant that changes no byte of its object file is equivalent: it does not count.

The table of results grows by a line for each mutant, so a run that was stopped goes on where it was. A line stays valid
as long as its line of code is the same.

    tests/mutate/mutate.py --list | head       which mutants
    tests/mutate/mutate.py --jobs 2            all of them: hours
    tests/mutate/mutate.py --units sim/verify  one folder, unit tests only
    tests/mutate/mutate.py --retry             survivors again, with the tests of today
    tests/mutate/mutate.py --cover --units     which unit tests run which lines, as a start elsewhere: coverage.json
"""

import argparse
import bisect
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import sys
import threading
import time

import places
from tree import ROOT, Tree, measure, take_snapshot

FOLDERS = ("sim/plan", "sim/engine", "sim/memory", "sim/offload", "sim/verify", "sim/compile", "ref/kernels", "traces")
# What pytest runs beyond the unit tests. tests/source looks at the text of the sources, tests/fuzz at the readers.
ROOMS = ("plans", "docs", "cli", "systems", "ref", "fidelity", "gpu", "properties")
REMEMBERED = 12  # of the tests that noticed a mistake in a file: these are tried before whole files of tests

KILLED, SURVIVED, SURVIVED_UNITS = "killed", "survived", "survived units"
EQUIVALENT, NOT_BUILT = "equivalent", "does not build"


class Table:
    """The results, one line a mutant; a later line replaces an earlier one."""

    def __init__(self, path):
        self.path, self.lock, self.rows = path, threading.Lock(), {}
        if path.exists():
            for line in path.read_text().splitlines():
                key, result, by, _ = line.split("\t", 3)
                self.rows[key] = (result, by)

    def add(self, place, result, by):
        with self.lock:
            self.rows[place.key] = (result, by)
            with open(self.path, "a") as file:
                print(place.key, result, by, place, sep="\t", file=file, flush=True)

    def killers(self, mutants):
        """Tests that killed some of these, the most successful first."""
        with self.lock:
            by = [self.rows[place.key][1] for place in mutants if self.rows.get(place.key, ("",))[0] == KILLED]
        return [test for test, _ in collections.Counter(by).most_common()]


def digest_of(tree, test):
    """Of what its coverage depends on: the test, and the lines of the sources."""
    sources = [test if "/" in test else f"tests/unit/{test}.c"]
    sources += [path for folder in FOLDERS for path in sorted((tree.root / folder).glob("*.c"))]
    return hashlib.sha256(b"".join((tree.root / path).read_bytes() for path in sources)).hexdigest()


class Coverage:
    """Which tests run which lines, and how long they take: kept as JSON, and measured again when the test or a source has
    changed."""

    def __init__(self, path):
        self.path = path
        self.tests = json.loads(path.read_text()) if path.exists() else {}

    def missing(self, tree, tests):
        return [test for test in tests if self.tests.get(test, {}).get("digest") != digest_of(tree, test)]

    def measure(self, tree, tests):
        for test in tests:
            self.tests[test] = {"digest": digest_of(tree, test), **measure(tree, test, FOLDERS)}
            print(f"{test}: {', '.join(self.tests[test]['failing']) or 'covered'}", flush=True)
            self.path.write_text(json.dumps(self.tests))

    def of(self, place):
        """Tests that run a place, the fastest first: they run the line, or the nearest one that has code of its own, since
        a statement of several lines counts as one of them."""
        found = []
        for test, row in list(self.tests.items()):
            ran, others = row["run"].get(place.path, []), row["not run"].get(place.path, [])
            lines = sorted([*ran, *others])
            at = bisect.bisect_left(lines, place.line)
            near = lines[max(0, at - 1):at + 1]
            if test not in row["failing"] and set(near) & set(ran):
                found.append(test)
        return sorted(found, key=lambda test: (self.tests[test]["seconds"], test))


def judge(tree, place, table, mutants, tests, coverage):
    """(result, the test that killed it)."""
    source = tree.root / place.path
    text = source.read_text()
    if not tree.compiles(place.path):
        sys.exit(f"{place.path} does not build without a mutant")
    original = tree.code_bytes(place.path)
    source.write_text(place.apply(text))
    try:
        if not tree.compiles(place.path):
            return NOT_BUILT, "-"
        if tree.code_bytes(place.path) == original:
            return EQUIVALENT, "same object file"
        killers = table.killers([other for other in mutants if other.path == place.path])
        units = [test for test in tests if "/" not in test]
        for name in [name for name in killers if name in units] + [name for name in units if name not in killers]:
            if tree.build(name) and tree.fails([name]):
                return KILLED, name
        rooms = [test for test in tests if "/" in test]
        if rooms:
            tree.build("default")
            known = [test for test in killers if test.split("::")[0] in rooms]
            for batch in ([known[:REMEMBERED]] if known else []) + [[room] for room in rooms]:
                without = [name for room in {test.split("::")[0] for test in batch} for name in coverage.tests[room]["failing"]]
                failing = tree.fails(batch, without)
                if failing:
                    return KILLED, failing
        return SURVIVED, f"{len(tests)} tests run it"
    finally:
        source.write_text(text)


def equivalents():
    """Mutants that no test can kill, with the reason."""
    rows = {}
    for line in (pathlib.Path(__file__).parent / "equivalent.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            key, reason = line.split(" | ")[0], line.rsplit(" | ", 1)[1]
            rows[key] = reason
    return rows


def score_of(counts):
    tried = counts[KILLED] + counts[SURVIVED] + counts[SURVIVED_UNITS]
    return f"{counts[KILLED]} of {tried}" + (f" = {100 * counts[KILLED] / tried:.1f} %" if tried else "")


def summarise(table, mutants):
    """Prints the survivors and the score, by folder and of all; returns the number of survivors."""
    known = equivalents()
    folders, survivors = {folder: collections.Counter() for folder in FOLDERS}, []
    for place in mutants:
        result, by = table.rows.get(place.key, ("not tried", "-"))
        if place.key in known:
            result = EQUIVALENT
        folders[os.path.dirname(place.path)][result] += 1
        if result in (SURVIVED, SURVIVED_UNITS):
            survivors.append(f"{place.key}  {place}  ({result}: {by})")
    counts = sum(folders.values(), collections.Counter())
    print("\n".join(survivors))
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    for folder, of_folder in folders.items():
        print(f"{folder}: {score_of(of_folder)}")
    print(f"score: {score_of(counts)}")
    return len(survivors)


def test_files(root):
    return [str(path.relative_to(root)) for room in ROOMS for path in sorted((root / "tests" / room).glob("test_*.py"))]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help=f"only these folders or files of {' '.join(FOLDERS)}")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time, each in its own copy (1)")
    parser.add_argument("--one-in", type=int, default=44, help="share of all places that are tried, in every file (44)")
    parser.add_argument("--seed", type=int, default=1, help="chooses them (1)")
    parser.add_argument("--units", action="store_true", help="unit tests only; a later run goes on with their survivors")
    parser.add_argument("--retry", action="store_true", help="try survivors again")
    parser.add_argument("--key", help="only this mutant, tried again")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "out/mutate",
                        help="copies, coverage and table (out/mutate)")
    parser.add_argument("--cover", action="store_true", help="only measure which tests run which lines")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    parser.add_argument("--summary", action="store_true", help="print the score of the table and try none")
    return parser.parse_args()


def chosen(options, root):
    names = [str(path.relative_to(root)) for folder in FOLDERS for path in sorted((root / folder).glob("*.c"))]
    wanted = tuple(path.rstrip("/") for path in options.paths)
    return [place for name in names if not wanted or name in wanted or os.path.dirname(name) in wanted
            for place in places.chosen(name, (root / name).read_text(), options.one_in, options.seed)]


def waiting_of(options, table, mutants):
    again = {None, *([] if options.units else [SURVIVED_UNITS]), *([SURVIVED, SURVIVED_UNITS] if options.retry else [])}
    known = equivalents()
    return [place for place in mutants if place.key == options.key or
            (not options.key and table.rows.get(place.key, (None,))[0] in again and place.key not in known)]


def main():
    options = arguments()
    if options.list:
        print("\n".join(f"{place.key}  {place}" for place in chosen(options, ROOT)))
        return 0
    snapshot = options.folder / "source"
    snapshot.mkdir(parents=True, exist_ok=True)
    table = Table(options.folder / "results.tsv")
    if options.summary:
        return 1 if summarise(table, chosen(options, ROOT)) else 0
    take_snapshot(snapshot)
    mutants = chosen(options, snapshot)
    waiting = waiting_of(options, table, mutants)
    print(f"{len(waiting)} of {len(mutants)} mutants to try", flush=True)

    if not waiting:
        return 1 if summarise(table, mutants) else 0
    first = Tree(options.folder / "tree-0", snapshot)
    coverage = Coverage(options.folder / "coverage.json")
    missing = coverage.missing(first, first.unit_programs() + ([] if options.units else test_files(snapshot)))
    if missing:
        coverage.measure(Tree(options.folder / "covered", snapshot, "is_coverage=true"), missing)
    if options.cover:
        return 0

    trees = [first] + [Tree(first.copy(options.folder / f"tree-{job}"), snapshot) for job in range(1, options.jobs)]

    def work(tree):
        while True:
            with table.lock:
                place = waiting.pop(0) if waiting else None
            if place is None:
                return
            began = time.monotonic()
            tests = [test for test in coverage.of(place) if not options.units or "/" not in test]
            result, by = judge(tree, place, table, mutants, tests, coverage)
            table.add(place, SURVIVED_UNITS if options.units and result == SURVIVED else result, by)
            print(f"{time.monotonic() - began:6.1f} s  {result}  {by}  {place}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(work, tree) for tree in trees]:
            done.result()
    return 1 if summarise(table, mutants) else 0


if __name__ == "__main__":
    sys.exit(main())
