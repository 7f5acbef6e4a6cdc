#include "cuda/device/cuda_entries.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "cuda/device/cuda_driver.h"
#include "cuda/device/failure.h"

static struct {
  pthread_once_t once;
  cuda_entries entries;
  const char *missing;
} found = { .once = PTHREAD_ONCE_INIT };

static void find(const char *name, unsigned version, void **entry)
{
  enum cudaDriverEntryPointQueryResult result;
  cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, entry, version, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    found.missing = name;
  }
}

static void find_all(void)
{
#define X(name, version) find(#name, version, (void **)(void *)&found.entries.name##_entry);
  CUDA_ENTRIES(X)
#undef X
}

const char *cuda_find_entries(const cuda_entries **entries)
{
  pthread_once(&found.once, find_all);
  *entries = &found.entries;
  return found.missing == NULL ? NULL : gpu_failure("the driver has no %s", found.missing);
}

const char *cuda_entry_said(CUresult result, const char *format, ...)
{
  if (result == CUDA_SUCCESS) return NULL;
  char call[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(call, sizeof call, format, arguments);
  va_end(arguments);
  const char *reason = NULL;
  found.entries.cuGetErrorString_entry(result, &reason);
  return gpu_failure("%s: %s", call, reason == NULL ? "unknown error" : reason);
}
