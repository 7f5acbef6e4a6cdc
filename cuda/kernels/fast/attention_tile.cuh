/*
 * Tiles of attention in shared memory, and products of tiles in the registers of a warp.
 *
 * A tile of bf16 is stored in panels of 64 columns: rows of 128 bytes, whose pieces of 16 bytes
 * are swapped by the row's number, so that eight rows of a column of pieces are in eight banks.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ATTENTION_TILE_CUH
#define OFFSIM_CUDA_KERNELS_FAST_ATTENTION_TILE_CUH

#include "cuda/kernels/fast/async_copy.cuh"
#include "cuda/kernels/fast/attention_mma.cuh"
#include "cuda/kernels/fast/attention_shape.h"

enum { TILE_PANEL = 64, TILE_ROW_BYTES = 128, TILE_PIECE = 8, TILE_PIECE_BYTES = 16 };
enum { WARP = 32, GROUP = 128, GROUP_ROWS = 64, TILE_ALIGNMENT = 1024 };

template <int ROWS, int COLUMNS> struct tile {
  static const int rows = ROWS, columns = COLUMNS, bytes = ROWS * COLUMNS * 2;
  static const int panel_bytes = ROWS * TILE_ROW_BYTES, pieces = COLUMNS / TILE_PIECE;
  uint32_t address;

  __device__ uint32_t place(int row, int piece) const
  {
    return address + piece / TILE_PIECE * panel_bytes + row * TILE_ROW_BYTES +
           ((piece % TILE_PIECE ^ (row & 7)) * TILE_PIECE_BYTES);
  }
};

/* Where tiles begin in the shared memory of a block of threads, which asked for TILE_ALIGNMENT more
 * than they take. */
__device__ static inline uint32_t aligned_tiles(const void *shared)
{
  return (shared_address(shared) + TILE_ALIGNMENT - 1) & ~(TILE_ALIGNMENT - 1u);
}

/* One head of an operand. */
struct head_rows {
  uint16_t *first;
  int64_t stride;
  int count;
};

__device__ static inline head_rows rows_of(const attention_operand &o, int64_t batch, int64_t head,
                                           int64_t count)
{
  return { (uint16_t *)o.data + batch * o.batch_stride + head * o.head_stride, o.row_stride,
           (int)count };
}

/* Rows from `row` on; those after the last are zeros. A thread copies the same piece of each of
 * its rows, and these rows have the same number modulo eight. */
template <int THREADS, int ROWS, int COLUMNS>
__device__ void load_tile(tile<ROWS, COLUMNS> t, const head_rows &from, int row)
{
  const int pass = THREADS / TILE_PIECE; /* rows at a time */
  int r = threadIdx.x / TILE_PIECE, piece = threadIdx.x % TILE_PIECE;
  const uint16_t *first = from.first + (row + r) * from.stride + piece * TILE_PIECE;
  uint32_t to = t.place(r, piece);
#pragma unroll
  for (int i = 0; i < ROWS; i += pass, first += pass * from.stride)
    if (ROWS % pass == 0 || i + r < ROWS)
#pragma unroll
      for (int panel = 0; panel < COLUMNS / TILE_PANEL; panel++)
        copy_16(to + panel * t.panel_bytes + i * TILE_ROW_BYTES, first + panel * TILE_PANEL,
                row + i + r < from.count);
}

/* Starts the copy of a block of keys and values, unless no query sees it. */
template <class Z, class TILES>
__device__ void load_keys(const TILES &t, const head_rows &keys, const head_rows &values, int key,
                          int seen, int stage)
{
  if (key < seen) {
    load_tile<Z::THREADS>(t.key(stage), keys, key);
    load_tile<Z::THREADS>(t.value(stage), values, key);
  }
  copy_commit();
}

/* Waits until all requested copies have arrived, for all threads. */
__device__ static inline void wait_for_tiles()
{
  copy_wait<0>();
  show_to_wgmma();
  __syncthreads();
}

/* The stage of tiles that comes after another. */
template <class Z> __device__ int stage_behind(int stage)
{
  return stage == Z::STAGES - 1 ? 0 : stage + 1;
}

/* ---- products ------------------------------------------------------------------------------- */

/* 16 columns from `column` on of the rows from `row` on, a multiple of 8. */
template <class T> __device__ uint64_t rows_along_k(T t, int row, int column)
{
  return panel_descriptor(t.address + column / TILE_PANEL * T::panel_bytes + row * TILE_ROW_BYTES +
                              column % TILE_PANEL * 2,
                          T::panel_bytes);
}

/* 16 rows from `row` on, of the columns from `column` on, a multiple of 64. */
template <class T> __device__ uint64_t columns_along_k(T t, int row, int column)
{
  return panel_descriptor(t.address + column / TILE_PANEL * T::panel_bytes + row * TILE_ROW_BYTES,
                          T::panel_bytes);
}

/* Starts sums[64, N] = rows of a, from `row` on, times the N rows of b. */
template <int N, class A, class B>
__device__ void multiply_rows(float (&sums)[N / 8][4], A a, int row, B b)
{
#pragma unroll
  for (int k = 0; k < A::columns; k += 16)
    multiply_tiles(sums, rows_along_k(a, row, k), rows_along_k(b, 0, k), k > 0);
}

/* Columns that one instruction takes of results of N. */
template <int N> struct product_columns {
  static const int at_once = N % 128 == 0 ? 128 : 64;
};

/* Starts sums[64, N] += x[64, K] times the K rows of b. */
template <int N, int K, class B>
__device__ void add_product(float (&sums)[N / 8][4], const uint32_t (&x)[K / 16][4], B b)
{
  const int width = product_columns<N>::at_once;
#pragma unroll
  for (int k = 0; k < K; k += 16)
#pragma unroll
    for (int n = 0; n < N; n += width)
      multiply_registers(*(float(*)[width / 8][4]) & sums[n / 8], x[k / 16],
                         columns_along_k(b, k, n));
}

/* As a left factor. */
template <int K>
__device__ void round_to_factor(uint32_t (&to)[K / 16][4], const float (&x)[K / 8][4])
{
#pragma unroll
  for (int k = 0; k < K / 16; k++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *pair = &x[k * 2 + i / 2][i % 2 * 2];
      to[k][i] = bf16_pair(pair[0], pair[1]);
    }
}

/* ---- results -------------------------------------------------------------------------------- */

/* A warp's sums times `factor`, as rows `row` and on of a tile that no other warp looks at, and
 * from there to `to`. */
template <int N, class T>
__device__ void store_rows(const float (&sums)[N / 8][4], float factor, unsigned char *shared, T t,
                           int row, const head_rows &to, int to_row)
{
  int lane = threadIdx.x % WARP;
  uint32_t begin = shared_address(shared);
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t place = t.place(row + half * 8 + lane / 4, n) + lane % 4 * 4;
      *(uint32_t *)(shared + (place - begin)) =
          bf16_pair(sums[n][half * 2] * factor, sums[n][half * 2 + 1] * factor);
    }
  __syncwarp();
  for (int i = lane; i < 16 * (N / 8); i += WARP) {
    int r = i / (N / 8), piece = i % (N / 8);
    if (to_row + r < to.count)
      *(uint4 *)(to.first + (to_row + r) * to.stride + piece * TILE_PIECE) =
          *(const uint4 *)(shared + (t.place(row + r, piece) - begin));
  }
}

#endif
