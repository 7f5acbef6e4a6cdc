/*
 * The arguments of a launch: where a kernel's parameters are, and which words among them are
 * pointers. Any thread may call.
 */
#ifndef OFFSIM_CUDA_RECORDER_KERNELS_H
#define OFFSIM_CUDA_RECORDER_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/recorder/driver.h"

enum { KERNEL_POINTERS = 1024 };

typedef struct kernel_launch {
  CUfunction function; /* or a CUkernel */
  const char *symbol;  /* its name, mangled; NULL: unknown */
  void **parameters;   /* NULL: in `extra` */
  void **extra;
} kernel_launch;

/* Writes at most KERNEL_POINTERS and returns how many; *name: its number, of a row of kind
 * ISSUED_NAME that is written at its first launch. *seen: all arguments could be read. */
uint32_t kernel_pointers(const kernel_launch *l, uint64_t *pointers, uint32_t *name, bool *seen);

#endif
