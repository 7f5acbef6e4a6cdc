/*
 * Buffers for CUPTI's records. CUPTI requests memory and returns it filled, from its own threads;
 * between two iterations the filled buffers are read and reused.
 */
#ifndef OFFSIM_CUDA_MEASURE_BUFFERS_H
#define OFFSIM_CUDA_MEASURE_BUFFERS_H

#include "cuda/measure/cupti.h"

/* Some are allocated at the start, so that an iteration allocates none unless it has very many ops.
 * All are zeroed, which CUPTI would otherwise do while ops are issued. */
void buffers_prepare(void);
void buffers_release(void);

/* CUPTI's two callbacks. */
void CUPTIAPI buffers_give(uint8_t **buffer, size_t *size, size_t *records_max);
void CUPTIAPI buffers_take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                           size_t filled);

/* Calls `read` with each filled buffer and empties it. */
void buffers_read(void (*read)(void *context, uint8_t *buffer, size_t filled), void *context);

#endif
