@timeline.js@
/* Shows two records, or a prediction and a real run: #figures is `compare --json`. */

const MOST = 10;
const isReal = figures.sources !== undefined, isTimed = isReal || figures.step_ps_predicted !== undefined;
const isClocked = !isTimed && figures.a.step_ps > 0 && figures.b.step_ps > 0;
const SIDES = isTimed ? ["predicted", "measured"] : ["a", "b"];
/* Nothing of what is hardly there: not of some nanoseconds. */
const percent = (part, whole) => (whole > 0 && Math.abs(part) < 100 * whole ? `${part > 0 ? "+" : ""}${(100 * part / whole).toFixed(2)} %` : "-");
const seconds = (s) => (s === null ? "-" : time(s * 1e9));
const picoseconds = (ps) => time(ps / 1e3);
const signed = (n, textOf) => (n < 0 ? `\u2212${textOf(-n)}` : n > 0 ? `+${textOf(n)}` : "0");

/* ---- the head ---- */

function putGates() {
  by("gates-part").hidden = !figures.gates.length;
  by("gates").className = "texts";
  by("gates").append(row(["gate", "", "finding"], true), ...figures.gates.map((gate) => {
    const tr = row([`--${gate.name}`, gate.held ? "\u2713 holds" : "\u2717 broken", gate.finding]);
    tr.cells[1].className = gate.held ? "good" : "bad";
    return tr;
  }));
}
/* The step and its error, in seconds. */
function stepOf() {
  return isReal ? [figures.step.predicted_s, figures.step.measured_s] : [figures.step_ps_predicted * 1e-12, figures.step_ps_measured * 1e-12];
}
function putWhole() {
  const broken = figures.gates.filter((gate) => !gate.held), [predicted, measured] = isTimed ? stepOf() : [];
  const step = isTimed && predicted !== null && measured > 0
    ? `The step: ${seconds(predicted)} predicted, ${seconds(measured)} measured: ${percent(predicted - measured, measured)}.` : "";
  const gates = broken.length ? `${broken.length} of ${figures.gates.length} gates are broken.` : figures.gates.length ? "All gates hold." : "";
  const clocks = isClocked ? `a takes ${picoseconds(figures.a.step_ps)} a step, b ${picoseconds(figures.b.step_ps)}: ${
    percent(figures.b.step_ps - figures.a.step_ps, figures.a.step_ps)}.` : "";
  const same = isTimed ? "" : figures.same ? "What was compared is the same." : clocks ? "" : "The two differ.";
  const isNeutral = isReal ? !figures.gates.length : !figures.same && clocks;
  putVerdict([gates, step, same, clocks].filter((t) => t).join(" "), isNeutral ? undefined : !broken.length && (isReal || figures.same));
  if (isReal) {
    const differ = figures.d2h.differ.length + figures.h2d.differ.length, peak = figures.memory.peaks.allocated;
    const speed = figures.tokens_per_s_per_gpu;
    if (speed.measured !== null) putFact("tokens/s on each GPU", String(speed.measured), `${speed.predicted} predicted`);
    putFact("passes", figures.same_passes ? "as predicted" : "others than predicted");
    putFact("copies", figures.same_copies ? "as predicted" : differ ? `${differ} differ` : "on other streams");
    putFact("waits", figures.waits === null ? "not compared" : figures.waits.differ.length ? `${figures.waits.differ.length} differ` : "as predicted");
    putFact("peak of allocated memory", peak.measured_bytes === null ? "not measured" : percent(peak.predicted_bytes - peak.measured_bytes, peak.measured_bytes),
      peak.measured_bytes === null ? "" : `${bytes(peak.predicted_bytes)} predicted, ${bytes(peak.measured_bytes)} measured`);
    return;
  }
  if (isClocked) putFact("step", `${picoseconds(figures.a.step_ps)}, ${picoseconds(figures.b.step_ps)}`, `a: ${figures.a.scenario}, b: ${figures.b.scenario}`);
  putFact("order of the ops", figures.same_order ? "the same" : "differs", `${figures.ops_compared} compared`);
  putFact("requested memory", !figures.same_order ? "not compared" : figures.same_bytes ? "the same" : "differs");
  putFact("what was written", !figures.outputs_compared ? "not known" : figures.outputs_differ ? `${figures.outputs_differ} outputs differ` : "the same bits",
    `${figures.outputs_compared} compared`);
  if (figures.overhead_ppm_measured !== undefined)
    putFact("overhead of offload", `${(figures.overhead_ppm_measured / 1e4).toFixed(2)} % measured`, `${(figures.overhead_ppm_predicted / 1e4).toFixed(2)} % predicted`);
}

/* ---- tables ---- */

