/*
 * Where CUPTI puts its records. It asks for memory and gives it back filled, from threads of its
 * own; between two iterations the filled buffers are read and used again.
 */
#ifndef OFFSIM_CUDA_MEASURE_BUFFERS_H
#define OFFSIM_CUDA_MEASURE_BUFFERS_H

#include "cuda/measure/cupti.h"

/* Some are there from the start, so that nothing is allocated while an iteration runs unless it has
 * very many ops. All that are given are zero, which CUPTI would else see to while ops are
 * issued. */
void buffers_prepare(void);
void buffers_release(void);

/* CUPTI's two callbacks. */
void CUPTIAPI buffers_give(uint8_t **buffer, size_t *size, size_t *records_max);
void CUPTIAPI buffers_take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                           size_t filled);

/* Calls `read` with each filled buffer; then they are empty. */
void buffers_read(void (*read)(void *context, uint8_t *buffer, size_t filled), void *context);

#endif
