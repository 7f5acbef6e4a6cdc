/* The few buffers that one place of the walk's state refers to. */
#ifndef OFFSIM_SIM_COMPILE_HELD_H
#define OFFSIM_SIM_COMPILE_HELD_H

#include "sim/compile/walk.h"

void held_add(walk *w, held_buffers *held, uint32_t buffer);
/* Drops all references. */
void held_release(walk *w, held_buffers *held);
/* One buffer of that size stays for the next iteration (walk_retain). False: none has that size. */
bool held_keep_one(walk *w, held_buffers *held, int64_t bytes);

#endif
