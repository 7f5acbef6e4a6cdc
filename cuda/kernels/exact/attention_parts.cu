/* ref/kernels/attention_parts.c for GPUs. */
#include "cuda/kernels/operands.cuh"

enum { JOIN_ROWS, JOIN_WIDTHS, JOIN_MOST = PLAN_DIMS - JOIN_WIDTHS };

/* The columns of y, `width` wide, from `first` on. */
static void join_part(cuda_call *c, tensor x, bool missing, int64_t columns, int64_t first,
                      int64_t width)
{
  tensor y = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, JOIN_ROWS) * columns, KERNEL_LAMBDA(int64_t i) {
        store(y, i / columns * width + first + i % columns, missing ? 0 : load(x, i));
      });
}

extern "C" void EXACT(join)(cuda_call *c)
{
  int64_t width = 0, first = 0;
  uint32_t missing = (uint32_t)c->of->call->scalars[0], read = 0;
  for (uint32_t k = 0; k < JOIN_MOST; k++)
    width += dim_of(c->of, JOIN_WIDTHS + k);
  for (uint32_t k = 0; k < JOIN_MOST && first < width; k++) {
    int64_t columns = dim_of(c->of, JOIN_WIDTHS + k);
    bool is_missing = missing >> k & 1;
    tensor x = is_missing || columns == 0 ? write_of(c->of, 0) : read_of(c->of, read);
    join_part(c, x, is_missing, columns, first, width);
    read += !is_missing;
    first += columns;
  }
}

typedef struct repeat_call {
  int64_t rows, times, width; /* rows of the repeated operand */
} repeat_call;

static repeat_call repeat_of(const exec_call *c)
{
  repeat_call r = { 0, (int64_t)c->call->scalars[0], (int64_t)c->call->scalars[1] };
  r.rows = dim_of(c, 0) / (r.times * r.width);
  assert(r.rows * r.times * r.width == dim_of(c, 0));
  return r;
}

extern "C" void EXACT(repeat_forward)(cuda_call *c)
{
  repeat_call r = repeat_of(c->of);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  for_each(
      c, r.rows * r.times * r.width, KERNEL_LAMBDA(int64_t i) {
        store(y, i, load(x, i / (r.times * r.width) * r.width + i % r.width));
      });
}

extern "C" void EXACT(repeat_backward)(cuda_call *c)
{
  repeat_call r = repeat_of(c->of);
  tensor gy = read_of(c->of, 0), gx = write_of(c->of, 0);
  for_each(
      c, r.rows * r.width, KERNEL_LAMBDA(int64_t i) {
        int64_t first = i / r.width * r.times * r.width + i % r.width;
        float sum = load(gy, first);
        for (int64_t k = 1; k < r.times; k++)
          sum += load(gy, first + k * r.width);
        store(gx, i, sum);
      });
}
