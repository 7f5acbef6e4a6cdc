/*
 * Operands as fast kernels see them: units of adjacent elements (a vector of 16 bytes, a row), and
 * where unit `i` begins. Consecutive dimensions are merged, and the remaining index arithmetic is
 * 32-bit multiplications.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_LAYOUT_CUH
#define OFFSIM_CUDA_KERNELS_FAST_LAYOUT_CUH

#include <cuda_runtime_api.h>

#include "cuda/kernels/kernel.h"

typedef exec_tensor tensor;

/* A number below 2^31 over `by`: the upper half of a product, shifted (Granlund and Montgomery:
 * Division by Invariant Integers using Multiplication). */
struct divisor {
  uint32_t by, magic, shift;
};

static inline divisor divisor_of(uint32_t by)
{
  divisor d = { by, 0, 0 };
  uint32_t bits = 1;
  if (by < 2) return d;
  while ((UINT64_C(1) << bits) < by)
    bits++;
  d.magic = (uint32_t)(((UINT64_C(1) << (31 + bits)) + by - 1) / by);
  d.shift = bits - 1;
  return d;
}

static __device__ inline uint32_t divided_by(uint32_t n, divisor d)
{
  return d.by == 1 ? n : __umulhi(n, d.magic) >> d.shift;
}

struct layout {
  void *data;
  int type; /* dtype */
  int rank; /* dimensions left, the innermost first */
  divisor extent[PLAN_VIEW_DIMS];
  int64_t stride[PLAN_VIEW_DIMS]; /* elements */
};

/* Where unit `i` begins, in elements from `data`. */
static __device__ inline int64_t place_of(const layout &l, uint32_t i)
{
  int64_t place = 0;
#pragma unroll
  for (int d = 0; d + 1 < PLAN_VIEW_DIMS; d++) {
    if (d + 1 >= l.rank) return place + (int64_t)i * l.stride[d];
    uint32_t next = divided_by(i, l.extent[d]);
    place += (int64_t)(i - next * l.extent[d].by) * l.stride[d];
    i = next;
  }
  return place + (int64_t)i * l.stride[PLAN_VIEW_DIMS - 1];
}

static inline int64_t elements_of(const tensor &t)
{
  return exec_elements(&t);
}

static inline int64_t size_of(const tensor &t)
{
  return dtype_bytes((dtype)t.type);
}

static inline bool is_number(const tensor &t)
{
  return t.type == DTYPE_BF16 || t.type == DTYPE_FP32;
}

static inline bool is_index(const tensor &t)
{
  return t.type == DTYPE_INT64 || t.type == DTYPE_INT32 || t.type == DTYPE_BYTE;
}

/* Dimensions merged where they can be, innermost first; returns how many are left. */
static inline int merged(const tensor &t, int64_t *extent, int64_t *stride)
{
  int rank = 0;
  for (int d = t.rank; d-- > 0;) {
    if (t.shape[d] == 1) continue;
    if (rank > 0 && t.strides[d] == extent[rank - 1] * stride[rank - 1]) {
      extent[rank - 1] *= t.shape[d];
      continue;
    }
    extent[rank] = t.shape[d];
    stride[rank++] = t.strides[d];
  }
  if (rank == 0) extent[rank] = stride[rank] = 1, rank++;
  return rank;
}

static inline bool is_contiguous(const tensor &t)
{
  int64_t extent[PLAN_VIEW_DIMS + 1], stride[PLAN_VIEW_DIMS + 1];
  return elements_of(t) < 2 || (merged(t, extent, stride) == 1 && stride[0] == 1);
}

/* Units of `unit` adjacent elements, which are read `vector` at a time: false if strides do not
 * allow that, or if vectors are not aligned to their size. */
static inline bool layout_of(const tensor &t, int64_t unit, int64_t vector, layout *l)
{
  int64_t extent[PLAN_VIEW_DIMS + 1], stride[PLAN_VIEW_DIMS + 1], bytes = vector * size_of(t);
  int64_t aligned = bytes < 16 ? bytes : 16, elements = elements_of(t);
  int rank = merged(t, extent, stride);
  l->data = t.data;
  l->type = t.type;
  l->rank = 0;
  if (unit > 1 && (stride[0] != 1 || extent[0] % unit != 0)) return false;
  if ((uintptr_t)t.data % (uintptr_t)aligned != 0 || elements / unit >= INT32_MAX) return false;
  for (int d = 0; d < rank; d++) {
    int64_t count = d == 0 ? extent[0] / unit : extent[d];
    int64_t step = d == 0 ? unit * stride[0] : stride[d];
    if (count == 1 && rank > 1 && d == 0) continue;
    if (vector > 1 && count > 1 && step * size_of(t) % aligned != 0) return false;
    l->extent[l->rank] = divisor_of((uint32_t)count);
    l->stride[l->rank++] = step;
  }
  return true;
}

/* `rows` units of `columns` numbers, read `vector` at a time. */
static inline bool rows_suit(const tensor &t, int64_t rows, int64_t columns, int64_t vector,
                             layout *l)
{
  return is_number(t) && elements_of(t) == rows * columns && layout_of(t, columns, vector, l);
}

/* One number, or index, at a time. */
static inline bool numbers_suit(const tensor &t, int64_t count, layout *l)
{
  return rows_suit(t, count, 1, 1, l);
}

