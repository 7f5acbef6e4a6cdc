#include <stdatomic.h>
#include <stdlib.h>

#include "cuda/device/cuda_driver.h"
#include "cuda/device/cuda_entries.h"
#include "cuda/device/failure.h"

/*
 * Only one stream is captured, so a graph is a chain. Its events are real events for other streams
 * ("external" in CUDA's terms): nodes record them and wait for them when the graph runs.
 */
static _Thread_local struct {
  cudaStream_t stream; /* NULL: this thread captures nothing */
  uint64_t number;
} capture;

static atomic_uint_least64_t captures_so_far;

/* ---- events ---- */

struct gpu_event {
  cudaEvent_t event;
  atomic_uint_least64_t recorded_in; /* number of the capture; 0: in none */
};

const char *cuda_event_new(gpu_event **event)
{
  gpu_event *e = calloc(1, sizeof *e);
  if (e == NULL) return gpu_failure("an event: out of memory");
  const char *failure = cuda_said(cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming),
                                  "cudaEventCreateWithFlags");
  if (failure != NULL)
    free(e);
  else
    *event = e;
  return failure;
}

static bool is_captured(gpu_stream *stream)
{
  return capture.stream != NULL && capture.stream == cuda_stream(stream);
}

const char *cuda_event_record(gpu_event *event, gpu_stream *stream)
{
  bool captured = is_captured(stream);
  atomic_store(&event->recorded_in, captured ? capture.number : 0);
  return cuda_said(
      cudaEventRecordWithFlags(event->event, cuda_stream(stream),
                               captured ? cudaEventRecordExternal : cudaEventRecordDefault),
      "cudaEventRecordWithFlags");
}

const char *cuda_stream_wait(gpu_stream *stream, gpu_event *event)
{
  bool captured = is_captured(stream);
  if (captured && atomic_load(&event->recorded_in) == capture.number)
    return NULL; /* earlier in the same chain */
  return cuda_said(cudaStreamWaitEvent(cuda_stream(stream), event->event,
                                       captured ? cudaEventWaitExternal : cudaEventWaitDefault),
                   "cudaStreamWaitEvent");
}

const char *cuda_event_synchronize(gpu_event *event)
{
  return cuda_said(cudaEventSynchronize(event->event), "cudaEventSynchronize");
}

const char *cuda_event_done(gpu_event *event, bool *done)
{
  cudaError_t error = cudaEventQuery(event->event);
  *done = error == cudaSuccess;
  if (error != cudaErrorNotReady) return cuda_said(error, "cudaEventQuery");
  cudaGetLastError(); /* "not ready" would be taken for a launch's error */
  return NULL;
}

void cuda_event_delete(gpu_event *event)
{
  if (event == NULL) return;
  cudaEventDestroy(event->event);
  free(event);
}

/* ---- gates: page-locked words that every device reaches under the same address ------------- */

const char *cuda_gate_new(uint32_t **gate)
{
  const char *failure = cuda_said(
      cudaHostAlloc((void **)gate, sizeof **gate, cudaHostAllocPortable | cudaHostAllocMapped),
      "cudaHostAlloc of a gate");
  if (failure != NULL) return failure;
  **gate = 0;
  cuda_gates_add(1);
  return NULL;
}

const char *cuda_gate_wait(gpu_stream *stream, uint32_t *gate, uint32_t value)
{
  const cuda_entries *driver;
  const char *failure = cuda_find_entries(&driver);
  if (failure != NULL) return failure;
  return cuda_entry_said(driver->cuStreamWaitValue32_entry(cuda_stream(stream),
                                                           (CUdeviceptr)(uintptr_t)gate, value,
                                                           CU_STREAM_WAIT_VALUE_GEQ),
                         "cuStreamWaitValue32");
}

const char *cuda_gate_open(gpu_stream *stream, uint32_t *gate, uint32_t value)
{
  const cuda_entries *driver;
  if (stream == NULL) {
    __atomic_store_n(gate, value, __ATOMIC_RELEASE);
    return NULL;
  }
  const char *failure = cuda_find_entries(&driver);
  if (failure != NULL) return failure;
  return cuda_entry_said(driver->cuStreamWriteValue32_entry(cuda_stream(stream),
                                                            (CUdeviceptr)(uintptr_t)gate, value,
                                                            CU_STREAM_WRITE_VALUE_DEFAULT),
                         "cuStreamWriteValue32");
}

void cuda_gate_delete(uint32_t *gate)
{
  if (gate == NULL) return;
  cudaFreeHost(gate);
  cuda_gates_add(-1);
}

/* ---- graphs ---- */

struct gpu_graph {
  cudaGraphExec_t exec;
  size_t nodes;
};

/* Relaxed: while it captures, the thread may still allocate page-locked memory and query events. */
const char *cuda_capture_begin(gpu_stream *stream)
{
  const char *failure =
      cuda_said(cudaStreamBeginCapture(cuda_stream(stream), cudaStreamCaptureModeRelaxed),
                "cudaStreamBeginCapture");
  if (failure != NULL) return failure;
  capture.stream = cuda_stream(stream);
  capture.number = atomic_fetch_add(&captures_so_far, 1) + 1;
  return NULL;
}

static size_t nodes_of(cudaGraph_t graph)
{
  size_t nodes = 0;
  return cudaGraphGetNodes(graph, NULL, &nodes) == cudaSuccess ? nodes : 0;
}

/* False: it must be instantiated again. */
static bool update(gpu_graph *graph, cudaGraph_t caught)
{
  cudaGraphExecUpdateResultInfo result;
  if (graph->exec == NULL || nodes_of(caught) != graph->nodes) return false;
  bool updated = cudaGraphExecUpdate(graph->exec, caught, &result) == cudaSuccess;
  if (!updated) cudaGetLastError();
  return updated;
}

static const char *make(gpu_graph *graph, cudaGraph_t caught, cudaStream_t stream)
{
  const char *failure = NULL;
  if (graph->exec != NULL) { /* it may still run */
    failure = cuda_said(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    cudaGraphExecDestroy(graph->exec);
    graph->exec = NULL;
  }
  if (failure == NULL)
    failure = cuda_said(cudaGraphInstantiate(&graph->exec, caught, 0), "cudaGraphInstantiate");
  graph->nodes = nodes_of(caught);
  return failure;
}

static const char *launch(gpu_graph *graph, cudaGraph_t caught, cudaStream_t stream)
{
  const char *failure = update(graph, caught) ? NULL : make(graph, caught, stream);
  if (failure != NULL) return failure;
  return cuda_said(cudaGraphLaunch(graph->exec, stream), "cudaGraphLaunch");
}

const char *cuda_capture_launch(gpu_stream *stream, gpu_graph **graph)
{
  cudaGraph_t caught = NULL;
  capture.stream = NULL;
  const char *failure =
      cuda_said(cudaStreamEndCapture(cuda_stream(stream), &caught), "cudaStreamEndCapture");
  if (failure != NULL) return failure;
  if (*graph == NULL) *graph = calloc(1, sizeof **graph);
  failure = *graph == NULL ? gpu_failure("a graph: out of memory")
                           : launch(*graph, caught, cuda_stream(stream));
  cudaGraphDestroy(caught);
  return failure;
}

void cuda_graph_delete(gpu_graph *graph)
{
  if (graph == NULL) return;
  if (graph->exec != NULL) cudaGraphExecDestroy(graph->exec);
  free(graph);
}
