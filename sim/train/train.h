/*
 * Training steps of a scenario's model, with the plans of its first and its later iterations.
 *
 *     train_run(&input, &options, &result, a, d);
 *
 * Loss: the mean over micro-batches and replicas, summed micro-batch by micro-batch and in each
 * replica by replica, in double, rounded to fp32 once. Gradients are the optimizer's, after the
 * reduction and before clipping. Clipping: if the norm exceeds training.clip_grad, all gradients
 * are multiplied by clip / (norm + 1e-6).
 */
#ifndef OFFSIM_SIM_TRAIN_TRAIN_H
#define OFFSIM_SIM_TRAIN_TRAIN_H

#include "sim/exec/executor.h"
#include "sim/train/model.h"
#include "sim/train/tokens.h"
#include "sim/train/trace.h"

typedef struct train_input {
  const settings *settings; /* resolved */
  const plan *first, *steady;
} train_input;

typedef struct train_step {
  float loss;
  double gradient_norm;
  exec_fingerprint losses; /* of all micro-batches and replicas */
  exec_fingerprint gradients, parameters;
} train_step;

typedef struct train_options {
  token_stream tokens;
  uint64_t seed; /* of weights and dropout */
  uint32_t steps;
  double learning_rate;
  exec_order order;
  void (*op_done)(void *context, uint32_t rank, uint32_t op,
                  exec_fingerprint print);                              /* may be NULL */
  void (*step_done)(void *context, uint32_t step, const train_step *s); /* may be NULL */
  void *context;
  trace_recorder *trace; /* takes every op; NULL: none */
  const executor *executor;
  bool no_prints; /* no fingerprints, and a norm only for clipping: for timed runs */
} train_options;

typedef struct train_result {
  exec_outcome outcome;
  const char *finding; /* EXEC_WRONG */
  train_step *steps;   /* [options.steps] */
  uint32_t done;       /* number of finished steps */
  /* after the last one: weights, and its gradients; empty if they are digested */
  train_model model;
  uint32_t rank_count;
  int64_t
      *peak_bytes;  /* device memory by rank, the largest of all steps, requests rounded to 512 */
  int64_t left_out; /* dropped tokens, of all ranks and steps */
} train_result;

/* Whether the reference execution supports the scenario. False after a diag error. */
bool train_knows(const train_input *in, const executor *by, diag *d);

/* False unless EXEC_DONE. */
bool train_run(const train_input *in, const train_options *options, train_result *result, arena *a,
               diag *d);

/* The initial model: only its weights. */
train_model train_initial_model(const train_input *in, uint64_t seed, arena *a);

#endif
