/*
 * Memory of plans, simulations and arrays. A request that cannot be met ends the program with status 3
 * and says how much was asked and how much there was, so no call returns NULL.
 *
 * Linux promises more memory than there is, and kills whichever process then uses it. So from time to time a
 * request looks at what is available (MemAvailable of /proc/meminfo, and the rest of the container's limit)
 * and refuses while there is still enough to say so.
 */
#ifndef OFFSIM_SIM_BASE_MEMORY_H
#define OFFSIM_SIM_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Blocks are aligned to 16 bytes; memory_return, and nothing else, releases them. What large ones held is
 * kept for later requests, so that a program that does the same again gets the pages that it has. */

void *memory_zeroed(size_t count, size_t item_bytes);

/* Sets whether the block is zero, or holds what an earlier one held. */
void *memory_taken(size_t bytes, bool *zeroed);

/* As realloc; NULL: a new block. */
void *memory_resized(void *memory, size_t bytes);

/* NULL: nothing. */
void memory_return(void *memory);

/* The bytes that the text of /proc/meminfo calls available; SIZE_MAX if it does not say. */
size_t memory_available(const char *meminfo);

/*
 * The bytes that a control group may still take, from the texts of its files: memory.max, memory.current and
 * memory.stat of version 2, or memory.limit_in_bytes, memory.usage_in_bytes and memory.stat of version 1.
 * Inactive file pages count as available, since the kernel takes them back first. SIZE_MAX: no limit.
 */
size_t memory_left_of_group(const char *limit, const char *used, const char *stat);

#endif
