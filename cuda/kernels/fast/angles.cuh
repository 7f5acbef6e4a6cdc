/* Cosines and sines of rotary embeddings, [positions][half], made once for a call in its scratch
 * memory. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ANGLES_CUH
#define OFFSIM_CUDA_KERNELS_FAST_ANGLES_CUH

#include "cuda/kernels/fast/layout.cuh"

#ifdef __cplusplus
extern "C" {
#endif

/* A rotation of a call: its dims and scalars (sim/plan/kernels.h, ROPE_FORWARD). */
typedef struct rotation {
  int64_t tokens, heads, dim, batch, positions;
  double theta;
  exec_position part; /* of the sequences */
} rotation;

/* False: these kernels do not support it. */
bool fast_rotation_of(const exec_call *c, rotation *r);
int64_t fast_angles_bytes(const rotation *r);
/* Fills c->scratch: pairs (cosine, sine) by position and index. */
void fast_angles(cuda_call *c, const rotation *r);
/* The same from what forward has kept, [positions, dim] each; `apart`: the distance of the columns
 * of neighbouring pairs. */
void fast_kept_angles(cuda_call *c, const rotation *r, const tensor *cosines, const tensor *sines,
                      int apart);

#ifdef __cplusplus
}
#endif

/* 8 pairs of a row: of two halves, or neighbours. */
enum { PAIRS = 8 };

struct pairs_at {
  int64_t first, second; /* where 8 first and 8 second columns are, if they are apart */
  bool neighbours;       /* 16 columns from `first` on */
};

template <class L>
static __device__ inline void load_pairs(const L &l, pairs_at at, float *a, float *b)
{
  if (!at.neighbours) {
    load<PAIRS>(l, at.first, a);
    load<PAIRS>(l, at.second, b);
    return;
  }
  float x[2 * PAIRS];
  load<PAIRS>(l, at.first, x);
  load<PAIRS>(l, at.first + PAIRS, x + PAIRS);
#pragma unroll
  for (int j = 0; j < PAIRS; j++) {
    a[j] = x[2 * j];
    b[j] = x[2 * j + 1];
  }
}

template <class L>
static __device__ inline void store_pairs(const L &l, pairs_at at, const float *a, const float *b)
{
  if (!at.neighbours) {
    store<PAIRS>(l, at.first, a);
    store<PAIRS>(l, at.second, b);
    return;
  }
  float x[2 * PAIRS];
#pragma unroll
  for (int j = 0; j < PAIRS; j++) {
    x[2 * j] = a[j];
    x[2 * j + 1] = b[j];
  }
  store<PAIRS>(l, at.first, x);
  store<PAIRS>(l, at.first + PAIRS, x + PAIRS);
}

/* Turned by the angles from `table` on; sign -1: back. */
static __device__ inline void turn(const float2 *table, float sign, float *a, float *b)
{
#pragma unroll
  for (int j = 0; j < PAIRS; j += 2) {
    float4 two = *(const float4 *)(table + j);
    float c[2] = { two.x, two.z }, s[2] = { sign * two.y, sign * two.w };
#pragma unroll
    for (int k = 0; k < 2; k++) {
      float x = a[j + k], y = b[j + k];
      a[j + k] = x * c[k] - y * s[k];
      b[j + k] = y * c[k] + x * s[k];
    }
  }
}

#endif
