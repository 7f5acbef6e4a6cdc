#include "cuda/recorder/calls.h"

#include <cupti.h>
#include <stdatomic.h>

#include "cuda/recorder/allocations.h"
#include "cuda/recorder/kernels.h"
#include "cuda/recorder/rows_file.h"
#include "cuda/recorder/streams.h"

#define PARAMETERS(name) const name##_params *p = c->parameters

static uint64_t word_of(const void *pointer)
{
  return (uint64_t)(uintptr_t)pointer;
}

/* ---- streams ---- */

static CUstream handle_of(const driver_call *c, CUstream stream)
{
  return stream == NULL ? c->default_stream : stream;
}

static uint64_t number_of(const driver_call *c, CUstream stream)
{
  return stream_number(c->context, handle_of(c, stream));
}

static atomic_int captures; /* that have begun and not ended */

static uint8_t captured(const driver_call *c, CUstream stream)
{
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (atomic_load_explicit(&captures, memory_order_relaxed) == 0 ||
      driver.cuStreamIsCapturing == NULL ||
      driver.cuStreamIsCapturing(handle_of(c, stream), &status) != CUDA_SUCCESS)
    return 0;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : ISSUED_CAPTURED;
}

static void begin_capture(const driver_call *c)
{
  (void)c;
  atomic_fetch_add(&captures, 1);
}

static void end_capture(const driver_call *c)
{
  (void)c;
  atomic_fetch_sub(&captures, 1);
}

static void destroy_stream(const driver_call *c)
{
  PARAMETERS(cuStreamDestroy_v2);
  stream_forget(c->context, p->hStream);
}

static void synchronize_stream(const driver_call *c)
{
  PARAMETERS(cuStreamSynchronize);
  ROWS_PUT(ISSUED_STREAM_DONE, ISSUED_WAITED, number_of(c, p->hStream));
}

/* Only its success is taken. */
static void query_stream(const driver_call *c)
{
  PARAMETERS(cuStreamQuery);
  ROWS_PUT(ISSUED_STREAM_DONE, 0, number_of(c, p->hStream));
}

static void synchronize_context(const driver_call *c)
{
  ROWS_PUT(ISSUED_CONTEXT_DONE, 0, c->context);
}

/* ---- work ---- */

static void put_kernel(const driver_call *c, CUstream stream, const kernel_launch *l)
{
  uint64_t pointers[KERNEL_POINTERS];
  uint32_t name = 0;
  bool seen = true;
  uint32_t count = kernel_pointers(l, pointers, &name, &seen);
  uint8_t flags = (uint8_t)(captured(c, stream) | (seen ? 0 : ISSUED_UNSEEN));
  const uint64_t words[] = { number_of(c, stream), name };
  rows_put(ISSUED_KERNEL, flags, words, 2, pointers, 8 * (size_t)count);
}

static void launch_kernel(const driver_call *c)
{
  PARAMETERS(cuLaunchKernel);
  put_kernel(c, p->hStream, &(kernel_launch){ p->f, c->symbol, p->kernelParams, p->extra });
}

static void launch_kernel_ex(const driver_call *c)
{
  PARAMETERS(cuLaunchKernelEx);
  put_kernel(c, p->config->hStream, &(kernel_launch){ p->f, c->symbol, p->kernelParams, p->extra });
}

static void launch_cooperative_kernel(const driver_call *c)
{
  PARAMETERS(cuLaunchCooperativeKernel);
  put_kernel(c, p->hStream, &(kernel_launch){ p->f, c->symbol, p->kernelParams, NULL });
}

static void launch_graph(const driver_call *c)
{
  PARAMETERS(cuGraphLaunch);
  ROWS_PUT(ISSUED_GRAPH, captured(c, p->hStream), number_of(c, p->hStream), word_of(p->hGraph));
}

static void launch_host_function(const driver_call *c)
{
  PARAMETERS(cuLaunchHostFunc);
  ROWS_PUT(ISSUED_HOST_CALL, captured(c, p->hStream), number_of(c, p->hStream));
}

/* A copy to memory that is not page-locked is over when the call returns. */
static void put_copy(const driver_call *c, CUstream stream, uint64_t to, uint64_t from,
                     uint64_t bytes, bool waited)
{
  waited = waited || !allocations_has(to);
  uint8_t flags = (uint8_t)(captured(c, stream) | (waited ? ISSUED_WAITED : 0));
  ROWS_PUT(ISSUED_COPY, flags, number_of(c, stream), to, from, bytes, 1, bytes, bytes);
}

