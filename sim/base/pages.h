/*
 * Memory of large blocks: huge pages, which blocks share. With 4 KiB pages the first touch of a plan's
 * arrays costs more than filling them.
 *
 * What is returned serves later requests, for the kernel takes as long to clear a page as a program to fill
 * it. Neighbours that are returned join again. Any thread may call.
 */
#ifndef OFFSIM_SIM_BASE_PAGES_H
#define OFFSIM_SIM_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* All sizes are multiples of this. */
enum { PAGE_GRANULE_BYTES = 4096 };

/* What it holds is left from earlier blocks. NULL: no free piece is so large. */
void *pages_reused(size_t bytes);

/* Memory that nothing has touched. NULL: refused. */
void *pages_zeroed(size_t bytes);

/* Whether the `more` bytes from `end` on, the end of a block, were free, and belong to it now. */
bool pages_extend(void *end, size_t more);

void pages_return(void *at, size_t bytes);

/* Gives back to the system what was returned, as far as it is whole pages. */
void pages_drop(void);

#endif
