#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/predict/idle_offload.h"
#include "sim/predict/range.h"
#include "sim/predict/uneven_load.h"
#include "sim/report/prediction_view.h"

static const char *fit_of_device(const view *v)
{
  const prediction *p = v->p;
  const char *capacity = figure_of_capacity(v->memory, p->capacity_bytes);
  uint32_t rank = prediction_fullest_rank(p);
  const char *text =
      arena_printf(v->memory, "fits: rank %u reserves most, %s%s", rank,
                   view_bytes(v, p->result.ranks[rank].reserved_peak_bytes), capacity);
  if (*capacity == '\0') return text;
  int64_t margin_bytes = prediction_margin_bytes(p);
  return arena_printf(v->memory, "%s; %s are left", text,
                      figure_with_unit(v->memory, margin_bytes, unit_of_bytes(margin_bytes)));
}

/* "; 2 of 4 ranks do not fit"; nothing of one alone. */
static const char *others_that_do_not_fit(const view *v)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < v->p->rank_count; i++)
    count += v->p->result.ranks[i].out_of_memory;
  return count == 1
             ? ""
             : arena_printf(v->memory, "; %u of %u ranks do not fit", count, v->p->rank_count);
}

static const char *no_fit(const view *v)
{
  return alarm_text(v->memory, "DOES NOT FIT", v->out);
}

static const char *misfit_of_device(const view *v)
{
  const prediction *p = v->p;
  shortage s = prediction_shortage(p);
  const char *allocates = arena_printf(v->memory, "rank %u allocates %s%s", s.rank,
                                       view_bytes(v, p->result.ranks[s.rank].allocated_peak_bytes),
                                       figure_of_capacity(v->memory, p->capacity_bytes));
  const char *missing = view_bytes(v, s.missing_bytes), *others = others_that_do_not_fit(v);
  if (s.cause == SHORT_BY_ALLOCATION)
    return arena_printf(v->memory, "%s: %s; at least %s are missing%s", no_fit(v), allocates,
                        missing, others);
  assert(s.cause == SHORT_BY_FRAGMENTATION);
  return arena_printf(
      v->memory, "%s by fragmentation: %s, but may reserve %s for that; up to %s are missing%s",
      no_fit(v), allocates, view_bytes(v, p->capacity_bytes + s.missing_bytes), missing, others);
}

static void print_device_fit(const view *v)
{
  const prediction *p = v->p;
  wrap_text(v->out, "device", 10, p->fits_device ? fit_of_device(v) : misfit_of_device(v), " ");
  uint32_t waits = 0;
  for (uint32_t i = 0; i < p->rank_count; i++)
    waits += p->result.ranks[i].back_pressure;
  if (waits > 0)
    wrap_line(v->out, 10,
              "          %s a step found no memory: the allocator waited for the GPU and gave back "
              "what it had cached",
              figure_count(v->memory, waits, "allocation", "allocations"));
}

/* "with 10 % more rows the peak of rank 0 grows most, by 394.0 MiB" */
static const char *growth_by_more_rows(const view *v)
{
  const int64_t *growth = v->p->uneven_growth_bytes;
  uint32_t most = 0;
  for (uint32_t i = 1; i < v->p->rank_count; i++)
    if (growth[i] > growth[most]) most = i;
  return arena_printf(v->memory, "; with %d %% more rows the peak of rank %u grows most, by %s",
                      UNEVEN_PERCENT, most,
                      figure_with_unit(v->memory, growth[most], unit_of_bytes(growth[most])));
}

static void print_experts(const view *v)
{
  const prediction *p = v->p;
  double imbalance = p->settings->model.moe_imbalance;
  const char *more = "";
  if (!load_is_uneven(p->settings)) return;
  if (p->uneven_growth_bytes != NULL)
    more = growth_by_more_rows(v);
  else if (p->range == NULL)
    more = arena_printf(v->memory, "; --range says how much memory %d %% more rows take",
                        UNEVEN_PERCENT);
  if (imbalance == 1)
    wrap_line(v->out, 10, "experts   an even load is assumed%s", more);
  else
    wrap_line(v->out, 10, "experts   %g times the mean load is assumed%s", imbalance, more);
}

static const char *not_pinned(const view *v, int64_t bytes, figure_unit unit)
{
  return bytes == 0 ? ""
                    : arena_printf(v->memory, " and use %s more",
                                   figure_with_unit(v->memory, bytes, unit));
}

