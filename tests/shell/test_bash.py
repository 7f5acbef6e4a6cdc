"""The evaluator of launch scripts beside bash: the same words, or a message, never others."""

import os
import shutil
import subprocess

import pytest

import bash
import generator
from conftest import ROOT

PROGRAM = ROOT / "out" / "release" / "shell_words"
# OFFSIM_SCRIPTS=2000 draws as many; a sample is enough for every day.
SCRIPTS = int(os.environ.get("OFFSIM_SCRIPTS", "300"))
GROUPS = 10
BY_HAND = sorted((ROOT / "tests" / "shell" / "scripts").glob("*.sh"))

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the oracle")


@pytest.fixture(scope="session")
def oracle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bash")
    empty = folder / "empty"
    empty.mkdir()
    return bash.Bash(bash.make_stubs(folder / "stubs"), empty, bash.without_network())


def difference(oracle, path, arguments, environment):
    """What differs, or None; and whether the evaluator gave the words or a message."""
    expected = oracle(path, arguments, environment)
    if expected is None:
        return None, "bash ran too long"
    found, message = bash.evaluate(PROGRAM, path, arguments, environment)
    if message:
        return None, message
    return bash.compare(found, [words for words in expected if bash.is_recorded(words)]), ""


@pytest.mark.parametrize("group", range(GROUPS))
def test_drawn_scripts(oracle, group, tmp_path):
    refused, drawn = 0, 0
    for seed in range(group, SCRIPTS, GROUPS):
        text, arguments, environment = generator.script(seed)
        path = tmp_path / f"{seed}.sh"
        path.write_text(text)
        if subprocess.run(["bash", "-n", path], capture_output=True, check=False).returncode != 0:
            continue
        differs, message = difference(oracle, path, arguments, environment)
        assert differs is None, f"seed {seed}: {differs}\n{text}"
        drawn += 1
        refused += bool(message)
    assert drawn > 0 and refused <= drawn // 5, f"{refused} of {drawn} refused"


@pytest.mark.parametrize("path", BY_HAND, ids=lambda path: path.stem)
def test_scripts_by_hand(oracle, path):
    differs, message = difference(oracle, path, [], {})
    assert differs is None and message == "", differs or message
