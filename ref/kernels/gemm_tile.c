#include "ref/kernels/gemm_tile.h"

#include <assert.h>
#include <stddef.h>

#define TILE_NAME tile_16_bytes
#define TILE_TARGET
#define TILE_BYTES   16
#define TILE_ROWS    4
#define TILE_VECTORS 2
#include "ref/kernels/gemm_tile.inc"

#if defined(__x86_64__)

#define TILE_NAME    tile_32_bytes
#define TILE_TARGET  __attribute__((target("avx2")))
#define TILE_BYTES   32
#define TILE_ROWS    4
#define TILE_VECTORS 2
#include "ref/kernels/gemm_tile.inc"

#define TILE_NAME    tile_64_bytes
#define TILE_TARGET  __attribute__((target("avx512f")))
#define TILE_BYTES   64
#define TILE_ROWS    8
#define TILE_VECTORS 2
#include "ref/kernels/gemm_tile.inc"

#endif

#define COLUMNS(bytes, vectors) (vectors * bytes / (int)sizeof(real))

static const gemm_path paths[] = {
  { "16 bytes", 4, COLUMNS(16, 2), tile_16_bytes },
#if defined(__x86_64__)
  { "avx2", 4, COLUMNS(32, 2), tile_32_bytes },
  { "avx512", 8, COLUMNS(64, 2), tile_64_bytes },
#endif
};

static const gemm_path *chosen;

uint32_t gemm_path_count(void)
{
  uint32_t count = 1;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) count = 2;
  if (count == 2 && __builtin_cpu_supports("avx512f")) count = 3;
#endif
  return count;
}

const gemm_path *gemm_path_at(uint32_t i)
{
  assert(i < gemm_path_count());
  return &paths[i];
}

void gemm_choose_path(const gemm_path *path)
{
  chosen = path;
}

const gemm_path *gemm_chosen_path(void)
{
  if (chosen == NULL) chosen = gemm_path_at(gemm_path_count() - 1);
  return chosen;
}
