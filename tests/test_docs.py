"""Every listing in the documentation is what the program prints now.

A fence with the language `console` holds commands, each on a line that begins with "$ ", and the lines
that each prints (standard output and standard error as they come); a line "..." stands for any lines.
A fence with "file=PATH" after its language shows lines that stand in that file, one after the other.
A picture in docs/images is what `offsim predict ... --plot` draws now; its command stands in PICTURES.

BLESS=1 replaces what stands under each command, except where it holds "...", and draws the pictures.
"""

import os
import re
import subprocess

import pytest

from conftest import ROOT, TIMEOUT_S, assert_same_text
from test_tidy import MAY_INCLUDE

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]+)\n(?P<body>.*?)^(?P=indent)``` *$", re.M | re.S)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PICTURES = {
    "two-layers.svg": "docs/examples/one-layer.yaml --set num_layers=2",
    "te-v1.svg": "docs/examples/te-layers.yaml --set system=te_v1",
    "te-v2.svg": "docs/examples/te-layers.yaml",
}


def fences():
    for document in DOCUMENTS:
        text = document.read_text()
        for fence in FENCE.finditer(text):
            line = text.count("\n", 0, fence.start()) + 1
            yield document, line, fence


def of_kind(wanted):
    for document, line, fence in fences():
        if wanted(fence["info"]):
            yield pytest.param(document, line, fence,
                               id=f"{document.relative_to(ROOT)}:{line}")


def commands(body):
    """[(command, the lines under it)] of a console fence; a command may go on after a backslash."""
    found = []
    continued = False
    for line in body.splitlines(keepends=True):
        if continued:
            found[-1][0] += line
        elif line.startswith("$ "):
            found.append([line[2:], ""])
        else:
            assert found, "a console listing begins with a command: $ offsim ..."
            found[-1][1] += line
            continue
        continued = line.endswith("\\\n")
    return found


def output_of(command, folder):
    path = f"{ROOT}/out/release:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=TIMEOUT_S,
                          env={**os.environ, "PATH": path, "TMPDIR": str(folder)})
    return done.stdout


def matches(found, expected):
    """Whether `found` is `expected`, in which a line "..." stands for any lines."""
    parts = re.split(r"^\.\.\.\n", expected, flags=re.M)
    pattern = "(?:.*\n)*?".join(re.escape(part) for part in parts)
    return re.fullmatch(pattern, found) is not None


def dedent(text, indent):
    return re.sub(f"^{indent}", "", text, flags=re.M) if indent else text


def bless(document, old, new):
    text = document.read_text()
    assert text.count(old) == 1, "BLESS=1 needs listings that differ from each other"
    document.write_text(text.replace(old, new))


@pytest.mark.parametrize("document, line, fence", of_kind(lambda info: info == "console"))
def test_console(document, line, fence, tmp_path):
    body = dedent(fence["body"], fence["indent"])
    name = f"{document.relative_to(ROOT)}:{line}"
    found = ""
    for command, expected in commands(body):
        output = output_of(command, tmp_path)
        found += "$ " + command + (expected if matches(output, expected) else output)
    if os.environ.get("BLESS") and found != body:
        assert not fence["indent"], "BLESS=1 cannot replace an indented listing"
        assert not re.search(r"^\.\.\.$", body, re.M), f"{name}: BLESS=1 would replace the lines ..."
        bless(document, fence["body"], found)
        return
    assert_same_text(found, body, name)


@pytest.mark.parametrize("document, line, fence", of_kind(lambda info: " file=" in info))
def test_file(document, line, fence):
    path = re.search(r"file=(\S+)", fence["info"])[1]
    body = dedent(fence["body"], fence["indent"])
    whole = (ROOT / path).read_text()
    assert "\n" + body in "\n" + whole, f"{document.name}:{line}: these lines do not stand in {path}"


def drawing(svg):
    """What is drawn, without its letters: those depend on the fonts of the machine."""
    svg = re.sub(r"<defs>.*?</defs>", "", svg, flags=re.S)
    return "".join(line + "\n" for line in svg.splitlines() if "#glyph" not in line)


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name, tmp_path):
    picture = ROOT / "docs" / "images" / name
    new = tmp_path / name
    output_of(f"offsim predict {PICTURES[name]} --plot {new}", tmp_path)
    found = drawing(new.read_text())
    if os.environ.get("BLESS") and not (picture.exists() and drawing(picture.read_text()) == found):
        picture.write_text(new.read_text())
    assert_same_text(found, drawing(picture.read_text()), f"docs/images/{name}")


def test_every_picture_is_drawn():
    assert sorted(path.name for path in ROOT.glob("docs/images/*")) == sorted(PICTURES)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links(document):
    """Links to files of the repository lead somewhere."""
    text = re.sub(r"^ *```.*?^ *```", "", document.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_map_shows_who_may_include_whom():
    """The table of docs/00-map.md is the one that test_tidy.py checks."""
    rows = re.findall(r"^\| `([a-z/]+)`: [^|]* \| ([^|]+) \|$", (ROOT / "docs/00-map.md").read_text(), re.M)
    above = set()
    for part, allowed in rows:
        if allowed.startswith("everything"):
            names = above
        else:
            names = {"traces" if name == "traces" else f"sim/{name}"
                     for name in allowed.split(", ") if name != "nothing"}
        assert MAY_INCLUDE[part] == names, part
        above = above | {part}
    assert above == set(MAY_INCLUDE)
