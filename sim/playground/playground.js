@timeline.js@
@prediction_view.js@
@offsim.js@

/* ---- what can be set: each control stands for a key of a scenario, or of a machine ---- */

const numbers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => String(from + i));
const doubled = (from, to) => { const all = []; for (let n = from; n <= to; n *= 2) all.push(String(n)); return all; };
const machineOr = (text) => (value) => (value === "" ? "the machine's" : text(Number(value)));
/* The first value of a machine's key is none: its own. */
const SLIDERS = [
  { key: "model.num_layers", name: "Layers", values: numbers(1, 32), otherwise: "8" },
  { key: "model.hidden_size", name: "Hidden size", values: ["256", "512", "1024", "2048", "3072", "4096", "5120", "6144", "8192"], otherwise: "4096" },
  { key: "training.seq_length", name: "Sequence, tokens", values: doubled(256, 32768), otherwise: "4096" },
  { key: "training.global_batch_size", name: "Micro-batches a step", values: [...numbers(1, 8), "12", "16", "24", "32"], otherwise: "4" },
  { key: "parallel.pipeline_model_parallel_size", name: "Pipeline stages", values: doubled(1, 8), otherwise: "1" },
  { key: "gpu.memory_bytes", name: "GPU memory", values: ["", ...[4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 141, 192].map((n) => String(n * GIB))],
    otherwise: "", show: machineOr((n) => `${n / GIB} GiB`) },
  { key: "link.d2h_bytes_per_us", name: "Link, each way", values: ["", ...[2, 4, 8, 12, 16, 25, 32, 50, 64, 100, 200, 450].map((n) => String(n * 1000))],
    otherwise: "", show: machineOr((n) => `${n / 1000} GB/s`) },
];
const SELECTS = { machine: "machine.name", experts: "model.num_experts", recompute: "recompute.recompute_granularity", system: "offload.system",
  version: "software.megatron", mode: "offload.mode" };
const OTHERWISE = { machine: "H100-SXM", experts: "", recompute: "", system: "megatron", version: "", mode: "" };
const MODULES = [["attn_norm"], ["qkv_linear"], ["core_attn", true], ["attn_proj"], ["mlp_norm"], ["expert_fc1"], ["moe_act"]];
const OF_EXPERTS = ["expert_fc1", "moe_act"];

/* A small Llama, as docs/examples/one-layer.yaml. */
const BASE = { "model.normalization": "RMSNorm", "model.position_embedding_type": "rope", "model.swiglu": "true", "model.add_bias_linear": "false",
  "model.hidden_dropout": "0.0", "model.attention_dropout": "0.0", "model.untie_embeddings_and_output_weights": "true", "model.vocab_size": "1024",
  "training.micro_batch_size": "1", "training.bf16": "true" };
const EXPERTS = { "model.moe_router_topk": "2", "model.moe_grouped_gemm": "true" };
const FULL = { "recompute.recompute_granularity": "full", "recompute.recompute_method": "uniform", "recompute.recompute_num_layers": "1" };
const onMegatron = (sets) => ({ sets }), onHf = (sets = {}) => ({ isHf: true, sets });
/* Megatron's modules, or those of Hugging Face; what else a system needs. */
const SYSTEMS = {
  none: onMegatron({ "offload.system": "none" }),
  megatron: { hasModules: true, sets: { "offload.fine_grained_activation_offloading": "true", "software.nvte_cpu_offload_v1": "true" } },
  te_v1: { hasLayers: true, sets: { "offload.cpu_offloading": "true", "software.nvte_cpu_offload_v1": "true" } },
  te_v2: { hasLayers: true, sets: { "offload.cpu_offloading": "true" } },
  trl: onHf(), trl_sync: onHf(), save_on_cpu: onHf(), planned: onHf(), veomni: onHf(), transformers: onHf(FULL), hidden_states: onHf(FULL),
  hidden_states_reentrant: onHf(FULL), deepspeed: onHf(FULL), selective_checkpointing: onHf(FULL),
};