static void print_host_fit(const view *v)
{
  int64_t total = v->p->host_total_bytes, memory = v->p->machine->host.memory_bytes;
  int64_t pinned = v->p->host_pinned_total_bytes;
  if (!v->offloads && total == 0) return;
  figure_unit unit = unit_of_bytes(total);
  const char *missing = "";
  if (!v->p->fits_host)
    missing = arena_printf(v->memory, "; %s are missing",
                           figure_with_unit(v->memory, total - memory, unit));
  wrap_line(v->out, 10, "host      %s: the GPUs of the fullest host pin %s%s%s%s",
            v->p->fits_host ? "fits" : no_fit(v), figure_with_unit(v->memory, pinned, unit),
            not_pinned(v, total - pinned, unit), figure_of_capacity(v->memory, memory), missing);
}

/* Of the rank whose host computes longest. */
static void print_host_optimizer(const view *v)
{
  uint32_t most = rank_with_most(v->p, OF(host_arithmetic_ps));
  const rank_prediction *r = &v->p->result.ranks[most];
  if (r->host_arithmetic_ps == 0) return;
  wrap_line(v->out, 10,
            "optimizer the host of rank %u computes %s a step; copies take %s out, %s back", most,
            figure_with_unit(v->memory, r->host_arithmetic_ps, v->time),
            figure_with_unit(v->memory, r->optimizer_d2h_ps, v->time),
            figure_with_unit(v->memory, r->optimizer_h2d_ps, v->time));
}

/* Those from `first` on that have its reason. */
static const char *idle_names(const idle_offload *idle, uint32_t first, uint32_t count, arena *a)
{
  const char *names = idle[first].name, *verb = "moves";
  for (uint32_t i = first + 1; i < count; i++) {
    if (strcmp(idle[i].reason, idle[first].reason) != 0) continue;
    names = arena_printf(a, "%s, %s", names, idle[i].name);
    verb = "move";
  }
  return arena_printf(a, "%s %s", names, verb);
}

static bool is_first_with_reason(const idle_offload *idle, uint32_t at)
{
  for (uint32_t i = 0; i < at; i++)
    if (strcmp(idle[i].reason, idle[at].reason) == 0) return false;
  return true;
}

/* What was asked for in vain. */
static void print_idle(const view *v)
{
  uint32_t count;
  const idle_offload *idle = idle_offloads(v->p, &count, v->memory);
  for (uint32_t i = 0; i < count; i++)
    if (is_first_with_reason(idle, i))
      wrap_text(v->out, i == 0 ? "offload" : "", 10,
                arena_printf(v->memory, "%s nothing: %s", idle_names(idle, i, count, v->memory),
                             idle[i].reason),
                " ");
}

static void print_disk(const view *v)
{
  uint32_t most = rank_with_most(v->p, OF(disk_write_bytes));
  const rank_prediction *r = &v->p->result.ranks[most];
  if (r->disk_write_bytes > 0)
    wrap_line(v->out, 10, "disk      rank %u writes %s GB and reads %s GB a step", most,
              figure(v->memory, r->disk_write_bytes, 1000000000, 2),
              figure(v->memory, r->disk_read_bytes, 1000000000, 2));
}

/* Less of a step is no finding. */
enum { NOTICED = 1000 };

/* Of the rank where that is most, if compute waits for copies there at all. */
static void print_slow_copies(const view *v)
{
  const rank_prediction *ranks = v->p->result.ranks;
  uint32_t most = rank_with_most(v->p, OF(waiting_slows_ps));
  if (ranks[most].waiting_slows_ps > v->p->result.step_ps / NOTICED &&
      ranks[most].exposed_d2h_ps + ranks[most].exposed_h2d_ps > 0)
    wrap_line(v->out, 10,
              "copies    of rank %u take %s longer, because exchanges on two streams wait "
              "(docs/08-real-gpu.md)",
              most, figure_with_unit(v->memory, ranks[most].waiting_slows_ps, v->time));
}

static const char *added_by_offload(const prediction *p, const bottleneck *b, arena *a)
{
  figure_unit unit = unit_of_time(p->result.step_ps);
  if (b->added_ps == 0) return "";
  const char *added = figure_with_unit(a, b->added_ps, unit);
  if (b->exposed_ps == 0)
    return arena_printf(a, "; offload adds %s without making compute wait for a copy", added);
  return arena_printf(a, "; offload adds %s: on rank %u compute waits %s for copies %s the host",
                      added, b->exposed_rank, figure_with_unit(a, b->exposed_ps, unit),
                      b->exposed_part == STEP_D2H ? "to" : "from");
}