#define COPY(function, call, stream, to, from, waited)                                             \
  static void function(const driver_call *c)                                                       \
  {                                                                                                \
    PARAMETERS(call);                                                                              \
    put_copy(c, stream, to, from, p->ByteCount, waited);                                           \
  }
COPY(copy_in_async, cuMemcpyHtoDAsync_v2, p->hStream, p->dstDevice, word_of(p->srcHost), false)
COPY(copy_out_async, cuMemcpyDtoHAsync_v2, p->hStream, word_of(p->dstHost), p->srcDevice, false)
COPY(copy_device_async, cuMemcpyDtoDAsync_v2, p->hStream, p->dstDevice, p->srcDevice, false)
COPY(copy_any_async, cuMemcpyAsync, p->hStream, p->dst, p->src, false)
COPY(copy_peer_async, cuMemcpyPeerAsync, p->hStream, p->dstDevice, p->srcDevice, false)
COPY(copy_in, cuMemcpyHtoD_v2, NULL, p->dstDevice, word_of(p->srcHost), true)
COPY(copy_out, cuMemcpyDtoH_v2, NULL, word_of(p->dstHost), p->srcDevice, true)
COPY(copy_device, cuMemcpyDtoD_v2, NULL, p->dstDevice, p->srcDevice, false)
COPY(copy_any, cuMemcpy, NULL, p->dst, p->src, true)

static uint64_t corner(CUmemorytype type, const void *host, CUdeviceptr device, size_t pitch,
                       size_t x_bytes, size_t y)
{
  uint64_t base = type == CU_MEMORYTYPE_HOST ? word_of(host) : device;
  return base + y * pitch + x_bytes;
}

/* To and from arrays, which have no addresses, it is work that touches nothing known. */
static void put_rectangle(const driver_call *c, CUstream stream, const CUDA_MEMCPY2D *r,
                          bool waited)
{
  if (r->srcMemoryType == CU_MEMORYTYPE_ARRAY || r->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    ROWS_PUT(ISSUED_HOST_CALL, captured(c, stream), number_of(c, stream));
    return;
  }
  uint64_t to =
      corner(r->dstMemoryType, r->dstHost, r->dstDevice, r->dstPitch, r->dstXInBytes, r->dstY);
  uint64_t from =
      corner(r->srcMemoryType, r->srcHost, r->srcDevice, r->srcPitch, r->srcXInBytes, r->srcY);
  waited = waited || !allocations_has(to);
  uint8_t flags = (uint8_t)(captured(c, stream) | (waited ? ISSUED_WAITED : 0));
  ROWS_PUT(ISSUED_COPY, flags, number_of(c, stream), to, from, r->WidthInBytes, r->Height,
           r->dstPitch, r->srcPitch);
}

static void copy_rectangle_async(const driver_call *c)
{
  PARAMETERS(cuMemcpy2DAsync_v2);
  put_rectangle(c, p->hStream, p->pCopy, false);
}

static void copy_rectangle(const driver_call *c)
{
  PARAMETERS(cuMemcpy2D_v2);
  put_rectangle(c, NULL, p->pCopy, true);
}

static void copy_batch(const driver_call *c)
{
  PARAMETERS(cuMemcpyBatchAsync_v2);
  for (size_t i = 0; i < p->count; i++)
    put_copy(c, p->hStream, p->dsts[i], p->srcs[i], p->sizes[i], false);
}

static void put_set(const driver_call *c, CUstream stream, uint64_t to, uint64_t bytes,
                    uint64_t count, uint64_t pitch)
{
  ROWS_PUT(ISSUED_SET, captured(c, stream), number_of(c, stream), to, bytes, count, pitch);
}

#define SET(function, call, stream, bytes)                                                         \
  static void function(const driver_call *c)                                                       \
  {                                                                                                \
    PARAMETERS(call);                                                                              \
    put_set(c, stream, p->dstDevice, p->N *(bytes), 1, p->N *(bytes));                             \
  }
#define SET_ROWS(function, call, stream, bytes)                                                    \
  static void function(const driver_call *c)                                                       \
  {                                                                                                \
    PARAMETERS(call);                                                                              \
    put_set(c, stream, p->dstDevice, p->Width *(bytes), p->Height, p->dstPitch);                   \
  }
SET(set_1_async, cuMemsetD8Async, p->hStream, 1)
SET(set_2_async, cuMemsetD16Async, p->hStream, 2)
SET(set_4_async, cuMemsetD32Async, p->hStream, 4)
SET(set_1, cuMemsetD8_v2, NULL, 1)
SET(set_2, cuMemsetD16_v2, NULL, 2)
SET(set_4, cuMemsetD32_v2, NULL, 4)
SET_ROWS(set_rows_1_async, cuMemsetD2D8Async, p->hStream, 1)
SET_ROWS(set_rows_2_async, cuMemsetD2D16Async, p->hStream, 2)
SET_ROWS(set_rows_4_async, cuMemsetD2D32Async, p->hStream, 4)

