/*
 * ref/kernels/softmax.c for GPUs: a thread for each row finds its maximum and adds it up, then one
 * for each element writes it: a result may overwrite an operand.
 */
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

typedef struct softmax_call {
  int64_t rows, columns;
  float scale;
  int64_t queries; /* rows of a matrix of scores; 0: all columns count */
} softmax_call;

static softmax_call plain_softmax(const exec_call *c)
{
  softmax_call s = { dim_of(c, 0), dim_of(c, 1), 1, 0 };
  return s;
}

static softmax_call causal_softmax(const exec_call *c)
{
  softmax_call s = { dim_of(c, 0), dim_of(c, 1), scalar_of(c, 0), (int64_t)c->call->scalars[1] };
  return s;
}

/* The number of a row's first columns that are visible. */
DEVICE static inline int64_t visible(const softmax_call &s, int64_t row)
{
  return s.queries == 0 ? s.columns : s.columns - s.queries + row % s.queries + 1;
}

typedef struct row_numbers {
  float *most, *sum; /* [rows] */
} row_numbers;

static row_numbers take_numbers(scratch_arena *a, int64_t rows)
{
  row_numbers of;
  of.most = take<float>(a, rows);
  of.sum = take<float>(a, rows);
  return of;
}

extern "C" int64_t EXACT(softmax_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_numbers(&a, dim_of(c, 0));
  return a.used;
}

static void forward(cuda_call *c, softmax_call s)
{
  scratch_arena room = arena_of(c);
  row_numbers of = take_numbers(&room, s.rows);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  for_each(
      c, s.rows, KERNEL_LAMBDA(int64_t r) {
        int64_t count = visible(s, r);
        float most = -(float)exact_infinity(), sum = 0;
        for (int64_t i = 0; i < count; i++) {
          float scaled = load(x, r * s.columns + i) * s.scale;
          most = scaled > most ? scaled : most;
        }
        for (int64_t i = 0; i < count; i++)
          sum += exact_expf(load(x, r * s.columns + i) * s.scale - most);
        of.most[r] = most;
        of.sum[r] = sum;
      });
  for_each(
      c, s.rows * s.columns, KERNEL_LAMBDA(int64_t i) {
        int64_t r = i / s.columns;
        bool counts = i % s.columns < visible(s, r);
        store(y, i, counts ? exact_expf(load(x, i) * s.scale - of.most[r]) / of.sum[r] : 0);
      });
}

static void backward(cuda_call *c, softmax_call s)
{
  scratch_arena room = arena_of(c);
  row_numbers of = take_numbers(&room, s.rows);
  tensor gy = read_of(c->of, 0), y = read_of(c->of, 1), gx = write_of(c->of, 0);
  for_each(
      c, s.rows, KERNEL_LAMBDA(int64_t r) {
        int64_t first = r * s.columns, count = visible(s, r);
        float sum = 0;
        for (int64_t i = 0; i < count; i++)
          sum += load(gy, first + i) * load(y, first + i);
        of.sum[r] = sum;
      });
  for_each(
      c, s.rows * s.columns, KERNEL_LAMBDA(int64_t i) {
        int64_t r = i / s.columns;
        bool counts = i % s.columns < visible(s, r);
        store(gx, i, counts ? (load(gy, i) - of.sum[r]) * load(y, i) * s.scale : 0);
      });
}

extern "C" void EXACT(softmax_forward)(cuda_call *c)
{
  forward(c, plain_softmax(c->of));
}

extern "C" void EXACT(softmax_backward)(cuda_call *c)
{
  backward(c, plain_softmax(c->of));
}

extern "C" void EXACT(causal_softmax_forward)(cuda_call *c)
{
  forward(c, causal_softmax(c->of));
}

extern "C" void EXACT(causal_softmax_backward)(cuda_call *c)
{
  backward(c, causal_softmax(c->of));
}
