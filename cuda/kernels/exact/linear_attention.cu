/* ref/kernels/linear_attention.c for GPUs: a thread for each element, row, or column of a chunk. */
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

typedef struct convolution {
  int64_t batch, tokens, channels, width;
  tensor x, weight;
} convolution;

static convolution convolution_of(const exec_call *c, uint32_t first)
{
  convolution of = { dim_of(c, 0), dim_of(c, 1),      dim_of(c, 2),
                     dim_of(c, 3), read_of(c, first), read_of(c, first + 1) };
  return of;
}

/* x at a channel's position; 0 before its first. */
DEVICE static inline float at(const convolution &of, int64_t sequence, int64_t position,
                              int64_t channel)
{
  int64_t row = sequence * of.tokens + position;
  return position < 0 ? 0 : load(of.x, row * of.channels + channel);
}

/* w[0] x[t - width + 1] + ... + w[width - 1] x[t], ascending, from 0. */
DEVICE static inline float sum_at(const convolution &of, int64_t sequence, int64_t position,
                                  int64_t channel)
{
  float sum = 0;
  for (int64_t w = 0; w < of.width; w++)
    sum += load(of.weight, channel * of.width + w) *
           at(of, sequence, position - of.width + 1 + w, channel);
  return sum;
}

extern "C" void EXACT(causal_conv_forward)(cuda_call *c)
{
  convolution of = convolution_of(c->of, 0);
  tensor y = write_of(c->of, 0);
  for_each(
      c, of.batch * of.tokens * of.channels, KERNEL_LAMBDA(int64_t i) {
        int64_t row = i / of.channels;
        float sum = sum_at(of, row / of.tokens, row % of.tokens, i % of.channels);
        store(y, i, sum / (1 + exact_expf(-sum)));
      });
}

static float *take_gradients(scratch_arena *a, const exec_call *c)
{
  return take<float>(a, dim_of(c, 0) * dim_of(c, 1) * dim_of(c, 2));
}

extern "C" int64_t EXACT(causal_conv_backward_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_gradients(&a, c);
  return a.used;
}

/* g: the gradient of the sum, (gy s) (1 + y (1 - s)) with s = 1 / (1 + exp(-y)). */
extern "C" void EXACT(causal_conv_backward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  float *g = take_gradients(&room, c->of);
  convolution of = convolution_of(c->of, 1);
  tensor gy = read_of(c->of, 0), gx = write_of(c->of, 0), gw = write_of(c->of, 1);
  int64_t rows = of.batch * of.tokens;
  for_each(
      c, rows * of.channels, KERNEL_LAMBDA(int64_t i) {
        int64_t row = i / of.channels;
        float y = sum_at(of, row / of.tokens, row % of.tokens, i % of.channels);
        float s = 1 / (1 + exact_expf(-y));
        g[i] = load(gy, i) * s * (1 + y * (1 - s));
      });
  for_each(
      c, of.channels * of.width, KERNEL_LAMBDA(int64_t i) {
        int64_t channel = i / of.width, back = of.width - 1 - i % of.width;
        float sum = 0;
        for (int64_t row = 0; row < rows; row++)
          sum += g[row * of.channels + channel] *
                 at(of, row / of.tokens, row % of.tokens - back, channel);
        store(gw, i, sum);
      });
  for_each(
      c, rows * of.channels, KERNEL_LAMBDA(int64_t i) {
        int64_t row = i / of.channels, channel = i % of.channels;
        float sum = 0;
        for (int64_t w = 0; w < of.width && row % of.tokens + w < of.tokens; w++)
          sum += load(of.weight, channel * of.width + of.width - 1 - w) *
                 g[(row + w) * of.channels + channel];
        store(gx, i, sum);
      });
}

extern "C" void EXACT(l2norm_forward)(cuda_call *c)
{
  int64_t width = dim_of(c->of, 1);
  float epsilon = scalar_of(c->of, 0);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0), inverses = write_of(c->of, 1);
  for_each(
      c, dim_of(c->of, 0), KERNEL_LAMBDA(int64_t row) {
        float sum = 0;
        for (int64_t i = 0; i < width; i++)
          sum += load(x, row * width + i) * load(x, row * width + i);
        float inverse = exact_rsqrtf(sum + epsilon);
        for (int64_t i = 0; i < width; i++)
          store(y, row * width + i, load(x, row * width + i) * inverse);
        store(inverses, row, inverse);
      });
}

extern "C" void EXACT(l2norm_backward)(cuda_call *c)
{
  int64_t width = dim_of(c->of, 1);
  tensor gy = read_of(c->of, 0), y = read_of(c->of, 1), inverses = read_of(c->of, 2);
  tensor gx = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, 0), KERNEL_LAMBDA(int64_t row) {
        float sum = 0, inverse = load(inverses, row);
        for (int64_t i = 0; i < width; i++)
          sum += load(gy, row * width + i) * load(y, row * width + i);
        for (int64_t i = row * width; i < (row + 1) * width; i++)
          store(gx, i, load(gy, i) * inverse - sum * (load(y, i) * inverse));
      });
}

extern "C" void EXACT(chunk_sums)(cuda_call *c)
{
  int64_t tokens = dim_of(c->of, 1), heads = dim_of(c->of, 2), chunk = dim_of(c->of, 3);
  bool reversed = scalar_of(c->of, 0) != 0;
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, 0) * heads, KERNEL_LAMBDA(int64_t column) {
        int64_t first = column / heads * tokens * heads + column % heads;
        float sum = 0;
        for (int64_t i = 0; i < tokens; i++) {
          int64_t t = reversed ? tokens - 1 - i : i;
          bool begins = reversed ? t == tokens - 1 || (t + 1) % chunk == 0 : t % chunk == 0;
          sum = (begins ? 0 : sum) + load(x, first + t * heads);
          store(y, first + t * heads, sum);
        }
      });
}
