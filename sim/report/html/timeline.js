/* Draws #timeline: the lanes of a rank, which are streams, over curves of its memory. A lane may be of one side of two. */
let timeline = JSON.parse(by("timeline").textContent);
const FIELDS = 7, LANE = 26, GAP = 8, RIGHT = 12, CURVE = 210;
/* Okabe and Ito's palette, which colour-blind people tell apart. */
const COLOURS = ["#0072b2", "#e69f00", "#f0e442", "#8c6d5a", "#cc79a7", "#009e73", "#d55e00", "#56b4e9", ""];
const WAITS = COLOURS.length - 1, BACK = WAITS - 1;
const LANE_NAMES = { d2h: "to the host", h2d: "from the host", comm: "communication" };
const CURVE_COLOURS = { allocated: "#0072b2", live: "#009e73", reserved: "#d55e00", pinned: "#cc79a7" };
/* The two sides of a comparison, in their order. */
const SIDE_COLOURS = ["#0072b2", "#d55e00"];

/* ---- slices ---- */

/* Absolute times, once a rank is shown. The lanes of a stream are close together. */
let unpacked = [];
function lanesOf(rank) {
  if (unpacked[rank]) return unpacked[rank];
  let top = 2;
  unpacked[rank] = timeline.ranks[rank].lanes.map((lane, l, all) => {
    const n = lane.slices.length / FIELDS, start = new Float64Array(n), end = new Float64Array(n);
    let at = 0;
    for (let i = 0; i < n; i++) {
      start[i] = at + lane.slices[i * FIELDS];
      at = end[i] = start[i] + lane.slices[i * FIELDS + 1];
    }
    const both = lane.stream === "d2h" && lane.slices.some((kind, i) => i % FIELDS === 2 && kind === BACK);
    const name = [both ? "to, from the host" : LANE_NAMES[lane.stream] || lane.stream, lane.side].filter((t) => t).join(", "), own = top;
    top += LANE + (l + 1 < all.length && all[l + 1].stream === lane.stream ? 2 : GAP);
    return { stream: lane.stream, name, top: own, n, start, end, raw: lane.slices };
  });
  return unpacked[rank];
}
function heightOf(lanes) { return lanes.length ? lanes[lanes.length - 1].top + LANE + 6 : 0; }
function field(lane, i, which) { return lane.raw[i * FIELDS + which]; }
function nameOf(lane, i) {
  const kind = field(lane, i, 2), text = field(lane, i, 3), site = field(lane, i, 4), count = field(lane, i, 6);
  const what = kind === WAITS ? "compute waits" : text < 0 ? `${count} ops` : timeline.texts[text];
  const where = site < 0 ? "" : timeline.sites[site];
  const phase = (timeline.phases || timeline.ranks[view.rank].phases)[field(lane, i, 5)];
  return [what, where, phase].filter((t) => t).join(", ");
}
/* Whom a wait of compute waits for: the copies and messages that run then. */
function waitedFor(at) {
  const busy = lanesOf(view.rank).filter((lane) => lane.stream !== "compute" && indexAt(lane, at) >= 0)
    .map((lane) => `${lane.name}: ${nameOf(lane, indexAt(lane, at))}`);
  return busy.length ? ` for ${busy.join("; ")}` : "";
}
/* The last slice that begins at or before `at`. */
function lastBefore(lane, at) {
  let low = 0, high = lane.n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.start[middle] <= at) low = middle + 1; else high = middle;
  }
  return low - 1;
}
function indexAt(lane, at) {
  const i = lastBefore(lane, at);
  return i >= 0 && at <= lane.end[i] ? i : -1;
}

/* ---- view ---- */

