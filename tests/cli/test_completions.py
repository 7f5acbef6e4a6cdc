"""Completion in the shells themselves: what each offers for a line that a user has begun."""

import shutil
import subprocess

import pytest

from conftest import ROOT

COMPLETIONS = ROOT / "build/completions"
BASH = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_offsim
printf '%s\n' "${COMPREPLY[@]}"
"""
# zsh completes only in its line editor: a pseudo terminal types the line and a tab once the editor shows its prompt,
# and a second prompt ends the list. In quotes of the script, what is typed does not look like what is printed.
ZSH = r"""
zmodload zsh/zpty
zpty shell 'zsh -f -i'
zpty -w shell "stty -echo cols 200 rows 200; LISTMAX=1000; PS2="
zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w shell "PATH=$2:\$PATH; source $1/offsim.zsh; PS1='REA''DY> '"
zpty -r shell out '*READY> *'
zpty -n -w shell "$3"$'\t\C-d'
zpty -n -w shell $'\C-u'"PS1='FINI''SHED> '"$'\n'
zpty -r shell out '*FINISHED> *'
print -r -- "$out"
"""


def run(*command):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=60,
                          env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TERM": "xterm"})
    return done.stdout


def in_bash(offsim, *words):
    return run("bash", "-c", BASH, "bash", COMPLETIONS / "offsim.bash", offsim.path, *words).split()


def in_fish(path, line):
    script = f"set PATH {path} $PATH; source {COMPLETIONS}/offsim.fish; complete -C '{line}'"
    return run("fish", "--no-config", "-c", script)


def in_zsh(path, line):
    return run("zsh", "-f", "-c", ZSH, "zsh", COMPLETIONS, path, line)


def needs(shell):
    return pytest.mark.skipif(shutil.which(shell, path="/usr/bin:/bin") is None, reason=f"{shell} is not installed")


def test_bash(offsim):
    assert in_bash(offsim, "pre") == ["predict"]
    assert {"predict", "tune", "--version"} <= set(in_bash(offsim, ""))
    assert in_bash(offsim, "predict", "--megat") == ["--megatron-args"]
    assert in_bash(offsim, "run", "--arithmetic", "e") == ["exact"]
    assert in_bash(offsim, "run", "--arithmetic", "") == ["fast", "exact"]
    assert in_bash(offsim, "predict", "--megatron-args", "docs/examples/llama3") == ["docs/examples/llama3-8b.sh"]
    assert in_bash(offsim, "predict", "docs/examples/te-m") == ["docs/examples/te-manual.yaml"]
    assert in_bash(offsim, "record", "--", "README.m") == ["README.md"]


@needs("fish")
def test_fish(offsim, tmp_path):
    (tmp_path / "offsim").symlink_to(offsim.path)

    def offered(line):
        return in_fish(f"{tmp_path}", line)

    assert offered("offsim pre").startswith("predict\tpeak memory")
    assert offered("offsim predict --megat").startswith("--megatron-args\tMegatron flags")
    assert offered("offsim run --arithmetic e").split() == ["exact"]
    assert "docs/examples/llama3-8b.sh" in offered("offsim predict --megatron-args docs/examples/llama3")


@needs("zsh")
def test_zsh(offsim, tmp_path):
    (tmp_path / "offsim").symlink_to(offsim.path)
    assert "import" in in_zsh(tmp_path, "offsim ")
    assert "--megatron-args" in in_zsh(tmp_path, "offsim predict --")
    assert "exact" in in_zsh(tmp_path, "offsim run --arithmetic ")
