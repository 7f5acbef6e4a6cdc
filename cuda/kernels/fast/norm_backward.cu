/*
 * Gradients of RMSNorm and LayerNorm. A group of threads goes through rows of its own: the
 * next ones are on their way to shared memory while it works on one, and keeps its sums for gamma
 * (and beta) in registers; the rest is columns.cuh.
 */
#include "cuda/kernels/fast/async_copy.cuh"
#include "cuda/kernels/fast/columns.cuh"
#include "cuda/kernels/fast/norm.cuh"

enum { BACKWARD_THREADS = 896, STAGES = 3 }; /* of a processor; rows on their way */

struct norm_backward {
  row_groups g;
  layout gy, x, gx, gamma, rstd, mean;
  float shift;
  float *gammas, *betas; /* [blocks][columns]; NULL: frozen */
};

/* Where a thread's part of some rows of gy and x waits in shared memory: it copies what it alone
 * reads. */
template <int K> struct norm_ring {
  uint4 *own;
  uint32_t threads;
  __device__ uint4 *at(uint32_t stage, int which, int k) const
  {
    return own + ((stage * 2 + (uint32_t)which) * K + (uint32_t)k) * threads;
  }
};

template <int V, int K>
static __device__ inline void fetch_row(const norm_backward &n, const norm_ring<K> &ring,
                                        uint32_t stage, uint32_t row, int32_t lane)
{
  if (row < n.g.rows) {
    int64_t size = 16 / V;
    const char *gy = (const char *)n.gy.data + place_of(n.gy, row) * size;
    const char *x = (const char *)n.x.data + place_of(n.x, row) * size;
#pragma unroll
    for (int k = 0; k < K; k++) {
      int32_t vector = lane + k * n.g.group;
      if (vector >= n.g.vectors) break;
      copy_16(shared_address(ring.at(stage, 0, k)), gy + (int64_t)vector * 16, true);
      copy_16(shared_address(ring.at(stage, 1, k)), x + (int64_t)vector * 16, true);
    }
  }
  copy_commit();
}

/* Partial sums of the block's groups, those of one group after the other's. */
template <int V, int K>
static __device__ inline void write_sums(const norm_backward &n, int32_t lane,
                                         const float (*sums)[V], float *to)
{
  extern __shared__ uint4 memory[]; /* the ring, which is done */
  float *shared = (float *)memory;
  int32_t group = (int32_t)threadIdx.x / n.g.group, groups = rows_per_block(n.g.group);
  float *row = groups == 1 ? to : shared + group * n.g.columns;
#pragma unroll
  for (int k = 0; k < K; k++) {
    int32_t column = (lane + k * n.g.group) * V;
    if (column >= n.g.columns) break;
#pragma unroll
    for (int j = 0; j < V; j += 4)
      *(vector<float, 4> *)(row + column + j) = packed<4>(sums[k] + j, 0.0f);
  }
  if (groups == 1) return;
  __syncthreads();
  for (int32_t i = (int32_t)threadIdx.x; i < n.g.columns; i += (int32_t)blockDim.x) {
    float sum = 0;
    for (int32_t k = 0; k < groups; k++)
      sum += shared[k * n.g.columns + i];
    to[i] = sum;
  }
  __syncthreads();
}

/* Sums over the group; buffers of turns that follow each other differ, so that one barrier is
 * enough. */
template <int N> static __device__ inline void turn_sums(int32_t group, uint32_t turn, float *x)
{
  __shared__ float parts[2][N][ROWS_WARP];
  int32_t width = group < ROWS_WARP ? group : ROWS_WARP, warps = group / ROWS_WARP;
  for (int32_t step = width / 2; step > 0; step /= 2)
#pragma unroll
    for (int k = 0; k < N; k++)
      x[k] += __shfl_xor_sync(0xffffffffU, x[k], step);
  if (group <= ROWS_WARP) return;
  if (threadIdx.x % ROWS_WARP == 0)
#pragma unroll
    for (int k = 0; k < N; k++)
      parts[turn % 2][k][threadIdx.x / ROWS_WARP] = x[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < N; k++) {
    x[k] = parts[turn % 2][k][0];
    for (int32_t w = 1; w < warps; w++)
      x[k] += parts[turn % 2][k][w];
  }
}

template <class T, int K, bool CENTRES>
__global__ void __launch_bounds__(ROWS_MOST_THREADS) norm_backward_kernel(norm_backward n)
{
  constexpr int V = 16 / sizeof(T);
  extern __shared__ uint4 memory[];
  norm_ring<K> ring = { memory + threadIdx.x, blockDim.x };
  int32_t lane = (int32_t)threadIdx.x % n.g.group, groups = rows_per_block(n.g.group);
  uint32_t begin = blockIdx.x * (uint32_t)groups, step = gridDim.x * (uint32_t)groups;
  uint32_t row = begin + threadIdx.x / (uint32_t)n.g.group, turn = 0;
  float gammas[K][V] = {}, betas[CENTRES ? K : 1][V] = {}, gamma[K][V] = {};
  float inverse = 1.0f / (float)n.g.columns;
#pragma unroll
  for (int k = 0; k < K; k++) {
    if (lane + k * n.g.group >= n.g.vectors) break;
    load<V>(n.gamma, (lane + k * n.g.group) * V, gamma[k]);
#pragma unroll
    for (int j = 0; j < V; j++)
      gamma[k][j] += n.shift;
  }
  for (uint32_t s = 0; s + 1 < STAGES; s++)
    fetch_row<V, K>(n, ring, s, row + s * step, lane);
  float rstd = row < n.g.rows ? number_at(n.rstd, row) : 0;
  float mean = CENTRES && row < n.g.rows ? number_at(n.mean, row) : 0;
  /* All groups of a block take as many turns. */
  for (; begin < n.g.rows; begin += step, row += step, turn++) {
    bool there = row < n.g.rows, more = row + step < n.g.rows;
    float next_rstd = more ? number_at(n.rstd, row + step) : 0;
    float next_mean = CENTRES && more ? number_at(n.mean, row + step) : 0, sums[2] = {};
    uint32_t stage = turn % STAGES;
    copy_wait<STAGES - 2>();
    fetch_row<V, K>(n, ring, (turn + STAGES - 1) % STAGES, row + (STAGES - 1) * step, lane);
#pragma unroll
    for (int k = 0; k < K; k++) {
      float gy[V], x[V];
      if (!there || lane + k * n.g.group >= n.g.vectors) break;
      unpack<V>(*(const vector<T, V> *)ring.at(stage, 0, k), gy);
      unpack<V>(*(const vector<T, V> *)ring.at(stage, 1, k), x);
#pragma unroll
      for (int j = 0; j < V; j++) {
        float centred = CENTRES ? x[j] - mean : x[j], g = gy[j] * gamma[k][j];
        gammas[k][j] += gy[j] * rstd * centred;
        sums[0] += g * centred;
        if (CENTRES) betas[CENTRES ? k : 0][j] += gy[j];
        if (CENTRES) sums[1] += g;
      }
    }
    turn_sums<CENTRES ? 2 : 1>(n.g.group, turn, sums);
    float slope = -sums[0] * rstd * rstd * rstd * inverse, shift = -rstd * sums[1] * inverse;
    int64_t to = there ? place_of(n.gx, row) : 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
      float gy[V], x[V];
      if (!there || lane + k * n.g.group >= n.g.vectors) break;
      unpack<V>(*(const vector<T, V> *)ring.at(stage, 0, k), gy);
      unpack<V>(*(const vector<T, V> *)ring.at(stage, 1, k), x);
#pragma unroll
      for (int j = 0; j < V; j++) {
        float centred = CENTRES ? x[j] - mean : x[j];
        x[j] = rstd * (gy[j] * gamma[k][j]) + slope * centred;
        if (CENTRES) x[j] += shift;
      }
      *(vector<T, V> *)((T *)n.gx.data + to + (lane + k * n.g.group) * V) = packed<V>(x, (T)0);
    }
    rstd = next_rstd;
    mean = next_mean;
  }
  copy_wait<0>();
  __syncthreads();
  if (n.gammas != NULL)
    write_sums<V, K>(n, lane, gammas, n.gammas + (int64_t)blockIdx.x * n.g.columns);
  if (CENTRES && n.betas != NULL)
    write_sums<V, K>(n, lane, betas, n.betas + (int64_t)blockIdx.x * n.g.columns);
}

/* Blocks that go through the rows together. */
static int64_t blocks_for(const row_groups &g)
{
  int64_t each = BACKWARD_THREADS / threads_per_block(g.group);
  int64_t all = blocks_of(g.rows, rows_per_block(g.group));
  int64_t blocks = COLUMNS_PROCESSORS * (each > 0 ? each : 1);
  return blocks < all ? blocks : all;
}

/* reads gy, x, rstd[, mean], gamma, writes gx[, ggamma[, gbeta]]. */
static bool backward_of(const exec_call *c, bool centres, norm_backward *n)
{
  int64_t rows = c->call->dims[0], h = c->call->dims[1];
  const tensor *gy = &c->reads[0], *x = &c->reads[1], *gamma = &c->reads[c->read_count - 1];
  int v = (int)(16 / size_of(*x));
  if (!is_number(*x) || gy->type != x->type || c->writes[0].type != x->type) return false;
  if (rows * h == 0 || rows >= INT32_MAX / 2 || h % v != 0 || h > norm_most_columns(v))
    return false;
  n->g = row_groups_of(rows, h, v, NORM_EACH);
  n->shift = c->call->scalars[0] != 0 ? 1.0f : 0.0f;
  n->mean = layout{};
  for (uint32_t i = 1; i < c->write_count; i++)
    if (!is_number(c->writes[i]) || !is_contiguous(c->writes[i])) return false;
  return rows_suit(*gy, rows, h, v, &n->gy) && rows_suit(*x, rows, h, v, &n->x) &&
         rows_suit(c->writes[0], rows, h, v, &n->gx) && rows_suit(*gamma, 1, h, v, &n->gamma) &&
         rows_suit(c->reads[2], rows, 1, 1, &n->rstd) &&
         (!centres || rows_suit(c->reads[3], rows, 1, 1, &n->mean));
}

static int64_t scratch(const exec_call *c, bool centres)
{
  norm_backward n;
  if (!backward_of(c, centres, &n)) return 0;
  return (int64_t)(c->write_count - 1) * blocks_for(n.g) * n.g.columns * (int64_t)sizeof(float);
}

template <class T, bool CENTRES> static void launch(cuda_call *c, const norm_backward &n)
{
  uint32_t threads = threads_per_block(n.g.group), blocks = (uint32_t)blocks_for(n.g);
  bool few = n.g.vectors <= n.g.group * NORM_EACH;
  size_t each = (size_t)(few ? NORM_EACH : NORM_MOST_EACH);
  size_t shared = STAGES * 2 * each * threads * sizeof(uint4);
  void (*kernel)(norm_backward) = few ? norm_backward_kernel<T, NORM_EACH, CENTRES>
                                      : norm_backward_kernel<T, NORM_MOST_EACH, CENTRES>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
  kernel<<<blocks, threads, shared, stream_of(c)>>>(n);
  launched(c);
}

template <bool CENTRES> static void backward(cuda_call *c)
{
  norm_backward n;
  backward_of(c->of, CENTRES, &n);
  int64_t blocks = blocks_for(n.g), part = blocks * n.g.columns;
  n.gammas = c->of->write_count > 1 ? (float *)c->scratch : NULL;
  n.betas = c->of->write_count > 2 ? (float *)c->scratch + part : NULL;
  if (n.x.type == DTYPE_BF16)
    launch<uint16_t, CENTRES>(c, n);
  else
    launch<float, CENTRES>(c, n);
  if (n.gammas != NULL) fast_add_partials(c, n.gammas, blocks, n.g.columns, &c->of->writes[1]);
  if (n.betas != NULL) fast_add_partials(c, n.betas, blocks, n.g.columns, &c->of->writes[2]);
}

static bool suits(const exec_call *c, bool centres)
{
  norm_backward n;
  return backward_of(c, centres, &n);
}

KERNEL_SUITS(rmsnorm_backward)
{
  return suits(c, false);
}

KERNEL_SCRATCH(rmsnorm_backward)
{
  return scratch(c, false);
}

KERNEL_LAUNCH(rmsnorm_backward)
{
  backward<false>(c);
}

KERNEL_SUITS(layernorm_backward)
{
  return suits(c, true);
}

KERNEL_SCRATCH(layernorm_backward)
{
  return scratch(c, true);
}

KERNEL_LAUNCH(layernorm_backward)
{
  backward<true>(c);
}