const char *bottleneck_sentence(const prediction *p, arena *a)
{
  static const char *const spent_on[STEP_PARTS] = {
    [STEP_COMPUTE] = "compute",
    [STEP_D2H] = "waiting for copies to the host",
    [STEP_H2D] = "waiting for copies from the host",
    [STEP_BUBBLE] = "waiting for other pipeline stages",
    [STEP_HOST] = "waiting for the host thread, which issues work too slowly",
  };
  bottleneck b = prediction_bottleneck(p);
  bool steps = b.part == STEP_HOST && p->result.ranks[b.rank].host_arithmetic_ps > b.part_ps / 2;
  return arena_printf(a, "the busiest stage, rank %u, spends %s %% of the step on %s%s", b.rank,
                      figure_percent(a, b.part_ps, p->result.ranks[b.rank].step_ps, 1),
                      steps ? "waiting for the host, which steps the optimizer" : spent_on[b.part],
                      added_by_offload(p, &b, a));
}

static const char *errors_in(const view *v, uint64_t errors, const char *where)
{
  return errors == 0
             ? ""
             : arena_printf(v->memory, "%s in %s",
                            figure_count(v->memory, (uint32_t)errors, "error", "errors"), where);
}

/* Whether some timing of the streams breaks what is computed (docs/reference/verifier.md). */
static void print_safety(const view *v)
{
  const safety_summary *s = &v->p->safety;
  const char *text = "no race or deadlock in any timing of the streams";
  if (!summary_is_safe(s))
    text = arena_printf(v->memory, "%s: %s%s%s, first %s on rank %u; offsim check shows them",
                        alarm_text(v->memory, "NOT SAFE", v->out),
                        errors_in(v, s->errors[0], "the first step"),
                        s->errors[0] && s->errors[1] ? " and " : "",
                        errors_in(v, s->errors[1], "later steps"), s->first.kind, s->first.rank);
  wrap_text(v->out, "safety", 10, text, " ");
}

/* "-2.0 to +2.1 %" */
static const char *part_of_step(const view *v, const step_range *r, rate_class c)
{
  int64_t step_ps = v->p->result.step_ps;
  return arena_printf(v->memory, "-%s to +%s %%",
                      figure_percent(v->memory, r->parts[c].faster_ps, step_ps, 1),
                      figure_percent(v->memory, r->parts[c].slower_ps, step_ps, 1));
}

static void print_range(const view *v)
{
  const step_range *r = v->p->range;
  if (r == NULL) return;
  rate_class most = range_dominant(r);
  const char *text = arena_printf(
      v->memory, "%s to %s in %d of 100 runs; most of that is by %s: %s",
      figure_in(v->memory, r->least_ps, v->time), figure_with_unit(v->memory, r->most_ps, v->time),
      RANGE_NOMINAL_PERCENT, range_part_name(most), part_of_step(v, r, most));
  wrap_text(v->out, "range", 10, text, " ");
}

static void print_throughput(const view *v)
{
  throughput t = v->p->speed;
  fprintf(v->out, "speed     %" PRId64 " tokens/s on each GPU", t.tokens_per_s);
  if (t.mfu_millionths >= 0)
    fprintf(v->out, ", MFU %s %%", figure_mfu(v->memory, t.mfu_millionths));
  fputc('\n', v->out);
}

void verdict_table(const view *v)
{
  const prediction *p = v->p;
  int64_t with = p->result.step_ps, without = p->baseline.step_ps;
  const char *beside = "";
  if (v->offloads)
    beside = arena_printf(v->memory, ", without offload %s: overhead %s %%",
                          figure_with_unit(v->memory, without, v->time),
                          figure_percent(v->memory, with - without, without, 2));
  fputc('\n', v->out);
  wrap_line(v->out, 10, "step      %s%s", figure_with_unit(v->memory, with, v->time), beside);
  print_range(v);
  print_throughput(v);
  wrap_text(v->out, "limit", 10, bottleneck_sentence(p, v->memory), " ");
  print_slow_copies(v);
  print_host_optimizer(v);
  print_device_fit(v);
  print_experts(v);
  print_host_fit(v);
  print_disk(v);
  print_safety(v);
  print_idle(v);
}
