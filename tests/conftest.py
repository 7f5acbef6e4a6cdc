"""What all tests share: the built programs, and how they are run and compared."""

import dataclasses
import difflib
import gc
import json
import os
import pathlib
import re
import resource
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT_S = 300
TERMINAL = ("COLUMNS", "FORCE_COLOR", "NO_COLOR")  # what changes output: sim/base/terminal.h

# Python looks for garbage after every 700 new objects, which takes a third of the time of the oracles' lists.
gc.set_threshold(100_000)


def pytest_addoption(parser):
    parser.addoption("--all-configurations", action="store_true",
                     help="also what build/test --all builds: every compiler, fuzzing for a minute")


def pytest_configure(config):
    config.addinivalue_line("markers", "xdist_group(name): tests of a group run one after the other on one core")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """On several cores, the tests that share a fixture of their module run on the same one."""
    for item in items:
        fixtures = [definitions[-1] for definitions in item._fixtureinfo.name2fixturedefs.values()]
        if any(fixture.scope == "module" for fixture in fixtures) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))


def pytest_sessionfinish(session):
    """What failed is printed in the order of the names, whichever core was first."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for reports in reporter.stats.values() if reporter else ():
        reports.sort(key=lambda report: getattr(report, "nodeid", ""))


def built(*names):
    """Those of these folders of out/ that build/test has built."""
    return [name for name in names if (ROOT / "out" / name / "build.ninja").exists()]


def configurations():
    """Each way to compile offsim and its tests."""
    return built("release", "san", "debug", "clang-debug", "clang-release", "gcc-san")


@dataclasses.dataclass
class Run:
    stdout: str
    stderr: str
    status: int


class Offsim:
    """One built offsim: offsim("predict", path) runs it in the repository's root."""

    def __init__(self, configuration):
        self.path = ROOT / "out" / configuration / "offsim"

    def __call__(self, *arguments, stdin="", check=None, limit_s=TIMEOUT_S, **variables):
        environment = {name: value for name, value in os.environ.items() if name not in TERMINAL} | variables
        done = subprocess.run([self.path, *map(str, arguments)], cwd=ROOT, input=stdin, text=True,
                              capture_output=True, timeout=limit_s, env=environment)
        if check is not None:
            assert done.returncode == check, done.stderr or done.stdout
        return Run(done.stdout, done.stderr, done.returncode)


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def offsim():
    return Offsim("release")


@pytest.fixture(scope="session", params=built("release", "without-cuda"))
def offsim_with_and_without_cuda(request):
    """For tests of what a build without CUDA may do differently."""
    return Offsim(request.param)


@pytest.fixture(scope="session")
def offsim_san():
    """The same program with ASan and UBSan: slow, and aborts at the first bad access."""
    return Offsim("san")


@pytest.fixture(scope="session")
def offsim_everywhere():
    """offsim of every configuration that was built, by name."""
    return {name: Offsim(name) for name in configurations()}


@pytest.fixture
def all_configurations(request):
    """For tests that only build/test --all can run."""
    if not request.config.getoption("--all-configurations"):
        pytest.skip("only in build/test --all")


def validate(name, value):
    """`value` has the form of docs/reference/schemas/NAME.json; only where jsonschema is installed."""
    try:
        import jsonschema
    except ImportError:
        return
    schema = json.loads((ROOT / "docs/reference/schemas" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(value)


def sets(*settings):
    """--set for each."""
    return [word for setting in settings for word in ("--set", setting)]


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGABRT,
        signal.SIGXCPU)


def heed_signals():
    """For a child: a shell has its background jobs ignore SIGINT, nohup SIGHUP and Python SIGPIPE."""
    for number in ENDS:
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def one_error(run, status):
    """The one message of a run that ended with this status."""
    errors = [line for line in run.stderr.splitlines() if "note: " not in line]
    assert run.status == status and len(errors) == 1 and "error: " in errors[0], run.stderr
    return errors[0]


def errors_of(run, status):
    """The messages of a run that ended with this status, one for each error."""
    errors = [line for line in run.stderr.splitlines() if "note: " not in line]
    assert run.status == status and errors and all("error: " in line for line in errors), run.stderr
    return errors


def documented_json_keys(heading, until="\n## "):
    """The keys in the tables of docs/reference/json.md after a heading, in order."""
    text = (ROOT / "docs/reference/json.md").read_text().split(f"\n{heading}\n")[1].split(until)[0]
    return re.findall(r"^\| `(\w+)` \|", text, re.M)


def assert_same_text(found, expected, name):
    if found == expected:
        return
    lines = difflib.unified_diff(expected.splitlines(True), found.splitlines(True),
                                 fromfile=name, tofile="found")
    pytest.fail(f"{name} differs (BLESS=1 accepts it)\n" + "".join(lines), pytrace=False)
