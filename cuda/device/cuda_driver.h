/* Parts of the CUDA driver. Functions are those of the table gpu_driver. */
#ifndef OFFSIM_CUDA_DEVICE_CUDA_DRIVER_H
#define OFFSIM_CUDA_DEVICE_CUDA_DRIVER_H

#include <cuda_runtime_api.h>

#include "cuda/device/device.h"

/* ---- what failed ---- */

/* NULL if `error` is cudaSuccess, otherwise the call, formatted, and the reason. */
const char *cuda_said(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- devices that reach each other ---- */

enum { CUDA_DEVICES_MAX = 64 };

typedef struct cuda_devices {
  uint32_t numbers[CUDA_DEVICES_MAX];
  uint32_t count;
} cuda_devices;

/* `device` and those that may use its memory. */
cuda_devices cuda_users_of(uint32_t device);

static inline cudaStream_t cuda_stream(gpu_stream *stream)
{
  return (cudaStream_t)(void *)stream;
}

/* ---- cuda_memory.c ---- */

const char *cuda_space_new(uint32_t device, int64_t bytes, gpu_space *space);
const char *cuda_space_map(gpu_space *space, int64_t offset, int64_t bytes);
const char *cuda_space_unmap(gpu_space *space, int64_t offset, int64_t bytes);
void cuda_space_delete(gpu_space *space);
const char *cuda_allocate(void **memory, int64_t bytes);
const char *cuda_release(void *memory);
const char *cuda_allocate_async(void **memory, int64_t bytes, gpu_stream *stream);
const char *cuda_release_async(void *memory, gpu_stream *stream);
const char *cuda_pool_used(uint32_t device, int64_t *now_bytes, int64_t *high_bytes);
const char *cuda_pool_reset_high(uint32_t device);
const char *cuda_allocate_pinned(void **memory, int64_t bytes);
const char *cuda_release_pinned(void *memory);

/* Counts gates: while any exist, no memory is released. */
void cuda_gates_add(int32_t change);

/* ---- cuda_order.c: what orders streams ---- */

const char *cuda_event_new(gpu_event **event);
const char *cuda_event_record(gpu_event *event, gpu_stream *stream);
const char *cuda_stream_wait(gpu_stream *stream, gpu_event *event);
const char *cuda_event_synchronize(gpu_event *event);
const char *cuda_event_done(gpu_event *event, bool *done);
void cuda_event_delete(gpu_event *event);
const char *cuda_gate_new(uint32_t **gate);
const char *cuda_gate_wait(gpu_stream *stream, uint32_t *gate, uint32_t value);
const char *cuda_gate_open(gpu_stream *stream, uint32_t *gate, uint32_t value);
void cuda_gate_delete(uint32_t *gate);
const char *cuda_capture_begin(gpu_stream *stream);
const char *cuda_capture_launch(gpu_stream *stream, gpu_graph **graph);
void cuda_graph_delete(gpu_graph *graph);

#endif
