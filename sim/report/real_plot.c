/* The picture of a prediction and a real run. */
#include "sim/report/plot.h"
#include "sim/report/real_comparison.h"
#include "sim/report/real_trace.h"

bool real_comparison_plot(const real_comparison *c, const char *path, arena *a, diag *d)
{
  if (!c->measured.run->has_times)
    return diag_error(d, (source_pos){ "--plot", 0, 0 }, "the files do not give the GPU's times");
  trace measured = real_trace_of(c);
  timing t = { .of = { c->predicted.record, &measured },
               .rank_count = c->predicted.record->header.ranks,
               .step_ps = { c->step_ps[SIDE_PREDICTED], c->step_ps[SIDE_MEASURED] } };
  bool ok = timing_plot(&t, c->predicted.rank, path, a, d);
  ARRAY_FREE(&measured.ops);
  return ok;
}
