/* The numbers of bitsandbytes' codes (sim/exec/code_books.h), by value: a kernel gets them as an
 * argument. */
#ifndef OFFSIM_CUDA_KERNELS_EXACT_CODE_BOOKS_CUH
#define OFFSIM_CUDA_KERNELS_EXACT_CODE_BOOKS_CUH

extern "C" {
#include "sim/exec/code_books.h"
}

typedef struct book_8bit {
  float number[CODES_8BIT];
} book_8bit;

typedef struct book_4bit {
  float number[CODES_4BIT];
} book_4bit;

static inline book_8bit make_book_8bit(void)
{
  book_8bit book;
  codes_8bit(book.number);
  return book;
}

static inline book_4bit make_book_4bit(void)
{
  book_4bit book;
  for (int i = 0; i < CODES_4BIT; i++)
    book.number[i] = codes_4bit[i];
  return book;
}

#endif
