#include "sim/sweep/sweep.h"

#include <pthread.h>

#include "sim/base/parallel.h"
#include "sim/base/units.h"

/* ---- one setting ---- */

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
  row->host_pinned_total_bytes = p->host_pinned_total_bytes;
  for (uint32_t i = 0; i < p->rank_count; i++) {
    add_rank(row, &p->result.ranks[i]);
    if (p->baseline.ranks == NULL || p->baseline.ranks[i].allocated_peak_bytes <= without_bytes)
      continue;
    without_bytes = p->baseline.ranks[i].allocated_peak_bytes;
    row->saving_bytes = p->result.ranks[i].simulated_saving_bytes;
  }
}

static void predict_row(const sweep *w, uint32_t index, sweep_row *row, arena *a, diag *d)
{
  diag quiet = { .quiet = true };
  settings s;
  *row = (sweep_row){ .tried = space_at(w->space, index), .verdict = SWEEP_REFUSED };
  if (candidate_settings(&s, w->given, &row->tried, "--over", a, &quiet)) {
    prediction p;
    if (predict(&p, &s, NULL, w->machine, false, 1, a, &quiet)) sweep_row_take(row, &p);
    prediction_release(&p);
  }
  if (!diag_ok(&quiet)) row->reason = candidate_refusal(&quiet, a);
  if (diag_is_refusal(&quiet)) *d = quiet;
}

/* ---- all ---- */

typedef struct sweeping {
  const sweep *of;
  sweep_take *take;
  void *to;
  pthread_mutex_t lock; /* of the diag, and of `take` */
  diag *diag;
} sweeping;

static bool is_over(sweeping *x)
{
  pthread_mutex_lock(&x->lock);
  bool over = !diag_ok(x->diag);
  pthread_mutex_unlock(&x->lock);
  return over;
}

static void hand_over(sweeping *x, const sweep_row *row, const diag *refused)
{
  pthread_mutex_lock(&x->lock);
  if (diag_ok(x->diag)) {
    if (!diag_ok(refused))
      *x->diag = *refused;
    else
      x->take(x->to, row, x->diag);
  }
  pthread_mutex_unlock(&x->lock);
}

static void sweep_one(void *of, uint32_t index)
{
  sweeping *x = of;
  if ((x->of->done != NULL && x->of->done[index]) || is_over(x)) return;
  arena a = { 0 };
  diag refused = { 0 };
  sweep_row row;
  predict_row(x->of, index, &row, &a, &refused);
  hand_over(x, &row, &refused);
  arena_release(&a);
}

bool sweep_run(const sweep *w, sweep_take *take, void *to, diag *d)
{
  sweeping x = { .of = w, .take = take, .to = to, .diag = d };
  pthread_mutex_init(&x.lock, NULL);
  parallel_for(space_count(w->space), w->threads, sweep_one, &x);
  pthread_mutex_destroy(&x.lock);
  return diag_ok(d);
}
