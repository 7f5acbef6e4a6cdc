"""offsim sweep and tune in several processes under mpirun: what one process prints and writes."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from conftest import ROOT, TIMEOUT_S, Offsim

SMALL = "docs/examples/one-layer.yaml"
AXES = ["--over", "num_layers=2|3|5|7|11|13", "--over", "offload_modules=core_attn|core_attn,attn_proj|fused_group_mlp"]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]


@pytest.fixture(scope="module")
def alone():
    if not (ROOT / "out" / "without-cuda" / "build.ninja").exists():
        pytest.skip("out/without-cuda is not built")
    return Offsim("without-cuda")


def command(alone, processes, *arguments):
    return [*MPIRUN, str(processes), str(alone.path), *map(str, arguments)]


def together(alone, processes, *arguments):
    return subprocess.run(command(alone, processes, *arguments), cwd=ROOT, text=True, capture_output=True,
                          timeout=TIMEOUT_S)


def lines_of(path):
    return sorted(path.read_text().splitlines())


@pytest.mark.parametrize("processes, threads", [(2, 1), (3, 2)])
def test_sweep(alone, tmp_path, processes, threads):
    one, many = tmp_path / "one.jsonl", tmp_path / "many.jsonl"
    table = alone("sweep", SMALL, *AXES, "-o", one, check=0).stdout
    done = together(alone, processes, "sweep", SMALL, *AXES, "--threads", threads, "-o", many)
    assert (done.returncode, done.stdout, lines_of(many)) == (0, table, lines_of(one))
    assert any(json.loads(line)["verdict"] == "refused" for line in lines_of(many))


def children(parent):
    """Processes that `parent` started, in order."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return sorted(found)


def test_a_killed_sweep_goes_on(alone, tmp_path):
    """One process dies, each time another one: mpirun ends all. Then one command in one process ends the sweep."""
    axes = ["--over", "num_layers=" + "|".join(map(str, range(2, 42))), "--over", "seq_length=1024|2048"]
    one, many = tmp_path / "one.jsonl", tmp_path / "many.jsonl"
    table = alone("sweep", SMALL, *axes, "-o", one, check=0).stdout
    for dies in range(2):
        running = subprocess.Popen(command(alone, 2, "sweep", SMALL, *axes, "--threads", 1, "-o", many), cwd=ROOT,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while running.poll() is None and (not many.exists() or many.read_bytes().count(b"\n") < 15 * (dies + 1)):
            time.sleep(0.01)
        for process in children(running.pid)[dies:dies + 1]:
            os.kill(process, signal.SIGKILL)
        running.wait(TIMEOUT_S)
        assert many.read_bytes().count(b"\n") >= 15 * (dies + 1)
    left = alone("sweep", SMALL, *axes, "-o", many, check=0)
    assert (left.stdout, lines_of(many)) == (table, lines_of(one))


def test_tune(alone):
    arguments = ["tune", SMALL, "--set", "num_layers=8", "--gpu-memory", 3, "--best", 3]
    done = together(alone, 3, *arguments)
    assert (done.returncode, done.stdout) == (0, alone(*arguments, check=0).stdout)
    front = ["tune", SMALL, "--set", "num_layers=4", "--front", "--json"]
    assert together(alone, 2, *front).stdout == alone(*front, check=0).stdout


def test_wrong_input_is_reported_once(alone):
    done = together(alone, 3, "sweep", SMALL, "--over", "num_layers=2|3", "--set", "hidden_size=none")
    assert done.returncode == 2 and done.stderr.count("error: ") == 1
    assert "MPI_ABORT" not in done.stderr, "all know, so none has to end the others"


def test_an_error_of_one_process_ends_all(alone):
    """Process 0 writes the page, after the others have done all they had to do."""
    done = together(alone, 3, "sweep", SMALL, "--over", "num_layers=2|3", "--html", "/dev/full")
    assert done.returncode == 3 and done.stderr.count("error: ") == 1
