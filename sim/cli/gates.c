#include "sim/cli/gates.h"

#include <math.h>
#include <stdio.h>

#include "sim/text/scalar.h"

enum { PPM_OF_PERCENT = 10000, MILLION = 1000000 };

static const struct {
  const char *option, *of;
  bool needs_without;
} gates[COMPARE_GATES] = {
  [GATE_PEAK_ERROR] = { "--max-peak-error", "error of the peak", false },
  [GATE_STEP_ERROR] = { "--max-step-error", "error of the step", false },
  [GATE_OVERHEAD_ERROR] = { "--max-overhead-error", "error of the overhead", true },
  [GATE_RATIO] = { "--min-ratio", "R", true },
};

bool gate_set(compare_gates *g, compare_gate gate, const char *percent, diag *d)
{
  double number = 0;
  if (!scalar_double(percent, &number) || !(number >= 0 && number <= 1000))
    return diag_error(d, (source_pos){ gates[gate].option, 0, 0 },
                      "\"%s\": expected a number from 0 to 1000", percent);
  g->is_set[gate] = true;
  g->limit_ppm[gate] = llround(number * PPM_OF_PERCENT);
  return true;
}

bool gates_are_set(const compare_gates *g)
{
  for (int i = 0; i < COMPARE_GATES; i++)
    if (g->is_set[i]) return true;
  return false;
}

static int64_t size_of(int64_t ppm)
{
  return ppm < 0 ? -ppm : ppm;
}

/* The figure of a rank; false: it has none. */
static bool peak_error(const timings *r, uint32_t rank, int64_t *ppm)
{
  int64_t predicted = timing_figures(&r->with, PREDICTED, rank)->live_peak_bytes;
  int64_t measured = timing_figures(&r->with, MEASURED, rank)->live_peak_bytes;
  *ppm = size_of(error_ppm(predicted, measured));
  return predicted >= 0 && measured > 0;
}

static bool ratio(const timings *r, uint32_t rank, int64_t *ppm)
{
  saving_figures s;
  if (!timing_saving(r, rank, SAVED_LIVE, &s) || s.simulated <= 0) return false;
  *ppm = MILLION + error_ppm(s.measured, s.simulated);
  return true;
}

/* The worst of all ranks: the largest, or of R the least. */
static bool worst_figure(const timings *r, compare_gate gate, int64_t *ppm)
{
  bool known = false;
  for (uint32_t rank = 0; rank < r->with.rank_count; rank++) {
    int64_t one;
    if (!(gate == GATE_RATIO ? ratio : peak_error)(r, rank, &one)) continue;
    if (!known || (gate == GATE_RATIO ? one < *ppm : one > *ppm)) *ppm = one;
    known = true;
  }
  return known;
}

static bool figure_of(const timings *r, compare_gate gate, int64_t *ppm)
{
  if (gate == GATE_PEAK_ERROR || gate == GATE_RATIO) return worst_figure(r, gate, ppm);
  if (gate == GATE_STEP_ERROR)
    *ppm = size_of(error_ppm(r->with.step_ps[PREDICTED], r->with.step_ps[MEASURED]));
  else
    *ppm = size_of(timing_overhead_ppm(r, PREDICTED) - timing_overhead_ppm(r, MEASURED));
  return true;
}

static void tell_broken(compare_gate gate, int64_t ppm, int64_t limit_ppm)
{
  fprintf(stderr, "offsim: gate %s: the %s is %.3f %%, %s %.3f %%\n", gates[gate].option,
          gates[gate].of, (double)ppm / PPM_OF_PERCENT,
          gate == GATE_RATIO ? "less than" : "more than", (double)limit_ppm / PPM_OF_PERCENT);
}

bool gates_check(const compare_gates *g, const timings *r, bool *held, diag *d)
{
  for (int i = 0; i < COMPARE_GATES; i++) {
    compare_gate gate = (compare_gate)i;
    int64_t ppm = 0;
    if (!g->is_set[i]) continue;
    source_pos at = { gates[i].option, 0, 0 };
    if (gates[i].needs_without && r->without == NULL)
      return diag_error(d, at, "needs --without, the traces without offload");
    if (!figure_of(r, gate, &ppm))
      return diag_error(d, at, "the traces do not tell the %s", gates[i].of);
    if (gate == GATE_RATIO ? ppm >= g->limit_ppm[i] : ppm <= g->limit_ppm[i]) continue;
    tell_broken(gate, ppm, g->limit_ppm[i]);
    *held = false;
  }
  return true;
}
