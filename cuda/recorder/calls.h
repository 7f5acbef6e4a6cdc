/*
 * What each call of the driver becomes in the record.
 */
#ifndef OFFSIM_CUDA_RECORDER_CALLS_H
#define OFFSIM_CUDA_RECORDER_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/recorder/driver.h"

typedef struct driver_call {
  const void *parameters;  /* its struct of generated_cuda_meta.h */
  uint32_t context;        /* CUPTI's number of the current one */
  CUstream default_stream; /* what stream 0 means: CU_STREAM_LEGACY or CU_STREAM_PER_THREAD */
  const char *symbol;      /* of a launch; else NULL */
} driver_call;

typedef struct call_row {
  uint32_t id; /* CUpti_driver_api_trace_cbid */
  void (*take)(const driver_call *c);
  bool at_begin;   /* what it gives back may be handed out again before it returns */
  bool per_thread; /* its default stream is the thread's own */
} call_row;

extern const call_row call_rows[];
extern const uint32_t call_row_count;

#endif
