/*
 * Fingerprints of elements: XXH3, 128 bits, of their bytes in logical order.
 */
#ifndef OFFSIM_REF_EXEC_PRINT_H
#define OFFSIM_REF_EXEC_PRINT_H

#include "ref/exec/exec.h"

typedef struct print_state print_state;

print_state *print_new(void);
void print_release(print_state *p);
void print_begin(print_state *p);
void print_add(print_state *p, const exec_tensor *t);
exec_fingerprint print_end(const print_state *p);

#endif
