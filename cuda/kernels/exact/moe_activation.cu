/*
 * ref/kernels/moe_activation.c for GPUs. Sums along rows are computed first and kept in scratch,
 * because gradients may overwrite the rows' factors.
 */
#include "cuda/kernels/activation.cuh"
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

enum { ROWS, WIDTH };
enum { FUNCTION, UNGATED };

static activation_function function_of(const cuda_call *c)
{
  return (activation_function)c->of->call->scalars[FUNCTION];
}

/* Number `i` of the left halves of rows of two. */
DEVICE static inline int64_t left_of(int64_t i, int64_t f)
{
  return i / f * 2 * f + i % f;
}

static bool is_gated(const cuda_call *c)
{
  return c->of->call->scalars[UNGATED] == 0;
}

extern "C" void EXACT(weighted_activation_forward)(cuda_call *c)
{
  int64_t f = dim_of(c->of, WIDTH);
  bool gated = is_gated(c);
  activation_function function = function_of(c);
  tensor x = read_of(c->of, 0), p = read_of(c->of, 1), y = write_of(c->of, 0);
  for_each(
      c, elements_of(y), KERNEL_LAMBDA(int64_t i) {
        int64_t left = gated ? left_of(i, f) : i;
        float other = gated ? load(x, left + f) : 1;
        store(y, i, activation_of(function, load(x, left)) * other * load(p, i / f));
      });
}

extern "C" int64_t EXACT(weighted_activation_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take<float>(&a, elements_of(c->reads[0]) / dim_of(c, WIDTH));
  return a.used;
}

extern "C" void EXACT(weighted_activation_backward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t f = dim_of(c->of, WIDTH), rows = elements_of(c->of->reads[0]) / f;
  bool gated = is_gated(c);
  activation_function function = function_of(c);
  tensor g = read_of(c->of, 0), x = read_of(c->of, 1), p = read_of(c->of, 2),
         gx = write_of(c->of, 0);
  float *sums = take<float>(&room, rows);
  for_each(
      c, c->of->write_count > 1 ? rows : 0, KERNEL_LAMBDA(int64_t i) {
        float sum = 0;
        for (int64_t j = 0; j < f; j++) {
          int64_t left = gated ? i * 2 * f + j : i * f + j;
          float act = activation_of(function, load(x, left));
          sum += load(g, i * f + j) * (act * (gated ? load(x, left + f) : 1));
        }
        sums[i] = sum;
      });
  for_each(
      c, rows * f, KERNEL_LAMBDA(int64_t i) {
        int64_t left = gated ? left_of(i, f) : i;
        float a = load(x, left), b = gated ? load(x, left + f) : 1;
        float act = activation_of(function, a), slope = activation_slope(function, a);
        float weighted = load(g, i) * load(p, i / f);
        store(gx, left, weighted * b * slope);
        if (gated) store(gx, left + f, weighted * act);
      });
  if (c->of->write_count < 2) return;
  tensor gp = write_of(c->of, 1);
  for_each(
      c, rows, KERNEL_LAMBDA(int64_t i) { store(gp, i, sums[i]); });
}

/* ---- halves --------------------------------------------------------------------------------- */

extern "C" void EXACT(gate_forward)(cuda_call *c)
{
  int64_t f = dim_of(c->of, WIDTH);
  activation_function function = function_of(c);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  for_each(
      c, elements_of(y),
      KERNEL_LAMBDA(int64_t i) { store(y, i, activation_of(function, load(x, left_of(i, f)))); });
}

extern "C" void EXACT(gate_backward)(cuda_call *c)
{
  int64_t f = dim_of(c->of, WIDTH);
  activation_function function = function_of(c);
  tensor g = read_of(c->of, 0), x = read_of(c->of, 1), gx = write_of(c->of, 0);
  for_each(
      c, elements_of(g), KERNEL_LAMBDA(int64_t i) {
        int64_t left = left_of(i, f);
        float slope = activation_slope(function, load(x, left));
        store(gx, left, load(g, i) * slope);
        store(gx, left + f, 0);
      });
}

