/*
 * Ranges for Nsight Systems (NVTX): what an op launches stands under its name. They cost some
 * nanoseconds when no tool listens, and are nothing when offsim is built without CUDA.
 */
#ifndef OFFSIM_CUDA_MEASURE_RANGES_H
#define OFFSIM_CUDA_MEASURE_RANGES_H

/* In one thread ranges nest; each begin has its end in the same thread. */
void range_begin(const char *name);
void range_end(void);

/* The calling thread's name in the timeline: "rank 0". */
void range_name_thread(const char *name);

#endif
