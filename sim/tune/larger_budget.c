#include "sim/tune/larger_budget.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/base/units.h"
#include "sim/predict/common_plans.h"

/* ---- memory in thousandths of a GiB ---- */

enum { PARTS = 1000, MOST_GIB = 1 << 20 };

static int64_t bytes_of(int64_t parts)
{
  return muldiv_i64(parts, GIB, PARTS);
}

static int64_t parts_below(int64_t bytes)
{
  return muldiv_i64(bytes, PARTS, GIB);
}

/* The fewest that have at least these bytes. */
static int64_t parts_for(int64_t bytes)
{
  return muldiv_up_i64(bytes, PARTS, GIB);
}

/* In the same memory. */
static bool is_faster(const tuned_setting *a, const tuned_setting *b)
{
  const sweep_row *r = &a->row, *s = &b->row;
  return r->step_ps != s->step_ps ? r->step_ps < s->step_ps : r->tried.order < s->tried.order;
}

/* ---- of a GPU ---- */

typedef struct looking {
  const tune_request *of;
  larger_budget *to;
  int64_t below_ps;
  common_plans plans; /* of what is looked at */
  int64_t parts;      /* of what was found; more than any at first */
} looking;

/* It fits and is faster. */
static bool helps(looking *x, const settings *s, int64_t parts, sweep_row *row, diag *d)
{
  arena a = { 0 };
  prediction p;
  machine larger = *x->of->machine;
  larger.gpu.memory_bytes = bytes_of(parts) + larger.gpu.reserved_by_system_bytes;
  bool known = predict_common(&p, s, &larger, &x->plans, &a, d);
  if (known) sweep_row_take(row, &p);
  prediction_release(&p);
  arena_release(&a);
  return known && row->verdict == SWEEP_FITS && row->step_ps < x->below_ps;
}

/* Between memory in which it does not help and memory in which it does; `row` is of the latter. */
static int64_t least_parts(looking *x, const settings *s, int64_t too_few, int64_t enough,
                           sweep_row *row, diag *d)
{
  while (enough - too_few > 1) {
    int64_t parts = too_few + (enough - too_few) / 2;
    sweep_row tried = { .tried = row->tried };
    if (helps(x, s, parts, &tried, d)) {
      enough = parts;
      *row = tried;
    } else {
      too_few = parts;
    }
  }
  return enough;
}

static void look_at(looking *x, const misfit *m, const settings *s, arena *a, diag *d)
{
  tuned_setting found = { .row.tried = m->setting.row.tried, .is_own = m->setting.is_own };
  sweep_row *row = &found.row;
  int64_t driver = compile_driver_bytes(s);
  int64_t too_few =
      parts_below(max_i64(machine_usable_bytes(x->of->machine), m->requested_bytes + driver - 1));
  if (too_few >= x->parts || !common_plans_compile_both(&x->plans, s, 1, a, d) ||
      !helps(x, s, x->parts, row, d))
    return;
  found.unsafe = !common_plans_are_safe(&x->plans, s, a, d);
  if (found.unsafe && !x->of->allow_unsafe) return;
  int64_t enough = min_i64(x->parts, parts_for(row->reserved_peak_bytes + driver));
  enough = least_parts(x, s, too_few, enough, row, d);
  assert(row->step_ps >= m->step_bound_ps && row->allocated_peak_bytes >= m->requested_bytes);
  if (enough == x->parts && !is_faster(&found, &x->to->setting)) return;
  *x->to = (larger_budget){ .setting = found, .bytes = bytes_of(enough) };
  x->parts = enough;
}

static void look_at_misfit(looking *x, const misfit *m, arena *a, diag *d)
{
  diag quiet = { .quiet = true };
  settings s;
  if (candidate_settings(&s, x->of->given, &m->setting.row.tried, "tune", a, &quiet))
    look_at(x, m, &s, a, &quiet);
  if (diag_is_refusal(&quiet)) *d = quiet;
}

