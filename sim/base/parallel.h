/*
 * Independent pieces of work on several threads.
 */
#ifndef OFFSIM_SIM_BASE_PARALLEL_H
#define OFFSIM_SIM_BASE_PARALLEL_H

#include <stdint.h>

typedef void parallel_work(void *context, uint32_t index);

/* Calls work(context, i) once for every i below `count`, in ascending order, on up to `threads`
 * threads, of which the caller is one; all calls have returned when it returns. If the system
 * refuses threads, there are fewer. `threads` >= 1. */
void parallel_for(uint32_t count, uint32_t threads, parallel_work *work, void *context);

#endif
