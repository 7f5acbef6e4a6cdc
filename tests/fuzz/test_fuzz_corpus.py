"""Fuzz targets: their seeds with ASan and UBSan, and a minute of fuzzing in build/test --all."""

import os
import subprocess

import pytest

from conftest import ROOT, TIMEOUT_S

SEEDS = ROOT / "tests" / "fuzz" / "seeds"
TARGETS = sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("fuzz_*.c"))
FUZZ_S = 60


def run(command, **options):
    done = subprocess.run(command, cwd=ROOT, text=True, errors="replace", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=TIMEOUT_S, **options)
    if done.returncode != 0:
        pytest.fail(done.stdout[-8000:], pytrace=False)
    return done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_seeds(target):
    seeds = sorted((SEEDS / target).iterdir())
    assert seeds, f"tests/fuzz/seeds/{target}/ is empty"
    assert run([ROOT / "out" / "san" / target, *seeds]) == f"{len(seeds)} inputs\n"


@pytest.mark.parametrize("target", TARGETS)
def test_fuzz(target, all_configurations, tmp_path):
    run([ROOT / "out" / "fuzz" / target, f"-max_total_time={FUZZ_S}", "-timeout=10",
         "-rss_limit_mb=2048", f"-artifact_prefix={ROOT}/out/fuzz/{target}-", tmp_path,
         SEEDS / target], env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"})
