/* The memory of cuda_exec_digest's kernel: what it writes, then its scratch memory. */
#ifndef OFFSIM_CUDA_EXEC_DIGEST_H
#define OFFSIM_CUDA_EXEC_DIGEST_H

#include "cuda/kernels/digest.h"

enum { DIGEST_BYTES = 256 };

#endif
