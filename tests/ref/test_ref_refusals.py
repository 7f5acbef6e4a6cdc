"""What the reference executor cannot get: disk and memory. One message, exit status 3, and nothing left behind."""

import os
import resource
import subprocess
import time

from conftest import ENDS, ROOT, TIMEOUT_S, Run, heed_signals, one_error

SCENARIO = """
model: {implementation: hf, num_layers: 3, hidden_size: 64, ffn_hidden_size: 128, num_attention_heads: 4,
  normalization: RMSNorm, swiglu: true, position_embedding_type: rope, add_bias_linear: false,
  untie_embeddings_and_output_weights: true, vocab_size: 256}
training: {micro_batch_size: 1, global_batch_size: 1, seq_length: 16, bf16: true, optimizer: adamw_torch}
recompute: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}
offload: {system: axolotl_disk, mode: fixed}
machine: {name: ideal}
"""
ON_REF = ["run", "--on", "ref", "--steps", "2", "-"]


def run_limited(offsim, limit, *arguments):
    """With a resource limit of the system, as (which, soft limit)."""
    def limited():
        resource.setrlimit(limit[0], (limit[1], limit[1]))
    done = subprocess.run([str(offsim.path), *ON_REF, *map(str, arguments)], cwd=ROOT, input=SCENARIO, text=True,
                          capture_output=True, timeout=TIMEOUT_S, preexec_fn=limited)
    return Run(done.stdout, done.stderr, done.returncode)


def test_files_go_where_they_should(offsim, tmp_path):
    offsim(*ON_REF, "--disk-dir", tmp_path, stdin=SCENARIO, check=0)
    assert list(tmp_path.iterdir()) == []


def test_no_such_folder(offsim, tmp_path):
    message = one_error(offsim(*ON_REF, "--disk-dir", tmp_path / "none", stdin=SCENARIO), 3)
    assert "cannot make a file of 2048 bytes" in message and str(tmp_path / "none") in message
    assert "No such file or directory" in message


def test_full_disk(offsim, tmp_path):
    message = one_error(run_limited(offsim, (resource.RLIMIT_FSIZE, 1024), "--disk-dir", tmp_path), 3)
    assert "cannot write 2048 bytes" in message and "bytes free" in message
    assert list(tmp_path.iterdir()) == []


def test_no_memory(offsim, tmp_path):
    """The workspace alone has 64 MiB."""
    message = one_error(run_limited(offsim, (resource.RLIMIT_AS, 80 << 20), "--disk-dir", tmp_path), 3)
    assert "no memory for a buffer of" in message and "are in use" in message


def test_signals_leave_nothing(offsim, tmp_path):
    for number in ENDS:
        command = [str(offsim.path), "run", "--on", "ref", "--steps", "100000", "--disk-dir", str(tmp_path), "-"]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, text=True, preexec_fn=heed_signals) as running:
            running.stdin.write(SCENARIO)
            running.stdin.close()
            files = f"/proc/{running.pid}/fd"
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not has_file(files, tmp_path):
                time.sleep(0.01)
            assert has_file(files, tmp_path)
            running.send_signal(number)
            assert running.wait(60) == -number
        assert list(tmp_path.iterdir()) == []


def has_file(files, folder):
    """Whether the process has a file open in the folder."""
    for name in os.listdir(files):
        try:
            if os.readlink(f"{files}/{name}").startswith(str(folder)):
                return True
        except FileNotFoundError:
            continue
    return False
