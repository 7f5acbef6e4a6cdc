/* The same training in other legal orders of its ops: do all of them write the same bits? */
#ifndef OFFSIM_SIM_TRAIN_ORDERS_H
#define OFFSIM_SIM_TRAIN_ORDERS_H

#include "sim/train/train.h"

/* Orders that were compared with the program's. */
typedef struct train_orders {
  uint64_t run;
  uint64_t seed;       /* of the last, which is the first that does not agree */
  const char *finding; /* NULL: all agree */
} train_orders;

/* Orders drawn by the seeds 1 to `count`, up to the first that does not agree with `result`, which
 * `options` gave. False after a diag error: a resource was refused. */
bool train_try_orders(const train_input *in, const train_options *options,
                      const train_result *result, uint64_t count, train_orders *found, arena *a,
                      diag *d);

#endif