/* `left`: where the names of lanes end; with a side they are longer. */
const view = { left: 0, rank: 0, from: 0, to: 1, cursor: null, find: "", levelOf: null };
const style = () => getComputedStyle(document.documentElement);
function prepared(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 1000;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  c.font = "12px system-ui, sans-serif";
  return [c, width];
}
function xOf(at, width) { return view.left + (at - view.from) / (view.to - view.from) * (width - view.left - RIGHT); }
function timeAt(x, width) { return view.from + (x - view.left) / (width - view.left - RIGHT) * (view.to - view.from); }
function ticks(width) {
  const about = (view.to - view.from) / Math.max(2, Math.floor(width / 140));
  const power = 10 ** Math.floor(Math.log10(about));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= about);
  const all = [];
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) all.push(t);
  return all;
}
let hatch = null;
function hatching(c) {
  if (hatch) return hatch;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const t = tile.getContext("2d");
  t.strokeStyle = style().getPropertyValue("--muted");
  t.beginPath(); t.moveTo(0, 6); t.lineTo(6, 0); t.stroke();
  return (hatch = c.createPattern(tile, "repeat"));
}
function drawLanes() {
  const lanes = lanesOf(view.rank), [c, width] = prepared(by("lanes"), heightOf(lanes) + 22);
  const ink = style().getPropertyValue("--ink"), faint = style().getPropertyValue("--faint");
  const wanted = view.find.toLowerCase();
  c.strokeStyle = faint; c.fillStyle = ink; c.textAlign = "center";
  for (const t of ticks(width)) {
    const x = Math.round(xOf(t, width)) + 0.5;
    c.beginPath(); c.moveTo(x, 0); c.lineTo(x, heightOf(lanes)); c.stroke();
    c.fillText(time(t), x, heightOf(lanes) + 14);
  }
  for (const lane of lanes) {
    const top = lane.top;
    c.globalAlpha = 1; c.fillStyle = ink; c.textAlign = "right";
    c.fillText(lane.name, view.left - 8, top + LANE / 2 + 4);
    let drawn = -1, drawnKind = -1;
    for (let i = Math.max(0, lastBefore(lane, view.from)); i < lane.n && lane.start[i] <= view.to; i++) {
      const left = Math.max(view.left, xOf(lane.start[i], width)), right = Math.min(width - RIGHT, xOf(lane.end[i], width));
      const kind = field(lane, i, 2);
      if (right <= view.left || (right <= drawn && kind === drawnKind)) continue; /* the pixel is painted already */
      c.globalAlpha = wanted && !nameOf(lane, i).toLowerCase().includes(wanted) ? 0.15 : 1;
      c.fillStyle = kind === WAITS ? hatching(c) : COLOURS[kind];
      c.fillRect(left, top, Math.max(1, right - left), LANE);
      drawn = Math.ceil(right); drawnKind = kind;
      if (right - left > 60 && kind !== WAITS) {
        c.save(); c.beginPath(); c.rect(left, top, right - left - 3, LANE); c.clip();
        c.fillStyle = kind === 1 || kind === 2 || kind === 7 ? "#000" : "#fff"; c.textAlign = "left";
        c.fillText(nameOf(lane, i), left + 4, top + LANE / 2 + 4);
        c.restore();
      }
    }
  }
  c.globalAlpha = 1;
}
/* Round ones, up to `most`. */
function sizes(most) {
  const unit = most >= GIB ? GIB : 2 ** 20, about = most / unit / 5, power = 10 ** Math.floor(Math.log10(about));
  const step = unit * [1, 2, 5, 10].map((f) => f * power).find((s) => s >= about), all = [];
  for (let b = 0; b <= most; b += step) all.push(b);
  return all;
}
function drawCurve() {
  const of = timeline.ranks[view.rank].curves, [c, width] = prepared(by("curve"), CURVE);
  const names = Object.keys(of).filter((name) => of[name].length), level = view.levelOf ? view.levelOf(view.rank) : 0;
  const most = Math.max(level, ...names.map((name) => of[name].reduce((a, v, i) => (i % 2 && v > a ? v : a), 1))) * 1.04;
  const yOf = (b) => CURVE - 18 - (CURVE - 26) * b / most;
  const ink = style().getPropertyValue("--ink"), faint = style().getPropertyValue("--faint");
  c.strokeStyle = faint; c.fillStyle = ink; c.textAlign = "right";
  for (const b of sizes(most)) {
    c.beginPath(); c.moveTo(view.left, yOf(b)); c.lineTo(width - RIGHT, yOf(b)); c.stroke();
    c.fillText(bytes(b), view.left - 8, yOf(b) + 4);
  }
  c.save(); c.beginPath(); c.rect(view.left, 0, width - view.left - RIGHT, CURVE); c.clip();
  const colourOf = (name) => CURVE_COLOURS[name] || SIDE_COLOURS[names.indexOf(name)];
  for (const name of names) {
    const p = of[name];
    c.strokeStyle = colourOf(name); c.lineWidth = name === names[0] ? 2 : 1.2;
    c.beginPath();
    for (let i = 0; i < p.length; i += 2) {
      const x = xOf(p[i], width), y = yOf(p[i + 1]);
      if (i === 0) c.moveTo(x, y); else { c.lineTo(x, yOf(p[i - 1])); c.lineTo(x, y); }
    }
    if (p.length) c.lineTo(xOf(timeline.step_ns, width), yOf(p[p.length - 1]));
    c.stroke();
  }
  c.strokeStyle = ink; c.lineWidth = 1;
  if (level) {
    c.setLineDash([6, 4]);
    c.beginPath(); c.moveTo(view.left, yOf(level)); c.lineTo(width - RIGHT, yOf(level)); c.stroke(); c.setLineDash([]);
  }
  if (view.cursor !== null) {
    c.beginPath(); c.moveTo(xOf(view.cursor, width), 0); c.lineTo(xOf(view.cursor, width), CURVE - 18); c.stroke();
  }
  c.restore();
  c.textAlign = "left"; c.fillStyle = ink;
  if (level) c.fillText("peak without offload", view.left + 6, yOf(level) - 4);
  let x = view.left;
  for (const name of names) {
    c.fillStyle = colourOf(name); c.fillRect(x, CURVE - 12, 14, 8);
    c.fillStyle = ink; c.fillText(name, x + 18, CURVE - 4);
    x += 100;
  }
}
let waiting = false;
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; drawLanes(); drawCurve(); });
}

