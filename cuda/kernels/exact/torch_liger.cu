/* ref/kernels/torch_liger.c for GPUs. */
#include "cuda/kernels/activation.cuh"
#include "cuda/kernels/block.cuh"
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

enum { ROWS, COLUMNS };

/* Reads gate, up; writes silu(gate) up. */
extern "C" void EXACT(gated_silu_forward)(cuda_call *c)
{
  tensor gate = read_of(c->of, 0), up = read_of(c->of, 1), y = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, ROWS) * dim_of(c->of, COLUMNS), KERNEL_LAMBDA(int64_t i) {
        store(y, i, activation_of(ACTIVATION_SILU, load(gate, i)) * load(up, i));
      });
}

/* Reads gy, gate, up; writes [silu(gate) up,] gy up silu'(gate), gy silu(gate): each may overwrite
 * one of the reads. */
extern "C" void EXACT(gated_silu_backward)(cuda_call *c)
{
  bool again = c->of->write_count == 3;
  tensor gradient = read_of(c->of, 0), gate = read_of(c->of, 1), up = read_of(c->of, 2),
         y = write_of(c->of, 0), of_gate = write_from_end(c->of, 2),
         of_up = write_from_end(c->of, 1);
  assert(again || c->of->write_count == 2);
  for_each(
      c, dim_of(c->of, ROWS) * dim_of(c->of, COLUMNS), KERNEL_LAMBDA(int64_t i) {
        float gy = load(gradient, i), x = load(gate, i), other = load(up, i);
        float silu = activation_of(ACTIVATION_SILU, x),
              slope = activation_slope(ACTIVATION_SILU, x);
        if (again) store(y, i, silu * other);
        store(of_gate, i, gy * other * slope);
        store(of_up, i, gy * silu);
      });
}

/* ---- cross-entropy ---- */

/* Of each row of logits, its largest and its sum; of all, how many labels count. */
typedef struct row_sums {
  float *largest, *sum;
  int64_t *counted;
} row_sums;

static row_sums take_row_sums(scratch_arena *a, int64_t rows)
{
  row_sums s = { take<float>(a, rows), take<float>(a, rows), take<int64_t>(a, 1) };
  return s;
}

extern "C" int64_t EXACT(rows_cross_entropy_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_row_sums(&a, dim_of(c, ROWS));
  return a.used;
}

/* PyTorch's ignore_index is -100: labels below 0 are ignored. Counts the others. */
static void count_labels(cuda_call *c, tensor labels, int64_t *counted)
{
  run_once(
      c, KERNEL_LAMBDA(int64_t) { *counted = 0; });
  for_each(
      c, elements_of(labels), KERNEL_LAMBDA(int64_t i) {
        if (load_int(labels, i) >= 0) (void)count_up(counted, 1);
      });
}

/*
 * Reads the logits of some tokens, their labels, the labels of all tokens; writes where the logits
 * were (softmax - 1 at the label) / n, and losses (log-sum-exp - the label's logit) / n, with n the
 * number of all labels that count; zeros for those that do not.
 */
extern "C" void EXACT(rows_cross_entropy)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t rows = dim_of(c->of, ROWS), columns = dim_of(c->of, COLUMNS);
  tensor x = read_of(c->of, 0), labels = read_of(c->of, 1), y = write_of(c->of, 0),
         losses = write_of(c->of, 1);
  row_sums s = take_row_sums(&room, rows);
  count_labels(c, read_of(c->of, 2), s.counted);
  for_each(
      c, rows, KERNEL_LAMBDA(int64_t r) {
        int64_t label = load_int(labels, r);
        float largest = load(x, r * columns), sum = 0, loss = 0, counted = (float)*s.counted;
        for (int64_t k = 1; k < columns; k++) {
          float next = load(x, r * columns + k);
          largest = next > largest ? next : largest;
        }
        for (int64_t k = 0; k < columns; k++)
          sum += exact_expf(load(x, r * columns + k) - largest);
        if (label >= 0) loss = (largest + exact_logf(sum) - load(x, r * columns + label)) / counted;
        s.largest[r] = largest;
        s.sum[r] = sum;
        store(losses, r, loss);
      });
  for_each(
      c, rows * columns, KERNEL_LAMBDA(int64_t i) {
        int64_t r = i / columns, label = load_int(labels, r);
        float counted = (float)*s.counted, part = exact_expf(load(x, i) - s.largest[r]) / s.sum[r];
        store(y, i, label < 0 ? 0 : (i % columns == label ? part - 1 : part) / counted);
      });
}
