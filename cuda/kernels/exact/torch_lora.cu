/* ref/kernels/torch_lora.c for GPUs: quantised weights. */
#include "cuda/kernels/exact/code_books.cuh"
#include "cuda/kernels/operands.cuh"

/* Reads codes, a scale for each block of them; writes code book [code] times scale. */
extern "C" void EXACT(dequantize_8bit)(cuda_call *c)
{
  int64_t block = (int64_t)c->of->call->scalars[0];
  tensor codes = read_of(c->of, 0), scales = read_of(c->of, 1), y = write_of(c->of, 0);
  book_8bit book = make_book_8bit();
  for_each(
      c, dim_of(c->of, 0), KERNEL_LAMBDA(int64_t i) {
        store(y, i, book.number[load_int(codes, i)] * load(scales, i / block));
      });
}

/* The same for pairs of codes: the first element is the high half of its byte. */
extern "C" void EXACT(dequantize_4bit)(cuda_call *c)
{
  int64_t block = (int64_t)c->of->call->scalars[0];
  tensor codes = read_of(c->of, 0), scales = read_of(c->of, 1), y = write_of(c->of, 0);
  book_4bit book = make_book_4bit();
  for_each(
      c, dim_of(c->of, 0), KERNEL_LAMBDA(int64_t i) {
        int64_t pair = load_int(codes, i / 2), code = i % 2 == 0 ? pair >> 4 : pair & 15;
        store(y, i, book.number[code] * load(scales, i / block));
      });
}
