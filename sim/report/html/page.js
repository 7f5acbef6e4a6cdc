"use strict";
/* What every page needs. Every figure in words comes from #figures. */
const by = (id) => document.getElementById(id);
let figures = JSON.parse(by("figures").textContent);
const GIB = 2 ** 30;

/* ---- words ---- */

function bytes(n) {
  const unit = Math.abs(n) >= GIB ? [GIB, "GiB", 2] : [2 ** 20, "MiB", 1];
  return n === 0 ? "0" : `${(n / unit[0]).toFixed(unit[2])} ${unit[1]}`;
}
/* Memory of machine `ideal` has no limit. */
function ofCapacity(n) { return n < 2 ** 50 ? ` of ${bytes(n)}` : ""; }
function time(ns) {
  return ns === 0 ? "0" : ns >= 1e9 ? `${(ns / 1e9).toFixed(3)} s` : ns >= 1e6 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e3).toFixed(2)} µs`;
}
function element(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}
function row(cells, head) {
  const tr = element("tr");
  cells.forEach((cell, i) => {
    const e = element(head ? "th" : "td", cell, i === 0 ? "text" : "");
    if (head) e.scope = "col";
    tr.append(e);
  });
  return tr;
}

/* ---- the head ---- */

/* `good` undefined: neither. */
function putVerdict(text, good) {
  by("verdict").textContent = text;
  by("verdict").className = good === undefined ? "verdict" : good ? "verdict good" : "verdict bad";
}
function putFact(name, value, note) {
  const box = element("div"), dd = element("dd", value);
  if (note) dd.append(element("small", note));
  box.append(element("dt", name), dd);
  by("facts").append(box);
}
/* `mfu` null: not known. */
function mfuText(mfu) { return mfu === null ? "-" : `${(mfu * 100).toFixed(1)} %`; }
function putSpeed(tokens, mfu) {
  putFact("speed", `${tokens} tokens/s`, `on each GPU${mfu === null ? "" : `; MFU ${mfuText(mfu)}`}`);
}
function putSafety(safe, note) {
  putFact("safety of the plan", safe ? "safe" : "NOT SAFE", note);
  by("facts").lastChild.querySelector("dd").classList.add(safe ? "good" : "bad");
}