/* ---- events ---- */

static void record_event(const driver_call *c)
{
  PARAMETERS(cuEventRecord);
  ROWS_PUT(ISSUED_EVENT_RECORD, captured(c, p->hStream), number_of(c, p->hStream),
           word_of(p->hEvent));
}

static void record_event_flags(const driver_call *c)
{
  PARAMETERS(cuEventRecordWithFlags);
  ROWS_PUT(ISSUED_EVENT_RECORD, captured(c, p->hStream), number_of(c, p->hStream),
           word_of(p->hEvent));
}

static void wait_event(const driver_call *c)
{
  PARAMETERS(cuStreamWaitEvent);
  ROWS_PUT(ISSUED_EVENT_WAIT, captured(c, p->hStream), number_of(c, p->hStream),
           word_of(p->hEvent));
}

static void synchronize_event(const driver_call *c)
{
  PARAMETERS(cuEventSynchronize);
  ROWS_PUT(ISSUED_EVENT_DONE, ISSUED_WAITED, word_of(p->hEvent));
}

/* Only its success is taken. */
static void query_event(const driver_call *c)
{
  PARAMETERS(cuEventQuery);
  ROWS_PUT(ISSUED_EVENT_DONE, 0, word_of(p->hEvent));
}

static void destroy_event(const driver_call *c)
{
  PARAMETERS(cuEventDestroy_v2);
  ROWS_PUT(ISSUED_EVENT_GONE, 0, word_of(p->hEvent));
}

/* ---- memory ---- */

static void put_alloc(uint64_t address, uint64_t bytes, issued_space space)
{
  allocations_add(address, bytes);
  ROWS_PUT(ISSUED_ALLOC, 0, address, bytes, space);
}

static void put_free(uint64_t address, uint64_t bytes, bool waits)
{
  uint64_t removed = allocations_remove(address, bytes);
  if (removed > 0) ROWS_PUT(ISSUED_FREE, 0, address, removed, waits);
}

#define ALLOC(function, call, address, bytes, space)                                               \
  static void function(const driver_call *c)                                                       \
  {                                                                                                \
    PARAMETERS(call);                                                                              \
    put_alloc(address, bytes, space);                                                              \
  }
#define FREE(function, call, address, bytes, waits)                                                \
  static void function(const driver_call *c)                                                       \
  {                                                                                                \
    PARAMETERS(call);                                                                              \
    put_free(address, bytes, waits);                                                               \
  }
ALLOC(alloc_device, cuMemAlloc_v2, *p->dptr, p->bytesize, ISSUED_DEVICE)
ALLOC(alloc_pitched, cuMemAllocPitch_v2, *p->dptr, *p->pPitch * p->Height, ISSUED_DEVICE)
ALLOC(alloc_async, cuMemAllocAsync, *p->dptr, p->bytesize, ISSUED_DEVICE)
ALLOC(alloc_from_pool, cuMemAllocFromPoolAsync, *p->dptr, p->bytesize, ISSUED_DEVICE)
ALLOC(alloc_managed, cuMemAllocManaged, *p->dptr, p->bytesize, ISSUED_MANAGED)
ALLOC(alloc_host, cuMemHostAlloc, word_of(*p->pp), p->bytesize, ISSUED_HOST)
ALLOC(alloc_host_plain, cuMemAllocHost_v2, word_of(*p->pp), p->bytesize, ISSUED_HOST)
ALLOC(register_host, cuMemHostRegister_v2, word_of(p->p), p->bytesize, ISSUED_HOST)
ALLOC(map_memory, cuMemMap, p->ptr, p->size, ISSUED_DEVICE)
FREE(free_device, cuMemFree_v2, p->dptr, 0, true)
FREE(free_async, cuMemFreeAsync, p->dptr, 0, false)
FREE(free_host, cuMemFreeHost, word_of(p->p), 0, true)
FREE(unregister_host, cuMemHostUnregister, word_of(p->p), 0, false)
FREE(unmap_memory, cuMemUnmap, p->ptr, p->size, false)

/* ---- the table ---- */

