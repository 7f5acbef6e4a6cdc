/*
 * Buffers that attributes of a chunk's modules refer to (emit_attribute): each stays until the attribute is
 * set again, by the next forward of the module, or by its recomputation.
 */
#ifndef OFFSIM_SIM_COMPILE_ATTRIBUTES_H
#define OFFSIM_SIM_COMPILE_ATTRIBUTES_H

#include "sim/compile/walk.h"

void attributes_set(walk *w, instance_id i, uint32_t number, uint32_t buffer);

/* At the end of the iteration: one buffer of that size stays for the next iteration, the others are
 * freed. False: none has that size. */
bool attributes_keep_one(walk *w, int64_t bytes);
void attributes_end(walk *w);
/* The walk is over, or has failed. */
void attributes_release(walk *w);

#endif
