/* Draws the prediction that #figures and #timeline hold; again, if they have changed. #figures is `predict --json`. */

function putHead() {
  const ranks = figures.result.ranks, step = figures.result.step_time_s, base = figures.baseline.step_time_s;
  const fullest = ranks.reduce((a, r) => (r.reserved_peak_bytes > a.reserved_peak_bytes ? r : a));
  putVerdict(figures.fits
    ? `Fits: rank ${fullest.pp_rank} reserves most, ${bytes(fullest.reserved_peak_bytes)}${ofCapacity(figures.capacity_bytes)}.`
    : `Does not fit: ${bytes(figures.missing_bytes)} are missing.`, figures.fits);
  putFact("step", time(step * 1e9), `${time(base * 1e9)} without offload`);
  putSpeed(figures.tokens_per_s_per_gpu, figures.mfu);
  const range = figures.range;
  if (range) putFact("range of the step", `${time(range.least_s * 1e9)} to ${time(range.most_s * 1e9)}`, `in ${range.nominal_percent} of 100 runs`);
  putFact("overhead", `${(figures.overhead * 100).toFixed(2)} %`, figures.bottleneck);
  const peak = ranks.reduce((a, r) => Math.max(a, r.allocated_peak_bytes), 0);
  const without = figures.baseline.ranks.reduce((a, r) => Math.max(a, r.allocated_peak_bytes), 0);
  putFact("highest allocated peak", bytes(peak), `${bytes(without)} without offload`);
  putFact("pinned on the fullest host", bytes(figures.host_pinned_total_bytes));
  const safety = figures.safety, errors = safety.errors_of_first_step + safety.errors_of_later_steps;
  putSafety(safety.safe, safety.safe ? "no race or deadlock in any timing" : `${errors} errors; offsim check shows them`);
}
function putRanks() {
  const table = by("ranks");
  table.replaceChildren(row(["rank", "static", "peak", "without offload", "saving", "R", "reserved", "pinned", ""], true));
  const most = figures.baseline.ranks.reduce((a, r) => Math.max(a, r.allocated_peak_bytes), 1);
  figures.result.ranks.forEach((r, i) => {
    const tr = row([String(r.pp_rank), bytes(r.static_bytes), bytes(r.allocated_peak_bytes), bytes(figures.baseline.ranks[i].allocated_peak_bytes),
      bytes(r.simulated_saving_bytes), r.saving_ratio === null ? "-" : `${(r.saving_ratio * 100).toFixed(1)} %`,
      bytes(r.reserved_peak_bytes), bytes(r.host_pinned_peak_bytes)]);
    const bar = element("td", undefined, "bar"), fill = element("i");
    fill.style.width = `${(100 * r.allocated_peak_bytes / most).toFixed(1)}%`;
    bar.append(fill);
    tr.append(bar);
    table.append(tr);
  });
}

function showPrediction() {
  by("facts").replaceChildren();
  putHead();
  putRanks();
  showTimeline(figures.result.ranks.reduce((a, r, i, all) => (r.reserved_peak_bytes > all[a].reserved_peak_bytes ? i : a), 0),
    " Memory is that of a steady step.", (rank) => figures.baseline.ranks[rank].allocated_peak_bytes);
}
