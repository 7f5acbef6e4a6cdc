#include "sim/report/run.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sim/base/median.h"
#include "sim/base/units.h"
#include "sim/predict/throughput.h"
#include "sim/report/text.h"
#include "sim/text/json_text.h"

enum { HEX_DIGITS = 32, MEDIAN_STEPS = 1000 };
typedef struct print_text {
  char hex[HEX_DIGITS + 1];
} print_text;

static print_text text_of(exec_fingerprint f)
{
  print_text t;
  snprintf(t.hex, sizeof t.hex, "%016" PRIx64 "%016" PRIx64, f.high, f.low);
  return t;
}

static uint32_t bits_of(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* ---- for people ---- */

enum { STEP, LOSS, BITS, NORM, LOSSES, GRADIENTS, PARAMETERS, STEP_COLUMNS };

static void fill_step(const char **cells, uint32_t step, const train_step *s, arena *a)
{
  cells[STEP] = arena_printf(a, "%" PRIu32, step);
  cells[LOSS] = arena_printf(a, "%.8g", (double)s->loss);
  cells[BITS] = arena_printf(a, "0x%08" PRIx32, bits_of(s->loss));
  cells[NORM] = arena_printf(a, "%.8g", s->gradient_norm);
  cells[LOSSES] = arena_printf(a, "%s", text_of(s->losses).hex);
  cells[GRADIENTS] = arena_printf(a, "%s", text_of(s->gradients).hex);
  cells[PARAMETERS] = arena_printf(a, "%s", text_of(s->parameters).hex);
}

static void print_steps(const train_result *result, FILE *out)
{
  static const char *const heads[STEP_COLUMNS] = { "step",   "loss",      "bits",      "grad norm",
                                                   "losses", "gradients", "parameters" };
  arena scratch = { 0 };
  grid g = grid_new(&scratch, STEP_COLUMNS, result->done);
  memcpy(g.head[1], heads, sizeof heads);
  for (uint32_t i = 0; i < result->done; i++)
    fill_step(&g.cells[(size_t)i * STEP_COLUMNS], i + 1, &result->steps[i], &scratch);
  grid_print(&g, out);
  arena_release(&scratch);
}

static void print_peaks(const run_report *r, FILE *out)
{
  fprintf(out, "\n%4s  %20s  %20s\n", "rank", "device peak bytes", "of the plan");
  for (uint32_t i = 0; i < r->result->rank_count; i++)
    fprintf(out, "%4" PRIu32 "  %20" PRId64 "  %20" PRId64 "\n", i, r->result->peak_bytes[i],
            r->planned_peak_bytes[i]);
}

/* ---- GPUs ---- */

/* Of the steps after the first, which allocates everything. */
static int64_t median_step_ps(const gpu_report *c)
{
  int64_t sorted[MEDIAN_STEPS];
  uint32_t first = c->steps > 1, count = c->steps - first;
  assert(c->steps > 0);
  if (count > MEDIAN_STEPS) count = MEDIAN_STEPS;
  memcpy(sorted, c->steps_ps + c->steps - count, count * sizeof *sorted);
  return median_i64(sorted, count);
}

static int64_t speed_of(const gpu_report *c)
{
  return tokens_per_s(c->tokens, c->gpus, median_step_ps(c));
}

static void print_gpus(const gpu_report *c, uint32_t ranks, FILE *out)
{
  static const char *const heads[] = { "live", "reserved", "pinned", "outside", "GPU used" };
  fprintf(out, "\nrank");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    fprintf(out, "  %14s", heads[i]);
  fputs("  bytes, at their peaks\n", out);
  for (uint32_t r = 0; r < ranks; r++) {
    const gpu_memory *m = &c->ranks[r];
    fprintf(out,
            "%4" PRIu32 "  %14" PRId64 "  %14" PRId64 "  %14" PRId64 "  %14" PRId64 "  %14" PRId64
            "\n",
            r, m->live, m->reserved, m->pinned, m->outside, m->driver_used);
  }
  if (c->gpus > 0)
    fprintf(out,
            "\nstep  %.3f ms, median of %" PRIu32 " after the first: %" PRId64
            " tokens/s on each GPU\n",
            (double)median_step_ps(c) / (double)PS_PER_MS, c->steps > 1 ? c->steps - 1 : 1,
            speed_of(c));
}

static void print_left_out(const train_result *result, FILE *out)
{
  if (result->left_out > 0)
    fprintf(out, "\n%" PRId64 " tokens were dropped by full experts\n", result->left_out);
}

static void print_tensors(const train_model *m, FILE *out)
{
  fprintf(out, "\n%-32s  %-32s  tensor\n", "gradient", "parameter");
  for (uint32_t i = 0; i < m->count; i++)
    fprintf(out, "%s  %s  %s\n", text_of(tensor_fingerprint(&m->tensors[i], MODEL_GRADIENT)).hex,
            text_of(tensor_fingerprint(&m->tensors[i], MODEL_WEIGHT)).hex, m->tensors[i].name);
}

void run_report_table(const run_report *r, FILE *out)
{
  print_steps(r->result, out);
  print_peaks(r, out);
  if (r->gpus != NULL) print_gpus(r->gpus, r->result->rank_count, out);
  print_left_out(r->result, out);
  if (r->tensors) print_tensors(&r->result->model, out);
  if (r->orders != NULL && r->orders->finding == NULL)
    fprintf(out, "\n%" PRIu64 " interleavings agree with the program's order\n", r->orders->run);
}

/* ---- for programs ---- */

/* JSON has no word for what is no number. */
static void json_number(FILE *out, const char *key, double x)
{
  if (isfinite(x))
    fprintf(out, "\"%s\": %.17g", key, x);
  else
    fprintf(out, "\"%s\": null", key);
}

static void json_step(const train_step *s, FILE *out)
{
  fputs("\n    {", out);
  json_number(out, "loss", (double)s->loss);
  fprintf(out, ", \"loss_bits\": \"0x%08" PRIx32 "\", ", bits_of(s->loss));
  json_number(out, "grad_norm", s->gradient_norm);
  fprintf(out,
          ", \"loss_fingerprint\": \"%s\", \"grads_fingerprint\": \"%s\", "
          "\"params_fingerprint\": \"%s\"}",
          text_of(s->losses).hex, text_of(s->gradients).hex, text_of(s->parameters).hex);
}

static void json_tensors(const train_model *m, FILE *out)
{
  fputs(",\n  \"tensors\": [", out);
  for (uint32_t i = 0; i < m->count; i++)
    fprintf(out, "%s\n    {\"name\": \"%s\", \"gradient\": \"%s\", \"parameter\": \"%s\"}",
            i == 0 ? "" : ",", m->tensors[i].name,
            text_of(tensor_fingerprint(&m->tensors[i], MODEL_GRADIENT)).hex,
            text_of(tensor_fingerprint(&m->tensors[i], MODEL_WEIGHT)).hex);
  fputs("\n  ]", out);
}

static void json_peaks(const run_report *r, FILE *out)
{
  fputs("\n  ],\n  \"device_peak_bytes\": [", out);
  for (uint32_t i = 0; i < r->result->rank_count; i++)
    fprintf(out, "%s%" PRId64, i == 0 ? "" : ", ", r->result->peak_bytes[i]);
  fputs("],\n  \"plan_peak_bytes\": [", out);
  for (uint32_t i = 0; i < r->result->rank_count; i++)
    fprintf(out, "%s%" PRId64, i == 0 ? "" : ", ", r->planned_peak_bytes[i]);
  fprintf(out, "],\n  \"left_out_choices\": %" PRId64, r->result->left_out);
}

static void json_gpus(const gpu_report *c, uint32_t ranks, FILE *out)
{
  fprintf(out, ",\n  \"gpus\": {\"steps_ps\": [");
  for (uint32_t i = 0; i < c->steps; i++)
    fprintf(out, "%s%" PRId64, i > 0 ? ", " : "", c->steps_ps[i]);
  fprintf(out, "], \"median_step_ps\": %" PRId64 ", \"tokens_per_s_per_gpu\": ", median_step_ps(c));
  if (c->gpus > 0)
    fprintf(out, "%" PRId64, speed_of(c));
  else
    fputs("null", out);
  fputs(", \"ranks\": [", out);
  for (uint32_t r = 0; r < ranks; r++) {
    const gpu_memory *m = &c->ranks[r];
    fprintf(out,
            "%s\n    {\"requested_peak_bytes\": %" PRId64 ", \"live_peak_bytes\": %" PRId64
            ", \"reserved_peak_bytes\": %" PRId64 ", \"pinned_peak_bytes\": %" PRId64
            ", \"driver_used_bytes\": %" PRId64 ", \"outside_bytes\": %" PRId64
            ", \"broken_guards\": %" PRId64 "}",
            r > 0 ? "," : "", m->requested, m->live, m->reserved, m->pinned, m->driver_used,
            m->outside, m->broken_guards);
  }
  fputs("\n  ]}", out);
}

static void json_finding(FILE *out, const char *finding)
{
  if (finding == NULL) return;
  fputs(",\n  \"finding\": ", out);
  json_string(out, finding);
}

void run_report_json(const run_report *r, FILE *out)
{
  fputs("{\n  \"format_version\": 1,\n  \"steps\": [", out);
  for (uint32_t i = 0; i < r->result->done; i++) {
    if (i > 0) fputc(',', out);
    json_step(&r->result->steps[i], out);
  }
  json_peaks(r, out);
  if (r->gpus != NULL) json_gpus(r->gpus, r->result->rank_count, out);
  if (r->tensors) json_tensors(&r->result->model, out);
  if (r->orders != NULL)
    fprintf(out, ",\n  \"interleavings\": %" PRIu64 ",\n  \"agree\": %s", r->orders->run,
            r->orders->finding == NULL ? "true" : "false");
  if (r->orders != NULL && r->orders->finding != NULL)
    fprintf(out, ",\n  \"seed\": %" PRIu64, r->orders->seed);
  json_finding(out, r->result->finding != NULL ? r->result->finding
                    : r->orders != NULL        ? r->orders->finding
                                               : NULL);
  fputs("\n}\n", out);
}

/* ---- values ---- */

static void dump_values(const model_tensor *t, model_kind kind, FILE *out)
{
  for (int64_t i = 0; i < tensor_count(t); i++)
    fprintf(out, "%s\"%a\"", i == 0 ? "" : ", ", tensor_value(t, kind, i));
}

static void dump(const char *what, const train_model *m, model_kind kind, FILE *out)
{
  for (uint32_t i = 0; i < m->count; i++) {
    const model_tensor *t = &m->tensors[i];
    if (t->data[kind] == NULL) continue;
    fprintf(out,
            "{\"kind\": \"%s\", \"name\": \"%s\", \"shape\": [%" PRId64 ", %" PRId64
            "], \"values\": [",
            what, t->name, t->rows, t->columns);
    dump_values(t, kind, out);
    fputs("]}\n", out);
  }
}

void run_report_dump(const train_model *before, const train_model *last, FILE *out)
{
  dump("initial", before, MODEL_WEIGHT, out);
  dump("gradient", last, MODEL_GRADIENT, out);
  dump("parameter", last, MODEL_WEIGHT, out);
}
