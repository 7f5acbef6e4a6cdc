/*
 * Kernels that go once or twice through rows, each by a group of threads. A rule R says what
 * happens:
 *
 *   INPUTS    tensors of rows that are read: 1 or 2
 *   LOOKS     whether all of a row must be seen before any of it is written
 *   WRITES    whether there are rows that are written (they may be one of those read)
 *   state     what a thread knows of its row
 *   begin     before the first element
 *   look      some elements of the first pass; `known` joins what the group has seen
 *   make      some elements of the last pass: x becomes what is written
 *   end       after the last element: what is written once for a row
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ROW_PASS_CUH
#define OFFSIM_CUDA_KERNELS_FAST_ROW_PASS_CUH

#include <float.h>

#include "cuda/kernels/fast/rows.cuh"

enum { PASS_EACH = 4 };

/* Vectors of a thread at a time: what fits its registers. */
template <int V, int INPUTS> struct pass_vectors {
  enum { EACH = V * INPUTS > 8 ? PASS_EACH / 2 : PASS_EACH };
};

/* Threads of a row at most: more of the wider vectors, whose exponentials take longer than their
 * bytes, are too few blocks. */
template <int V> struct pass_threads {
  enum { MOST = V == 8 ? 256 : ROWS_MOST_THREADS };
};

template <int INPUTS> struct row_operands {
  row_groups g;
  layout in[INPUTS], out;
};

/* Vectors number i, i + group, ... of a row: all are read before any is written. */
template <int V, bool LAST, class R>
static __device__ inline void pass_some(const row_operands<R::INPUTS> &o, const R &r,
                                        typename R::state *s, const int64_t *from, int64_t to,
                                        int32_t i)
{
  constexpr int EACH = pass_vectors<V, R::INPUTS>::EACH;
  float x[EACH][V], other[R::INPUTS > 1 ? EACH : 1][V];
#pragma unroll
  for (int k = 0; k < EACH; k++) {
    int32_t column = (i + k * o.g.group) * V;
    if (column >= o.g.columns) break;
    load<V>(o.in[0], from[0] + column, x[k]);
    if (R::INPUTS > 1) load<V>(o.in[R::INPUTS - 1], from[R::INPUTS - 1] + column, other[k]);
  }
#pragma unroll
  for (int k = 0; k < EACH; k++) {
    int32_t column = (i + k * o.g.group) * V;
    if (column >= o.g.columns) break;
    if (LAST)
      r.template make<V>(s, column, x[k], other[R::INPUTS > 1 ? k : 0]);
    else
      r.template look<V>(s, column, x[k], other[R::INPUTS > 1 ? k : 0]);
    if (LAST && R::WRITES) store<V>(o.out, to + column, x[k]);
  }
}

template <int V, class R>
__global__ void __launch_bounds__(pass_threads<V>::MOST, 1024 / pass_threads<V>::MOST)
    row_pass_kernel(row_operands<R::INPUTS> o, R r)
{
  int32_t lane = (int32_t)threadIdx.x % o.g.group;
  uint32_t row =
      blockIdx.x * (uint32_t)rows_per_block(o.g.group) + threadIdx.x / (uint32_t)o.g.group;
  constexpr int EACH = pass_vectors<V, R::INPUTS>::EACH;
  bool there = row < o.g.rows;
  uint32_t safe = there ? row : o.g.rows - 1;
  int64_t from[R::INPUTS], to = R::WRITES ? place_of(o.out, safe) : 0;
  typename R::state s;
#pragma unroll
  for (int k = 0; k < R::INPUTS; k++)
    from[k] = place_of(o.in[k], safe);
  r.begin(&s, safe);
  if (R::LOOKS) {
    for (int32_t i = lane; there && i < o.g.vectors; i += o.g.group * EACH)
      pass_some<V, false>(o, r, &s, from, to, i);
    r.known(&s, o.g.group);
  }
  for (int32_t i = lane; there && i < o.g.vectors; i += o.g.group * EACH)
    pass_some<V, true>(o, r, &s, from, to, i);
  r.end(&s, safe, there ? lane : -1, o.g.group);
}

/* Of a rule without a look. */
#define ONE_PASS                                                                                   \
  enum { INPUTS = 1, LOOKS = 0 };                                                                  \
  template <int V, class S> __device__ void look(S *, int32_t, float *, const float *) const       \
  {                                                                                                \
  }                                                                                                \
  template <class S> __device__ void known(S *, int32_t) const                                     \
  {                                                                                                \
  }

/* Rows of `columns` elements; what is written may be NULL. 0: they do not suit, else the vector. */
template <int INPUTS>
static inline int row_pass_operands(const tensor *const *in, const tensor *out, int64_t rows,
                                    int64_t columns, row_operands<INPUTS> *o)
{
  const tensor *all[INPUTS + 1];
  for (int k = 0; k < INPUTS; k++)
    all[k] = in[k];
  all[INPUTS] = out != NULL ? out : in[0];
  for (int k = 0; k <= INPUTS; k++)
    if (!is_number(*all[k]) || elements_of(*all[k]) != rows * columns) return 0;
  if (rows <= 0 || columns <= 0 || rows >= INT32_MAX || columns >= INT32_MAX / 2) return 0;
  for (int v = vector_elements(all, INPUTS + 1);; v = 1) {
    bool suits = columns % v == 0 && layout_of(*all[INPUTS], columns, v, &o->out);
    for (int k = 0; suits && k < INPUTS; k++)
      suits = layout_of(*in[k], columns, v, &o->in[k]);
    if (suits) o->g = row_groups_of(rows, columns, v, PASS_EACH);
    if (v == 8 && o->g.group > pass_threads<8>::MOST) o->g.group = pass_threads<8>::MOST;
    if (suits || v == 1) return suits ? v : 0;
  }
}

template <class R>
static void row_pass(cuda_call *c, int v, const row_operands<R::INPUTS> &o, const R &r)
{
  uint32_t threads = threads_per_block(o.g.group);
  uint32_t blocks = blocks_of(o.g.rows, rows_per_block(o.g.group));
  if (v == 8)
    row_pass_kernel<8, R><<<blocks, threads, 0, stream_of(c)>>>(o, r);
  else if (v == 4)
    row_pass_kernel<4, R><<<blocks, threads, 0, stream_of(c)>>>(o, r);
  else
    row_pass_kernel<1, R><<<blocks, threads, 0, stream_of(c)>>>(o, r);
  launched(c);
}

/* ---- the largest and the sum of exponentials, on the way ------------------------------------- */

struct exponentials {
  float largest, sum;
};

static __device__ inline exponentials no_exponentials(void)
{
  return exponentials{ -FLT_MAX, 0 };
}

template <int V> static __device__ inline void take_exponentials(exponentials *e, const float *x)
{
  float most = x[0];
#pragma unroll
  for (int j = 1; j < V; j++)
    most = fmaxf(most, x[j]);
  if (most > e->largest) {
    e->sum *= __expf(e->largest - most);
    e->largest = most;
  }
#pragma unroll
  for (int j = 0; j < V; j++)
    e->sum += __expf(x[j] - e->largest);
}

static __device__ inline void join_exponentials(exponentials *e, int32_t group)
{
  float most = group_reduce<larger_number>(group, e->largest);
  e->sum = group_reduce<add_numbers>(group, e->sum * __expf(e->largest - most));
  e->largest = most;
}

static __device__ inline float log_of_sum(const exponentials &e)
{
  return e.largest + logf(e.sum);
}

#endif
