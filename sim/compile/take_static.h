/*
 * A static allocation becomes a buffer of the plan: on the device, or on the host, with contents where the
 * program has some before any op writes it.
 */
#ifndef OFFSIM_SIM_COMPILE_TAKE_STATIC_H
#define OFFSIM_SIM_COMPILE_TAKE_STATIC_H

#include "sim/compile/walk.h"
#include "sim/residents/static_buffers.h"

/* A new row of the plan's tensors. */
uint32_t static_tensor(walk *w, const static_allocation *what);
/* Allocates it now. */
uint32_t take_static(walk *w, const static_allocation *what);
/* The steady iteration begins with it. */
uint32_t take_static_resident(walk *w, const static_allocation *what);

#endif
