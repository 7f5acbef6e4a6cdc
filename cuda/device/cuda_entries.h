/*
 * Functions of the driver, looked up at their first use: the program does not link libcuda, so that
 * it starts without it.
 */
#ifndef OFFSIM_CUDA_DEVICE_CUDA_ENTRIES_H
#define OFFSIM_CUDA_DEVICE_CUDA_ENTRIES_H

#include <cudaTypedefs.h>

/* clang-format off */
/* name, and the CUDA version of its type in cudaTypedefs.h */
#define CUDA_ENTRIES(X) \
  X(cuGetErrorString, 6000) \
  X(cuMemAddressFree, 10020) \
  X(cuMemAddressReserve, 10020) \
  X(cuMemCreate, 10020) \
  X(cuMemMap, 10020) \
  X(cuMemRelease, 10020) \
  X(cuMemSetAccess, 10020) \
  X(cuMemUnmap, 10020) \
  X(cuStreamWaitValue32, 11070) \
  X(cuStreamWriteValue32, 11070)
/* clang-format on */

#define X(name, version) PFN_##name##_v##version name##_entry;
typedef struct cuda_entries {
  CUDA_ENTRIES(X)
} cuda_entries;
#undef X

/* NULL: all were found. */
const char *cuda_find_entries(const cuda_entries **entries);

/* NULL if `result` is CUDA_SUCCESS, otherwise the call, formatted, and the reason. */
const char *cuda_entry_said(CUresult result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
