#include "cuda/kernels/fast/angles.cuh"

enum { ANGLE_THREADS = 128, POSITIONS_EACH = 16 };

extern "C" bool fast_rotation_of(const exec_call *c, rotation *r)
{
  exec_position part = c->rank->group[GROUP_CP];
  r->tokens = c->call->dims[0];
  r->heads = c->call->dims[1];
  r->dim = c->call->dims[2];
  r->theta = c->call->scalars[0];
  r->batch = (int64_t)c->call->scalars[1];
  r->part.size = part.size > 1 ? part.size : 1;
  r->part.index = part.size > 1 ? part.index : 0;
  if (r->batch <= 0 || r->tokens <= 0 || r->tokens % r->batch != 0) return false;
  r->positions = r->tokens / r->batch;
  return r->dim > 0 && r->dim % (2 * PAIRS) == 0 && r->tokens * r->heads < INT32_MAX / 2 &&
         (r->part.size == 1 || r->positions % 2 == 0);
}

extern "C" int64_t fast_angles_bytes(const rotation *r)
{
  return r->positions * (r->dim / 2) * (int64_t)sizeof(float2);
}

/* The position of number `i` of those that a rank has: ref/kernels/positions.h. */
static __device__ inline int64_t position_of(exec_position part, int64_t length, int64_t i)
{
  int64_t chunk = length / 2;
  if (part.size == 1) return i;
  return i < chunk ? part.index * chunk + i
                   : (2 * (int64_t)part.size - 1 - part.index) * chunk + i - chunk;
}

/* Angles in double, reduced to a turn, then by the GPU's own functions of small floats. A thread
 * has one frequency, and POSITIONS_EACH positions. */
__global__ void __launch_bounds__(ANGLE_THREADS) angles_kernel(rotation r, float2 *to)
{
  int64_t half = r.dim / 2, at = (int64_t)blockIdx.x * ANGLE_THREADS + threadIdx.x;
  int64_t first = at / half * POSITIONS_EACH, i = at % half;
  if (first >= r.positions) return;
  double frequency = pow(r.theta, -(double)(2 * i) / (double)r.dim) * 0.15915494309189535;
  for (int64_t p = first; p < first + POSITIONS_EACH && p < r.positions; p++) {
    double turns = (double)position_of(r.part, r.positions, p) * frequency;
    float angle = (float)((turns - rint(turns)) * 6.283185307179586);
    to[p * half + i] = make_float2(cosf(angle), sinf(angle));
  }
}

extern "C" void fast_angles(cuda_call *c, const rotation *r)
{
  int64_t count = (r->positions + POSITIONS_EACH - 1) / POSITIONS_EACH * (r->dim / 2);
  angles_kernel<<<blocks_of(count, ANGLE_THREADS), ANGLE_THREADS, 0, stream_of(c)>>>(
      *r, (float2 *)c->scratch);
  launched(c);
}

__global__ void __launch_bounds__(ANGLE_THREADS)
    kept_kernel(layout cosines, layout sines, int64_t count, int half, int apart, float2 *to)
{
  int64_t at = (int64_t)blockIdx.x * ANGLE_THREADS + threadIdx.x;
  if (at >= count) return;
  uint32_t column = (uint32_t)(at / half * 2 * half + at % half * apart);
  to[at] = make_float2(number_at(cosines, column), number_at(sines, column));
}

extern "C" void fast_kept_angles(cuda_call *c, const rotation *r, const tensor *cosines,
                                 const tensor *sines, int apart)
{
  int64_t count = r->positions * (r->dim / 2);
  layout of_cosines, of_sines;
  if (!layout_of(*cosines, 1, 1, &of_cosines) || !layout_of(*sines, 1, 1, &of_sines)) return;
  kept_kernel<<<blocks_of(count, ANGLE_THREADS), ANGLE_THREADS, 0, stream_of(c)>>>(
      of_cosines, of_sines, count, (int)(r->dim / 2), apart, (float2 *)c->scratch);
  launched(c);
}
