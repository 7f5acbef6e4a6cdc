/*
 * From a trace of a run that the user has, and its configuration, to a machine file.
 *
 *     settings -> prediction on the base -> its ops    --+
 *                                                        +--> matches --> factors --> machine
 *     trace -> passes -> kernels, copies, host calls   --+
 *
 * Ops and kernels are matched by class within each pass (align.h). What lies between two matched
 * products or attentions is memory-bound kernels on both sides, and what the host does between two
 * matched launches is the plan's host work there; the factors between measured and predicted times
 * follow by least squares (factors.h). Kernels become measured calls (sim/machine/call_time.h), so that
 * other sizes follow from their neighbours; all else becomes keys. What the trace does not show keeps
 * the value of the base.
 *
 * A profiler slows the host down, and a step after a pause finds a cool GPU. The time of a step
 * without the profiler decides both: the profiler's cost of an event if the GPU is idle a part of the
 * step, else the clock of products and attention. If the GPU only copies for a part of the step, it
 * does not depend on the clock, which stays the trace's.
 */
#ifndef OFFSIM_SIM_FIT_FIT_H
#define OFFSIM_SIM_FIT_FIT_H

#include "sim/calibrate/calibrate.h"
#include "sim/config/settings.h"
#include "traces/import/real_run.h"

typedef struct fit_input {
  const settings *settings; /* of the run, resolved */
  const machine *base;
  const real_run *run; /* finished, with a profile */
  uint32_t rank;       /* of pipeline ranks */
  int64_t step_ps;     /* a step without the profiler; 0: unknown */
} fit_input;

/* What is matched: a class of ops, with the time that they take. */
typedef enum fit_class {
  FIT_GEMM,
  FIT_ATTENTION,
  FIT_COMMUNICATION,
  FIT_D2H,
  FIT_H2D,
  FIT_OTHER, /* memory-bound kernels, between the others */
  FIT_CLASSES
} fit_class;

const char *fit_class_name(fit_class c);

typedef struct fit_row {
  uint32_t ops, matched_ops;         /* of the plan */
  uint32_t kernels, matched_kernels; /* or copies, of the trace */
  int64_t predicted_ps, measured_ps; /* of the matched ones; predicted on the base */
} fit_row;

typedef struct fit_result {
  fit_row rows[FIT_CLASSES];
  calibration keys;
  sampled_calls calls;     /* to free; first those of the trace, then those of the base */
  uint32_t found_calls;    /* of the trace */
  bool passes_agree;       /* as many forward and backward passes as predicted, in the same order */
  uint32_t host_rows;      /* stretches of host work; 0: the trace has no calls */
  int64_t event_ns;        /* what the profiler adds to each event of the host; -1: not known */
  int64_t clock_permille;  /* what the step's time adds to products and attention; 1000: nothing */
  int64_t idle_permille;   /* of the trace's step: neither kernel nor copy */
  int64_t copies_permille; /* ... a copy without a kernel */
  int64_t base_step_ps, step_ps; /* predicted on the base, and on the machine that was found */
} fit_result;

/* False after a diag error. Free result->calls in either case. */
bool fit_machine(fit_result *result, const fit_input *input, arena *a, diag *d);

#endif
