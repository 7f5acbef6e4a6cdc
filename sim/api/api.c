#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/api/offsim.h"
#include "sim/base/array.h"
#include "sim/load/load.h"
#include "sim/offload/systems.h"
#include "sim/plan/text.h"
#include "sim/predict/safety.h"
#include "sim/report/findings.h"
#include "sim/report/prediction.h"
#include "sim/sweep/row.h"

typedef struct words {
  char **items; /* of the command line that says the same */
  uint32_t count, capacity;
} words;

struct offsim_run {
  arena given; /* of the words */
  words words;
  uint32_t threads;
  bool quiet;
  /* Of the last call. */
  offsim_status_code status;
  char *text, *errors;
};

static const char head[] = "liboffsim\n\n";

int offsim_api_version(void)
{
  return OFFSIM_API_VERSION;
}

offsim_run *offsim_run_new(void)
{
  offsim_run *run = calloc(1, sizeof *run);
  if (run == NULL) die_refused("no memory for a run");
  run->threads = 1;
  *ARRAY_PUSH(&run->words) = arena_strndup(&run->given, "liboffsim", sizeof "liboffsim" - 1);
  return run;
}

void offsim_run_delete(offsim_run *run)
{
  if (run == NULL) return;
  free(run->text);
  free(run->errors);
  ARRAY_FREE(&run->words);
  arena_release(&run->given);
  free(run);
}

void offsim_run_give(offsim_run *run, const char *option, const char *value)
{
  assert(option != NULL && value != NULL);
  bool scenario = strcmp(option, "scenario") == 0;
  *ARRAY_PUSH(&run->words) = scenario ? arena_strndup(&run->given, value, strlen(value))
                                      : arena_printf(&run->given, "--%s=%s", option, value);
}

void offsim_run_use_threads(offsim_run *run, uint32_t threads)
{
  assert(threads >= 1);
  run->threads = threads;
}

void offsim_run_be_quiet(offsim_run *run)
{
  run->quiet = true;
}

offsim_status_code offsim_status(const offsim_run *run)
{
  return run->status;
}

const char *offsim_errors(const offsim_run *run)
{
  return run->errors == NULL ? "" : run->errors;
}

/* ---- a call ---- */

/* A stream whose text becomes *text. */
static FILE *open_text(char **text, size_t *length)
{
  FILE *out = open_memstream(text, length);
  if (out == NULL) die_refused("no memory for a text");
  return out;
}

typedef struct call {
  offsim_run *run;
  arena a;
  diag d;
  const char *name; /* of what was given */
  settings settings;
  const machine *machine;
} call;

/* Reads what was given. False after a diag error. */
static bool begin(call *c, offsim_run *run)
{
  load_options o = { 0 };
  const verb_syntax v = { "predict", head, { { load_rows, &o }, { load_iteration_rows, &o } } };
  *c = (call){ .run = run, .d.quiet = run->quiet };
  free(run->text);
  run->text = NULL;
  /* parsing moves the words */
  char **moved = ARENA_ARRAY(&c->a, char *, run->words.count);
  memcpy(moved, run->words.items, run->words.count * sizeof *moved);
  if (load_command(&o, &v, (int)run->words.count, moved, &c->a, &c->d) != PARSED) return false;
  c->name = load_name(&o);
  return load_settings(&o, &c->settings, &c->machine, &c->a, &c->d);
}

/* Keeps how it ended. Returns the text, NULL after an error. */
static const char *end(call *c)
{
  size_t length;
  offsim_run *run = c->run;
  free(run->errors);
  FILE *out = open_text(&run->errors, &length);
  diag_print(&c->d, out);
  fclose(out);
  run->status = (offsim_status_code)c->d.exit_status;
  arena_release(&c->a);
  return run->text;
}

/* `also`: what the prediction keeps beside its safety. */
static bool predict_call(call *c, prediction *p, uint32_t also)
{
  *p = (prediction){ 0 };
  return predict(p, &c->settings, NULL, c->machine, PREDICT_SAFETY | also, c->run->threads, &c->a,
                 &c->d);
}

