/*
 * Numbers of 4 and 8 bits in which bitsandbytes stores a frozen weight (functional.py:
 * quantize_4bit with quant_type nf4 and compress_statistics; create_dynamic_map): an element is one
 * of 16 values times the scale of its block, and a scale is one of 256 values times the scale of
 * its block, plus the mean of all scales. Packed two to a byte, the first in the high half.
 */
#ifndef OFFSIM_SIM_EXEC_CODE_BOOKS_H
#define OFFSIM_SIM_EXEC_CODE_BOOKS_H

#include <stdint.h>

enum { CODES_4BIT = 16, CODES_8BIT = 256 };

/* NormalFloat-4, ascending. */
extern const float codes_4bit[CODES_4BIT];

/* The dynamic map: a sign, zeros that count powers of ten, and a linear fraction; ascending. */
void codes_8bit(float codes[CODES_8BIT]);

/* A quantised weight: codes, (count + 1) / 2 bytes; scales, a code for each block; nested_scales,
 * one for each nested block; mean, one number. */
typedef struct quantized_weight {
  uint8_t *codes, *scales;
  float *nested_scales, *mean;
  int64_t block, nested_block; /* elements that share a scale, scales that share theirs */
} quantized_weight;

/* Quantises to the nearest codes; of two equally near ones to the lower. Exits if memory is
 * refused. */
void quantize_weight(const float *x, int64_t count, const quantized_weight *to);

#endif
