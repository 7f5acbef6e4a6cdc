/* The rules of the verifier, a file each: every function adds what it finds on one rank. */
#ifndef OFFSIM_SIM_VERIFY_FINDINGS_H
#define OFFSIM_SIM_VERIFY_FINDINGS_H

#include "sim/verify/verify.h"

void find_buffer_races(verification *v, uint32_t rank, const plan *before,
                       arena *a);                                 /* buffers.c */
void find_event_faults(verification *v, uint32_t rank, arena *a); /* events.c */
void find_leaks(verification *v, uint32_t rank, arena *a);        /* leaks.c */

static inline void add_finding(verification *v, finding f)
{
  *ARRAY_PUSH(&v->findings) = f;
}

#endif
