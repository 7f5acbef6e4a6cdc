/*
 * Large arrays in huge pages: with 4 KiB pages the first touch of a plan's arrays costs more than
 * filling them. Advice only; nothing depends on whether the system takes it.
 */
#ifndef OFFSIM_SIM_BASE_HUGE_PAGES_H
#define OFFSIM_SIM_BASE_HUGE_PAGES_H

#include <stddef.h>

void prefer_huge_pages(void *memory, size_t bytes);

#endif
