/*
 * What the driver has handed out, so that a word among a kernel's arguments can be recognised as a
 * pointer. Any thread may call.
 */
#ifndef OFFSIM_CUDA_RECORDER_ALLOCATIONS_H
#define OFFSIM_CUDA_RECORDER_ALLOCATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void allocations_add(uint64_t address, uint64_t bytes);
/* `bytes` 0: the allocation that has the address. Returns the bytes of what was removed. */
uint64_t allocations_remove(uint64_t address, uint64_t bytes);
bool allocations_has(uint64_t address);

/* Appends the words at `bytes`, 8 of them each, that are addresses in allocations. Returns the new
 * count, at most `most`. */
size_t allocations_find(const void *bytes, size_t words, uint64_t *found, size_t count,
                        size_t most);

#endif
