/* A lane adds the words i, i + lanes, ...; then FAN lanes at a time are added into one. */
#include "cuda/kernels/digest.h"
#include "cuda/kernels/operands.cuh"

enum { WORD_BYTES = 8, MOST_LANES = 1 << 17, FAN = 64 };

typedef struct partial {
  uint64_t low, high;
  double squares;
} partial;

/* The output function of splitmix64. */
DEVICE static inline uint64_t mixed(uint64_t z)
{
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

DEVICE static inline void add_word(partial *p, uint64_t place, uint64_t word)
{
  uint64_t key = mixed(place * UINT64_C(0x9e3779b97f4a7c15) + 1);
  p->low += mixed(word ^ key);
  p->high += mixed((word + key) * UINT64_C(0xd6e8feb86659fd93) ^ key >> 32);
}

DEVICE static inline void add_square(partial *p, double x)
{
  p->squares += x * x;
}

/* The elements of a view that are read together; the last few are read one by one. */
typedef struct word_view {
  tensor t;
  int64_t elements;
  int each, bytes;  /* elements of a word, bytes of an element */
  bool is_in_order; /* words are contiguous in memory */
  bool is_of_numbers;
} word_view;

static word_view view_of(const exec_call *c)
{
  word_view v = { read_of(c, 0), elements_of(c->reads[0]), 0, 1, false, false };
  switch (v.t.type) {
  case DTYPE_BF16:
  case DTYPE_FP16: v.bytes = 2; break;
  case DTYPE_FP32:
  case DTYPE_INT32: v.bytes = 4; break;
  case DTYPE_FP64:
  case DTYPE_INT64: v.bytes = 8; break;
  default: break;
  }
  v.each = WORD_BYTES / v.bytes;
  v.is_of_numbers = !(v.t.type == DTYPE_BYTE || v.t.type == DTYPE_FP8 || v.t.type == DTYPE_INT32 ||
                      v.t.type == DTYPE_INT64);
  v.is_in_order = (v.t.rank == 0 || (v.t.rank == 1 && v.t.strides[0] == 1)) &&
                  (uintptr_t)v.t.data % WORD_BYTES == 0;
  return v;
}

DEVICE static inline uint64_t bits_at(const word_view &v, int64_t place)
{
  switch (v.bytes) {
  case 2: return ((const uint16_t *)v.t.data)[place];
  case 4: return ((const uint32_t *)v.t.data)[place];
  case 8: return ((const uint64_t *)v.t.data)[place];
  default: return ((const uint8_t *)v.t.data)[place];
  }
}

DEVICE static inline uint64_t word_at(const word_view &v, int64_t n)
{
  int64_t first = n * v.each;
  uint64_t word = 0;
  if (v.is_in_order && first + v.each <= v.elements) return ((const uint64_t *)v.t.data)[n];
  for (int k = 0; k < v.each && first + k < v.elements; k++)
    word |= bits_at(v, place_of(v.t, first + k)) << (8 * v.bytes * k);
  return word;
}

/* A word from its elements in turn; those after the last are 0. */
DEVICE static inline void add_squares(partial *p, const word_view &v, uint64_t word)
{
  if (v.t.type == DTYPE_FP64) {
    add_square(p, exact_of_bits(word));
  } else if (v.t.type == DTYPE_FP32) {
    for (int k = 0; k < 2; k++) {
      uint32_t bits = (uint32_t)(word >> (32 * k));
      float x;
      memcpy(&x, &bits, sizeof x);
      add_square(p, (double)x);
    }
  } else {
    for (int k = 0; k < 4; k++) {
      uint16_t code = (uint16_t)(word >> (16 * k));
      add_square(p, v.t.type == DTYPE_BF16 ? (double)bf16_value(code)
                                           : format_value(format_fp16(), code));
    }
  }
}

static void add_lanes(cuda_call *c, word_view v, int64_t words, int64_t lanes, partial *to)
{
  for_each(
      c, lanes, KERNEL_LAMBDA(int64_t lane) {
        partial p = { 0, 0, 0 };
        for (int64_t n = lane; n < words; n += lanes) {
          uint64_t word = word_at(v, n);
          add_word(&p, (uint64_t)n, word);
          if (v.is_of_numbers) add_squares(&p, v, word);
        }
        to[lane] = p;
      });
}

/* Lane i takes those of i, i + lanes, ... */
static void join_lanes(cuda_call *c, const partial *from, int64_t count, int64_t lanes, partial *to)
{
  for_each(
      c, lanes, KERNEL_LAMBDA(int64_t lane) {
        partial p = from[lane];
        for (int64_t n = lane + lanes; n < count; n += lanes) {
          p.low += from[n].low;
          p.high += from[n].high;
          p.squares += from[n].squares;
        }
        to[lane] = p;
      });
}

static void finish(cuda_call *c, const partial *all, int64_t elements)
{
  uint64_t *to = (uint64_t *)c->of->writes[0].data;
  run_once(
      c, KERNEL_LAMBDA(int64_t) {
        partial p = *all;
        add_word(&p, ~(uint64_t)0, (uint64_t)elements);
        to[0] = p.low;
        to[1] = p.high;
        to[2] = exact_bits(p.squares == p.squares ? p.squares : exact_nan());
      });
}

extern "C" void EXACT(digest)(cuda_call *c)
{
  word_view v = view_of(c->of);
  int64_t words = (v.elements + v.each - 1) / v.each;
  int64_t lanes = words < 1 ? 1 : least(words, MOST_LANES);
  partial *from = (partial *)c->scratch, *to = from + MOST_LANES;
  assert(c->scratch_bytes >= DIGEST_SCRATCH_BYTES);
  add_lanes(c, v, words, lanes, from);
  while (lanes > 1) {
    int64_t joined = (lanes + FAN - 1) / FAN;
    join_lanes(c, from, lanes, joined, to);
    lanes = joined;
    from = to;
    to += joined;
  }
  finish(c, from, v.elements);
}
