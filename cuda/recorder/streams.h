/*
 * Streams of the process, by numbers in the order of their first use. Any thread may call.
 */
#ifndef OFFSIM_CUDA_RECORDER_STREAMS_H
#define OFFSIM_CUDA_RECORDER_STREAMS_H

#include "cuda/recorder/driver.h"

/* The number of a stream of a context, whose row is written at its first use. Of
 * CU_STREAM_PER_THREAD each thread has its own. */
uint32_t stream_number(uint32_t context, CUstream stream);

/* Its handle may be given to another stream. */
void stream_forget(uint32_t context, CUstream stream);

#endif
