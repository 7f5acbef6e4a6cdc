#include "sim/predict/comparison.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"

typedef struct comparing {
  comparison *to;
  const settings *given, *resolved;
  const machine *machine;
  arena *memory;
  uint32_t threads;
} comparing;

/* ---- figures of one candidate ---- */

static void add_rank(comparison_row *row, const rank_prediction *r)
{
  assert(r->allocated_peak_bytes >= 0 && r->d2h_bytes >= 0 && r->h2d_bytes >= 0);
  row->peak_bytes = max_i64(row->peak_bytes, r->allocated_peak_bytes);
  row->theoretical_saving_bytes += r->theoretical_saving_bytes;
  row->simulated_saving_bytes += r->simulated_saving_bytes;
  row->exposed_d2h_ps = max_i64(row->exposed_d2h_ps, r->exposed_d2h_ps);
  row->exposed_h2d_ps = max_i64(row->exposed_h2d_ps, r->exposed_h2d_ps);
  row->d2h_bytes += r->d2h_bytes;
  row->h2d_bytes += r->h2d_bytes;
}

static comparison_row row_of(const candidate *c, const prediction *p)
{
  comparison_row row = { .tried = *c,
                         .step_ps = p->result.step_ps,
                         .speed = p->speed,
                         .host_pinned_total_bytes = p->host_pinned_total_bytes,
                         .host_total_bytes = p->host_total_bytes,
                         .fits_device = p->fits_device,
                         .fits_host = p->fits_host,
                         .safe = summary_is_safe(&p->safety) };
  for (uint32_t i = 0; i < p->rank_count; i++)
    add_rank(&row, &p->result.ranks[i]);
  return row;
}

static bool moves_nothing(const comparison_row *row)
{
  return row->tried.system != SYSTEM_none && row->d2h_bytes == 0 && row->h2d_bytes == 0;
}

/* ---- refused ---- */

static bool has_row(const comparison *c, system_choice system)
{
  for (uint32_t i = 0; i < c->row_count; i++)
    if (c->rows[i].tried.system == system) return true;
  return false;
}

/* Systems with the same reason are listed together. */
static void add_refused(comparison *c, const char *system, const char *reason, arena *a)
{
  for (uint32_t i = 0; i < c->refused_count; i++)
    if (strcmp(c->refused[i].reason, reason) == 0) {
      c->refused[i].systems = arena_printf(a, "%s, %s", c->refused[i].systems, system);
      return;
    }
  c->refused[c->refused_count++] = (refused_systems){ system, reason };
}

/* A system is refused if all its candidates are; the last one's reason is given. */
static void list_refused(comparing *x, const candidate *candidates, const char *const *reasons,
                         uint32_t count)
{
  for (uint32_t i = 0; i < count; i++) {
    bool last = i + 1 == count || candidates[i].system != candidates[i + 1].system;
    if (last && !has_row(x->to, candidates[i].system))
      add_refused(x->to, offload_systems[candidates[i].system].name, reasons[i], x->memory);
  }
}

/* ---- one candidate ---- */

/* Adds its row, or returns why it has none. */
static const char *try_candidate(comparing *x, const candidate *c, diag *d)
{
  const char *reason = candidate_is_for_others(x->resolved, c, x->memory);
  if (reason != NULL) return reason;
  arena scratch = { 0 };
  diag quiet = { .quiet = true };
  settings s;
  if (candidate_settings(&s, x->given, c, "--compare-systems", &scratch, &quiet)) {
    prediction p = { 0 };
    if (s.offload.system != c->system)
      reason = "as released it runs as another system, which has its own row; offload.mode fixed "
               "has it as it is meant to be";
    else if (predict(&p, &s, NULL, x->machine, PREDICT_SAFETY, x->threads, &scratch, &quiet)) {
      comparison_row row = row_of(c, &p);
      x->to->capacity_bytes = p.capacity_bytes;
      if (moves_nothing(&row))
        reason = "moves nothing here";
      else
        x->to->rows[x->to->row_count++] = row;
    }
    prediction_release(&p);
  }
  if (!diag_ok(&quiet)) reason = candidate_refusal(&quiet, x->memory);
  if (diag_is_refusal(&quiet)) *d = quiet;
  arena_release(&scratch);
  return reason;
}

/* ---- the whole ---- */

/* Those that fit first, the fastest first; the order of the candidates decides between equals. */
static int by_use(const void *left, const void *right)
{
  const comparison_row *a = left, *b = right;
  bool a_fits = a->fits_device && a->fits_host, b_fits = b->fits_device && b->fits_host;
  if (a_fits != b_fits) return a_fits ? -1 : 1;
  if (a->step_ps != b->step_ps) return a->step_ps < b->step_ps ? -1 : 1;
  if (a->peak_bytes != b->peak_bytes) return a->peak_bytes < b->peak_bytes ? -1 : 1;
  assert(a == b || a->tried.order != b->tried.order);
  return a->tried.order < b->tried.order ? -1 : 1;
}

/* Rows that fit are in the order of their times: one is on the front if it is smaller than all
 * before it. */
static void find_front(comparison *c)
{
  int64_t least_bytes = INT64_MAX;
  for (uint32_t i = 0; i < c->row_count; i++) {
    comparison_row *row = &c->rows[i];
    row->on_front = row->fits_device && row->fits_host && row->peak_bytes < least_bytes;
    if (row->on_front) least_bytes = row->peak_bytes;
  }
}

static void finish(comparison *c)
{
  assert(c->row_count > 0);
  c->reference = c->rows[0];
  for (uint32_t i = 0; i < c->row_count; i++)
    c->rows[i].saving_bytes = c->reference.peak_bytes - c->rows[i].peak_bytes;
  qsort(c->rows, c->row_count, sizeof *c->rows, by_use);
  find_front(c);
}

bool compare_systems(comparison *c, const settings *given, const settings *resolved,
                     const machine *m, uint32_t threads, candidate_progress *progress, arena *a,
                     diag *d)
{
  uint32_t count;
  const candidate *candidates = candidates_of_systems(given, resolved, &count, a);
  const char **reasons = ARENA_ARRAY(a, const char *, count);
  comparing x = { c, given, resolved, m, a, threads };
  *c = (comparison){ .machine = m };
  c->rows = ARENA_ARRAY(a, comparison_row, count);
  c->refused = ARENA_ARRAY(a, refused_systems, count);
  for (uint32_t i = 0; i < count && diag_ok(d); i++) {
    if (progress != NULL) progress(i, count, candidates[i].name);
    reasons[i] = try_candidate(&x, &candidates[i], d);
  }
  if (!diag_ok(d)) return false;
  if (!has_row(c, candidates[0].system))
    return diag_error(
        d, (source_pos){ "--compare-systems", 0, 0 },
        "the run without offload, which all others are compared with, cannot be predicted: %s",
        reasons[0]);
  finish(c);
  list_refused(&x, candidates, reasons, count);
  return true;
}
