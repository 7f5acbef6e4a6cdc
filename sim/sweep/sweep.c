#include "sim/sweep/sweep.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "sim/predict/baselines.h"
#include "sim/predict/recent_plans.h"
#include "sim/world/deal.h"

/* ---- a row as bytes, between processes ---- */

/* The row without pointers, then the reason's text, if there is one. */
static const void *pack(const sweep_row *row, size_t *bytes, arena *a)
{
  size_t text = row->reason == NULL ? 0 : strlen(row->reason) + 1;
  char *packed = ARENA_ARRAY(a, char, sizeof *row + text);
  sweep_row plain = *row;
  plain.tried = (candidate){ 0 };
  plain.reason = NULL;
  memcpy(packed, &plain, sizeof plain);
  if (text > 0) memcpy(packed + sizeof plain, row->reason, text);
  *bytes = sizeof plain + text;
  return packed;
}

static sweep_row unpack(const space *of, uint32_t index, const char *packed, size_t bytes)
{
  sweep_row row;
  assert(bytes >= sizeof row);
  memcpy(&row, packed, sizeof row);
  row.tried = space_at(of, index);
  if (bytes > sizeof row) row.reason = packed + sizeof row;
  return row;
}

/* ---- all ---- */

typedef struct sweeping {
  const sweep *of;
  const sweep_taker *to;
  baselines *known;
  recent_plans *recent;
  pthread_mutex_t lock; /* of the diag */
  diag *diag;
} sweeping;

/* Returns false. Several threads may fail; one of their reasons stays. */
static bool fail(sweeping *x, const diag *why)
{
  pthread_mutex_lock(&x->lock);
  *x->diag = *why;
  pthread_mutex_unlock(&x->lock);
  return false;
}

/* NULL after a resource was refused. What the rules refuse is an answer. */
static const void *predict_row(void *of, uint32_t index, size_t *bytes, arena *a)
{
  sweeping *x = of;
  const sweep *w = x->of;
  diag quiet = { .quiet = true };
  recent_run *own = recent_run_new(), *found = NULL;
  settings *s = &own->settings;
  sweep_row row = { .tried = space_at(w->space, index), .verdict = SWEEP_REFUSED };
  if (candidate_settings(s, w->given, &row.tried, "--over", &own->memory, &quiet)) {
    prediction p;
    found = recent_plans_find(x->recent, own);
    common_plans *common = found == NULL ? NULL : &found->plans;
    if (predict_beside(&p, s, w->machine, x->known, common, a, &quiet)) sweep_row_take(&row, &p);
    prediction_release(&p);
  }
  if (!diag_ok(&quiet)) row.reason = candidate_refusal(&quiet, a);
  recent_plans_keep(x->recent, own, found, diag_ok(&quiet));
  if (!diag_is_refusal(&quiet)) return pack(&row, bytes, a);
  fail(x, &quiet);
  return NULL;
}

static bool take_row(void *of, uint32_t index, const void *packed, size_t bytes)
{
  sweeping *x = of;
  const sweep_row row = unpack(x->of->space, index, packed, bytes);
  diag own = { 0 };
  return x->to->take(x->to->to, &row, &own) || fail(x, &own);
}

static bool settle(void *of)
{
  sweeping *x = of;
  diag own = { 0 };
  return x->to->settle(x->to->to, &own) || fail(x, &own);
}

bool sweep_run(const sweep *w, const sweep_taker *to, diag *d)
{
  arena a = { 0 };
  sweeping x = { .of = w,
                 .to = to,
                 .known = baselines_new(&a),
                 .recent = recent_plans_new(w->threads, &a),
                 .diag = d };
  const deal of = { .count = space_count(w->space),
                    .done = w->done,
                    .threads = w->threads,
                    .context = &x,
                    .work = predict_row,
                    .take = take_row,
                    .settle = settle };
  pthread_mutex_init(&x.lock, NULL);
  deal_run(&of);
  pthread_mutex_destroy(&x.lock);
  recent_plans_release(x.recent);
  baselines_release(x.known);
  arena_release(&a);
  return diag_ok(d);
}
