/*
 * Matrix products of a fixed order: the twin of ref/kernels/gemm.h. Each element of a result is one
 * sum, which starts at 0 and takes its terms by ascending k; a product is rounded, then the sum.
 * Then the addend, if there is one, is added, and the result rounded once to its type.
 *
 *     multiply(c, count, most_rows, columns,
 *              KERNEL_LAMBDA(int64_t i) { return product number i; });
 *
 * Product number i may depend on device memory; it has at most `most_rows` rows. Results do not
 * overlap any a or b.
 */
#ifndef OFFSIM_CUDA_KERNELS_PRODUCT_CUH
#define OFFSIM_CUDA_KERNELS_PRODUCT_CUH

#include "cuda/kernels/tensor.cuh"

/* Element (i, j) is element i * row_stride + j * column_stride of `data`. */
typedef struct matrix {
  void *data;
  int type;
  int64_t row_stride, column_stride;
} matrix;

/* c = a b [factor] [+ addend]. */
typedef struct product {
  int64_t m, n, k;
  matrix a, b;   /* m x k, k x n */
  matrix addend; /* m x n; data NULL: none. May be c itself; row_stride 0: a bias */
  matrix c;      /* m x n */
  bool scales;
  float factor;
} product;

enum { PRODUCT_TILE = 64, PRODUCT_DEPTH = 16, PRODUCT_THREADS = 256, PRODUCT_OWN = 4 };

EXACT_FUNCTION matrix matrix_transposed(matrix m)
{
  matrix turned = { m.data, m.type, m.column_stride, m.row_stride };
  return turned;
}

EXACT_FUNCTION int64_t type_bytes(int type)
{
  switch (type) {
  case DTYPE_BF16:
  case DTYPE_FP16: return 2;
  case DTYPE_FP32:
  case DTYPE_INT32: return 4;
  case DTYPE_FP64:
  case DTYPE_INT64: return 8;
  default: return 1;
  }
}

/* The matrix that begins `elements` further on. */
EXACT_FUNCTION matrix matrix_at(matrix m, int64_t elements)
{
  if (m.data != NULL) m.data = (char *)m.data + elements * type_bytes(m.type);
  return m;
}

DEVICE static inline float load_of(const matrix &m, int64_t i, int64_t j)
{
  return load_at(m.data, m.type, i * m.row_stride + j * m.column_stride);
}

DEVICE static inline void store_sum(const product &p, int64_t i, int64_t j, float sum)
{
  if (i >= p.m || j >= p.n) return;
  if (p.scales) sum = sum * p.factor;
  if (p.addend.data != NULL) sum += load_of(p.addend, i, j);
  store_at(p.c.data, p.c.type, i * p.c.row_stride + j * p.c.column_stride, sum);
}

/* The panels of a tile: elements outside of the matrices are 0. */
typedef float product_panel[PRODUCT_DEPTH][PRODUCT_TILE];

/* `lines` are the rows of m; elements are loaded in the direction in which they are adjacent. */
DEVICE static inline void load_panel(const matrix &m, int64_t lines, int64_t line, int64_t depth,
                                     int64_t k, product_panel panel, int thread, int threads)
{
  for (int e = thread; e < PRODUCT_TILE * PRODUCT_DEPTH; e += threads) {
    bool along_depth = m.column_stride == 1;
    int l = along_depth ? e / PRODUCT_DEPTH : e % PRODUCT_TILE;
    int d = along_depth ? e % PRODUCT_DEPTH : e / PRODUCT_TILE;
    bool inside = line + l < lines && k + d < depth;
    panel[d][l] = inside ? load_of(m, line + l, k + d) : 0;
  }
}

#ifdef __CUDACC__

