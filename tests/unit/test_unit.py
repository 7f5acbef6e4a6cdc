"""Each cmocka program of tests/unit, in the configurations that build/test has built."""

import subprocess

import pytest

from conftest import ROOT, TIMEOUT_S, configurations


def programs():
    """The build's list, not the files of out/: a removed test leaves its program there. Sanitized ones come first:
    they take longest, and the suite ends with these programs, when no core should wait for another."""
    for configuration in reversed(configurations()):
        found = subprocess.run(
            ["gn", "ls", f"out/{configuration}", "//tests/unit:*", "--type=executable",
             "--as=output"], cwd=ROOT, text=True, capture_output=True, check=True)
        for path in found.stdout.split():
            yield pytest.param(configuration, path.split("/")[-1],
                               id=f"{configuration}-{path.split('/')[-1]}")


@pytest.mark.parametrize("configuration, program", programs())
def test_unit(configuration, program):
    done = subprocess.run([ROOT / "out" / configuration / program], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S)
    if done.returncode != 0:
        pytest.fail(done.stdout, pytrace=False)
