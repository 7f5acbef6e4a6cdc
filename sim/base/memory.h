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

#include <stddef.h>

/* Zeroed; free() releases it. Large blocks are zero pages until they are used. */
void *memory_zeroed(size_t count, size_t item_bytes);

/* As realloc. */
void *memory_resized(void *memory, size_t bytes);

/* The bytes that the text of /proc/meminfo calls available; SIZE_MAX if it does not say. */
size_t memory_available(const char *meminfo);

/*
 * The bytes that a control group may still take, from the texts of its files: memory.max, memory.current and
 * memory.stat of version 2, or memory.limit_in_bytes, memory.usage_in_bytes and memory.stat of version 1.
 * Inactive file pages count as available, since the kernel takes them back first. SIZE_MAX: no limit.
 */
size_t memory_left_of_group(const char *limit, const char *used, const char *stat);

#endif
