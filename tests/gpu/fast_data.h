/* Operands of check_fast's cases: their memory on the GPU, and their contents. */
#ifndef OFFSIM_TESTS_GPU_FAST_DATA_H
#define OFFSIM_TESTS_GPU_FAST_DATA_H

#include <cuda_runtime_api.h>

#include "tests/gpu/fast_cases.h"

enum { WRITES = sizeof((fast_case *)0)->writes / sizeof(fast_operand) };

/* What the fast kernels of the cases before have written: by case. */
typedef struct results {
  void *writes[WRITES];
  int64_t bytes[WRITES];
} results;

/* Ends the program if a call of CUDA failed. */
void must(cudaError_t error, const char *what);

void *device_memory(int64_t bytes);
void *host_memory(int64_t bytes);

/* From the first element to the end of the last one. */
int64_t bytes_in(const exec_tensor *t);

/* `before`: of this case, after those of the earlier cases. */
void fill(const fast_operand *o, void *to, const results *before);

#endif