extern "C" void EXACT(up_forward)(cuda_call *c)
{
  int64_t f = dim_of(c->of, WIDTH);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  for_each(
      c, elements_of(y), KERNEL_LAMBDA(int64_t i) { copy_element(x, left_of(i, f) + f, y, i); });
}

extern "C" void EXACT(up_backward)(cuda_call *c)
{
  int64_t f = dim_of(c->of, WIDTH);
  tensor g = read_of(c->of, 0), gx = write_of(c->of, 0);
  for_each(
      c, elements_of(g), KERNEL_LAMBDA(int64_t i) {
        int64_t left = left_of(i, f);
        store(gx, left, 0);
        copy_element(g, i, gx, left + f);
      });
}

extern "C" void EXACT(multiply_backward)(cuda_call *c)
{
  tensor g = read_of(c->of, 0), a = read_of(c->of, 1), b = read_of(c->of, 2),
         ga = write_of(c->of, 0), gb = write_of(c->of, 1);
  for_each(
      c, elements_of(g), KERNEL_LAMBDA(int64_t i) {
        float gradient = load(g, i), first = load(a, i), second = load(b, i);
        store(ga, i, gradient * second);
        store(gb, i, gradient * first);
      });
}

extern "C" void EXACT(relu_forward)(cuda_call *c)
{
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  for_each(
      c, elements_of(y), KERNEL_LAMBDA(int64_t i) {
        float value = load(x, i);
        store(y, i, value > 0 ? value : 0);
      });
}

extern "C" void EXACT(relu_backward)(cuda_call *c)
{
  tensor g = read_of(c->of, 0), y = read_of(c->of, 1), gx = write_of(c->of, 0);
  for_each(
      c, elements_of(gx),
      KERNEL_LAMBDA(int64_t i) { store(gx, i, load(y, i) > 0 ? load(g, i) : 0); });
}

extern "C" void EXACT(square_backward)(cuda_call *c)
{
  tensor g = read_of(c->of, 0), x = read_of(c->of, 1), gx = write_of(c->of, 0);
  for_each(
      c, elements_of(gx),
      KERNEL_LAMBDA(int64_t i) { store(gx, i, load(g, i) * (2 * load(x, i))); });
}

/* ---- rows times a number -------------------------------------------------------------------- */

/* In one or two types. */
static void weight_rows(cuda_call *c, tensor x, tensor p, tensor to, tensor also_to)
{
  int64_t width = dim_of(c->of, WIDTH);
  for_each(
      c, elements_of(to), KERNEL_LAMBDA(int64_t i) {
        float weighted = load(x, i) * load(p, i / width);
        store(to, i, weighted);
        store(also_to, i, weighted);
      });
}

extern "C" void EXACT(weight_rows_forward)(cuda_call *c)
{
  assert(c->of->write_count == 1 || c->of->write_count == 2);
  weight_rows(c, read_of(c->of, 0), read_of(c->of, 1), write_of(c->of, 0),
              write_from_end(c->of, 1));
}

static void dot_rows(cuda_call *c, tensor a, tensor b, tensor to)
{
  int64_t width = dim_of(c->of, WIDTH);
  for_each(
      c, elements_of(to), KERNEL_LAMBDA(int64_t i) {
        float sum = 0;
        for (int64_t j = i * width; j < (i + 1) * width; j++)
          sum += load(a, j) * load(b, j);
        store(to, i, sum);
      });
}

extern "C" void EXACT(weight_rows_backward)(cuda_call *c)
{
  assert(c->of->read_count == 3 && c->of->write_count == 2);
  dot_rows(c, read_of(c->of, 0), read_of(c->of, 1), write_of(c->of, 1));
  tensor gx = write_of(c->of, 0);
  weight_rows(c, read_of(c->of, 0), read_of(c->of, 2), gx, gx);
}

extern "C" void EXACT(row_dot)(cuda_call *c)
{
  tensor to = write_from_end(c->of, 1);
  if (to.type == DTYPE_BYTE) return;
  assert(elements_of(to) == dim_of(c->of, ROWS));
  dot_rows(c, read_of(c->of, 0), read_of(c->of, 1), to);
}