/* A thread has PRODUCT_OWN x PRODUCT_OWN sums of a tile. */
static __device__ void multiply_tile(const product &p, int64_t row, int64_t column)
{
  __shared__ product_panel a, b;
  const int thread = (int)threadIdx.x, across = PRODUCT_TILE / PRODUCT_OWN;
  const int i0 = thread / across * PRODUCT_OWN, j0 = thread % across * PRODUCT_OWN;
  float sums[PRODUCT_OWN][PRODUCT_OWN] = {};
  for (int64_t k = 0; k < p.k; k += PRODUCT_DEPTH) {
    int depth = p.k - k < PRODUCT_DEPTH ? (int)(p.k - k) : PRODUCT_DEPTH;
    load_panel(p.a, p.m, row, p.k, k, a, thread, PRODUCT_THREADS);
    load_panel(matrix_transposed(p.b), p.n, column, p.k, k, b, thread, PRODUCT_THREADS);
    __syncthreads();
    for (int d = 0; d < depth; d++)
#pragma unroll
      for (int i = 0; i < PRODUCT_OWN; i++)
#pragma unroll
        for (int j = 0; j < PRODUCT_OWN; j++)
          sums[i][j] += a[d][i0 + i] * b[d][j0 + j];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < PRODUCT_OWN; i++)
#pragma unroll
    for (int j = 0; j < PRODUCT_OWN; j++)
      store_sum(p, row + i0 + i, column + j0 + j, sums[i][j]);
}

#else

static inline void multiply_tile(const product &p, int64_t row, int64_t column)
{
  product_panel a, b;
  float sums[PRODUCT_TILE][PRODUCT_TILE] = {};
  for (int64_t k = 0; k < p.k; k += PRODUCT_DEPTH) {
    int depth = p.k - k < PRODUCT_DEPTH ? (int)(p.k - k) : PRODUCT_DEPTH;
    load_panel(p.a, p.m, row, p.k, k, a, 0, 1);
    load_panel(matrix_transposed(p.b), p.n, column, p.k, k, b, 0, 1);
    for (int d = 0; d < depth; d++)
      for (int i = 0; i < PRODUCT_TILE; i++)
        for (int j = 0; j < PRODUCT_TILE; j++)
          sums[i][j] += a[d][i] * b[d][j];
  }
  for (int i = 0; i < PRODUCT_TILE; i++)
    for (int j = 0; j < PRODUCT_TILE; j++)
      store_sum(p, row + i, column + j, sums[i][j]);
}

#endif

/* Tile `n` of all products' tiles: which product, and where it begins. */
typedef struct product_grid {
  int64_t count, down, across; /* products; tiles of each */
} product_grid;

static inline product_grid product_grid_of(int64_t count, int64_t most_rows, int64_t columns)
{
  product_grid g = { count, (most_rows + PRODUCT_TILE - 1) / PRODUCT_TILE,
                     (columns + PRODUCT_TILE - 1) / PRODUCT_TILE };
  return g;
}

template <class F>
DEVICE static inline void multiply_number(const product_grid &g, int64_t n, const F &select)
{
  int64_t tile = n % (g.down * g.across);
  product p = select(n / (g.down * g.across));
  int64_t row = tile / g.across * PRODUCT_TILE, column = tile % g.across * PRODUCT_TILE;
  if (row < p.m && column < p.n) multiply_tile(p, row, column);
}

#ifdef __CUDACC__

template <class F> __global__ void multiply_kernel(product_grid g, F select)
{
  multiply_number(g, blockIdx.x, select);
}

template <class F>
void multiply(cuda_call *c, int64_t count, int64_t most_rows, int64_t columns, F select)
{
  product_grid g = product_grid_of(count, most_rows, columns);
  int64_t tiles = g.count * g.down * g.across;
  if (tiles == 0 || c->failure != NULL) return;
  multiply_kernel<<<(unsigned)tiles, PRODUCT_THREADS, 0, (cudaStream_t)c->stream>>>(g, select);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}

#else

template <class F>
void multiply(cuda_call *c, int64_t count, int64_t most_rows, int64_t columns, F select)
{
  product_grid g = product_grid_of(count, most_rows, columns);
  for_each(
      c, g.count * g.down * g.across, KERNEL_LAMBDA(int64_t n) { multiply_number(g, n, select); });
}

#endif

#endif