/* ---- what lives ---- */

function showInstant(at) {
  const all = timeline.ranks[view.rank].instants || [];
  if (!all.length) return;
  const near = all.reduce((a, i) => (Math.abs(i.at_ns - at) < Math.abs(a.at_ns - at) ? i : a));
  view.cursor = near.at_ns;
  by("instant-title").textContent = `What is allocated on rank ${view.rank} at ${time(near.at_ns)}`;
  const table = by("instant");
  table.replaceChildren(row(["module", "class", "bytes"], true));
  const most = near.rows.reduce((a, r) => Math.max(a, r[2]), 1);
  for (const [module, of, n] of near.rows) {
    const tr = row([module || "outside the modules", of, bytes(n)]), bar = element("td", undefined, "bar"), fill = element("i");
    fill.style.width = `${(100 * n / most).toFixed(1)}%`;
    bar.append(fill); tr.append(bar); table.append(tr);
  }
  if (near.rest_bytes) table.append(row(["others", "", bytes(near.rest_bytes)]));
  draw();
}

/* ---- hands ---- */

function setWindow(from, to) {
  const length = Math.min(Math.max(to - from, 200), timeline.step_ns || 1);
  view.from = Math.max(0, Math.min(from, timeline.step_ns - length));
  view.to = view.from + length;
  draw();
}
function zoom(factor, around) {
  setWindow(around - (around - view.from) * factor, around + (view.to - around) * factor);
}
const middle = () => (view.from + view.to) / 2;
function move(share) { const d = (view.to - view.from) * share; setWindow(view.from + d, view.to + d); }
function showRank(rank) {
  view.rank = rank;
  by("rank").value = String(rank);
  showInstant(peakAt(rank));
  countFound();
  draw();
}
function peakAt(rank) {
  const p = Object.values(timeline.ranks[rank].curves)[0];
  let best = 0;
  for (let i = 0; i < p.length; i += 2) if (p[i + 1] > p[best + 1]) best = i;
  return p.length ? p[best] : 0;
}
function countFound() {
  const wanted = view.find.toLowerCase();
  let n = 0;
  if (wanted) for (const lane of lanesOf(view.rank)) for (let i = 0; i < lane.n; i++) n += nameOf(lane, i).toLowerCase().includes(wanted);
  by("found").textContent = wanted ? `${n} found` : "";
}
function laneAt(y) { return lanesOf(view.rank).find((lane) => lane.top <= y && y < lane.top + LANE); }
function hover(event) {
  const lane = laneAt(event.offsetY), width = by("lanes").clientWidth, at = timeAt(event.offsetX, width);
  const i = lane && event.offsetX > view.left ? indexAt(lane, at) : -1;
  by("hover").textContent = i < 0 ? time(Math.max(0, at))
    : `${nameOf(lane, i)}${field(lane, i, 2) === WAITS ? waitedFor((lane.start[i] + lane.end[i]) / 2) : ""}: ${time(lane.end[i] - lane.start[i])} from ${time(lane.start[i])}`;
}
function listen() {
  for (const id of ["lanes", "curve"]) {
    const canvas = by(id);
    let held = null, moved = false;
    canvas.addEventListener("wheel", (e) => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, timeAt(e.offsetX, canvas.clientWidth)); }, { passive: false });
    canvas.addEventListener("pointerdown", (e) => { held = e.offsetX; moved = false; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointerup", (e) => { if (!moved) showInstant(timeAt(e.offsetX, canvas.clientWidth)); held = null; });
    canvas.addEventListener("pointermove", (e) => {
      if (id === "lanes") hover(e);
      if (held === null || Math.abs(e.offsetX - held) < 2) return;
      const d = (held - e.offsetX) / (canvas.clientWidth - view.left - RIGHT) * (view.to - view.from);
      held = e.offsetX; moved = true;
      setWindow(view.from + d, view.to + d);
    });
  }
  const keys = { ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), "+": () => zoom(0.7, middle()), "=": () => zoom(0.7, middle()),
    "-": () => zoom(1.4, middle()), Home: () => setWindow(0, timeline.step_ns), PageUp: () => showRank(Math.max(0, view.rank - 1)),
    PageDown: () => showRank(Math.min(timeline.ranks.length - 1, view.rank + 1)) };
  by("lanes").addEventListener("keydown", (e) => { if (keys[e.key]) { e.preventDefault(); keys[e.key](); } });
  const takesText = (of) => of.matches("textarea, input:not([type='range'], [type='checkbox'])");
  document.addEventListener("keydown", (e) => { if (e.key === "/" && !takesText(e.target)) { e.preventDefault(); by("find").focus(); } });
  by("zoom-in").addEventListener("click", keys["+"]);
  by("zoom-out").addEventListener("click", keys["-"]);
  by("whole").addEventListener("click", keys.Home);
  by("rank").addEventListener("change", (e) => showRank(Number(e.target.value)));
  by("find").addEventListener("input", (e) => { view.find = e.target.value; countFound(); draw(); });
  window.addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { hatch = null; draw(); });
}
let listens = false;
/* The whole step of a rank. `levelOf`: of a rank, its peak without offload; left out, no line marks it. */
function showTimeline(rank, note, levelOf) {
  const used = new Set(timeline.ranks.flatMap((r) => r.lanes.flatMap((lane) => lane.slices.filter((_, i) => i % FIELDS === 2))));
  unpacked = [];
  const left = timeline.ranks.some((r) => r.lanes.some((lane) => lane.side)) ? 185 : 110;
  Object.assign(view, { left, from: 0, to: Math.max(1, timeline.step_ns), levelOf });
  by("legend").replaceChildren(...timeline.kinds.flatMap((name, i) => {
    if (!used.has(i)) return [];
    const item = element("span"), box = element("i");
    box.style.background = i === WAITS ? "repeating-linear-gradient(135deg, var(--muted) 0 1px, transparent 1px 4px)" : COLOURS[i];
    item.append(box, name);
    return [item];
  }));
  by("rank").replaceChildren(...timeline.ranks.map((r, i) => new Option(String(r.rank === undefined ? i : r.rank), String(i))));
  by("detail").textContent = { op: "Each slice is one op.", module: "A slice is what one module issues in one pass: there are more ops than a page should hold.",
    pass: "A slice is one pass of a micro-batch: there are more ops than a page should hold." }[timeline.detail] + note;
  if (!listens) listen();
  listens = true;
  showRank(rank);
}