/* For the chapters of the course, which link to them: each as fragmentOf writes it. */
const EXAMPLES = [
  ["1: one layer leaves", "num_layers=2&hidden_size=1024&global_batch_size=1&name=ideal"],
  ["2: memory over a step", "num_layers=4&hidden_size=1024&global_batch_size=2&name=ideal&offload_modules=attn_norm,qkv_linear,core_attn,attn_proj,mlp_norm"],
  ["3: copies that do not hide", "num_layers=4&hidden_size=1024&global_batch_size=1&link.d2h_bytes_per_us=16000&name=ideal"],
  ["4: two stages", "hidden_size=1024&pipeline_model_parallel_size=2&name=ideal"],
  ["5: every saved tensor leaves", "hidden_size=2048&name=ideal&system=trl"],
  ["6: a race, as released", "num_layers=1&hidden_size=1024&global_batch_size=1&name=ideal"],
  ["6: the same without known bugs", "num_layers=1&hidden_size=1024&global_batch_size=1&name=ideal&mode=fixed"],
  ["7: a model for a laptop", "num_layers=4&hidden_size=64&seq_length=32&global_batch_size=2&name=ideal&ffn_hidden_size=128&num_attention_heads=4"
    + "&group_query_attention=true&num_query_groups=2&vocab_size=256&min_offloaded_tensor_size=0"],
  ["8: on an H200", "name=H200-SXM"],
  ["9: a run to measure", "num_layers=4&hidden_size=1024"],
  ["10: 3.5 GiB", "hidden_size=1024&global_batch_size=1&gpu.memory_bytes=3758096384&name=ideal"],
];

const MACHINE_SECTIONS = ["gpu", "host", "issue", "link", "nvlink", "network", "disk", "compute"];
const isOfMachine = (key) => MACHINE_SECTIONS.includes(key.split(".")[0]);
/* Of a scenario's key, which section it has is known. */
const shortened = (key) => (isOfMachine(key) ? key : key.split(".").pop());

/* ---- the controls ---- */

function makeControls() {
  for (const slider of SLIDERS) {
    const label = element("label", slider.name), input = element("input");
    slider.input = input;
    slider.output = element("output");
    input.type = "range";
    input.min = "0";
    label.append(slider.output, input);
    by("sliders").append(label);
  }
  by("system").append(...Object.keys(SYSTEMS).map((name) => new Option(name)));
  for (const [name] of MODULES) {
    const label = element("label"), box = element("input");
    box.type = "checkbox";
    box.id = `module-${name}`;
    label.append(box, name);
    by("modules").append(label);
  }
  by("example").append(...EXAMPLES.map(([name, fragment]) => new Option(name, fragment)));
}
const sliderOf = (key) => SLIDERS.find((slider) => shortened(slider.key) === key);
const valueOf = (slider) => slider.values[Number(slider.input.value)];
/* A value between those of the slider gets a place of its own. */
function setSlider(slider, value) {
  if (!slider.values.includes(value)) {
    slider.values.push(value);
    slider.values.sort((a, b) => Number(a) - Number(b));
  }
  slider.input.max = String(slider.values.length - 1);
  slider.input.value = String(slider.values.indexOf(value));
}
const isModule = (name) => MODULES.some(([one]) => one === name);
const chosenModules = () => MODULES.map(([name]) => name).filter((name) => by(`module-${name}`).checked && !by(`module-${name}`).disabled);

/* ---- the link: what differs from the first settings ---- */

function fragmentOf() {
  const parts = SLIDERS.filter((slider) => valueOf(slider) !== slider.otherwise).map((slider) => [shortened(slider.key), valueOf(slider)]);
  for (const [id, key] of Object.entries(SELECTS)) if (by(id).value !== OTHERWISE[id]) parts.push([shortened(key), by(id).value]);
  const modules = chosenModules().join();
  if (modules !== MODULES.filter(([, is]) => is).map(([name]) => name).join()) parts.push(["offload_modules", modules]);
  return [...parts, ...others()].map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&").replaceAll("%2C", ",");
}
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}
/* What no control can show becomes another setting. */
function takeFragment(fragment) {
  const given = new Map(), rest = [];
  for (const part of fragment.split("&").filter((text) => text.includes("="))) {
    const at = part.indexOf("=");
    given.set(shortened(part.slice(0, at)), decoded(part.slice(at + 1)));
  }
  const take = (key, otherwise) => {
    const value = given.get(key);
    given.delete(key);
    return value === undefined ? otherwise : value;
  };
  for (const slider of SLIDERS) setSlider(slider, take(shortened(slider.key), slider.otherwise));
  for (const [id, key] of Object.entries(SELECTS)) {
    const value = take(shortened(key), OTHERWISE[id]);
    if (![...by(id).options].some((option) => option.value === value)) rest.push([key, value]);
    by(id).value = [...by(id).options].some((option) => option.value === value) ? value : OTHERWISE[id];
  }
  const modules = take("offload_modules", null);
  for (const [name, is] of MODULES) by(`module-${name}`).checked = modules === null ? Boolean(is) : modules.split(",").includes(name);
  if (modules && !modules.split(",").every(isModule)) rest.push(["offload_modules", modules]);
  by("others").value = [...rest, ...given].map((pair) => pair.join("=")).join("\n");
  by("example").value = EXAMPLES.some(([, of]) => of === fragment) ? fragment : "";
}

/* ---- the settings ---- */

