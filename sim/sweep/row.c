#include "sim/sweep/row.h"

#include "sim/base/units.h"

static void add_rank(sweep_row *row, const rank_prediction *r)
{
  row->static_bytes = max_i64(row->static_bytes, r->static_bytes);
  row->allocated_peak_bytes = max_i64(row->allocated_peak_bytes, r->allocated_peak_bytes);
  row->reserved_peak_bytes = max_i64(row->reserved_peak_bytes, r->reserved_peak_bytes);
  row->exposed_d2h_ps = max_i64(row->exposed_d2h_ps, r->exposed_d2h_ps);
  row->exposed_h2d_ps = max_i64(row->exposed_h2d_ps, r->exposed_h2d_ps);
  row->d2h_bytes += r->d2h_bytes;
  row->h2d_bytes += r->h2d_bytes;
}

void sweep_row_take(sweep_row *row, const prediction *p)
{
  int64_t without_bytes = 0;
  shortage missing = prediction_shortage(p);
  row->verdict = missing.cause == SHORT_OF_NOTHING ? SWEEP_FITS : SWEEP_DOES_NOT_FIT;
  row->missing_bytes = missing.missing_bytes;
  row->step_ps = p->result.step_ps;
  row->step_without_offload_ps = p->baseline.step_ps;
  row->speed = p->speed;
  row->host_pinned_total_bytes = p->host_pinned_total_bytes;
  for (uint32_t i = 0; i < p->rank_count; i++) {
    add_rank(row, &p->result.ranks[i]);
    if (p->baseline.ranks == NULL || p->baseline.ranks[i].allocated_peak_bytes <= without_bytes)
      continue;
    without_bytes = p->baseline.ranks[i].allocated_peak_bytes;
    row->saving_bytes = p->result.ranks[i].simulated_saving_bytes;
  }
}
