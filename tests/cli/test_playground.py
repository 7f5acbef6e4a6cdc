"""The playground in a browser: the same bytes as the program. It needs out/wasm, which build/test --all builds, and Chromium."""

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
  const out = element("pre", JSON.stringify(all));
  out.id = "all";
  document.body.append(out);
}
</script>"""
MORE = ["megatron=core_v0.16&num_layers=3", "num_experts=8&offload_modules=expert_fc1,moe_act", "pipeline_model_parallel_size=4&num_layers=12&recompute_granularity=full",
        "num_layers=40&micro_batch_size=2", "offload_modules=", "hidden_size=1000", "num_layers=6&gpu.memory_bytes=8589934592&max_fwd_stash_size=2&system=trl"]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the page answers for each fragment of its address."""
    folder = tmp_path_factory.mktemp("page")
    page = PAGE.read_text()
    at = page.rindex("</body>")
    (folder / "page.html").write_text(page[:at] + SCRIPT.replace("MORE", json.dumps(MORE)) + page[at:])
    drawn = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                            "--dump-dom", f"file://{folder}/page.html"],
                           capture_output=True, text=True, timeout=120, check=True).stdout
    return json.loads(html.unescape(re.search('<pre id="all">(.*?)</pre>', drawn, re.S)[1]))


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


def test_examples_and_systems_answer(answers):
    assert [one["fragment"] for one in answers if one["stale"]] == ["hidden_size=1000"]
    assert all(one["fragment"] == one["again"] for one in answers if one["isExample"])


# The example of a chapter, and the run that the chapter shows.
RUNS = {
    "1": ["docs/examples/one-layer.yaml", *sets("num_layers=2")],
    "4": ["docs/examples/two-stages.yaml", *sets("fine_grained_activation_offloading=true", "offload_modules=core_attn")],
    "6": ["tests/known_bugs/megatron-inline-reload.yaml"],
    "7": ["docs/examples/tiny-llama.yaml", *sets("fine_grained_activation_offloading=true", "offload_modules=core_attn")],
    "10": ["docs/examples/one-layer.yaml", *sets("num_layers=8"), "--machine-set", "gpu.memory_bytes=3758096384"],
}


def test_links_of_the_course(offsim, answers):
    """Each chapter links to an example of the playground."""
    examples = {one["fragment"]: one for one in answers if one["isExample"]}
    for number in range(1, 11):
        chapter = next(ROOT.glob(f"docs/{number:02}-*.md")).read_text()
        links = re.findall(r"\(\.\./out/wasm/playground\.html#([^)\s]*)\)", chapter)
        assert links and set(links) <= set(examples), number
        run = RUNS.get(str(number))
        if run is not None:
            found = json.loads(offsim("predict", *run, "--json", check=0).stdout)
            here = json.loads(examples[links[0]]["figures"])
            assert (found["scenario"], found["result"]) == (here["scenario"], here["result"]), number
