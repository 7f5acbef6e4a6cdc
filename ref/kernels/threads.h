/*
 * Threads for the few kernels whose work splits into parts that write different elements, so no bit
 * depends on which thread runs a part.
 */
#ifndef OFFSIM_REF_KERNELS_THREADS_H
#define OFFSIM_REF_KERNELS_THREADS_H

#include <stdint.h>

enum { REF_THREADS_MAX = 64 };

/* Sets the number of threads, including the caller's; initially 1. If the system refuses a thread,
 * the program exits with status 3. */
void ref_set_threads(uint32_t count);
uint32_t ref_threads(void);

/* Runs part(context, i) once for every i < parts and returns when all are done. Only one caller at
 * a time. */
void ref_run_parts(uint32_t parts, void (*part)(void *context, uint32_t i), void *context);

#endif
