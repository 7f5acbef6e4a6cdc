/*
 * What a step achieves: tokens a second, and the part of a GPU's arithmetic that the model needs.
 *
 *   tokens   global_batch_size sequences of seq_length each step, over all GPUs
 *   MFU      model FLOPs utilization (PaLM, arXiv 2204.02311, appendix B): operations of the matrix
 *            products and attention that forward needs, three times for forward and backward, over
 *            those that the GPU can do in a step by its datasheet, dense and in bf16, whatever the
 *            type of the operands. What is computed again does not count. Mean of the pipeline ranks.
 */
#ifndef OFFSIM_SIM_PREDICT_THROUGHPUT_H
#define OFFSIM_SIM_PREDICT_THROUGHPUT_H

#include "sim/config/settings.h"
#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

typedef struct throughput {
  int64_t tokens_per_s; /* of each GPU */
  int64_t
      mfu_millionths; /* -1: not known; frozen weights, or a machine without gpu.peak_bf16_gflops */
} throughput;

/* In a step, on all GPUs. */
int64_t tokens_of_step(const settings *s);
/* Of each GPU. */
int64_t tokens_per_s(int64_t tokens, int64_t gpus, int64_t step_ps);
/* `steady`: the plan of a steady iteration of the settings. */
throughput throughput_of(const settings *s, const machine *m, const plan *steady, int64_t step_ps);

#endif
