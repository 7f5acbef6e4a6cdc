/* ref/kernels/activation.c for GPUs: a thread for each element of the result, of both halves. */
#include "cuda/kernels/activation.cuh"
#include "cuda/kernels/operands.cuh"

typedef struct activation_input {
  tensor x, bias;
  bool has_bias;
  int64_t width; /* of a row */
} activation_input;

static activation_input input_of(const exec_call *c, uint32_t first, int64_t width)
{
  bool has_bias = c->read_count > first + 1;
  activation_input in = { read_of(c, first), read_of(c, has_bias ? first + 1 : first), has_bias,
                          width };
  return in;
}

DEVICE static inline float biased(const activation_input &in, int64_t row, int64_t column)
{
  float x = load(in.x, row * in.width + column);
  return in.has_bias ? x + load(in.bias, column) : x;
}

/* y = f(x + bias), or of rows in two halves y = f(first) second. reads x [rows, inputs][, bias],
 * writes y [rows, outputs]. */
extern "C" void EXACT(activation_forward)(cuda_call *c)
{
  activation_function f = (activation_function)c->of->call->scalars[0];
  bool gated = c->of->call->scalars[1] != 0;
  tensor y = write_of(c->of, 0);
  int64_t rows = dim_of(c->of, 0), outputs = elements_of(y) / rows;
  activation_input in = input_of(c->of, 0, gated ? 2 * outputs : outputs);
  assert(elements_of(in.x) == rows * in.width);
  for_each(
      c, rows * outputs, KERNEL_LAMBDA(int64_t i) {
        int64_t row = i / outputs, column = i % outputs;
        float value = activation_of(f, biased(in, row, column));
        store(y, i, gated ? value * biased(in, row, outputs + column) : value);
      });
}

/* gx = gy f'(x + bias); gated: gy second f'(first), then gy f(first). reads gy, x[, bias], writes
 * gx, which may overwrite x: a thread writes only elements that it has read. */
extern "C" void EXACT(activation_backward)(cuda_call *c)
{
  activation_function f = (activation_function)c->of->call->scalars[0];
  bool gated = c->of->call->scalars[1] != 0;
  tensor gy = read_of(c->of, 0), gx = write_of(c->of, 0);
  int64_t rows = dim_of(c->of, 0), outputs = elements_of(gy) / rows;
  activation_input in = input_of(c->of, 1, gated ? 2 * outputs : outputs);
  assert(elements_of(in.x) == rows * in.width && elements_of(gx) == rows * in.width);
  for_each(
      c, rows * outputs, KERNEL_LAMBDA(int64_t i) {
        int64_t row = i / outputs, column = i % outputs;
        float x = biased(in, row, column), g = load(gy, i), slope = activation_slope(f, x);
        if (!gated) {
          store(gx, i, g * slope);
          return;
        }
        float second = biased(in, row, outputs + column);
        store(gx, row * in.width + column, g * second * slope);
        store(gx, row * in.width + outputs + column, g * activation_of(f, x));
      });
}
