/* CUPTI's functions, looked up in its library when times are requested. */
#ifndef OFFSIM_CUDA_MEASURE_CUPTI_H
#define OFFSIM_CUDA_MEASURE_CUPTI_H

#include <cupti.h>
#include <stdbool.h>

#include "cuda/libraries/library.h"
#include "sim/base/diag.h"

/* clang-format off */
#define CUPTI_FUNCTIONS(X) \
  X(cuptiActivityDisable) \
  X(cuptiActivityEnable) \
  X(cuptiActivityFlushAll) \
  X(cuptiActivityGetNextRecord) \
  X(cuptiActivityGetNumDroppedRecords) \
  X(cuptiActivityPopExternalCorrelationId) \
  X(cuptiActivityPushExternalCorrelationId) \
  X(cuptiActivityRegisterCallbacks) \
  X(cuptiActivitySetAttribute) \
  X(cuptiEnableCallback) \
  X(cuptiGetResultString) \
  X(cuptiGetTimestamp) \
  X(cuptiSubscribe) \
  X(cuptiUnsubscribe)
/* clang-format on */

typedef struct cupti {
  CUPTI_FUNCTIONS(LIBRARY_FUNCTION)
} cupti;

/* NULL after a diag error (status 3). */
const cupti *cupti_load(diag *d);

/* False after a diag error (status 3) if the call has failed. */
bool cupti_check(const cupti *c, CUptiResult result, const char *call, diag *d);

#endif
