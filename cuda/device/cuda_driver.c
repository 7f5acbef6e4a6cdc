#include "cuda/device/cuda_driver.h"

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/device/failure.h"

const char *cuda_said(cudaError_t error, const char *format, ...)
{
  if (error == cudaSuccess) return NULL;
  char call[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(call, sizeof call, format, arguments);
  va_end(arguments);
  cudaGetLastError(); /* read it now, or it would be taken for a launch's error */
  return gpu_failure("%s: %s", call, cudaGetErrorString(error));
}

/* ---- devices ---- */

static struct {
  pthread_once_t once;
  pthread_mutex_t lock;
  cuda_devices devices;                             /* devices that can access each other's
                                                     * memory */
  bool reaches[CUDA_DEVICES_MAX][CUDA_DEVICES_MAX]; /* [from][to], ever enabled */
} connected = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

/* CUDA reads these when it starts. A stream at a gate blocks the streams that share its hardware
 * queue, so this sets the largest number of queues, and overrides the environment. */
static void want_queues(void)
{
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", 1);
}

static void expect_gates(void)
{
  pthread_once(&connected.once, want_queues);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

static const char *count(uint32_t *devices)
{
  int n = 0;
  pthread_once(&connected.once, want_queues);
  const char *failure = cuda_said(cudaGetDeviceCount(&n), "cudaGetDeviceCount");
  *devices = (uint32_t)n;
  return failure;
}

static const char *use(uint32_t device)
{
  return cuda_said(cudaSetDevice((int)device), "cudaSetDevice %u", device);
}

static const char *describe(uint32_t device, char *name, size_t size)
{
  struct cudaDeviceProp properties;
  const char *failure = cuda_said(cudaGetDeviceProperties(&properties, (int)device),
                                  "cudaGetDeviceProperties of device %u", device);
  if (failure == NULL) snprintf(name, size, "%s", properties.name);
  return failure;
}

/* For calls that apply to the current device: makes another device current, and restores it
 * after. */
static const char *change_device(uint32_t device, int *before)
{
  const char *failure = cuda_said(cudaGetDevice(before), "cudaGetDevice");
  return failure != NULL ? failure : use(device);
}

static const char *memory(uint32_t device, int64_t *free_bytes, int64_t *total_bytes)
{
  int before;
  size_t free_size = 0, total_size = 0;
  const char *failure = change_device(device, &before);
  if (failure != NULL) return failure;
  failure = cuda_said(cudaMemGetInfo(&free_size, &total_size), "cudaMemGetInfo");
  *free_bytes = (int64_t)free_size;
  *total_bytes = (int64_t)total_size;
  cudaSetDevice(before);
  return failure;
}

/* Libraries may have enabled it before. */
static const char *open_access(uint32_t from, uint32_t to)
{
  int can = 0;
  const char *failure = cuda_said(cudaDeviceCanAccessPeer(&can, (int)from, (int)to),
                                  "cudaDeviceCanAccessPeer of devices %u and %u", from, to);
  if (failure != NULL) return failure;
  if (!can) return gpu_failure("device %u cannot access the memory of device %u", from, to);
  cudaError_t error = cudaDeviceEnablePeerAccess((int)to, 0);
  if (error != cudaErrorPeerAccessAlreadyEnabled)
    return cuda_said(error, "cudaDeviceEnablePeerAccess of device %u to %u", from, to);
  cudaGetLastError();
  return NULL;
}

/* Enables it once: a second time is an error, which sanitizers report. */
static const char *reach(uint32_t from, uint32_t to)
{
  pthread_mutex_lock(&connected.lock);
  bool *reaches = &connected.reaches[from][to];
  const char *failure = *reaches ? NULL : open_access(from, to);
  *reaches = failure == NULL;
  pthread_mutex_unlock(&connected.lock);
  return failure;
}

/* Memory of cudaMallocAsync has separate access rights. */
static const char *open_pool(uint32_t of, uint32_t to)
{
  cudaMemPool_t pool;
  struct cudaMemAccessDesc access = { 0 };
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = (int)to;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  const char *failure = cuda_said(cudaDeviceGetDefaultMemPool(&pool, (int)of),
                                  "cudaDeviceGetDefaultMemPool of device %u", of);
  if (failure != NULL) return failure;
  return cuda_said(cudaMemPoolSetAccess(pool, &access, 1),
                   "cudaMemPoolSetAccess of device %u to %u", to, of);
}

static const char *connect_one(const uint32_t *devices, uint32_t n, uint32_t from)
{
  const char *failure = use(from);
  for (uint32_t i = 0; i < n && failure == NULL; i++) {
    if (devices[i] == from) continue;
    failure = reach(from, devices[i]);
    if (failure == NULL) failure = open_pool(devices[i], from);
  }
  return failure;
}

static const char *connect(const uint32_t *devices, uint32_t n)
{
  int before;
  assert(n <= CUDA_DEVICES_MAX);
  for (uint32_t i = 0; i < n; i++)
    assert(devices[i] < CUDA_DEVICES_MAX);
  const char *failure = cuda_said(cudaGetDevice(&before), "cudaGetDevice");
  for (uint32_t i = 0; i < n && failure == NULL; i++)
    failure = connect_one(devices, n, devices[i]);
  if (failure != NULL) return failure;
  pthread_mutex_lock(&connected.lock);
  for (uint32_t i = 0; i < n; i++)
    connected.devices.numbers[i] = devices[i];
  connected.devices.count = n;
  pthread_mutex_unlock(&connected.lock);
  return cuda_said(cudaSetDevice(before), "cudaSetDevice %d", before);
}

cuda_devices cuda_users_of(uint32_t device)
{
  pthread_mutex_lock(&connected.lock);
  cuda_devices users = connected.devices;
  pthread_mutex_unlock(&connected.lock);
  for (uint32_t i = 0; i < users.count; i++)
    if (users.numbers[i] == device) return users;
  return (cuda_devices){ .numbers = { device }, .count = 1 };
}

/* ---- streams ---- */

static const char *stream_new(gpu_stream **stream)
{
  return cuda_said(cudaStreamCreateWithFlags((cudaStream_t *)(void *)stream, cudaStreamNonBlocking),
                   "cudaStreamCreateWithFlags");
}

static const char *stream_synchronize(gpu_stream *stream)
{
  return cuda_said(cudaStreamSynchronize(cuda_stream(stream)), "cudaStreamSynchronize");
}

static void stream_delete(gpu_stream *stream)
{
  if (stream == NULL) return;
  cudaStreamSynchronize(cuda_stream(stream));
  cudaStreamDestroy(cuda_stream(stream));
}

/* ---- work ---- */

static const enum cudaMemcpyKind copy_kinds[] = {
  [GPU_D2H] = cudaMemcpyDeviceToHost,
  [GPU_H2D] = cudaMemcpyHostToDevice,
  [GPU_D2D] = cudaMemcpyDeviceToDevice,
};

static const char *copy(void *to, const void *from, int64_t bytes, gpu_copy_kind kind,
                        gpu_stream *stream)
{
  return cuda_said(cudaMemcpyAsync(to, from, (size_t)bytes, copy_kinds[kind], cuda_stream(stream)),
                   "cudaMemcpyAsync of %lld bytes", (long long)bytes);
}

static const char *copy_rows(void *to, int64_t to_pitch_bytes, const void *from,
                             int64_t from_pitch_bytes, int64_t run_bytes, int64_t rows,
                             gpu_copy_kind kind, gpu_stream *stream)
{
  if (rows == 1) return copy(to, from, run_bytes, kind, stream); /* with any pitches */
  return cuda_said(
      cudaMemcpy2DAsync(to, (size_t)to_pitch_bytes, from, (size_t)from_pitch_bytes,
                        (size_t)run_bytes, (size_t)rows, copy_kinds[kind], cuda_stream(stream)),
      "cudaMemcpy2DAsync of %lld rows of %lld bytes", (long long)rows, (long long)run_bytes);
}

static const char *fill(void *to, uint8_t byte, int64_t bytes, gpu_stream *stream)
{
  return cuda_said(cudaMemsetAsync(to, byte, (size_t)bytes, cuda_stream(stream)),
                   "cudaMemsetAsync of %lld bytes", (long long)bytes);
}

static const char *call(void (*function)(void *context), void *context, gpu_stream *stream)
{
  return cuda_said(cudaLaunchHostFunc(cuda_stream(stream), function, context),
                   "cudaLaunchHostFunc");
}

static const char *last_error(void)
{
  return cuda_said(cudaGetLastError(), "a kernel's launch");
}

const gpu_driver gpu_driver_cuda = {
  .name = "cuda",
  .expect_gates = expect_gates,
  .count = count,
  .use = use,
  .describe = describe,
  .memory = memory,
  .connect = connect,
  .space_new = cuda_space_new,
  .space_map = cuda_space_map,
  .space_unmap = cuda_space_unmap,
  .space_delete = cuda_space_delete,
  .allocate = cuda_allocate,
  .release = cuda_release,
  .allocate_async = cuda_allocate_async,
  .release_async = cuda_release_async,
  .pool_used = cuda_pool_used,
  .pool_reset_high = cuda_pool_reset_high,
  .allocate_pinned = cuda_allocate_pinned,
  .release_pinned = cuda_release_pinned,
  .stream_new = stream_new,
  .stream_wait = cuda_stream_wait,
  .stream_synchronize = stream_synchronize,
  .stream_delete = stream_delete,
  .event_new = cuda_event_new,
  .event_record = cuda_event_record,
  .event_synchronize = cuda_event_synchronize,
  .event_done = cuda_event_done,
  .event_delete = cuda_event_delete,
  .copy = copy,
  .copy_rows = copy_rows,
  .fill = fill,
  .call = call,
  .gate_new = cuda_gate_new,
  .gate_wait = cuda_gate_wait,
  .gate_open = cuda_gate_open,
  .gate_delete = cuda_gate_delete,
  .capture_begin = cuda_capture_begin,
  .capture_launch = cuda_capture_launch,
  .graph_delete = cuda_graph_delete,
  .last_error = last_error,
};
