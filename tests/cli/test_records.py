"""offsim check RECORD and offsim record, without a GPU: records are the fuzzers' seeds."""
import json

import pytest

from conftest import ROOT, one_error

SEEDS = ROOT / "tests" / "fuzz" / "seeds" / "fuzz_issued"


def test_a_race_is_exit_1_and_names_the_missing_edge(offsim):
    done = offsim("check", SEEDS / "not_arrived")
    assert done.status == 1
    assert "not_arrived: H2D copy on stream 1 (row 6) may still write" in done.stdout
    assert "stream 0 has to wait for an event that is recorded on stream 1 after row 6" in done.stdout


def test_its_twin_with_the_edge_is_safe(offsim):
    done = offsim("check", "--json", SEEDS / "ordered")
    found = json.loads(done.stdout)
    assert done.status == 0
    assert found["safe"] and found["races"] == [] and found["waits"] == 1


@pytest.mark.parametrize("options", [["--set", "num_layers=2"], ["--advice"], ["--sarif", "out.sarif"]])
def test_a_record_takes_no_configuration(offsim, options):
    done = offsim("check", SEEDS / "ordered", *options)
    assert done.status == 2
    assert "a record is checked as it is" in done.stderr


def test_a_record_without_rows_is_refused(offsim, tmp_path):
    (tmp_path / "empty").write_bytes((SEEDS / "ordered").read_bytes()[:16])
    assert "the record has no rows" in one_error(offsim("check", tmp_path / "empty"), 2)


def test_a_cut_record_is_refused_with_its_offset(offsim, tmp_path):
    (tmp_path / "cut").write_bytes((SEEDS / "ordered").read_bytes()[:-8])
    done = offsim("check", tmp_path / "cut")
    assert done.status == 2
    assert "the record ends within a row" in done.stderr


def test_record_needs_a_command_and_the_recorder(offsim, tmp_path):
    assert "give a command" in offsim("record").stderr
    done = offsim("record", "--library", tmp_path / "missing.so", "-o", tmp_path / "r", "--", "true")
    assert done.status == 3
    assert "missing.so" in done.stderr


def test_record_runs_the_command_and_has_its_status(offsim, tmp_path):
    library = tmp_path / "recorder.so"
    library.write_bytes(b"")
    done = offsim("record", "--library", library, "-o", tmp_path / "r", "--", "sh", "-c",
                  'echo "$CUDA_INJECTION64_PATH $OFFSIM_RECORD"; exit 7')
    assert done.status == 7
    assert done.stdout == f"{library} {tmp_path / 'r'}\n"
    assert "did not use CUDA" in done.stderr
