/*
 * What the executor needs of GPUs: memory, streams, events, copies. There are two drivers:
 *
 *   gpu_driver_cuda   NVIDIA GPUs, by the CUDA runtime and the driver's virtual memory
 *   gpu_driver_host   no GPU: every stream is a CPU thread that runs its work in order, memory is
 *                     host memory. The code above it is the same as on GPUs, and runs on any
 *                     machine and under sanitizers; its times mean nothing.
 *
 * Every call with a stream is asynchronous; its host memory must not change until the stream has
 * passed it. A failed call returns what failed and why, "cudaHostAlloc of 1024 bytes: out of
 * memory": a string that is valid in the calling thread until its next failed call. NULL is
 * success.
 *
 * A thread works with one device at a time: `use` chooses it, as in CUDA.
 */
#ifndef OFFSIM_CUDA_DEVICE_DEVICE_H
#define OFFSIM_CUDA_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpu_stream gpu_stream; /* cudaStream_t, or a thread with its queue */
typedef struct gpu_event gpu_event;
typedef struct gpu_graph gpu_graph; /* an instantiated graph */

typedef enum gpu_copy_kind { GPU_D2H, GPU_H2D, GPU_D2D } gpu_copy_kind;

/* Address space of one device: memory is mapped into it piece by piece, so that addresses of the
 * caching allocator (sim/memory) are offsets into it. */
typedef struct gpu_space {
  void *base;
  int64_t bytes;
  uint32_t device;
  void *own; /* the driver's */
} gpu_space;

typedef struct gpu_driver {
  const char *name; /* "cuda", "host" */

  /* ---- devices ---- */
  /* A program with gates calls this before anything else, including CUPTI. CUDA loads a kernel at
   * its first launch, and waits for all streams of the device to be done: if a stream is at a gate
   * that the launching thread has yet to open, that never happens. So all kernels are loaded at
   * once, except those that libraries load themselves (cuBLASLt, cuDNN): a caller that uses these
   * while gates are in use must have called them before, with the same shapes. */
  void (*expect_gates)(void);
  const char *(*count)(uint32_t *devices);
  const char *(*use)(uint32_t device);
  const char *(*describe)(uint32_t device, char *name, size_t size);
  /* The driver's figures, including other programs: cudaMemGetInfo. */
  const char *(*memory)(uint32_t device, int64_t *free_bytes, int64_t *total_bytes);
  /* Lets all `count` devices access each other's memory; the failure names two that cannot. */
  const char *(*connect)(const uint32_t *devices, uint32_t count);

  /* ---- memory ---- */
  const char *(*space_new)(uint32_t device, int64_t bytes, gpu_space *space);
  /* `bytes` of real memory at base + offset, both multiples of 2 MiB; every connected device may
   * use it. A range that was mapped in one call is unmapped in one call, when no stream uses it any
   * more. */
  const char *(*space_map)(gpu_space *space, int64_t offset, int64_t bytes);
  const char *(*space_unmap)(gpu_space *space, int64_t offset, int64_t bytes);
  void (*space_delete)(gpu_space *space);
  /* Plain device memory. Its release waits for all streams of the device, and so does that of
   * page-locked memory, so both are delayed while gates exist. */
  const char *(*allocate)(void **memory, int64_t bytes);
  const char *(*release)(void *memory);
  /* In the order of a stream, from the device's default pool: cudaMallocAsync. */
  const char *(*allocate_async)(void **memory, int64_t bytes, gpu_stream *stream);
  const char *(*release_async)(void *memory, gpu_stream *stream);
  /* The pool's bytes in use, now and at most since the last reset. */
  const char *(*pool_used)(uint32_t device, int64_t *now_bytes, int64_t *high_bytes);
  const char *(*pool_reset_high)(uint32_t device);
  const char *(*allocate_pinned)(void **memory, int64_t bytes);
  const char *(*release_pinned)(void *memory);

  /* ---- streams and events ---- */
  const char *(*stream_new)(gpu_stream **stream);
  const char *(*stream_wait)(gpu_stream *stream, gpu_event *event); /* cudaStreamWaitEvent */
  const char *(*stream_synchronize)(gpu_stream *stream);
  void (*stream_delete)(gpu_stream *stream); /* waits until it is done: no gate may hold it
                                              * forever */
  const char *(*event_new)(gpu_event **event);
  const char *(*event_record)(gpu_event *event, gpu_stream *stream);
  const char *(*event_synchronize)(gpu_event *event);
  const char *(*event_done)(gpu_event *event, bool *done);
  void (*event_delete)(gpu_event *event);

  /* ---- work ---- */
  const char *(*copy)(void *to, const void *from, int64_t bytes, gpu_copy_kind kind,
                      gpu_stream *stream);
  /* `rows` runs of `run_bytes`, `from_pitch_bytes` and `to_pitch_bytes` apart:
   * cudaMemcpy2DAsync. */
  const char *(*copy_rows)(void *to, int64_t to_pitch_bytes, const void *from,
                           int64_t from_pitch_bytes, int64_t run_bytes, int64_t rows,
                           gpu_copy_kind kind, gpu_stream *stream);
  const char *(*fill)(void *to, uint8_t byte, int64_t bytes, gpu_stream *stream);
  const char *(*call)(void (*function)(void *context), void *context, gpu_stream *stream);
  /*
   * A gate is a word of memory, initially 0. `gate_wait` holds a stream until the gate is at least
   * `value`; `gate_open` sets it when its stream gets there, or at once from the host if the stream
   * is NULL. Unlike an event, a stream can wait for it before it is known which stream opens it
   * (cuStreamWaitValue32).
   */
  const char *(*gate_new)(uint32_t **gate);
  const char *(*gate_wait)(gpu_stream *stream, uint32_t *gate, uint32_t value);
  const char *(*gate_open)(gpu_stream *stream, uint32_t *gate, uint32_t value);
  void (*gate_delete)(uint32_t *gate);

  /*
   * ---- graphs ----
   * From capture_begin to capture_launch, in the same thread, work for `stream` is captured instead
   * of run; other streams run as usual. An event recorded there happens when the launched graph
   * reaches it: other streams may wait for it once capture_launch has returned. A wait there is
   * also for events that were recorded before it. No other call may use the stream.
   */
  const char *(*capture_begin)(gpu_stream *stream);
  /* Ends the capture and launches the graph into the stream; *graph, initially NULL, is replaced,
   * or updated in place if possible. */
  const char *(*capture_launch)(gpu_stream *stream, gpu_graph **graph);
  void (*graph_delete)(gpu_graph *graph);

  /* The error of a kernel launch since the last call, NULL: none. */
  const char *(*last_error)(void);
} gpu_driver;

extern const gpu_driver gpu_driver_host;
#ifdef OFFSIM_WITH_CUDA
extern const gpu_driver gpu_driver_cuda;
#endif

/* Sets the host driver's devices; call it first. The default is one device of 1 TiB. Memory is only
 * allocated when it is used. */
void host_set_devices(uint32_t count, int64_t device_bytes);

/* Runs `work` on a host stream, or at once where that is NULL; `context` is copied (`bytes` of it). For
 * kernels compiled for the CPU (cuda/kernels/for_each.cuh). */
void host_stream_run(gpu_stream *stream, void (*work)(void *context), const void *context,
                     size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
