/*
 * Random numbers without a state: each is a function of a key and its index, so that any rank can
 * draw the part that it needs.
 *
 * The bits are those of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
 * generators, OOPSLA 2014): its output number `index` from the state `key`. A name's key is the
 * FNV-1a hash of its bytes (64 bits), added to the seed's first number.
 */
#ifndef OFFSIM_SIM_TRAIN_GENERATOR_H
#define OFFSIM_SIM_TRAIN_GENERATOR_H

#include <stdint.h>

uint64_t generator_bits(uint64_t key, uint64_t index);
uint64_t generator_key(uint64_t seed, const char *name);

/* Mean 0, variance 1, between -3.47 and 3.47: the sum of the four 16-bit fields of the bits, less
 * its mean of 131070, over its standard deviation, the square root of (2^32 - 1) / 3. */
double generator_normal(uint64_t key, uint64_t index);
double generator_spread(void); /* that root */

#endif
