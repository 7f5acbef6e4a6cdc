#include "sim/report/table.h"

#include "sim/base/units.h"

void prediction_table(const prediction *p, const measured_bytes *measured, FILE *out, arena *a)
{
  (void)measured;
  for (uint32_t i = 0; i < p->rank_count; i++) {
    const rank_prediction *r = &p->result.ranks[i];
    fprintf(out, "%3u  %9.3f  %9.3f %9.3f\n", i, (double)r->static_bytes / (double)GIB,
            (double)r->allocated_peak_bytes / (double)GIB, (double)r->step_ps / (double)PS_PER_MS);
  }
  fprintf(out, "%s\n", prediction_bottleneck(p, a));
}
