/*
 * Contents without arithmetic: for each byte of a buffer a number that says which op wrote it and
 * what that op had read. Ops that write different parts may do so in any order.
 */
#ifndef OFFSIM_REF_EXEC_CONTENTS_H
#define OFFSIM_REF_EXEC_CONTENTS_H

#include <stdint.h>

#include "sim/plan/plan.h"

/* Neighbouring runs have different tokens, so that equal contents have equal runs. */
typedef struct contents_run {
  int64_t end; /* its first byte is the end of the run before it, or 0 */
  uint64_t token;
} contents_run;

/* Owns its runs. */
typedef struct contents {
  contents_run *items;
  uint32_t count, capacity;
} contents;

/* A one-to-one scattering of the bits. */
uint64_t contents_mixed(uint64_t x);

/* Sets all bytes, also of contents that are zeroed memory. A buffer without bytes counts as one of
 * one byte. */
void contents_fill(contents *c, int64_t bytes, uint64_t token);
void contents_release(contents *c);

/* Its bytes; none of contents that are zeroed memory. Ranges below lie in it. */
byte_range contents_all(const contents *c);
/* `dense`: the op writes every byte of the range; otherwise what was there still counts. */
void contents_write(contents *c, byte_range range, uint64_t token, bool dense);
uint64_t contents_hash(const contents *c, byte_range range);
uint64_t contents_hash_all(const contents *c);

#endif
