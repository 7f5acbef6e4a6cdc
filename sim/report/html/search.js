/* Shows the settings that a search or a sweep found: #figures is `tune --json`, or the counts and rows of a sweep. */
const commands = JSON.parse(by("commands").textContent);
const ROWS = 500, WIDTH = 1000, HEIGHT = 430, LEFT = 80, RIGHT = 20, TOP = 14, BOTTOM = 46;
const FRONT = "#0072b2", OTHER = "#6b7785", LARGE = "#d55e00";

const settings = (figures.best || figures.rows).map((r, i) => ({
  place: i + 1, set: Array.isArray(r.set) ? r.set : Object.entries(r.set).map(([key, value]) => `${key}=${value}`),
  step: r.step_time_s, tokens: r.tokens_per_s_per_gpu, mfu: r.mfu, allocated: r.allocated_peak_bytes, reserved: r.reserved_peak_bytes, pinned: r.host_pinned_total_bytes,
  fits: r.verdict === undefined || r.verdict === "fits", safe: r.safe, missing: r.missing_bytes || 0, front: false, mark: null }));
const best = settings.length && settings[0].fits ? settings[0] : null;
/* They come in the order of their steps, those that fit first. */
settings.reduce((least, s) => {
  s.front = s.fits && s.reserved < least;
  return s.front ? s.reserved : least;
}, Infinity);
const valueOf = (s, key) => (s.set.find((t) => t.startsWith(`${key}=`)) || "").slice(key.length + 1);
const keys = [...new Set(settings.flatMap((s) => s.set.map((t) => t.slice(0, t.indexOf("=")))))];
const varied = keys.filter((key) => settings.some((s) => valueOf(s, key) !== valueOf(settings[0], key)));
const slower = (s) => (best ? `${((s.step / best.step - 1) * 100).toFixed(2)} %` : "-");

/* ---- the head ---- */

function putBest() {
  const tried = figures.settings || figures.fit + figures.do_not_fit + figures.refused;
  putVerdict(best ? `The fastest that fits: ${time(best.step * 1e9)} a step, reserves ${bytes(best.reserved)}${ofCapacity(figures.capacity_bytes)}.`
    : `None of ${tried} settings fits.`, best !== null);
  if (best) {
    const safe = best.safe === undefined ? figures.safe : best.safe;
    const bound = figures.fastest_bound_s;
    putFact("step", time(best.step * 1e9), bound === undefined ? "" : `no setting is faster than ${time(bound * 1e9)}`);
    putSpeed(best.tokens, best.mfu);
    putFact("reserved", bytes(best.reserved), `${bytes(best.allocated)} allocated at the peak`);
    putFact("pinned on the fullest host", bytes(best.pinned));
    putFact("what bounds it", "", figures.why);
    putSafety(safe, safe ? "no race or deadlock in any timing" : "offsim check shows the errors");
  }
  if (figures.faster_unsafe) putFact("faster, but NOT SAFE", time(figures.faster_unsafe.step_time_s * 1e9), figures.faster_unsafe.set.join(" "));
  putFact("settings", String(tried), figures.settings
    ? `${figures.predicted} predicted, ${figures.too_large} too large, ${figures.refused} refused`
    : `${figures.fit} fit, ${figures.do_not_fit} do not, ${figures.refused} refused`);
}
function putPasted(name, text) {
  const box = element("div"), dd = element("dd");
  dd.append(element("pre", text, "whole"));
  box.append(element("dt", name), dd);
  by("paste").append(box);
}
function putPaste() {
  if (!best) return;
  putPasted("for offsim", commands[0].trim());
  if (figures.flags) putPasted(`for ${figures.program}`, figures.flags);
  if (figures.left_out) putPasted("of Megatron-LM's options, leave out", figures.left_out);
}

/* ---- the plot ---- */

