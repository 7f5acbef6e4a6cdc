/*
 * Who runs the plans of a training run: ref/exec on the CPU, or an executor of GPUs that the caller
 * brings. The functions are those of ref/exec/exec.h of the same names.
 */
#ifndef OFFSIM_REF_TRAIN_EXECUTOR_H
#define OFFSIM_REF_TRAIN_EXECUTOR_H

#include "ref/exec/exec.h"

/* What a piece of memory comes to. */
typedef struct train_digest {
  ref_fingerprint print;
  double squares; /* sum of the elements' squares */
} train_digest;

typedef struct train_executor {
  const void *options; /* the executor's own */
  /* NULL after a diag error. Layout, and hooks' context, outlive it. */
  void *(*create)(const struct train_executor *of, const ref_layout *layout, const ref_hooks *hooks,
                  diag *d);
  void (*release)(void *e);
  bool (*fits)(const void *e, const plan *p, diag *d);
  ref_outcome (*iteration)(void *e, const plan *p, const ref_order *order, const ref_step *step,
                           diag *d);
  const char *(*finding)(const void *e);
  void *(*data)(void *e, uint32_t rank, uint32_t buffer);
  int64_t (*bytes)(const void *e, uint32_t rank, uint32_t buffer);
  bool (*is_scratch)(const void *e, uint32_t rank, uint32_t buffer);
  ref_tally (*tally)(const void *e, uint32_t rank);
  /* NULL: gradients and parameters are brought to the host. Otherwise what ranks hold is digested
   * where it lies, and fingerprints are those of the ranks' parts in order, not of the model's
   * tensors. */
  train_digest (*digest)(void *e, uint32_t rank, uint32_t buffer, const plan_view *view);
  /* After an iteration, for whoever wants to know more of the executor; may be NULL. */
  void (*iteration_done)(const struct train_executor *of, const void *e, uint32_t step,
                         const plan *p);
} train_executor;

/* An executor that has been created. */
typedef struct train_runner {
  const train_executor *by;
  void *exec;
} train_runner;

/* ref/exec; `options` (ref_options) must outlive it. */
train_executor train_on_ref(const ref_options *options);

#endif
