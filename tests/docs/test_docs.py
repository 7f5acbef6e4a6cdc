"""Every listing in the documentation is what the program prints now.

A fence with the language `console` holds commands, each on a line that begins with "$ ", and the
lines that each prints (standard output and standard error as they come); a line "..." replaces
any lines. A fence with "file=PATH" after its language shows consecutive lines of that file. A
picture in docs/images is what the command in PICTURES draws now with --plot.

A figure in a sentence that offsim prints has a name of FIGURES after it, in a comment: "3.2<!-- NAME -->". It is what the
command there prints, rounded to the figure's decimals.

BLESS=1 replaces the lines under each command, except where it holds "...", figures too, and draws the pictures.
"""

import os
import re
import subprocess

import pytest

from conftest import ROOT, TIMEOUT_S, assert_same_text
from test_tidy import MAY_INCLUDE

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]+)\n(?P<body>.*?)^(?P=indent)``` *$", re.M | re.S)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
HF = "docs/examples/hf-layers.yaml --set num_layers=3"
CHECKPOINTS = "docs/examples/hf-checkpoints.yaml"
PREDICTED = {
    "two-layers.svg": "docs/examples/one-layer.yaml --set num_layers=2",
    "megatron.svg": "docs/examples/one-layer.yaml --set num_layers=4",
    "layer-input.svg": "docs/examples/one-layer.yaml --set num_layers=4 --set offload_modules=layer_input "
                       "--set recompute_granularity=full --set recompute_method=uniform --set recompute_num_layers=1",
    "two-stages.svg": "docs/examples/two-stages.yaml --set fine_grained_activation_offloading=true --set offload_modules=core_attn",
    "megatron-pr1752.svg": "docs/examples/two-stages.yaml --set num_virtual_stages_per_pipeline_rank=2 --set system=megatron_pr1752 "
                           "--set fine_grained_activation_offloading=true --set offload_modules=core_attn",
    "optimizer-on-host.svg": "docs/examples/one-layer.yaml --set system=none --set fine_grained_activation_offloading=false "
                             "--set offload_modules= --set use_distributed_optimizer=true "
                             "--set use_precision_aware_optimizer=true --set optimizer_cpu_offload=true "
                             "--set overlap_cpu_optimizer_d2h_h2d=true",
    "optimizer-states-away.svg": "docs/examples/one-layer.yaml --set system=none --set fine_grained_activation_offloading=false "
                                 "--set offload_modules= --set use_distributed_optimizer=true "
                                 "--set offload_optimizer_states=true --set megatron_day=2026-08-17",
    "optimizer-chunks.svg": "docs/examples/one-layer.yaml --set num_layers=4 --set system=none "
                            "--set fine_grained_activation_offloading=false --set offload_modules= "
                            "--set use_distributed_optimizer=true --set chunked_optimizer_state_offload=true "
                            "--set optimizer_state_offload_chunk_size_mb=1024",
    "experts-on-host.svg": "docs/examples/qwen3-30b-a3b.yaml --set num_layers=1 --set vocab_size=1024 --set global_batch_size=128 "
                           "--set moe_offloading_num_chunks=4",
    "paged-stash.svg": "docs/examples/paged-stash.yaml",
    "stash-beside-modules.svg": "docs/examples/paged-stash.yaml --set fine_grained_activation_offloading=true "
                                "--set offload_modules=core_attn,attn_proj,mlp_norm --set offload.mode=fixed "
                                "--set nvte_cpu_offload_v1=true",
    "te-v1.svg": "docs/examples/te-layers.yaml --set system=te_v1",
    "te-v2.svg": "docs/examples/te-layers.yaml",
    "te-v2-manual.svg": "docs/examples/te-manual.yaml",
    "none.svg": HF,
    "save-on-cpu.svg": f"{HF} --set system=save_on_cpu",
    "veomni.svg": f"{HF} --set system=veomni",
    "trl-sync.svg": f"{HF} --set system=trl_sync",
    "trl.svg": f"{HF} --set system=trl",
    "real-gpu.svg": "docs/examples/hf-16-layers.yaml --set system=trl",
    "planned.svg": f"{HF} --set system=planned",
    "planned-pipeline.svg": "--megatron-args docs/examples/llama3-8b.sh --set pipeline_model_parallel_size=4 --set num_layers=8 "
                            "--set global_batch_size=24 --set system=planned --set planned_device_bytes=2400000000",
    "verl.svg": "docs/examples/hf-layers.yaml --set system=verl --set fsdp=fsdp2 --set keep_gradients=false",
    "hidden-states.svg": CHECKPOINTS,
    "hidden-states-reentrant.svg": f"{CHECKPOINTS} --set system=hidden_states_reentrant",
    "transformers.svg": f"{CHECKPOINTS} --set system=transformers",
    "deepspeed.svg": f"{CHECKPOINTS} --set system=deepspeed",
    "selective-checkpointing.svg": f"{CHECKPOINTS} --set system=selective_checkpointing",
    "axolotl-disk.svg": f"{CHECKPOINTS} --set mode=fixed --set system=axolotl_disk",
    "layer-offloading.svg": "docs/examples/hf-frozen.yaml --set num_layers=4",
    "layers-and-hidden-states.svg":
        "docs/examples/hf-frozen.yaml --set num_layers=4 --set system=hidden_states --set layer_offloading=true",
    "compare-hf-16-layers.svg": "docs/examples/hf-16-layers.yaml --compare-systems",
}
ONE_TENSOR = "docs/examples/one-tensor.plan"
CHECKED = {
    "one-tensor.svg": f"--plan {ONE_TENSOR}",
    "same-bits.svg": "docs/examples/tiny-llama.yaml --set fine_grained_activation_offloading=true "
                     "--set offload_modules=core_attn,attn_proj --set mode=fixed",
    "race-no-wait-for-compute.svg": "--plan tests/known_bugs/torchtitan-2581.plan",
    "race-inline-reload.svg": "tests/known_bugs/megatron-inline-reload.yaml",
    "race-early-recompute.svg": "tests/known_bugs/megatron-early-recompute.yaml --plot-op 349",
    "race-late-reload.svg": "tests/known_bugs/megatron-late-reload.yaml --plot-op 412",
    "race-last-group.svg": "tests/known_bugs/megatron-pr1752-last-group.yaml --plot-op 359",
    "race-clone-on-copy-stream.svg": "tests/known_bugs/trl-clone-on-copy-stream.yaml --plot-op 379",
    "race-gradient-in-saved-memory.svg": "tests/known_bugs/trl-gradient-in-saved-memory.yaml --plot-op 362",
    "race-view-outlives.svg": "--plan tests/known_bugs/torchtune-1867.plan",
    "race-layer-offloading.svg": "tests/known_bugs/axolotl-layer-offloading.yaml --plot-op 1665",
    "race-host-pool.svg": "--plan tests/known_bugs/megatron-host-pool.plan",
    "race-delayed-weight-gradient.svg": "tests/known_bugs/megatron-delayed-weight-gradient.yaml",
}
PICTURES = {name: f"offsim predict {arguments}" for name, arguments in PREDICTED.items()} | {
    name: f"offsim check {arguments}" for name, arguments in CHECKED.items()} | {
    "race-no-mark.svg": f"sed 's/ after d2h//' {ONE_TENSOR} | offsim check --plan -",
    "real-run.svg": "offsim predict docs/examples/one-layer.yaml --set num_layers=3 --trace - | "
                    "offsim compare docs/examples/one-layer.yaml --set num_layers=2 -",
    "tune-front.svg": "offsim tune docs/examples/one-layer.yaml --set num_layers=8 --gpu-memory 3.5 --host-memory 8 --front",
}
DEFAULT_STYLE = re.compile("(?:stroke:none|(?:fill|stroke)-opacity:1|fill-rule:nonzero|stroke-line(?:cap:butt|join:miter));")


FIGURE = re.compile(r"(-?\d+(?:\.\d+)?)<!-- ([\w-]+) -->")
OVERHEAD = r"| sed -n 's/^step .*overhead \(.*\) %.*/\1/p'"
FIGURES = {
    "pr1752-overhead": f"offsim predict docs/examples/pr1752.yaml {OVERHEAD}",
    "pr1752-deepep-overhead": "offsim predict docs/examples/pr1752.yaml --set moe_token_dispatcher_type=flex "
                              f"--set moe_flex_dispatcher_backend=deepep {OVERHEAD}",
    "one-layer-copied-out": "offsim predict --json docs/examples/one-layer.yaml | grep -o '\"d2h_bytes\": [0-9]*' | "
                            "sort -k 2n | awk 'END {print $2 / 1048576}'",
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
            name = document.relative_to(ROOT)
            one_core = pytest.mark.xdist_group(str(name))  # its listings write the same files
            yield pytest.param(document, line, fence, id=f"{name}:{line}", marks=one_core)


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


def locale_with_comma():
    """A locale of this machine in which decimals have a comma, or None."""
    for name in subprocess.run(["locale", "-a"], text=True, capture_output=True).stdout.split():
        found = subprocess.run(["locale", "decimal_point"], text=True, capture_output=True,
                               env={**os.environ, "LC_ALL": name})
        if found.stdout == ",\n":
            return name
    return None


@pytest.mark.parametrize("command", [
    "offsim plan docs/examples/one-layer.yaml | awk -f docs/examples/memory.awk",
    "offsim predict docs/examples/one-layer.yaml --trace /dev/stdout | awk -f docs/examples/timeline.awk",
])
def test_scripts_read_and_print_points_everywhere(command, tmp_path):
    name = locale_with_comma()
    if name is None:
        pytest.skip("no locale of this machine has decimals with a comma")
    assert output_of(f"LC_ALL={name}; export LC_ALL; {command}", tmp_path) == output_of(command, tmp_path)


def matches(found, expected):
    """Whether `found` is `expected`, in which a line "..." matches any lines."""
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


def figures():
    for document in DOCUMENTS:
        for number, figure in enumerate(FIGURE.finditer(document.read_text())):
            name = document.relative_to(ROOT)
            yield pytest.param(document, figure[1], figure[2], id=f"{name}:{number}", marks=pytest.mark.xdist_group(str(name)))


@pytest.mark.parametrize("document, figure, name", figures())
def test_figure(document, figure, name, tmp_path):
    printed = output_of(FIGURES[name], tmp_path)
    now = f"{float(printed):.{len(figure.partition('.')[2])}f}"
    if "BLESS" in os.environ:
        document.write_text(document.read_text().replace(f"{figure}<!-- {name} -->", f"{now}<!-- {name} -->"))
    else:
        assert figure == now, f"{FIGURES[name]} prints {printed.strip()}"


def test_every_figure_is_quoted():
    quoted = {figure[2] for document in DOCUMENTS for figure in FIGURE.finditer(document.read_text())}
    assert quoted == set(FIGURES)


@pytest.mark.parametrize("document, line, fence", of_kind(lambda info: " file=" in info))
def test_file(document, line, fence):
    path = re.search(r"file=(\S+)", fence["info"])[1]
    body = dedent(fence["body"], fence["indent"])
    whole = (ROOT / path).read_text()
    macro = re.search(r"macro=(\S+)", fence["info"])
    if macro:  # all rows of a table: of each the first line, which documents it
        table = re.search(rf"^#define {macro[1]}\(X\) *\\\n((?:.*\\\n)*.*\n)", whole, re.M)[1]
        rows = "".join(re.findall(r"^  X\(.*\n", table, re.M))
        if os.environ.get("BLESS") and body != rows:
            bless(document, fence["body"], rows)
            return
        assert_same_text(rows, body, f"{document.name}:{line}")
        return
    assert "\n" + body in "\n" + whole, f"{document.name}:{line}: these lines do not stand in {path}"


def rounded(svg, digits):
    return re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.{digits}f}".removesuffix(".0"), svg)


def smaller(svg):
    """The same picture in two thirds of the bytes: lengths to hundredths of a point, those of letters to
    tenths, no styles that are the default."""
    svg = re.sub(r"<defs>.*?</defs>", lambda letters: rounded(letters[0], 1), svg, flags=re.S)
    return DEFAULT_STYLE.sub("", rounded(svg, 2))


def drawing(svg):
    """What is drawn, without its letters: those depend on the fonts of the machine."""
    svg = re.sub(r"<defs>.*?</defs>", "", svg, flags=re.S)
    return "".join(line + "\n" for line in svg.splitlines() if "#glyph" not in line)


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name, tmp_path):
    picture = ROOT / "docs" / "images" / name
    new = tmp_path / name
    output_of(f"{PICTURES[name]} --plot {new}", tmp_path)
    text = smaller(new.read_text())
    found = drawing(text)
    if os.environ.get("BLESS") and not (picture.exists() and drawing(picture.read_text()) == found):
        picture.write_text(text)
    assert_same_text(found, drawing(picture.read_text()), f"docs/images/{name}")


def test_every_picture_is_drawn():
    assert sorted(path.name for path in ROOT.glob("docs/images/*.svg")) == sorted(PICTURES)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links(document):
    """Links to files of the repository lead somewhere; those into out/ lead to what a build writes."""
    text = re.sub(r"^ *```.*?^ *```", "", document.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:|\.\./out/", target):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_offload_system_is_described():
    """Each has a row in docs/05-offload-systems.md and a section in docs/systems."""
    table = (ROOT / "sim/config/offload_systems.h").read_text()
    side_by_side = (ROOT / "docs/05-offload-systems.md").read_text()
    pages = "".join(page.read_text() for page in ROOT.glob("docs/systems/*.md"))
    overview = (ROOT / "docs/systems/README.md").read_text()
    for name in re.findall(r"^  X\((\w+),", table, re.M):
        assert re.search(rf"^\| `{name}` \|", side_by_side, re.M), name
        assert re.search(rf"^##+ {name}: ", pages, re.M), name
        assert re.search(rf"^\|[^|]*`{name}`[^|]*\|", overview, re.M), name


def test_map_names_what_there_is():
    """Its paths exist, and each function of its walk is in a file that the walk has named by then."""
    text = (ROOT / "docs/00-map.md").read_text()
    for path in re.findall(r"`((?:sim|ref|cuda|traces|tests|build)/[\w./*-]+)`", text):
        assert "SYSTEM" in path or list(ROOT.glob(path)), path
    walk = text[text.index("## One tensor"):text.index("## Who may include whom")]
    named, functions = [], 0
    for row in re.findall(r"^\| \d+ \| ([^|]*) \|", walk, re.M):
        for word in re.findall(r"`([^`]+)`", row):
            if re.fullmatch(r"[\w/-]+\.(?:c|h|def|yaml)", word):
                folders = [ROOT, *(path.parent for path in reversed(named))]
                found = [folder / word for folder in folders if (folder / word).exists()]
                assert found, word
                named.append(found[0])
            elif re.fullmatch(r"[a-z][a-z0-9_]+", word) and named and ": `" in row:
                functions += 1
                sources = [path.read_text() for path in set(named) if path.suffix in (".c", ".h")]
                assert any(re.search(rf"^[a-z].*\b{word}\(", source, re.M) for source in sources) or word in KEYS_OF_WALK, word
    assert functions > 60


# Words of the walk's code column that are no functions.
KEYS_OF_WALK = {"offload_modules"}


def test_map_shows_who_may_include_whom():
    """The table of docs/00-map.md is the one that test_tidy.py checks."""
    rows = re.findall(r"^\| `([a-z/]+)`: [^|]* \| ([^|]+) \|$", (ROOT / "docs/00-map.md").read_text(), re.M)
    above = set()
    for part, allowed in rows:
        if allowed.startswith("everything"):
            names = above
        else:
            names = {name if name == "traces" or name.startswith(("ref/", "cuda/")) else f"sim/{name}"
                     for name in allowed.replace("`", "").split(", ") if name != "nothing"}
        assert MAY_INCLUDE[part] == names, part
        above = above | {part}
    assert above == set(MAY_INCLUDE)


def test_the_labs_program_lacks_the_marked_lines_of_its_answer():
    answer, lab = ((ROOT / "docs" / folder / "offloader.py").read_text().partition('"""\n\nimport')[2]
                   for folder in ("answers", "lab"))
    lines = re.findall(r"^ *\S.*  # (\d)$", answer, re.M)
    assert lines == ["1", "2", "3", "4", "5"]
    assert lab == re.sub(r"^( *)\S.*  (# \d)$", r"\1\2", answer, flags=re.M)