/* Misfits that have their plans in common, [begin, end). Whether less memory was found. */
static bool look_at_group(looking *x, const misfit *of, uint32_t begin, uint32_t end, diag *d)
{
  arena a = { 0 };
  int64_t before = x->parts;
  for (uint32_t i = begin; i < end && diag_ok(d); i++)
    look_at_misfit(x, &of[i], &a, d);
  common_plans_release(&x->plans);
  arena_release(&a);
  return x->parts < before;
}

/* Halves the groups, which request more from one to the next: it goes on below one that helps, and above one
 * that does not. */
static void narrow(looking *x, const misfit *of, const uint32_t *begins, uint32_t begin,
                   uint32_t end, diag *d)
{
  while (begin < end && diag_ok(d)) {
    uint32_t mid = begin + (end - begin) / 2;
    if (of[begins[mid]].requested_bytes >= bytes_of(x->parts) ||
        look_at_group(x, of, begins[mid], begins[mid + 1], d))
      end = mid;
    else
      begin = mid + 1;
  }
}

/* Misfits without offload come first. Of each kind those that request least come first, groups together. */
static int by_bytes(const void *left, const void *right)
{
  const misfit *a = left, *b = right;
  if (a->offloads != b->offloads) return a->offloads ? 1 : -1;
  if (a->requested_bytes != b->requested_bytes)
    return a->requested_bytes < b->requested_bytes ? -1 : 1;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return a->setting.row.tried.order < b->setting.row.tried.order ? -1 : 1;
}

static uint32_t keep_promising(misfit *of, uint32_t count, int64_t below_ps)
{
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; i++)
    if (of[i].host_missing_bytes == 0 && of[i].step_bound_ps < below_ps) of[kept++] = of[i];
  return kept;
}

static bool find_gpu_budget(larger_budget *to, const tune_request *r, misfit *of, uint32_t count,
                            int64_t below_ps, diag *d)
{
  looking x = { .of = r, .to = to, .below_ps = below_ps, .parts = (int64_t)MOST_GIB * PARTS };
  arena a = { 0 };
  uint32_t *begins = ARENA_ARRAY(&a, uint32_t, count + 1), groups = 0, keep = 0;
  count = keep_promising(of, count, below_ps);
  qsort(of, count, sizeof *of, by_bytes);
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0 && of[i].first == of[i - 1].first) continue;
    begins[groups++] = i;
    if (!of[i].offloads) keep = groups;
  }
  begins[groups] = count;
  if (keep > 0 && look_at_group(&x, of, begins[keep - 1], begins[keep], d)) {
    narrow(&x, of, begins, 0, keep - 1, d);
    narrow(&x, of, begins, keep, groups, d);
  }
  arena_release(&a);
  return diag_ok(d);
}

/* ---- of a host ---- */

static void find_host_budget(larger_budget *to, const tune_request *r, const misfit *of,
                             uint32_t count, int64_t below_ps)
{
  for (uint32_t i = 0; i < count; i++) {
    const tuned_setting *s = &of[i].setting;
    if (of[i].host_missing_bytes == 0 || s->row.step_ps >= below_ps) continue;
    int64_t bytes = bytes_of(parts_for(r->machine->host.memory_bytes + of[i].host_missing_bytes));
    bool is_first = to->setting.row.step_ps == 0;
    if (is_first || bytes < to->bytes || (bytes == to->bytes && is_faster(s, &to->setting)))
      *to = (larger_budget){ .setting = *s, .bytes = bytes };
  }
}

bool find_larger_budgets(tuned *to, const tune_request *r, misfit *of, uint32_t count, diag *d)
{
  int64_t below_ps = to->count == 0 ? INT64_MAX : worth_ps(to->items[0].row.step_ps);
  find_host_budget(&to->larger_host, r, of, count, below_ps);
  return find_gpu_budget(&to->larger_gpu, r, of, count, below_ps, d);
}