function drawn(name, attributes, text) {
  const e = document.createElementNS(by("plot").namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}
/* Around what is shown, and not much more: a plot shows differences. Where the largest is five times the smallest, by
   ratios. `of`: from 0 to 1. */
function axis(values, least) {
  const low = Math.min(...values), high = Math.max(...values), about = Math.max(high - low, least) / 6, power = 10 ** Math.floor(Math.log10(about));
  if (low > 0 && high > 5 * low) {
    const from = low / 1.15, to = high * 1.15, ticks = [];
    for (let p = Math.floor(Math.log10(from)); p <= Math.log10(to); p++) ticks.push(...[1, 2, 5].map((f) => Number(`${f}e${p}`)));
    return { ticks: ticks.filter((v) => from <= v && v <= to).map((v) => [v, String(v)]), of: (v) => Math.log(v / from) / Math.log(to / from) };
  }
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= about), ticks = [];
  const from = Math.max(0, Math.floor(low / step - 0.5) * step), to = Math.ceil(high / step + 0.5) * step;
  for (let v = from; v <= to + step / 2; v += step) ticks.push([v, v.toFixed(Math.max(0, -Math.floor(Math.log10(step))))]);
  return { ticks, of: (v) => (v - from) / (to - from) };
}
function drawPlot() {
  const plot = by("plot"), capacity = figures.capacity_bytes / GIB, bound = figures.fastest_bound_s;
  const sizes = settings.map((s) => s.reserved / GIB), times = settings.map((s) => s.step * 1e3), most = Math.max(...sizes);
  const shown = capacity / 2 <= most;
  const x = axis(bound ? [...times, bound * 1e3] : times, times[0] / 100), y = axis(shown ? [...sizes, capacity] : sizes, most / 100);
  const xOf = (ms) => LEFT + x.of(ms) * (WIDTH - LEFT - RIGHT), yOf = (gib) => HEIGHT - BOTTOM - y.of(gib) * (HEIGHT - TOP - BOTTOM);
  for (const [v, text] of y.ticks) {
    plot.append(drawn("line", { class: "rule", x1: LEFT, x2: WIDTH - RIGHT, y1: yOf(v), y2: yOf(v) }));
    plot.append(drawn("text", { x: LEFT - 8, y: yOf(v) + 4, "text-anchor": "end" }, text));
  }
  for (const [v, text] of x.ticks) {
    plot.append(drawn("line", { class: "rule", x1: xOf(v), x2: xOf(v), y1: TOP, y2: HEIGHT - BOTTOM }));
    plot.append(drawn("text", { x: xOf(v), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, text));
  }
  plot.append(drawn("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, "step, ms"));
  plot.append(drawn("text", { x: -(HEIGHT - BOTTOM) / 2, y: 16, transform: "rotate(-90)", "text-anchor": "middle" }, "reserved peak, GiB"));
  if (shown) {
    plot.append(drawn("line", { class: "limit", x1: LEFT, x2: WIDTH - RIGHT, y1: yOf(capacity), y2: yOf(capacity) }));
    plot.append(drawn("text", { x: WIDTH - RIGHT, y: yOf(capacity) - 5, "text-anchor": "end" }, "memory of the GPU for PyTorch"));
  }
  if (bound) {
    plot.append(drawn("line", { class: "limit", x1: xOf(bound * 1e3), x2: xOf(bound * 1e3), y1: TOP, y2: HEIGHT - BOTTOM }));
    plot.append(drawn("text", { x: xOf(bound * 1e3) + 5, y: HEIGHT - BOTTOM - 6 }, "no setting is faster"));
  }
  const front = settings.filter((s) => s.front);
  plot.append(drawn("polyline", { class: "front", points: front.map((s) => `${xOf(s.step * 1e3)},${yOf(s.reserved / GIB)}`).join(" ") }));
  for (const s of [...settings].reverse()) {
    const cx = xOf(s.step * 1e3), cy = yOf(s.reserved / GIB);
    s.mark = s.fits ? drawn("circle", { cx, cy, r: s.front ? 6 : 4.5, fill: s.front ? FRONT : "none", stroke: s.front ? FRONT : OTHER })
      : drawn("path", { d: `M${cx - 4} ${cy - 4}l8 8m0-8l-8 8`, stroke: LARGE, fill: "none" });
    if (s.safe === false) s.mark.setAttribute("stroke-dasharray", "2 2");
    s.mark.append(drawn("title", {}, `${s.place}: ${s.set.join(" ")}`));
    s.mark.dataset.place = s.place;
    plot.append(s.mark);
  }
  plot.append(drawn("circle", { id: "ring", r: 10, fill: "none", visibility: "hidden" }));
}
function putLegend() {
  const kinds = [[FRONT, "\u25cf", "nothing shown beats it in both"], [OTHER, "\u25cb", "fits"], [LARGE, "\u2715", "does not fit"]];
  for (const [colour, sign, text] of kinds) {
    if (colour === LARGE && settings.every((s) => s.fits)) continue;
    if (colour === OTHER && settings.every((s) => s.front || !s.fits)) continue;
    const item = element("span"), mark = element("b", sign);
    mark.style.color = colour;
    item.append(mark, ` ${text}`);
    by("legend").append(item);
  }
}

/* ---- the table ---- */

const columns = [["", (s) => String(s.place), (s) => s.place],
  ...varied.map((key) => [key, (s) => valueOf(s, key) || "-", (s) => valueOf(s, key)]),
  ["step", (s) => time(s.step * 1e9), (s) => s.step], ["slower", slower, (s) => s.step],
  ["tokens/s per GPU", (s) => String(s.tokens), (s) => s.tokens], ["MFU", (s) => mfuText(s.mfu), (s) => s.mfu],
  ["allocated", (s) => bytes(s.allocated), (s) => s.allocated], ["reserved", (s) => bytes(s.reserved), (s) => s.reserved],
  ["pinned by a host", (s) => bytes(s.pinned), (s) => s.pinned],
  figures.best ? ["safe", (s) => (s.safe ? "yes" : "NO"), (s) => Number(s.safe)]
    : ["fits", (s) => (s.fits ? "yes" : `${bytes(s.missing)} missing`), (s) => s.missing]];
const view = { column: 0, down: false, visible: settings, chosen: -1 };

function choose(s) {
  view.chosen = view.visible.indexOf(s);
  by("hover").textContent = `${s.place}: ${time(s.step * 1e9)} a step, reserves ${bytes(s.reserved)}, ${bytes(s.allocated)} allocated at the peak, ${bytes(s.pinned)} pinned by a host`
    + (s.fits ? "" : `; does not fit: ${bytes(s.missing)} missing`) + (s.safe === false ? "; NOT SAFE" : "");
  by("chosen").textContent = commands[s.place - 1].trim();
  const box = s.mark.getBBox(), ring = by("ring");
  ring.setAttribute("cx", box.x + box.width / 2);
  ring.setAttribute("cy", box.y + box.height / 2);
  ring.setAttribute("visibility", "visible");
  for (const tr of by("settings").rows) tr.classList.toggle("chosen", tr.dataset.place === String(s.place));
}
function putTable() {
  const [, , keyOf] = columns[view.column], sign = view.down ? -1 : 1;
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  const sorted = [...view.visible].sort((a, b) => sign * compare(keyOf(a), keyOf(b)) || a.place - b.place);
  const head = element("tr");
  columns.forEach(([name], i) => {
    const th = element("th", undefined, i <= varied.length ? "text" : ""), button = element("button", name || "place");
    th.scope = "col";
    th.setAttribute("aria-sort", i !== view.column ? "none" : view.down ? "descending" : "ascending");
    button.type = "button";
    button.addEventListener("click", () => {
      view.down = i === view.column && !view.down;
      view.column = i;
      putTable();
      by("settings").querySelectorAll("th button")[i].focus();
    });
    th.append(button);
    head.append(th);
  });
  by("settings").replaceChildren(head, ...sorted.slice(0, ROWS).map((s) => {
    const tr = element("tr");
    columns.forEach(([, textOf], i) => tr.append(element("td", i === 0 ? undefined : textOf(s), i <= varied.length ? "text" : "")));
    const button = element("button", String(s.place));
    button.type = "button";
    button.addEventListener("click", () => choose(s));
    tr.cells[0].append(button);
    tr.dataset.place = s.place;
    tr.addEventListener("mouseenter", () => choose(s));
    return tr;
  }));
}
function filter() {
  const words = by("find").value.toLowerCase().split(" ").filter((w) => w);
  view.visible = settings.filter((s) => words.every((w) => s.set.join(" ").toLowerCase().includes(w))
    && (s.front || !by("only-front").checked) && (s.fits || !by("only-fits").checked));
  view.chosen = -1;
  const seen = new Set(view.visible);
  for (const s of settings) s.mark.style.opacity = seen.has(s) ? 1 : 0.12;
  by("found").textContent = view.visible.length > ROWS ? `the first ${ROWS} of ${view.visible.length}`
    : view.visible.length < settings.length ? `${view.visible.length} of ${settings.length}` : "";
  putTable();
}
function listen() {
  const placed = (e) => e.target.closest("[data-place]");
  for (const name of ["mouseover", "click"])
    by("plot").addEventListener(name, (e) => { if (placed(e)) choose(settings[placed(e).dataset.place - 1]); });
  by("plot").addEventListener("keydown", (e) => {
    const to = { ArrowLeft: view.chosen - 1, ArrowRight: view.chosen + 1, Home: 0, End: view.visible.length - 1 }[e.key];
    if (to === undefined || !view.visible.length) return;
    e.preventDefault();
    choose(view.visible[Math.max(0, Math.min(to, view.visible.length - 1))]);
  });
  by("find").addEventListener("input", filter);
  by("only-front").addEventListener("change", filter);
  by("only-fits").addEventListener("change", filter);
}

putBest();
putPaste();
if (settings.length) {
  putLegend();
  drawPlot();
  by("fits-label").hidden = settings.every((s) => s.fits);
  by("common").textContent = keys.filter((key) => !varied.includes(key) && settings.length > 1)
    .map((key) => `${key}=${valueOf(settings[0], key)}`).reduce((text, t) => (text ? `${text}, ${t}` : `All have ${t}`), "");
  listen();
  filter();
  choose(settings[0]);
} else {
  for (const id of ["paste-title", "plot-title", "settings-title"]) by(id).parentElement.hidden = true;
}
