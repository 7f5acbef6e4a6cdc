/*
 * What some of a host's GPUs copy when they copy at the same time: less than as many times what one
 * of them does, long before the limit of the whole host is reached.
 *
 * A machine's file may list it under `at_once`, for numbers of GPUs between one and all:
 *
 *     at_once:
 *       - 2 GPUs = 105100 out, 100200 back, 151700 both ways
 *
 * Sums over these GPUs, bytes per microsecond.
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

/* A line of the list. False: it is not one. */
bool contention_parse(contention *c, const char *text);
void contention_print(FILE *out, const contention *c);

/* By ascending numbers of GPUs. */
typedef struct contention_list {
  const contention *items;
  uint32_t count;
} contention_list;

/* What `d2h_gpus` GPUs get at most whose copies go out, and `h2d_gpus` whose copies come back: by a
 * straight line between the two nearest numbers of GPUs; `all` of the host's follow the list, and
 * fewer than its first number get as much as those. A limit of 0 is none. */
contention contention_of(const contention_list *list, const contention *all, uint32_t d2h_gpus,
                         uint32_t h2d_gpus);

#endif
