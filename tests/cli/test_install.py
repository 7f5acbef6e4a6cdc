"""Manual pages say what --help says, and an installed tree is whole."""

import os
import shutil
import subprocess

import pytest

from conftest import ROOT, built

pytestmark = pytest.mark.skipif(shutil.which("help2man") is None, reason="help2man is not installed")


def lines(offsim, *arguments):
    return [line.split("\t") for line in offsim(*arguments, check=0).stdout.splitlines()]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([ROOT / "build/man.sh", ROOT / "out/release/offsim", folder], check=True, cwd=folder,
                   env={**os.environ, "SOURCE_DATE_EPOCH": "0"})
    return folder


def test_a_page_for_each_verb_with_each_option(offsim, pages):
    verbs = [verb for verb, _ in lines(offsim, "--list-verbs")]
    assert {page.name for page in pages.iterdir()} == {"offsim.1", *(f"offsim-{verb}.1" for verb in verbs)}
    for verb in verbs:
        page = (pages / f"offsim-{verb}.1").read_text().replace("\\-", "-")
        assert f'.TH OFFSIM-{verb.upper()} 1 1970-01-01' in page and ".SH SYNOPSIS" in page
        for option, value, _ in lines(offsim, verb, "--list-options"):
            assert option == "--help" or f"\\fB{option}\\fR" in page, option


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_pages_have_no_warnings(pages):
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *sorted(pages.iterdir())], capture_output=True, text=True)
    assert done.stdout == ""


def test_installed_tree(tmp_path):
    subprocess.run([ROOT / "build/install", "--prefix", "/usr"], check=True, capture_output=True,
                   env={**os.environ, "DESTDIR": str(tmp_path)})
    share = tmp_path / "usr/share"
    for file in ("man/man1/offsim-predict.1.gz", "bash-completion/completions/offsim", "zsh/site-functions/_offsim",
                 "fish/vendor_completions.d/offsim.fish", "doc/offsim/docs/00-map.md"):
        assert (share / file).is_file()
    done = subprocess.run([tmp_path / "usr/bin/offsim", "predict", "--brief", share / "doc/offsim/docs/examples/one-layer.yaml"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and "safety" in done.stdout


@pytest.mark.parametrize("arguments", [["--prefix"], ["--prefix", "usr"], ["usr"]])
def test_refuses_a_prefix_that_is_no_absolute_path(arguments):
    done = subprocess.run([ROOT / "build/install", *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and "absolute path" in done.stderr


@pytest.mark.skipif(not built("static"), reason="build/test --all builds out/static")
def test_a_static_program_says_the_same(offsim, tmp_path):
    said = {}
    for path in (offsim.path, ROOT / "out/static/offsim"):
        plot = tmp_path / f"{path.parent.name}.svg"
        done = subprocess.run([path, "predict", "--plot", plot, "docs/examples/one-layer.yaml"], cwd=ROOT, capture_output=True,
                              text=True, check=True)
        said[path.parent.name] = done.stdout, plot.read_text()
    assert said["static"] == said["release"]
    assert subprocess.run(["ldd", ROOT / "out/static/offsim"], capture_output=True).returncode != 0
