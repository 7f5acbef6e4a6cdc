/* sim/train/parameters.c and generator.c for GPUs. */
#include "cuda/kernels/draw.h"
#include "cuda/kernels/tensor.cuh"

/* The tensor's number of element `own` of the part. */
DEVICE static inline int64_t element_of(const exec_drawn &p, int64_t own)
{
  int64_t row = own / p.own_columns, column = own % p.own_columns;
  if (p.own_columns < p.columns) return row * p.columns + p.index * p.own_columns + column;
  int64_t own_of_one = p.own_rows / p.tensors, of_one = p.rows / p.tensors;
  row = row / own_of_one * of_one + p.index * own_of_one + row % own_of_one;
  return row * p.columns + column;
}

/* Output number `index` of splitmix64 from the state `key`. */
DEVICE static inline uint64_t bits_of(uint64_t key, uint64_t index)
{
  uint64_t z = key + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

DEVICE static inline double initial(const exec_drawn &p, int64_t own)
{
  if (p.deviation == 0) return p.value;
  uint64_t bits = bits_of(p.key, (uint64_t)element_of(p, own));
  int64_t sum = -131070;
  for (int field = 0; field < 4; field++)
    sum += (int64_t)(bits >> (16 * field) & 0xffff);
  return p.deviation * ((double)sum / p.spread);
}

extern "C" void EXACT(draw)(cuda_call *c, void *buffer, const exec_drawn *part)
{
  exec_drawn p = *part;
  void *to = (char *)buffer + p.offset_bytes;
  if (p.mask_columns > 0) {
    for_each(
        c, p.count, KERNEL_LAMBDA(int64_t i) {
          int64_t row = i / p.mask_columns % p.mask_columns;
          ((uint8_t *)to)[i] = i % p.mask_columns > row;
        });
    return;
  }
  for_each(
      c, p.count, KERNEL_LAMBDA(int64_t i) {
        double once;
        store_at(&once, p.rounded, 0, (float)initial(p, i));
        store_at(to, p.type, i, load_at(&once, p.rounded, 0));
      });
}