/* Pairs of key and value. */
function others() {
  return by("others").value.split("\n").map((line) => line.trim()).filter((line) => line !== "")
    .map((line) => (line.includes("=") ? [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)] : [line, ""]));
}
/* What goes into the program: keys of the scenario and of the machine. A later one counts. */
function settings() {
  const system = SYSTEMS[by("system").value], modules = chosenModules(), scenario = { ...BASE }, machine = {};
  const put = (key, value) => { if (value !== "") (isOfMachine(key) ? machine : scenario)[key] = value; };
  for (const slider of SLIDERS) put(slider.key, valueOf(slider));
  const hidden = Number(valueOf(sliderOf("hidden_size"))), layers = Number(valueOf(sliderOf("num_layers")));
  put("model.ffn_hidden_size", String(4 * hidden));
  put("model.num_attention_heads", String(Math.max(1, Math.floor(hidden / 128))));
  if (system.isHf) scenario["parallel.pipeline_model_parallel_size"] = "1";
  put("parallel.world_size", scenario["parallel.pipeline_model_parallel_size"]);
  if (machine["link.d2h_bytes_per_us"]) Object.assign(machine, { "link.h2d_bytes_per_us": machine["link.d2h_bytes_per_us"], "link.duplex_bytes_per_us": "0" });
  put("machine.name", by("machine").value);
  if (by("experts").value !== "") Object.assign(scenario, { "model.num_experts": by("experts").value, ...EXPERTS, "model.moe_ffn_hidden_size": String(hidden / 2) });
  if (by("recompute").value !== "") Object.assign(scenario, FULL);
  if (system.isHf) Object.assign(scenario, { "model.implementation": "hf", "offload.system": by("system").value });
  Object.assign(scenario, system.hasModules && modules.length === 0 ? SYSTEMS.none.sets : system.sets);
  if (system.hasModules && modules.length > 0) put("offload.offload_modules", modules.join());
  if (system.hasLayers) put("offload.cpu_offloading_num_layers", String(Math.max(1, layers - 1)));
  put("software.megatron", by("version").value);
  put("offload.mode", by("mode").value);
  for (const [key, value] of others()) {
    const known = Object.keys(scenario).find((one) => shortened(one) === key);
    (isOfMachine(key) ? machine : scenario)[known || key] = value;
  }
  return { scenario: Object.entries(scenario), machine: Object.entries(machine) };
}
const optionsOf = ({ scenario, machine }) => [...scenario.map((pair) => ["set", pair.join("=")]), ...machine.map((pair) => ["machine-set", pair.join("=")])];

/* What cannot be set now is grey. */
function adjust() {
  const system = SYSTEMS[by("system").value];
  sliderOf("pipeline_model_parallel_size").input.disabled = Boolean(system.isHf);
  by("modules").disabled = !system.hasModules;
  for (const name of OF_EXPERTS) by(`module-${name}`).disabled = by("experts").value === "";
  for (const slider of SLIDERS) {
    slider.output.textContent = slider.input.disabled ? "" : (slider.show || String)(valueOf(slider));
    slider.input.setAttribute("aria-valuetext", slider.output.textContent); /* its own value is a place in a list */
  }
}

/* ---- to paste ---- */

