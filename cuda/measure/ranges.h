/*
 * Ranges for Nsight Systems (NVTX): launches of an op appear under its name. They cost some
 * nanoseconds without a tool, and do nothing if offsim is built without CUDA.
 */
#ifndef OFFSIM_CUDA_MEASURE_RANGES_H
#define OFFSIM_CUDA_MEASURE_RANGES_H

/* In one thread ranges nest; each begin has its end in the same thread. */
void range_begin(const char *name);
void range_end(void);

/* The calling thread's name in the timeline: "rank 0". */
void range_name_thread(const char *name);

#endif
