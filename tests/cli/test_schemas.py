"""What --json prints has the form that docs/reference/schemas say; they allow no key that is not in them, and the pages
explain each key."""

import json
import re

import pytest

from conftest import ROOT, sets, validate

jsonschema = pytest.importorskip("jsonschema")

SCHEMAS = ROOT / "docs/reference/schemas"
ONE, TINY, LAYERS = "docs/examples/one-layer.yaml", "docs/examples/tiny-llama.yaml", "docs/examples/hf-layers.yaml"
TRACE, SNAPSHOT = "tests/data/real-run/trace.json", "tests/data/real-run/snapshot.pickle"
RUN = ["run", "--on", "ref", "--steps", 2, TINY]
BUGS = sorted(path.relative_to(ROOT) for path in (ROOT / "tests/known_bugs").iterdir())
COMMANDS = {
    "prediction": [["predict", ONE], ["predict", ONE, "--suggest"], ["predict", ONE, "--range"], ["predict", "docs/examples/pr1752.yaml"],
                   ["predict", ONE, *sets("num_layers=60", "seq_length=32768")],
                   ["predict", "--verl", "docs/examples/verl-qwen3-8b.sh", "--hf-config", "docs/examples/verl-qwen3-8b.json"]],
    "comparison": [["predict", ONE, "--compare-systems"], ["predict", LAYERS, "--compare-systems"]],
    "tune": [["tune", ONE, "--set", "num_layers=4", "--gpu-memory", memory] for memory in (3, 0.1)] + [["tune", LAYERS, "--front"]],
    "check": [["check", ONE], *(["check", *(["--plan"] if bug.suffix == ".plan" else []), bug] for bug in BUGS)],
    "run": [RUN, [*RUN, "--tensors"], [*RUN, "--interleavings", 2],
            ["run", "--on", "cuda", "--gpus", 0, "--arithmetic", "exact", "--steps", 1, TINY]],
    "import": [["import", TRACE], ["import", SNAPSHOT], ["import", TRACE, SNAPSHOT]],
    "real-comparison": [["compare", ONE, TRACE, SNAPSHOT], ["compare", ONE, SNAPSHOT, "--max-peak-error", 1]],
    "record-check": [["check", f"tests/fuzz/seeds/fuzz_issued/{seed}"] for seed in ("not_arrived", "ordered")],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_output(offsim, name):
    for command in COMMANDS[name]:
        done = offsim(*command, "--json")
        assert done.status in (0, 1), done.stderr
        validate(name, json.loads(done.stdout))


def test_sweep_row(offsim, tmp_path):
    path = tmp_path / "rows.jsonl"
    offsim("sweep", ONE, "--over", "num_layers=2|3", "--over", "offload_modules=core_attn|layer_input", "-o", path, check=0)
    for line in path.read_text().splitlines():
        validate("sweep-row", json.loads(line))


def test_plan_prediction(offsim, tmp_path):
    plan = tmp_path / "plan"
    plan.write_text(offsim("plan", LAYERS, check=0).stdout)
    validate("plan-prediction", json.loads(offsim("predict", "--plan", plan, "--json", check=0).stdout))


def test_saved_tensors(offsim):
    """They are those of the plan's text: its D2H copies in order, and what forward and backward allocate as saved."""
    planned = [LAYERS, *sets("system=planned", "recompute_granularity=full", "recompute_method=uniform",
                             "recompute_num_layers=1", "recompute_layers=([0,1]*3)")]
    document = json.loads(offsim("plan", "--saved-tensors", *planned, check=0).stdout)
    validate("saved-tensors", document)
    rows = document["ranks"][0]["saved"]
    sizes, phase, found = {}, None, {"offload": [], "keep": [], "recompute": []}
    for line in offsim("plan", *planned, check=0).stdout.splitlines():
        words = line.split()
        if line.startswith(("forward m0 ", "backward m0 ")):
            phase = words[0]
        elif phase and words[0] == "alloc" and "saved" in words:
            sizes[words[2]] = (words[3], int(words[words.index("bytes") - 1]))
            found["keep" if phase == "forward" else "recompute"].append(sizes[words[2]])
        elif phase and words[0] == "d2h":
            found["offload"].append(sizes[words[2]])
            found["keep"].remove(sizes[words[2]])
    for action, tensors in found.items():
        listed = [(row["tensor"], row["bytes"]) for row in rows if row["action"] == action]
        assert (listed if action != "keep" else sorted(listed)) == (tensors if action != "keep" else sorted(tensors))
        assert tensors


def test_traces(offsim, tmp_path):
    with_offload, without, predicted = (tmp_path / name for name in "abc")
    offsim(*RUN, "--record", with_offload, check=0)
    offsim(*RUN, "--record", without, "--without-offload", check=0)
    offsim("predict", TINY, "--record", predicted, check=0)
    for one, other in ((with_offload, with_offload), (with_offload, without), (predicted, with_offload)):
        validate("traces", json.loads(offsim("compare", one, other, "--json").stdout))


def keys_of(schema):
    for key, value in schema.get("properties", {}).items():
        yield key
        yield from keys_of(value)
    for inner in (schema.get("items"), *schema.get("$defs", {}).values()):
        if isinstance(inner, dict):
            yield from keys_of(inner)


def test_nothing_else_is_allowed():
    """A key that the program does not print yet is an error, so that none is added without its schema."""
    assert {path.stem for path in SCHEMAS.iterdir()} == {*COMMANDS, "aligned-ranks", "sweep-row", "plan-prediction", "saved-tensors",
                                                     "traces"}
    for path in SCHEMAS.iterdir():
        schema = json.loads(path.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["additionalProperties"] is False
        assert not jsonschema.Draft202012Validator(schema).is_valid({"format_version": 1, "another": 1})


def test_keys_are_explained():
    text = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    words = set(re.findall(r"\w+", text))
    for path in SCHEMAS.iterdir():
        missing = set(keys_of(json.loads(path.read_text()))) - words
        assert not missing, (path.name, missing)