const quoted = (text) => (/^[\w.,=/+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
function commandOf(options) {
  return `offsim predict ${options.map(([option, value]) => `--${option} ${quoted(value)}`).join(" \\\n  ")}`;
}
/* Sections and order are those of the resolved scenario, `whole`. */
function scenarioOf({ scenario, machine }, whole) {
  const given = new Map(scenario.map(([key, value]) => [shortened(key), value])), lines = [];
  let section = null;
  for (const line of whole.split("\n")) {
    const [, top, key] = /^(\w+):|^  (\w+):/.exec(line) || [];
    if (top) section = top;
    if (!key || !given.has(key)) continue;
    if (section) lines.push(`${section}:`);
    section = null;
    const value = given.get(key);
    lines.push(`  ${key}: ${value.includes(",") && !value.startsWith("[") ? `[${value.replaceAll(",", ", ")}]` : value}`);
  }
  const changes = machine.map((pair) => ` --machine-set ${pair.join("=")}`).join("");
  return `${changes ? `# offsim predict FILE${changes}\n` : ""}${lines.join("\n")}\n`;
}
function copies(button, from) {
  by(button).addEventListener("click", async () => {
    getSelection().selectAllChildren(by(from));
    try {
      await navigator.clipboard.writeText(by(from).textContent);
      by(button).textContent = "copied";
    } catch {
      by(button).textContent = "selected";
    }
    setTimeout(() => { by(button).textContent = "copy"; }, 1500);
  });
}

/* ---- answers ---- */

/* The JSON of an element of a page that offsim wrote. */
function block(page, id) {
  const begin = page.indexOf(">", page.indexOf(`<script type="application/json" id="${id}"`)) + 1;
  return page.slice(begin, page.indexOf("<\/script>", begin));
}
function showPage(page) {
  const rank = view.rank, from = view.from / (timeline ? timeline.step_ns : 1), to = view.to / (timeline ? timeline.step_ns : 1), isFirst = timeline === null;
  for (const id of ["figures", "timeline"]) by(id).textContent = block(page, id);
  figures = JSON.parse(by("figures").textContent);
  timeline = JSON.parse(by("timeline").textContent);
  showPrediction();
  if (!isFirst && rank < timeline.ranks.length && rank !== view.rank) showRank(rank);
  if (!isFirst) setWindow(from * timeline.step_ns, to * timeline.step_ns);
  const table = page.slice(page.lastIndexOf("<pre>") + 5, page.lastIndexOf("</pre>"));
  document.querySelector("#text-title + pre").textContent = table.replaceAll("&lt;", "<").replaceAll("&amp;", "&");
}
function showRaces(options) {
  const safe = figures.safety.safe;
  by("safe").textContent = safe ? "Yes: no race, no block that is reused too early, no deadlock." : "No. Each finding names the two ops, and the wait or mark that is missing:";
  by("safe").className = safe ? "good" : "bad";
  by("findings").hidden = safe;
  if (safe) return;
  const text = by("findings").textContent = call("offsim_check_text", options).text, first = text.slice(0, text.indexOf("\nerror:"));
  by("findings").scrollTop = by("findings").scrollHeight * first.split("\n").length / text.split("\n").length;
}
/* A browser lays out only the parts of a long text that it shows. */
const PART_LINES = 100;
function showPlan(options) {
  const lines = by("plan-part").open ? call("offsim_plan", options, Number(by("iteration").value)).text.split("\n") : [], parts = [];
  for (let i = 0; i < lines.length; i += PART_LINES) {
    const some = lines.slice(i, i + PART_LINES), part = element("span", some.join("\n") + (i + PART_LINES < lines.length ? "\n" : ""));
    part.style.containIntrinsicHeight = `${some.length * 1.4}em`;
    parts.push(part);
  }
  by("plan").replaceChildren(...parts);
}
function answer() {
  const given = settings(), options = optionsOf(given), begin = performance.now();
  const { text, errors, notes } = call("offsim_predict_html", options);
  by("notes").textContent = notes;
  document.body.classList.toggle("stale", text === null);
  by("command").textContent = commandOf(options);
  if (text === null) {
    putVerdict(errors.trim(), false);
    return;
  }
  showPage(text);
  showRaces(options);
  showPlan(options);
  by("scenario").textContent = scenarioOf(given, call("offsim_scenario", options).text);
  by("took").textContent = `answered in ${(performance.now() - begin).toFixed(0)} ms`;
}
let isWanted = false;
/* Of changes before the next frame, one answer. */
function update() {
  if (isWanted) return;
  isWanted = true;
  requestAnimationFrame(() => { isWanted = false; answer(); });
}
/* A drag gives stages as many layers each. */
function even() {
  const stages = sliderOf("pipeline_model_parallel_size"), layers = sliderOf("num_layers").input;
  while (!stages.input.disabled && Number(valueOf(sliderOf("num_layers"))) % Number(valueOf(stages)) !== 0 && layers.value !== layers.max)
    layers.value = String(Number(layers.value) + 1);
}
function changed(target) {
  if ([sliderOf("pipeline_model_parallel_size").input, sliderOf("num_layers").input].includes(target)) even();
  adjust();
  by("example").value = "";
  update();
}
/* When a drag has ended: browsers limit how often an address may change. */
function keep() {
  history.replaceState(null, "", `#${fragmentOf()}`);
}
function goTo(fragment) {
  takeFragment(fragment);
  adjust();
  answer();
}

const call = loadOffsim(Uint8Array.from(atob(by("module").textContent.trim()), (c) => c.charCodeAt(0)));
makeControls();
by("verdict").setAttribute("aria-live", "polite");
by("controls").addEventListener("input", (e) => { if (e.target.id !== "example") changed(e.target); });
by("controls").addEventListener("change", (e) => { if (e.target.id !== "example") keep(); });
by("example").addEventListener("change", (e) => { location.hash = `#${e.target.value}`; });
by("reset").addEventListener("click", () => { location.hash = "#"; });
by("plan-part").addEventListener("toggle", update);
by("iteration").addEventListener("change", update);
window.addEventListener("hashchange", () => goTo(location.hash.slice(1)));
copies("copy-command", "command");
copies("copy-scenario", "scenario");
goTo(location.hash.slice(1));
