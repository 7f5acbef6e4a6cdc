/* Streams of the host driver: threads with queues. Functions are those of the table gpu_driver. */
#ifndef OFFSIM_CUDA_DEVICE_HOST_STREAM_H
#define OFFSIM_CUDA_DEVICE_HOST_STREAM_H

#include "cuda/device/device.h"

const char *host_stream_new(gpu_stream **stream);
const char *host_stream_synchronize(gpu_stream *stream);
void host_stream_delete(gpu_stream *stream);

const char *host_capture_begin(gpu_stream *stream);
const char *host_capture_launch(gpu_stream *stream, gpu_graph **graph);
void host_graph_delete(gpu_graph *graph);

const char *host_event_new(gpu_event **event);
const char *host_event_record(gpu_event *event, gpu_stream *stream);
const char *host_stream_wait(gpu_stream *stream, gpu_event *event);
const char *host_event_synchronize(gpu_event *event);
const char *host_event_done(gpu_event *event, bool *done);
void host_event_delete(gpu_event *event);

const char *host_gate_new(uint32_t **gate);
const char *host_gate_wait(gpu_stream *stream, uint32_t *gate, uint32_t value);
const char *host_gate_open(gpu_stream *stream, uint32_t *gate, uint32_t value);
void host_gate_delete(uint32_t *gate);

#endif
