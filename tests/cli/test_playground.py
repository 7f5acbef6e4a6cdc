"""The playground in a browser: the same bytes as the program. It needs Chromium and out/wasm, which build/test --all builds: at
other times the page may be older than the program."""

import html
import json
import re
import shlex
import shutil
import subprocess

import pytest

from conftest import ROOT, sets
from test_html import block

PAGE = ROOT / "out/wasm/playground.html"
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None or not PAGE.exists(), reason="chromium is not installed, or out/wasm not built")

# Each example, then each offload system, with the plan open; what the page has then.
SCRIPT = """<script>
{
  const all = [];
  by("plan-part").open = true;
  for (const fragment of [...EXAMPLES.map(([, of]) => of), ...Object.keys(SYSTEMS).map((name) => `num_layers=3&global_batch_size=2&system=${name}`), ...MORE]) {
    takeFragment(fragment);
    adjust();
    answer();
    const texts = ["command", "figures", "timeline", "plan", "scenario", "notes", "verdict"].map((id) => [id, by(id).textContent]);
    all.push({ fragment, again: fragmentOf(), isExample: EXAMPLES.some(([, of]) => of === fragment), stale: document.body.classList.contains("stale"),
      findings: by("findings").hidden ? null : by("findings").textContent, table: document.querySelector("#text-title + pre").textContent,
      ...Object.fromEntries(texts) });
  }
  takeFragment("");
  sliderOf("num_layers").input.value = "2";
  for (const name of ["input", "change"]) sliderOf("num_layers").input.dispatchEvent(new Event(name, { bubbles: true }));
  all.push({ dragged: location.hash, says: sliderOf("num_layers").input.getAttribute("aria-valuetext") });
  const out = element("pre", JSON.stringify(all));
  out.id = "all";
  document.body.append(out);
}
</script>"""
REFUSED = ["hidden_size=1000", "num_layers=9&pipeline_model_parallel_size=2", "offload_modules=core_attn,nonsense", "num_layers=%"]
MORE = ["megatron=core_v0.16&num_layers=3", "num_experts=8&offload_modules=expert_fc1,moe_act", "num_experts=8&system=trl",
        "num_layers=12&pipeline_model_parallel_size=4&recompute_granularity=full", "num_layers=40&micro_batch_size=2", "offload_modules=",
        "num_layers=6&gpu.memory_bytes=8589934592&system=trl&max_fwd_stash_size=2", *REFUSED]


@pytest.fixture(scope="module")
def drawn(request, tmp_path_factory):
    """What the page answers for each fragment of its address, then what a drag does."""
    if not request.config.getoption("--all-configurations"):
        pytest.skip("only in build/test --all")
    folder = tmp_path_factory.mktemp("page")
    page = PAGE.read_text()
    at = page.rindex("</body>")
    (folder / "page.html").write_text(page[:at] + SCRIPT.replace("MORE", json.dumps(MORE)) + page[at:])
    drawn = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                            "--dump-dom", f"file://{folder}/page.html"],
                           capture_output=True, text=True, timeout=120, check=True).stdout
    return json.loads(html.unescape(re.search('<pre id="all">(.*?)</pre>', drawn, re.S)[1]))


@pytest.fixture(scope="module")
def answers(drawn):
    return drawn[:-1]