/* On a stream: the second form has the thread's own default stream. */
#define ON_STREAM(name, function)                                                                  \
  { CUPTI_DRIVER_TRACE_CBID_##name, function, false, false },                                      \
  {                                                                                                \
    CUPTI_DRIVER_TRACE_CBID_##name##_ptsz, function, false, true                                   \
  }
#define ON_DEFAULT_STREAM(name, function)                                                          \
  { CUPTI_DRIVER_TRACE_CBID_##name, function, false, false },                                      \
  {                                                                                                \
    CUPTI_DRIVER_TRACE_CBID_##name##_ptds, function, false, true                                   \
  }
#define AFTER(name, function)                                                                      \
  {                                                                                                \
    CUPTI_DRIVER_TRACE_CBID_##name, function, false, false                                         \
  }
#define BEFORE(name, function)                                                                     \
  {                                                                                                \
    CUPTI_DRIVER_TRACE_CBID_##name, function, true, false                                          \
  }

const call_row call_rows[] = {
  ON_STREAM(cuLaunchKernel, launch_kernel),
  ON_STREAM(cuLaunchKernelEx, launch_kernel_ex),
  ON_STREAM(cuLaunchCooperativeKernel, launch_cooperative_kernel),
  ON_STREAM(cuGraphLaunch, launch_graph),
  ON_STREAM(cuLaunchHostFunc, launch_host_function),
  ON_STREAM(cuMemcpyHtoDAsync_v2, copy_in_async),
  ON_STREAM(cuMemcpyDtoHAsync_v2, copy_out_async),
  ON_STREAM(cuMemcpyDtoDAsync_v2, copy_device_async),
  ON_STREAM(cuMemcpyAsync, copy_any_async),
  ON_STREAM(cuMemcpyPeerAsync, copy_peer_async),
  ON_STREAM(cuMemcpy2DAsync_v2, copy_rectangle_async),
  ON_STREAM(cuMemcpyBatchAsync_v2, copy_batch),
  ON_DEFAULT_STREAM(cuMemcpyHtoD_v2, copy_in),
  ON_DEFAULT_STREAM(cuMemcpyDtoH_v2, copy_out),
  ON_DEFAULT_STREAM(cuMemcpyDtoD_v2, copy_device),
  ON_DEFAULT_STREAM(cuMemcpy, copy_any),
  ON_DEFAULT_STREAM(cuMemcpy2D_v2, copy_rectangle),
  ON_STREAM(cuMemsetD8Async, set_1_async),
  ON_STREAM(cuMemsetD16Async, set_2_async),
  ON_STREAM(cuMemsetD32Async, set_4_async),
  ON_STREAM(cuMemsetD2D8Async, set_rows_1_async),
  ON_STREAM(cuMemsetD2D16Async, set_rows_2_async),
  ON_STREAM(cuMemsetD2D32Async, set_rows_4_async),
  ON_DEFAULT_STREAM(cuMemsetD8_v2, set_1),
  ON_DEFAULT_STREAM(cuMemsetD16_v2, set_2),
  ON_DEFAULT_STREAM(cuMemsetD32_v2, set_4),
  ON_STREAM(cuEventRecord, record_event),
  ON_STREAM(cuEventRecordWithFlags, record_event_flags),
  ON_STREAM(cuStreamWaitEvent, wait_event),
  AFTER(cuEventSynchronize, synchronize_event),
  AFTER(cuEventQuery, query_event),
  BEFORE(cuEventDestroy_v2, destroy_event),
  ON_STREAM(cuStreamSynchronize, synchronize_stream),
  ON_STREAM(cuStreamQuery, query_stream),
  AFTER(cuCtxSynchronize, synchronize_context),
  AFTER(cuCtxSynchronize_v2, synchronize_context),
  BEFORE(cuStreamDestroy_v2, destroy_stream),
  ON_STREAM(cuStreamBeginCapture_v2, begin_capture),
  ON_STREAM(cuStreamEndCapture, end_capture),
  AFTER(cuMemAlloc_v2, alloc_device),
  AFTER(cuMemAllocPitch_v2, alloc_pitched),
  AFTER(cuMemAllocManaged, alloc_managed),
  ON_STREAM(cuMemAllocAsync, alloc_async),
  ON_STREAM(cuMemAllocFromPoolAsync, alloc_from_pool),
  AFTER(cuMemHostAlloc, alloc_host),
  AFTER(cuMemAllocHost_v2, alloc_host_plain),
  AFTER(cuMemHostRegister_v2, register_host),
  AFTER(cuMemMap, map_memory),
  BEFORE(cuMemFree_v2, free_device),
  BEFORE(cuMemFreeAsync, free_async),
  BEFORE(cuMemFreeAsync_ptsz, free_async),
  BEFORE(cuMemFreeHost, free_host),
  BEFORE(cuMemHostUnregister, unregister_host),
  BEFORE(cuMemUnmap, unmap_memory),
};
const uint32_t call_row_count = sizeof call_rows / sizeof *call_rows;