/* ---- calls ---- */

const char *offsim_predict(offsim_run *run)
{
  call c;
  prediction p;
  size_t length;
  if (!begin(&c, run)) return end(&c);
  if (predict_call(&c, &p, 0)) {
    FILE *out = open_text(&run->text, &length);
    prediction_json(&p, NULL, LONGEST_NOT_SOUGHT, out, &c.a);
    fclose(out);
  }
  prediction_release(&p);
  return end(&c);
}

const char *offsim_predict_html(offsim_run *run)
{
  call c;
  prediction p;
  size_t length;
  if (!begin(&c, run)) return end(&c);
  if (predict_call(&c, &p, PREDICT_CURVES)) {
    FILE *out = open_text(&run->text, &length);
    prediction_html(&p, c.name, NULL, LONGEST_NOT_SOUGHT, out, &c.a);
    fclose(out);
  }
  prediction_release(&p);
  return end(&c);
}

static const char *check(offsim_run *run, bool json)
{
  call c;
  safety found;
  size_t length;
  if (!begin(&c, run)) return end(&c);
  if (safety_find(&found, &c.settings, run->threads, &c.a, &c.d)) {
    FILE *out = open_text(&run->text, &length);
    if (json)
      findings_json(found.iterations, SAFETY_ITERATIONS, out);
    else
      findings_table(found.iterations, SAFETY_ITERATIONS, false, out, &c.a);
    fclose(out);
  }
  safety_release(&found);
  return end(&c);
}

const char *offsim_check(offsim_run *run)
{
  return check(run, true);
}

const char *offsim_check_text(offsim_run *run)
{
  return check(run, false);
}

const char *offsim_scenario(offsim_run *run)
{
  call c;
  size_t length;
  if (!begin(&c, run)) return end(&c);
  FILE *out = open_text(&run->text, &length);
  settings_print(&c.settings, out);
  fclose(out);
  return end(&c);
}

const char *offsim_plan(offsim_run *run, bool first_iteration)
{
  call c;
  compilation compiled;
  size_t length;
  if (!begin(&c, run)) return end(&c);
  iteration_kind kind = first_iteration ? ITERATION_WARMUP : ITERATION_STEADY;
  if (compile(&compiled, &c.settings, kind, &c.a, &c.d)) {
    FILE *out = open_text(&run->text, &length);
    plan_print(out, &compiled.plan, NULL);
    fclose(out);
  }
  compilation_release(&compiled);
  return end(&c);
}

static offsim_figures figures_of(const prediction *p)
{
  sweep_row row = { 0 };
  sweep_row_take(&row, p);
  return (offsim_figures){ .fits = row.verdict == SWEEP_FITS,
                           .step_ps = row.step_ps,
                           .step_without_offload_ps = row.step_without_offload_ps,
                           .static_bytes = row.static_bytes,
                           .allocated_peak_bytes = row.allocated_peak_bytes,
                           .reserved_peak_bytes = row.reserved_peak_bytes,
                           .saving_bytes = row.saving_bytes,
                           .missing_bytes = row.missing_bytes,
                           .host_pinned_bytes = row.host_pinned_total_bytes,
                           .d2h_bytes = row.d2h_bytes,
                           .h2d_bytes = row.h2d_bytes,
                           .tokens_per_s_per_gpu = row.speed.tokens_per_s,
                           .mfu_millionths = row.speed.mfu_millionths };
}

bool offsim_predict_figures(offsim_run *run, offsim_figures *figures, uint64_t size)
{
  call c;
  prediction p;
  offsim_figures all = { 0 };
  assert(size <= sizeof all && "the library is at least as new as the header");
  if (begin(&c, run)) {
    if (predict_call(&c, &p, 0)) all = figures_of(&p);
    prediction_release(&p);
  }
  memcpy(figures, &all, (size_t)size);
  end(&c);
  return run->status == OFFSIM_OK;
}
