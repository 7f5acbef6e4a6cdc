/*
 * What offsim takes of <sys/mman.h>, for wasm32-wasi, which maps no pages: memory_taken asks for none.
 */
#ifndef OFFSIM_BUILD_WASM_SYS_MMAN_H
#define OFFSIM_BUILD_WASM_SYS_MMAN_H

#include <stddef.h>

enum { PROT_READ = 1, PROT_WRITE = 2, MAP_PRIVATE = 2, MAP_ANONYMOUS = 32, MADV_HUGEPAGE = 14 };
#define MAP_FAILED ((void *)-1)

static inline void *mmap(void *at, size_t bytes, int protection, int flags, int file, long offset)
{
  (void)at, (void)bytes, (void)protection, (void)flags, (void)file, (void)offset;
  return MAP_FAILED;
}

static inline int munmap(void *at, size_t bytes)
{
  (void)at, (void)bytes;
  return -1;
}

static inline int madvise(void *at, size_t bytes, int advice)
{
  (void)at, (void)bytes, (void)advice;
  return -1;
}

#endif
