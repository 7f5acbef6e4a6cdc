#include "sim/cli/growth.h"

#include <math.h>

#include "sim/base/file.h"
#include "sim/base/units.h"
#include "sim/base/wrap.h"
#include "sim/cli/percent_gates.h"
#include "sim/text/yaml_text.h"

enum { EARLIER_LIMIT_BYTES = 64 << 20, PERCENT = 100 };

static growth_figures figures_of(const prediction *p)
{
  growth_figures g = { .step_ps = p->result.step_ps };
  for (uint32_t i = 0; i < p->rank_count; i++) {
    const rank_prediction *r = &p->result.ranks[i];
    g.allocated_bytes = max_i64(g.allocated_bytes, r->allocated_peak_bytes);
    g.reserved_bytes = max_i64(g.reserved_bytes, r->reserved_peak_bytes);
  }
  return g;
}

static const text_node *required(const text_node *map, const char *key, const char *path, diag *d)
{
  const text_node *n = text_get(map, key);
  if (n == NULL)
    diag_error(d, (source_pos){ path, 0, 0 },
               "this is no result of offsim predict --json: it has no %s", key);
  return n;
}

static bool read_peak(const text_node *rank, const char *key, int64_t *most, const char *path,
                      diag *d)
{
  int64_t bytes = 0;
  const text_node *n = required(rank, key, path, d);
  if (n == NULL || !text_as_i64(n, &bytes, d)) return false;
  *most = max_i64(*most, bytes);
  return true;
}

static bool read_step(const text_node *result, int64_t *step_ps, const char *path, diag *d)
{
  double step_s = 0;
  const text_node *n = required(result, "step_time_s", path, d);
  if (n == NULL || !text_as_double(n, &step_s, d)) return false;
  *step_ps = llround(step_s * (double)PS_PER_S);
  return true;
}

bool growth_read(growth_figures *of, const growth_options *o, arena *a, diag *d)
{
  size_t length;
  const char *path = o->against;
  const char *text = file_read(a, path, EARLIER_LIMIT_BYTES, &length, d);
  const text_node *top = text == NULL ? NULL : text_read(a, path, text, length, d);
  const text_node *result = top == NULL ? NULL : required(top, "result", path, d);
  const text_node *ranks = result == NULL ? NULL : required(result, "ranks", path, d);
  *of = (growth_figures){ 0 };
  if (ranks == NULL || !text_expect(ranks, TEXT_SEQUENCE, d)) return false;
  for (uint32_t i = 0; i < ranks->count; i++)
    if (!read_peak(&ranks->children[i], "allocated_peak_bytes", &of->allocated_bytes, path, d) ||
        !read_peak(&ranks->children[i], "reserved_peak_bytes", &of->reserved_bytes, path, d))
      return false;
  if (!read_step(result, &of->step_ps, path, d)) return false;
  return (of->allocated_bytes > 0 && of->reserved_bytes > 0 && of->step_ps > 0) ||
         diag_error(d, (source_pos){ path, 0, 0 }, "a peak of it, or its step, is 0");
}

static double growth_percent(int64_t before, int64_t now)
{
  return (double)(now - before) / (double)before * PERCENT;
}

static void put_gate(gate_list *gates, const char *name, const char *of, double grew, double limit,
                     arena *a)
{
  if (limit >= 0)
    gate_put(gates, name, grew <= limit,
             arena_printf(a, "%s grew by %.2f %%, at most %.2f %%", of, grew, limit));
}

bool growth_check_options(const growth_options *o, diag *d)
{
  bool gated = o->peak_percent >= 0 || o->step_percent >= 0;
  return o->against != NULL || !gated ||
         diag_error(
             d,
             (source_pos){ o->peak_percent >= 0 ? "--max-peak-growth" : "--max-step-growth", 0, 0 },
             "--against FILE names the earlier prediction");
}

bool growth_compare(const growth_options *o, const growth_figures *before, const prediction *p,
                    bool prints, arena *a)
{
  growth_figures now = figures_of(p);
  gate_list gates = { .count = 0 };
  double allocated = growth_percent(before->allocated_bytes, now.allocated_bytes);
  double reserved = growth_percent(before->reserved_bytes, now.reserved_bytes);
  double step = growth_percent(before->step_ps, now.step_ps);
  put_gate(&gates, "max-peak-growth", "the allocated peak", allocated, o->peak_percent, a);
  put_gate(&gates, "max-peak-growth", "the reserved peak", reserved, o->peak_percent, a);
  put_gate(&gates, "max-step-growth", "the step", step, o->step_percent, a);
  if (prints)
    wrap_line(stdout, 10,
              "against   %s: the allocated peak of the rank with most %+.2f %%, the reserved "
              "%+.2f %%, the step %+.2f %%",
              o->against, allocated, reserved, step);
  fflush(stdout);
  gates_broken(&gates, stderr);
  return gates_hold(&gates);
}
