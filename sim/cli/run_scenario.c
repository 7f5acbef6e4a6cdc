#include "sim/cli/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cuda/exec/trace.h"
#include "ref/exec/exec.h"
#include "sim/base/file.h"
#include "sim/base/units.h"
#include "sim/cli/ranks.h"
#include "sim/compile/compile.h"
#include "sim/predict/requested.h"
#include "sim/predict/throughput.h"
#include "sim/report/run.h"
#include "traces/packed.h"

enum { DATA_LIMIT_BYTES = 1 << 30 };

typedef struct run_state {
  const run_options *options;
  settings settings;
  compilation first, steady;
  train_input input;
  train_options training;
  train_result result;
  train_orders orders;
  file_writer dump;
  ref_options ref;
  cuda_run cuda;
  executor executor; /* on one of them */
  trace_recorder record;
  packed_file trace;
  step_outputs outputs; /* of the last step on GPUs */
} run_state;

static bool is_on_cuda(const run_options *o)
{
  return strcmp(o->executor, "cuda") == 0;
}

static void show_progress(void *context, uint32_t step, const train_step *s)
{
  const run_state *r = context;
  fprintf(stderr, "\rstep %" PRIu32 " of %" PRId64 "  loss %.6f ", step + 1, r->options->steps,
          (double)s->loss);
}

static void end_progress(const run_state *r)
{
  if (r->training.step_done != NULL) fputs("\r\033[K", stderr);
}

static bool open_data(run_state *r, arena *a, diag *d)
{
  const run_options *o = r->options;
  size_t length = 0;
  const char *text = NULL;
  if (o->data != NULL && (text = file_read(a, o->data, DATA_LIMIT_BYTES, &length, d)) == NULL)
    return false;
  r->training = (train_options){ .seed = (uint64_t)o->seed,
                                 .steps = (uint32_t)o->steps,
                                 .learning_rate = o->learning_rate,
                                 .order = { o->interleave >= 0, (uint64_t)o->interleave },
                                 .executor = &r->executor,
                                 .no_prints = o->timed,
                                 .context = r };
  if (isatty(STDERR_FILENO)) r->training.step_done = show_progress;
  return token_stream_open(&r->training.tokens, &r->settings, (const unsigned char *)text, length,
                           (uint64_t)o->seed, o->same_batch, d);
}

/* Opened before anything runs, so that a long run does not end because a file cannot be written. */
static bool open_dump(run_state *r, diag *d)
{
  return r->options->dump == NULL || file_open(&r->dump, r->options->dump, d);
}

static void discard_dump(run_state *r)
{
  if (r->options->dump != NULL) file_discard(&r->dump);
}

static bool write_dump(run_state *r, arena *a, diag *d)
{
  if (r->options->dump == NULL) return true;
  train_model before = train_initial_model(&r->input, (uint64_t)r->options->seed, a);
  run_report_dump(&before, &r->result.model, r->dump.stream);
  return file_close(&r->dump, d);
}

/* By rank: the largest peak of the plans that were run. */
static const int64_t *planned_peaks(const run_state *r, arena *a)
{
  uint32_t ranks = r->result.rank_count, stages = r->input.first->rank_count;
  int64_t *peaks = ARENA_ARRAY(a, int64_t, ranks);
  for (uint32_t i = 0; i < ranks; i++) {
    uint32_t stage = i / (ranks / stages);
    peaks[i] = requested_peak_bytes(&r->input.first->ranks[stage]);
    if (r->result.done > 1)
      peaks[i] = max_i64(peaks[i], requested_peak_bytes(&r->input.steady->ranks[stage]));
  }
  return peaks;
}

static gpu_report measured(const cuda_run *run, const settings *s, arena *a)
{
  gpu_memory *ranks = ARENA_ARRAY(a, gpu_memory, run->ranks);
  for (uint32_t i = 0; i < run->ranks; i++) {
    const cuda_memory *m = &run->memory[i];
    ranks[i] = (gpu_memory){ .requested = m->requested_peak_bytes,
                             .live = m->live_peak_bytes,
                             .reserved = m->reserved_peak_bytes,
                             .pinned = m->pinned_peak_bytes,
                             .driver_used = m->driver_used_bytes,
                             .outside = m->outside_bytes,
                             .broken_guards = m->broken_guards };
  }
  return (gpu_report){ run->options.gpus, run->steps_ps, run->steps, tokens_of_step(s), ranks };
}

static void report(const run_state *r, arena *a)
{
  gpu_report gpus;
  run_report what = { .result = &r->result,
                      .planned_peak_bytes = planned_peaks(r, a),
                      .orders = r->options->interleavings > 0 ? &r->orders : NULL,
                      .tensors = r->options->tensors };
  if (is_on_cuda(r->options)) {
    gpus = measured(&r->cuda, &r->settings, a);
    what.gpus = &gpus;
  }
  if (r->options->json)
    run_report_json(&what, stdout);
  else
    run_report_table(&what, stdout);
}

/* Exit status 1 if a check fails. */
static bool tell_finding(const run_state *r)
{
  if (r->result.finding != NULL) fprintf(stderr, "offsim: error: %s\n", r->result.finding);
  if (r->orders.finding != NULL)
    fprintf(stderr, "offsim: error: --interleave %" PRIu64 ": %s\n", r->orders.seed,
            r->orders.finding);
  return r->result.finding == NULL && r->orders.finding == NULL;
}

