/*
 * The host's call that issued a piece of work, by the number that both have.
 */
#ifndef OFFSIM_TRACES_IMPORT_CALL_TABLE_H
#define OFFSIM_TRACES_IMPORT_CALL_TABLE_H

#include "traces/import/real_run.h"

typedef struct numbered_call {
  uint32_t correlation, span;
} numbered_call;

typedef struct call_table {
  numbered_call *items; /* by correlation */
  uint32_t count, capacity;
} call_table;

/* Release it by ARRAY_FREE. */
call_table call_table_of(const real_run *r);

/* The span of the call; REAL_NONE: the record has none. */
uint32_t call_table_find(const call_table *t, uint32_t correlation);

#endif
