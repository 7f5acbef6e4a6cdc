/*
 * liboffsim: predictions from C. The same answers as the command line's, as text with documented keys
 * (docs/reference/json.md) or as a struct of figures.
 *
 *     offsim_run *run = offsim_run_new();
 *     offsim_run_give(run, "scenario", "run.yaml");        // any option that describes a run
 *     offsim_run_give(run, "set", "num_layers=8");
 *     const char *json = offsim_predict(run);
 *     if (json == NULL) fputs(offsim_errors(run), stderr);
 *     offsim_run_delete(run);
 *
 * Ownership: a returned text belongs to the run. It lasts until the next call with that run.
 *
 * Errors: a call that fails returns NULL or false; offsim_status then says whether the input is wrong or
 * the system refused a resource, offsim_errors what was found and what would be right. If the system
 * refuses memory, the process exits with status 3, as everywhere in offsim. Notes, which say what a
 * prediction assumes, go to standard error unless the run is quiet.
 *
 * Threads: runs are independent of each other; one thread at a time uses a run.
 */
#ifndef OFFSIM_SIM_API_OFFSIM_H
#define OFFSIM_SIM_API_OFFSIM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a declaration below changes its meaning or goes. New functions, and members at the end
 * of offsim_figures, do not change it. */
#define OFFSIM_API_VERSION 1
int offsim_api_version(void);

typedef enum offsim_status_code {
  OFFSIM_OK = 0,
  OFFSIM_WRONG = 2,  /* the input */
  OFFSIM_REFUSED = 3 /* a resource */
} offsim_status_code;

/* A configuration of a training run. */
typedef struct offsim_run offsim_run;

offsim_run *offsim_run_new(void);
void offsim_run_delete(offsim_run *run); /* NULL: nothing */

/* Adds what describes the run: "scenario" with a file, or an option of `offsim predict --help` that
 * names a file, a machine or a setting ("megatron-args", "hf-config", "machine", "set", "env", ...),
 * with its value. Texts are copied. The calls below check them. */
void offsim_run_give(offsim_run *run, const char *option, const char *value);

/* How many threads a prediction uses, at least 1: it is 1 at first. The result is the same. */
void offsim_run_use_threads(offsim_run *run, uint32_t threads);
/* Notes are left out. */
void offsim_run_be_quiet(offsim_run *run);

/* Of the last call below: how it ended, and a line for each error; "" without one. */
offsim_status_code offsim_status(const offsim_run *run);
const char *offsim_errors(const offsim_run *run);

/* What `offsim predict --json`, `offsim predict --html`, `offsim check --json`, `offsim check` and
 * `offsim predict --print-scenario` write; they do not search for settings that fit. NULL after an
 * error. */
const char *offsim_predict(offsim_run *run);
const char *offsim_predict_html(offsim_run *run);
const char *offsim_check(offsim_run *run);
const char *offsim_check_text(offsim_run *run);
const char *offsim_scenario(offsim_run *run);

/* The plan of the first iteration, or of a later one, in text form (docs/reference/plan.md). NULL
 * after an error. */
const char *offsim_plan(offsim_run *run, bool first_iteration);

/* A prediction in figures. Memory is that of the rank that needs most, in bytes; times are whole
 * picoseconds. */
typedef struct offsim_figures {
  bool fits;
  int64_t step_ps, step_without_offload_ps;
  int64_t static_bytes;
  int64_t allocated_peak_bytes;
  int64_t reserved_peak_bytes;
  int64_t saving_bytes;         /* of the rank that allocates most without offload, at its peak */
  int64_t missing_bytes;        /* 0 if it fits */
  int64_t host_pinned_bytes;    /* by all GPUs of the fullest host */
  int64_t d2h_bytes, h2d_bytes; /* copied in a step, by all ranks */
  int64_t tokens_per_s_per_gpu;
  int64_t mfu_millionths; /* of the GPU's bf16 peak; -1: weights are frozen, or no peak is known */
} offsim_figures;

/* Fills the first `size` bytes of *figures, sizeof(offsim_figures) of the caller's header. False
 * after an error. */
bool offsim_predict_figures(offsim_run *run, offsim_figures *figures, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif
