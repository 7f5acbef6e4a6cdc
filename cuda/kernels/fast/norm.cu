/* Rows of RMSNorm and LayerNorm, which stay in registers between the sums and the result. */
#include "cuda/kernels/fast/norm.cuh"

struct norm_forward {
  row_groups g;
  layout x, y, gamma, beta, rstd, mean;
  float epsilon, shift; /* rows are multiplied by shift + gamma */
  bool keeps_rstd, keeps_mean;
};

/* Rows as they are in memory: V elements of T are 16 bytes. */
template <class T, int K, bool CENTRES>
__global__ void __launch_bounds__(ROWS_MOST_THREADS) norm_forward_kernel(norm_forward n)
{
  constexpr int V = 16 / sizeof(T);
  int32_t lane = (int32_t)threadIdx.x % n.g.group;
  uint32_t row =
      blockIdx.x * (uint32_t)rows_per_block(n.g.group) + threadIdx.x / (uint32_t)n.g.group;
  bool there = row < n.g.rows;
  int64_t from = there ? place_of(n.x, row) : 0, to = there ? place_of(n.y, row) : 0;
  vector<T, V> rows[K] = {};
  float mean = 0, sum = 0, inverse = 1.0f / (float)n.g.columns;
#pragma unroll
  for (int k = 0; k < K; k++)
    if (there && lane + k * n.g.group < n.g.vectors)
      rows[k] = vector_at<T, V>(n.x.data, from + (lane + k * n.g.group) * V);
  if (CENTRES) {
#pragma unroll
    for (int k = 0; k < K; k++) {
      float x[V];
      unpack<V>(rows[k], x);
#pragma unroll
      for (int j = 0; j < V; j++)
        sum += x[j];
    }
    mean = group_reduce<add_numbers>(n.g.group, sum) * inverse;
    sum = 0;
  }
#pragma unroll
  for (int k = 0; k < K; k++) {
    float x[V];
    unpack<V>(rows[k], x);
    if (lane + k * n.g.group < n.g.vectors)
#pragma unroll
      for (int j = 0; j < V; j++)
        sum += (x[j] - mean) * (x[j] - mean);
  }
  float rstd = rsqrtf(group_reduce<add_numbers>(n.g.group, sum) * inverse + n.epsilon);
  if (!there) return;
#pragma unroll
  for (int k = 0; k < K; k++) {
    int32_t column = (lane + k * n.g.group) * V;
    float x[V], gamma[V], beta[V] = {};
    if (column >= n.g.columns) break;
    unpack<V>(rows[k], x);
    load<V>(n.gamma, column, gamma);
    if (CENTRES) load<V>(n.beta, column, beta);
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] = (x[j] - mean) * rstd * (n.shift + gamma[j]) + beta[j];
    store<V>(n.y, to + column, x);
  }
  if (lane != 0) return;
  if (n.keeps_rstd) store_one(n.rstd, place_of(n.rstd, row), rstd);
  if (n.keeps_mean) store_one(n.mean, place_of(n.mean, row), mean);
}

/* reads x, gamma[, beta], writes y[, rstd][, mean]. */
static bool forward_of(const exec_call *c, bool centres, int *v, norm_forward *n)
{
  int64_t rows = c->call->dims[0], h = c->call->dims[1];
  const tensor *x = &c->reads[0], *y = &c->writes[0];
  *v = x->type == DTYPE_BF16 ? 8 : 4;
  if (rows * h == 0 || rows >= INT32_MAX || h % *v != 0 || h > norm_most_columns(*v)) return false;
  n->g = row_groups_of(rows, h, *v, NORM_EACH);
  n->epsilon = (float)c->call->scalars[0];
  n->shift = c->call->scalars[1] != 0 ? 1.0f : 0.0f;
  n->keeps_rstd = c->write_count > 1;
  n->keeps_mean = centres && c->write_count > 2;
  n->beta = n->rstd = n->mean = layout{};
  return rows_suit(*x, rows, h, *v, &n->x) && rows_suit(*y, rows, h, *v, &n->y) &&
         rows_suit(c->reads[1], 1, h, *v, &n->gamma) &&
         (!centres || rows_suit(c->reads[2], 1, h, *v, &n->beta)) &&
         (!n->keeps_rstd || rows_suit(c->writes[1], rows, 1, 1, &n->rstd)) &&
         (!n->keeps_mean || rows_suit(c->writes[2], rows, 1, 1, &n->mean));
}

template <class T, bool CENTRES> static void launch(cuda_call *c, const norm_forward &n)
{
  uint32_t threads = threads_per_block(n.g.group);
  uint32_t blocks = blocks_of(n.g.rows, rows_per_block(n.g.group));
  if (n.g.vectors <= n.g.group * NORM_EACH)
    norm_forward_kernel<T, NORM_EACH, CENTRES><<<blocks, threads, 0, stream_of(c)>>>(n);
  else
    norm_forward_kernel<T, NORM_MOST_EACH, CENTRES><<<blocks, threads, 0, stream_of(c)>>>(n);
  launched(c);
}

static bool suits(const exec_call *c, bool centres)
{
  int v;
  norm_forward n;
  return forward_of(c, centres, &v, &n);
}

template <bool CENTRES> static void forward(cuda_call *c)
{
  int v;
  norm_forward n;
  forward_of(c->of, CENTRES, &v, &n);
  if (v == 8)
    launch<uint16_t, CENTRES>(c, n);
  else
    launch<float, CENTRES>(c, n);
}

KERNEL_SUITS(rmsnorm_forward)
{
  return suits(c, false);
}

KERNEL_LAUNCH(rmsnorm_forward)
{
  forward<false>(c);
}

KERNEL_SUITS(layernorm_forward)
{
  return suits(c, true);
}

KERNEL_LAUNCH(layernorm_forward)
{
  forward<true>(c);
}
