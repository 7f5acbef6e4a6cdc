/*
 * Libraries that offsim is not linked with: they are opened at their first use, so that offsim
 * starts without them, and quickly with them.
 *
 * One list names the functions of a library. It makes a struct of pointers, with the types of the
 * library's header, and the names to look up:
 *
 *     #define NCCL_FUNCTIONS(X) X(ncclSend) X(ncclRecv)
 *
 *     typedef struct nccl_functions {
 *       NCCL_FUNCTIONS(LIBRARY_FUNCTION)
 *     } nccl_functions;
 *
 *     static const library nccl = {
 *       .name = "NCCL",
 *       .files = { "libnccl.so.2" },
 *       .advice = "install NVIDIA NCCL 2",
 *       .functions = { NCCL_FUNCTIONS(LIBRARY_NAME) },
 *     };
 *
 *     nccl_functions f;
 *     if (!library_open(&nccl, &f, d)) ...
 */
#ifndef OFFSIM_CUDA_LIBRARIES_LIBRARY_H
#define OFFSIM_CUDA_LIBRARIES_LIBRARY_H

#include <stdbool.h>

#include "sim/base/diag.h"

#define LIBRARY_FUNCTION(function) __typeof__(function) *function;
#define LIBRARY_NAME(function)     #function,

enum { LIBRARY_FILES = 4, LIBRARY_FUNCTIONS = 64 };

typedef struct library {
  const char *name;
  const char *files[LIBRARY_FILES];             /* newest first; NULL after the last */
  const char *advice;                           /* what to install */
  const char *functions[LIBRARY_FUNCTIONS + 1]; /* in the order of the struct; NULL after the
                                                 * last */
} library;

/*
 * Opens the first file that exists, in the dynamic linker's path, then in $CUDA_HOME/lib64 and
 * /usr/local/cuda/lib64, and fills `functions`, a struct of pointers only. The library stays open
 * as long as the program runs. False after a diag error (status 3) that names the tried files; `d`
 * may be NULL for an optional library.
 */
bool library_open(const library *l, void *functions, diag *d);

#endif
