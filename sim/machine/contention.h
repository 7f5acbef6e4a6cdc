/*
 * The total rate of some of a host's GPUs when they copy at the same time. It is less than their
 * number times one GPU's rate, long before the limit of the whole host is reached.
 *
 * A machine's file may list these rates under `at_once`, for numbers of GPUs between one and all:
 *
 *     at_once:
 *       - 2 GPUs = 105100 out, 100200 back, 151700 both ways
 *
 * Rates are sums over these GPUs, in bytes per microsecond.
 */
#ifndef OFFSIM_SIM_MACHINE_CONTENTION_H
#define OFFSIM_SIM_MACHINE_CONTENTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct contention {
  int64_t gpus;
  int64_t d2h_bytes_per_us, h2d_bytes_per_us, duplex_bytes_per_us;
} contention;

/* Reads a line of the list. False: the text is not one. */
bool contention_parse(contention *c, const char *text);
void contention_print(FILE *out, const contention *c);

/* Sorted by ascending number of GPUs. */
typedef struct contention_list {
  const contention *items;
  uint32_t count;
} contention_list;

/* The limits while `d2h_gpus` GPUs copy to the host and `h2d_gpus` copy back: linear between the
 * two nearest numbers of GPUs in the list. `all`, the limits of all GPUs of the host, is the entry
 * after the list's last; fewer GPUs than its first entry get that entry's limits. 0 is no limit. */
contention contention_of(const contention_list *list, const contention *all, uint32_t d2h_gpus,
                         uint32_t h2d_gpus);

#endif