function putTable(id, title, head, rows, className) {
  if (!rows.length) return;
  const table = element("table"), wide = element("div", undefined, "wide");
  table.id = id;
  if (className) table.className = className;
  table.append(row(head, true), ...rows.map((cells) => row(cells)));
  wide.append(table);
  by("differences").append(element("h3", title), wide);
}
/* Of [name, and the figures of both sides]; null: unknown. */
function putLargest(id, title, all, textOf) {
  const known = all.filter(([, p, m]) => p !== null && m !== null && p !== m);
  known.sort((a, b) => Math.abs(b[1] - b[2]) - Math.abs(a[1] - a[2]));
  putTable(id, title, ["", ...SIDES, "difference", `of ${SIDES[1]}`], known.slice(0, MOST)
    .map(([name, p, m]) => [name, textOf(p), textOf(m), signed(p - m, textOf), percent(p - m, m)]));
}
const opName = (op) => (op === null ? "has ended" : `op ${op.op}: ${op.call || op.name} on ${op.stream}, ${op.layer < 0 ? "" : `layer ${op.layer} `}${op.module} ${op.phase}`);
function putOfRecords() {
  const pairs = figures.ranks.flatMap((r) => [["order", r.first_other_op], ["requested memory", r.first_other_bytes]]
    .filter(([, pair]) => pair).map(([what, pair]) => [`rank ${r.rank}: ${what}`, opName(pair.a), opName(pair.b)]));
  if (figures.first_other_output) {
    const o = figures.first_other_output;
    pairs.push([`what was written: ${o.buffer}`, opName(o.op.a), opName(o.op.b)]);
  }
  putTable("firsts", "Where they first differ", ["", "a", "b"], pairs.slice(0, MOST), "texts");
  if (!isTimed) {
    putLargest("memory", "Requested memory at its peak", figures.ranks.map((r) => [`rank ${r.rank}`, r.requested_peak_bytes_a, r.requested_peak_bytes_b]), bytes);
    return;
  }
  putLargest("ops", "The ops that the prediction misses most", figures.worst_ops
    .map((o) => [`rank ${o.rank} op ${o.op}: ${o.name}, ${o.layer < 0 ? "" : `layer ${o.layer} `}${o.module} ${o.phase}`, o.predicted_ps, o.measured_ps]), picoseconds);
  putLargest("classes", "Time by kind of op", figures.op_classes.map((o) => [`${o.name} (${o.ops})`, o.predicted_ps, o.measured_ps]), picoseconds);
  const known = (n) => (n < 0 ? null : n);
  putLargest("memory", "Memory at its peak", figures.clocked_ranks.flatMap((r) => ["requested", "live", "reserved"]
    .map((of) => [`rank ${r.rank}: ${of}`, known(r.predicted[`${of}_peak_bytes`]), known(r.measured[`${of}_peak_bytes`])])), bytes);
}
function putOfRealRun() {
  const inTime = (name, t) => [name, t.predicted_s, t.measured_s], inBytes = (name, b) => [name, b.predicted_bytes, b.measured_bytes];
  const passOf = (p) => `${p.kind} m${p.microbatch} c${p.chunk}`, passes = figures.same_passes ? figures.passes : [];
  putLargest("times", "Time", [...Object.entries(figures.times).map(([name, t]) => inTime(name === "idle" ? "GPU idle" : `${name} kernels`, t)),
    ...["d2h", "h2d"].flatMap((d) => [inTime(`${d}, busy`, figures[d].busy), inTime(`${d}, exposed`, figures[d].exposed)]),
    ...passes.map((p) => inTime(passOf(p), p.time))], seconds);
  putLargest("memory", "Memory", [...Object.entries(figures.memory.peaks).map(([name, b]) => inBytes(`peak ${name}`, b)),
    ...passes.map((p) => inBytes(`${passOf(p)}, peak`, p.peak)),
    inBytes("held at the peak from before the step", figures.memory.held_from_before)], bytes);
  const ownerOf = (o) => (o.side === "predicted" ? `${o.module || "the step"}: ${o.tensor}` : o.file === null ? "unknown" : `${o.file}:${o.line} ${o.function}`);
  putTable("blocks", "Blocks at the peak", ["of", "predicted", "measured", "who holds them"], figures.memory.blocks_differ.slice(0, MOST)
    .map((b) => [bytes(b.bytes), String(b.predicted_blocks), String(b.measured_blocks), b.owners.map((o) => `${o.side}: ${ownerOf(o)}`).join("; ")]), "texts");
  const passAt = (i) => (i === null || !figures.passes[i] ? "-" : passOf(figures.passes[i]));
  putTable("copies", "Copies", ["", "bytes", "of", "predicted in", "measured in"], ["d2h", "h2d"].flatMap((d) => figures[d].differ
    .map((c) => [`${d}: ${c.finding}`, bytes(c.bytes), c.module === undefined ? "-" : `layer ${c.layer} ${c.module}`, passAt(c.pass_predicted), passAt(c.pass_measured)])).slice(0, MOST), "texts");
  putTable("waits", "Waits", ["", "bytes", "of"], (figures.waits === null ? [] : figures.waits.differ).slice(0, MOST)
    .map((w) => [`${w.direction}: ${w.order === "before" ? "the copy for compute" : "compute for the copy"}: ${w.finding}`, bytes(w.bytes), `layer ${w.layer} ${w.module}`]), "texts");
}

putWhole();
putGates();
if (isReal) putOfRealRun(); else putOfRecords();
if (!by("differences").children.length) by("differences").append(element("p", "None."));
if (timeline.ranks.length)
  showTimeline(0, ` Of each stream the upper lane is ${isTimed ? "predicted, the lower one measured" : "a, the lower one b"}. `
    + `Memory is what is requested${isReal ? ", and what the snapshot has allocated" : ""}.`);
else
  by("steps").hidden = true;
