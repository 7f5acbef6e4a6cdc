/* Repeats a training in other legal orders of its ops, which must write the same bits. */
#ifndef OFFSIM_SIM_TRAIN_ORDERS_H
#define OFFSIM_SIM_TRAIN_ORDERS_H

#include "sim/train/train.h"

/* Orders that were compared with program order. */
typedef struct train_orders {
  uint64_t run;
  uint64_t seed;       /* of the last order, which is the first that disagrees */
  const char *finding; /* NULL: all agree */
} train_orders;

/* Draws orders with the seeds 1 to `count`, up to the first that disagrees with `result`, the
 * result of `options`. False after a diag error: a resource was refused. */
bool train_try_orders(const train_input *in, const train_options *options,
                      const train_result *result, uint64_t count, train_orders *found, arena *a,
                      diag *d);

#endif