/* Contents are recorded op by op as they are written, times after each iteration. */
static bool open_record(run_state *r, diag *d)
{
  const run_options *o = r->options;
  trace_header h = { .source = o->executor,
                     .scenario = load_name(&o->load),
                     .ranks = (uint32_t)r->settings.parallel.world_size,
                     .steps = (uint32_t)o->steps };
  if (o->record == NULL) return true;
  if (is_on_cuda(o) && !o->contents)
    r->outputs.record = &r->record;
  else
    r->training.trace = &r->record;
  return recorder_open(&r->record, o->record, &h, d);
}

/* The record of a failed run has the contents up to the failure. */
static bool close_record(run_state *r, diag *d)
{
  exec_outcome outcome = r->result.outcome;
  bool kept = r->outputs.record != NULL ? outcome == EXEC_DONE : outcome != EXEC_REFUSED;
  if (r->options->record == NULL) return true;
  if (kept) return recorder_close(&r->record, d);
  recorder_discard(&r->record);
  return outcome != EXEC_REFUSED;
}

static bool open_trace(run_state *r, arena *a, diag *d)
{
  const run_options *o = r->options;
  uint32_t ranks = (uint32_t)r->settings.parallel.world_size;
  if (o->trace == NULL) return true;
  r->outputs.ranks = ranks_named(o->trace_ranks, ranks, a, d);
  if (r->outputs.ranks == NULL || !packed_open(&r->trace, o->trace, d)) return false;
  r->outputs.timeline = r->trace.stream;
  return true;
}

static bool close_trace(run_state *r, diag *d)
{
  if (r->outputs.timeline == NULL) return true;
  if (r->result.outcome == EXEC_DONE) return packed_close(&r->trace, d);
  packed_discard(&r->trace);
  return r->result.outcome != EXEC_REFUSED;
}

static bool open_outputs(run_state *r, arena *a, diag *d)
{
  if (!open_dump(r, d)) return false;
  if (!open_record(r, d)) {
    discard_dump(r);
    return false;
  }
  if (!open_trace(r, a, d)) {
    discard_dump(r);
    if (r->options->record != NULL) recorder_discard(&r->record);
    return false;
  }
  if (r->outputs.record != NULL || r->outputs.timeline != NULL) {
    r->cuda.step_done = put_last_step;
    r->cuda.context = &r->outputs;
  }
  return true;
}

static void choose_executor(run_state *r, arena *a)
{
  const run_options *o = r->options;
  if (!is_on_cuda(o)) {
    r->ref = (ref_options){ .disk_dir = o->disk_dir };
    r->executor = ref_executor(&r->ref);
    return;
  }
  bool exact = o->gpus == 0 || o->arithmetic == ARITHMETIC_EXACT;
  bool async = o->backing == BACKING_MALLOC_ASYNC;
  r->cuda = (cuda_run){
    .options = { .arithmetic = exact ? CUDA_EXACT : CUDA_FAST,
                 .backing = async ? CUDA_MALLOC_ASYNC : CUDA_CACHING,
                 .gpus = o->gpus < 0 ? CUDA_ALL_GPUS : (uint32_t)o->gpus,
                 .expandable_segments = r->settings.software.expandable_segments,
                 .guards = o->guards,
                 .nvtx = o->nvtx,
                 .times = (o->record != NULL || o->trace != NULL) && !o->contents,
                 .times_from = (uint32_t)o->steps - 1,
                 .every_op = o->contents },
    .steps = (uint32_t)o->steps,
    .ranks = (uint32_t)r->settings.parallel.world_size,
    .memory_of = a,
  };
  r->executor = cuda_executor(&r->cuda);
}

/* Standard output is the file's. */
static bool is_silent(const run_options *o)
{
  return file_is_stdout(o->trace) || file_is_stdout(o->record) || file_is_stdout(o->dump);
}

static bool execute(run_state *r, bool *right, arena *a, diag *d)
{
  r->input = (train_input){ &r->settings, &r->first.plan, &r->steady.plan };
  choose_executor(r, a);
  if (!train_knows(&r->input, &r->executor, d) || !open_data(r, a, d) || !open_outputs(r, a, d))
    return false;
  bool done = train_run(&r->input, &r->training, &r->result, a, d);
  end_progress(r);
  bool recorded = close_record(r, d), ok = close_trace(r, d) && recorded;
  ok = ok && r->result.outcome != EXEC_REFUSED;
  ok = ok && (!done || train_try_orders(&r->input, &r->training, &r->result,
                                        (uint64_t)r->options->interleavings, &r->orders, a, d));
  if (ok && done) {
    ok = write_dump(r, a, d);
  } else {
    discard_dump(r);
  }
  if (!ok) return false;
  if (!is_silent(r->options)) report(r, a);
  *right = tell_finding(r);
  return true;
}

bool run_scenario(const run_options *o, bool *right, arena *a, diag *d)
{
  run_state r = { .options = o };
  const machine *m;
  if (!load_settings(&o->load, &r.settings, &m, a, d)) return false;
  if (o->without_offload) r.settings = settings_without_offload(&r.settings);
  if (!compile(&r.first, &r.settings, ITERATION_WARMUP, a, d)) {
    compilation_release(&r.first);
    return false;
  }
  bool ok = compile(&r.steady, &r.settings, ITERATION_STEADY, a, d) && execute(&r, right, a, d);
  compilation_release(&r.first);
  compilation_release(&r.steady);
  return ok;
}
