#include "sim/cli/calibrate_trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "sim/base/file.h"
#include "sim/base/units.h"
#include "sim/cli/compare_real.h"
#include "sim/fit/fit.h"

/* ---- what was found ---- */

static double ms(int64_t ps)
{
  return (double)ps / (double)PS_PER_MS;
}

static void print_rows(const fit_result *r)
{
  printf("%14s%18s%20s%12s%12s%10s\n", "", "ops matched", "kernels matched", "base,", "measured,",
         "error,");
  printf("%14s%18s%20s%12s%12s%10s\n", "", "", "", "ms", "ms", "%");
  for (int c = 0; c < FIT_CLASSES; c++) {
    const fit_row *row = &r->rows[c];
    char ops[48], kernels[48], error[16] = "-";
    if (row->ops == 0 && row->kernels == 0) continue;
    snprintf(ops, sizeof ops, "%" PRIu32 " of %" PRIu32, row->matched_ops, row->ops);
    snprintf(kernels, sizeof kernels, "%" PRIu32 " of %" PRIu32, row->matched_kernels,
             row->kernels);
    if (row->measured_ps > 0)
      snprintf(error, sizeof error, "%.2f",
               100 * (ms(row->predicted_ps) / ms(row->measured_ps) - 1));
    printf("%14s%18s%20s%12.2f%12.2f%10s\n", fit_class_name((fit_class)c), ops, kernels,
           ms(row->predicted_ps), ms(row->measured_ps), error);
  }
}

static void print_host(const fit_result *r, bool knows_step)
{
  if (r->host_rows == 0) {
    puts("host         the trace has no calls; its times are the base's");
    return;
  }
  printf("host         %" PRIu32
         " stretches between launches; the GPU idles %.1f %% of the step and only "
         "copies %.1f %%\n",
         r->host_rows, (double)r->idle_permille / 10, (double)r->copies_permille / 10);
  if (knows_step)
    printf("profiler     %" PRId64 " ns an event of the host are taken out\n", r->event_ns);
  else
    puts("profiler     nothing is taken out: --step-time gives a step without it");
}

static void print_step(const fit_result *r, int64_t step_ps)
{
  if (r->clock_permille != 1000)
    printf("clock        products and attention take %+.1f %% beside the trace, as the step does\n",
           (double)(r->clock_permille - 1000) / 10);
  printf("step         predicted on the base %.2f ms, on the machine found %.2f ms",
         ms(r->base_step_ps), ms(r->step_ps));
  if (step_ps > 0)
    printf(", logged %.2f ms: %+.2f %%", ms(step_ps), 100 * (ms(r->step_ps) / ms(step_ps) - 1));
  putchar('\n');
}

static void print_keys(const calibration *c)
{
  const char *section = "";
  printf("keys        ");
  for (uint32_t i = 0; i < c->count; i++) {
    const calibrated_value *v = &c->values[i];
    printf(" %s%s%s", v->section == section ? "" : v->section, v->section == section ? "" : ".",
           v->key);
    section = v->section;
  }
  puts(c->count == 0 ? " none" : "");
}

static void print_found(const trace_options *o, const fit_result *r, const machine *base,
                        int64_t step_ps)
{
  print_rows(r);
  putchar('\n');
  print_host(r, step_ps > 0);
  print_step(r, step_ps);
  print_keys(&r->keys);
  printf("%s: %" PRIu32 " keys and %" PRIu32 " calls from the trace; the others are those of %s\n",
         o->output, r->keys.count, r->found_calls, base->name);
}

/* ---- all ---- */

/* The machine of the trace's GPU, unless the command line names one. */
static bool choose_base(const trace_options *o, load_options *load, const real_run *r, arena *a,
                        diag *d)
{
  if (load->machine != NULL) return true;
  if (r->gpu_name[0] == '\0')
    return diag_error(d, (source_pos){ o->from, 0, 0 },
                      "does not name its GPU; --base names the machine that it ran on");
  const machine *base = calibration_base_of(r->gpu_name, a, d);
  if (base != NULL) load->machine = base->name;
  return base != NULL;
}

static bool fit_run(const trace_options *o, const load_options *load, const real_run *r, arena *a,
                    diag *d)
{
  settings s;
  fit_result found = { .host_rows = 0 };
  load_options own = *load;
  fit_input input = { .settings = &s, .run = r };
  if (!choose_base(o, &own, r, a, d) || !load_settings(&own, &s, &input.base, a, d)) return false;
  int64_t ranks = s.parallel.pipeline_model_parallel_size;
  if (!real_rank(o->rank, ranks, r, &input.rank, d)) return false;
  input.step_ps = o->step_time > 0 ? llround(o->step_time * 1e12) : 0;
  snprintf(found.keys.gpu_name, sizeof found.keys.gpu_name, "%s", r->gpu_name);
  bool ok = fit_machine(&found, &input, a, d);
  if (ok && !found.passes_agree)
    diag_note(d, (source_pos){ o->from, 0, 0 },
              "its forward and backward passes are not those of the configuration; ops are matched "
              "over the whole step");
  ok = ok && calibration_write(o->output, o->name, &found.keys, &found.calls, input.base, d);
  if (ok && !file_is_stdout(o->output)) print_found(o, &found, input.base, input.step_ps);
  ARRAY_FREE(&found.calls);
  return ok;
}

bool calibrate_from_trace(const trace_options *o, const load_options *load, arena *a, diag *d)
{
  real_run r;
  real_run_init(&r, a);
  bool ok = real_run_read(&r, o->from, 0, d);
  if (ok && !r.has_times)
    ok = diag_error(d, (source_pos){ o->from, 0, 0 }, "is a %s; a profiler's trace has the times",
                    r.has_profile ? "record of what was issued" : "memory snapshot");
  ok = ok && real_run_finish(&r, d) && fit_run(o, load, &r, a, d);
  real_run_release(&r);
  return ok;
}