static inline bool indices_suit(const tensor &t, int64_t count, layout *l)
{
  return is_index(t) && elements_of(t) == count && layout_of(t, 1, 1, l);
}

/* ---- vectors --------------------------------------------------------------------------------- */

/* V elements as they are in memory. */
template <class T, int V> struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) vector {
  T x[V];
};

static __device__ inline float from_bf16(uint16_t code)
{
  return __uint_as_float((uint32_t)code << 16);
}

/* PTX, because <cuda_bf16.h> adds a half to the time that a file takes to compile. */
static __device__ inline uint16_t to_bf16(float x)
{
  uint16_t code;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(code) : "f"(x));
  return code;
}

static __device__ inline void two_to_bf16(const float *x, uint16_t *codes)
{
  asm("{ .reg .b32 two;\n\t"
      "cvt.rn.bf16x2.f32 two, %3, %2;\n\t"
      "mov.b32 { %0, %1 }, two; }"
      : "=h"(codes[0]), "=h"(codes[1])
      : "f"(x[0]), "f"(x[1]));
}

template <int V> __device__ inline void unpack(const vector<uint16_t, V> &from, float *x)
{
#pragma unroll
  for (int j = 0; j < V; j++)
    x[j] = from_bf16(from.x[j]);
}

template <int V> __device__ inline void unpack(const vector<float, V> &from, float *x)
{
#pragma unroll
  for (int j = 0; j < V; j++)
    x[j] = from.x[j];
}

template <int V> __device__ inline vector<float, V> packed(const float *x, float)
{
  vector<float, V> v;
#pragma unroll
  for (int j = 0; j < V; j++)
    v.x[j] = x[j];
  return v;
}

template <int V> __device__ inline vector<uint16_t, V> packed(const float *x, uint16_t)
{
  static_assert(V % 2 == 0, "two are converted at once");
  vector<uint16_t, V> v;
#pragma unroll
  for (int j = 0; j < V; j += 2)
    two_to_bf16(x + j, v.x + j);
  return v;
}

template <> __device__ inline vector<uint16_t, 1> packed<1>(const float *x, uint16_t)
{
  vector<uint16_t, 1> v;
  v.x[0] = to_bf16(x[0]);
  return v;
}

template <class T, int V> __device__ inline vector<T, V> vector_at(const void *data, int64_t place)
{
  return *(const vector<T, V> *)((const T *)data + place);
}

/* V elements from `place` on, of a bf16 or fp32 operand. */
template <int V> __device__ inline void load(const void *data, int type, int64_t place, float *x)
{
  if (type == DTYPE_BF16)
    unpack<V>(vector_at<uint16_t, V>(data, place), x);
  else
    unpack<V>(vector_at<float, V>(data, place), x);
}

template <int V> __device__ inline void store(void *data, int type, int64_t place, const float *x)
{
  if (type == DTYPE_BF16)
    *(vector<uint16_t, V> *)((uint16_t *)data + place) = packed<V>(x, (uint16_t)0);
  else
    *(vector<float, V> *)((float *)data + place) = packed<V>(x, 0.0f);
}

template <int V> __device__ inline void load(const layout &l, int64_t place, float *x)
{
  load<V>(l.data, l.type, place, x);
}

template <int V> __device__ inline void store(const layout &l, int64_t place, const float *x)
{
  store<V>(l.data, l.type, place, x);
}

static __device__ inline float load_one(const layout &l, int64_t place)
{
  float x;
  load<1>(l, place, &x);
  return x;
}

static __device__ inline void store_one(const layout &l, int64_t place, float x)
{
  store<1>(l, place, &x);
}

/* Unit `i` of one element. */
static __device__ inline float number_at(const layout &l, uint32_t i)
{
  return load_one(l, place_of(l, i));
}

static __device__ inline int64_t index_at(const layout &l, uint32_t i)
{
  int64_t place = place_of(l, i);
  if (l.type == DTYPE_INT64) return ((const int64_t *)l.data)[place];
  if (l.type == DTYPE_INT32) return ((const int32_t *)l.data)[place];
  return ((const uint8_t *)l.data)[place];
}

static __device__ inline void store_index(const layout &l, uint32_t i, int64_t x)
{
  int64_t place = place_of(l, i);
  if (l.type == DTYPE_INT64)
    ((int64_t *)l.data)[place] = x;
  else if (l.type == DTYPE_INT32)
    ((int32_t *)l.data)[place] = (int32_t)x;
  else
    ((uint8_t *)l.data)[place] = (uint8_t)x;
}

/* Elements at a time: 16 bytes of the widest of these operands. */
static inline int vector_elements(const tensor *const *all, int count)
{
  for (int i = 0; i < count; i++)
    if (size_of(*all[i]) > 2) return 4;
  return 8;
}

static inline uint32_t blocks_of(int64_t items, int64_t each)
{
  return (uint32_t)((items + each - 1) / each);
}

static inline cudaStream_t stream_of(const cuda_call *c)
{
  return (cudaStream_t)c->stream;
}

/* Notes what the last launch says. */
static inline void launched(cuda_call *c)
{
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}

/* The functions of a row of sim/plan/kernels.h. */
#define KERNEL_LAUNCH(name)  extern "C" void fast_##name(cuda_call *c)
#define KERNEL_SUITS(name)   extern "C" bool fast_suits_##name(const exec_call *c)
#define KERNEL_SCRATCH(name) extern "C" int64_t fast_scratch_##name(const exec_call *c)

#endif
