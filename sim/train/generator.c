#include "sim/train/generator.h"

#include <math.h>

#define GOLDEN_GAMMA UINT64_C(0x9e3779b97f4a7c15)

uint64_t generator_bits(uint64_t key, uint64_t index)
{
  uint64_t z = key + (index + 1) * GOLDEN_GAMMA;
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

uint64_t generator_key(uint64_t seed, const char *name)
{
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (; *name != '\0'; name++)
    hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
  return generator_bits(seed, 0) + hash;
}

double generator_spread(void)
{
  return sqrt(4294967295.0 / 3.0);
}

double generator_normal(uint64_t key, uint64_t index)
{
  uint64_t bits = generator_bits(key, index);
  int64_t sum = -131070;
  for (int field = 0; field < 4; field++)
    sum += (int64_t)(bits >> (16 * field) & 0xffff);
  return (double)sum / generator_spread();
}
