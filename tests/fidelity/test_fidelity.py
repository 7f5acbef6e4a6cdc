"""Predictions of recorded Megatron-LM runs do not get worse than tests/fidelity/ratchet.json."""

import subprocess

CASES = "tests/fidelity/cases.jsonl"
RATCHET = "tests/fidelity/ratchet.json"


def test_cases_stay_within_the_ratchet(root):
    run = subprocess.run(["tests/fidelity/run", CASES, "--ratchet", RATCHET], cwd=root, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert run.returncode == 0, run.stdout