def test_same_bytes(offsim, answers):
    """The command on the page writes the figures, the timeline, the plan and the findings that the page has."""
    assert len(answers) > 25
    fit = 0
    for one in answers:
        words = shlex.split(one["command"].replace("\\\n", " "))
        assert words[:2] == ["offsim", "predict"]
        page = offsim("predict", *words[2:], "--html", "-")
        if one["stale"]:
            assert page.status == 2 and one["verdict"] + "\n" == "".join(line for line in page.stderr.splitlines(True) if "note: " not in line)
            continue
        assert page.status == 0 and page.stderr == one["notes"], one["fragment"]
        shown = re.search(r'id="timeline">\n(.*?)</script>', page.stdout, re.S)[1], one["timeline"].lstrip("\n")
        assert shown[0] == shown[1], one["fragment"]
        figures, here = block(page.stdout, "figures"), json.loads(one["figures"])
        if figures["suggestions"] is None:  # of what fits, every byte
            fit += 1
            assert re.search(r'id="figures">\n(.*?)</script>', page.stdout, re.S)[1] == one["figures"].lstrip("\n")
            assert html.unescape(re.search("<pre>(.*?)</pre>", page.stdout, re.S)[1]) == one["table"]
        else:
            figures["suggestions"] = None
            figures["suggestions_left_out"] = here["suggestions_left_out"]
            assert figures == here, one["fragment"]
        assert offsim("plan", *words[2:], check=0).stdout == one["plan"]
        safe = figures["safety"]["safe"]
        assert (one["findings"] is None) == safe
        assert safe or offsim("check", *words[2:], check=1).stdout == one["findings"]
    assert fit > 15


def test_its_scenario_is_the_same_run(offsim, answers, tmp_path):
    for one in answers:
        if not one["stale"]:
            file = tmp_path / "scenario.yaml"
            file.write_text(one["scenario"])
            changes = re.findall(r" (--machine-set) (\S+)", one["scenario"].splitlines()[0])
            found = json.loads(offsim("predict", file, *(word for change in changes for word in change), "--json", check=0).stdout)
            here = json.loads(one["figures"])
            assert (found["scenario"], found["result"], found["machine"]) == (here["scenario"], here["result"], here["machine"]), one["fragment"]


def test_a_drag_changes_the_address(drawn):
    assert drawn[-1] == {"dragged": "#num_layers=3", "says": "3"}


def test_nothing_is_loaded(drawn):
    page = re.sub(r'<script type="application/octet-stream".*?</script>', "", PAGE.read_text(), flags=re.S)
    assert not re.search(r"https?:|//[a-z]+\.|src=|@import|url\(|fetch\(", page)
    assert page.count("<option>") > 12 and len(PAGE.read_text()) < 3_000_000


def test_examples_and_systems_answer(answers):
    assert [one["fragment"] for one in answers if one["stale"]] == REFUSED
    assert all(one["fragment"] == one["again"] for one in answers if one["isExample"])


# The run that a chapter shows, and its example.
RUNS = {
    1: ["docs/examples/one-layer.yaml", *sets("num_layers=2")],
    4: ["docs/examples/two-stages.yaml", *sets("fine_grained_activation_offloading=true", "offload_modules=core_attn")],
    6: ["tests/known_bugs/megatron-inline-reload.yaml"],
    7: ["docs/examples/tiny-llama.yaml", *sets("fine_grained_activation_offloading=true", "offload_modules=core_attn")],
    10: ["docs/examples/one-layer.yaml", *sets("num_layers=8"), "--machine-set", "gpu.memory_bytes=3758096384"],
}


def chapter_links(number):
    chapter = next(ROOT.glob(f"docs/{number:02}-*.md")).read_text()
    return re.findall(r"\(\.\./out/wasm/playground\.html#([^)\s]*)\)", chapter)


def test_every_chapter_has_an_example(answers):
    examples = {one["fragment"] for one in answers if one["isExample"]}
    assert {link for number in range(1, 11) for link in chapter_links(number)} == examples
    assert all(chapter_links(number) for number in range(1, 11))


@pytest.mark.parametrize("number", RUNS)
def test_an_example_is_the_run_of_its_chapter(offsim, answers, number):
    example = next(one for one in answers if one["fragment"] == chapter_links(number)[0])
    found, here = json.loads(offsim("predict", *RUNS[number], "--json", check=0).stdout), json.loads(example["figures"])
    assert (found["scenario"], found["result"]) == (here["scenario"], here["result"])
