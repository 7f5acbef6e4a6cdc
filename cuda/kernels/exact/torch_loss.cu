/*
 * ref/kernels/torch_loss.c for GPUs. A thread for each row first computes what runs along the row,
 * and keeps it in scratch; then each element is computed separately, maybe in place.
 */
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

enum { ROWS, COLUMNS };

/* The largest, then the sum of exp(x - largest), ascending; largest + log(sum). */
DEVICE static inline float log_sum_exp(const tensor &x, int64_t first, int64_t count)
{
  float largest = load(x, first), sum = 0;
  for (int64_t k = 1; k < count; k++) {
    float next = load(x, first + k);
    largest = next > largest ? next : largest;
  }
  for (int64_t k = 0; k < count; k++)
    sum += exact_expf(load(x, first + k) - largest);
  return largest + exact_logf(sum);
}

extern "C" int64_t EXACT(log_softmax_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take<float>(&a, dim_of(c, ROWS));
  return a.used;
}

/* y = x - log_sum_exp(x) */
extern "C" void EXACT(log_softmax_forward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t rows = dim_of(c->of, ROWS), columns = dim_of(c->of, COLUMNS);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  float *all = take<float>(&room, rows);
  assert(elements_of(x) == rows * columns);
  for_each(
      c, rows, KERNEL_LAMBDA(int64_t i) { all[i] = log_sum_exp(x, i * columns, columns); });
  for_each(
      c, rows * columns, KERNEL_LAMBDA(int64_t i) { store(y, i, load(x, i) - all[i / columns]); });
}

/* Reads gy, y. gx = gy - exp(y) s, where s is the sum of the row's gy, ascending. */
extern "C" void EXACT(log_softmax_backward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t rows = dim_of(c->of, ROWS), columns = dim_of(c->of, COLUMNS);
  tensor gy = read_of(c->of, 0), y = read_of(c->of, 1), gx = write_of(c->of, 0);
  float *sums = take<float>(&room, rows);
  for_each(
      c, rows, KERNEL_LAMBDA(int64_t i) {
        float sum = 0;
        for (int64_t k = 0; k < columns; k++)
          sum += load(gy, i * columns + k);
        sums[i] = sum;
      });
  for_each(
      c, rows * columns, KERNEL_LAMBDA(int64_t i) {
        store(gx, i, load(gy, i) - exact_expf(load(y, i)) * sums[i / columns]);
      });
}

/* The token's label; -1: ignored. */
DEVICE static inline int64_t label_of(const tensor &labels, int64_t token, int64_t ignored)
{
  int64_t label = load_int(labels, token);
  return label == ignored ? -1 : label;
}

static int64_t ignored_of(const cuda_call *c)
{
  return (int64_t)c->of->call->scalars[0];
}

/* Reads log-probabilities, labels; writes the loss and the number of labels that count. */
extern "C" void EXACT(nll_forward)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, ROWS), columns = dim_of(c->of, COLUMNS), ignored = ignored_of(c);
  tensor x = read_of(c->of, 0), labels = read_of(c->of, 1), loss = write_of(c->of, 0),
         number = write_of(c->of, 1);
  run_once(
      c, KERNEL_LAMBDA(int64_t) {
        float sum = 0, counted = 0;
        for (int64_t i = 0; i < rows; i++) {
          int64_t label = label_of(labels, i, ignored);
          if (label < 0) continue;
          sum -= load(x, i * columns + label);
          counted += 1;
        }
        store(loss, 0, sum / counted);
        store(number, 0, counted);
      });
}

/* Reads gy, labels, number of labels; -(gy / number) at the label, 0 elsewhere. */
extern "C" void EXACT(nll_backward)(cuda_call *c)
{
  int64_t columns = dim_of(c->of, COLUMNS), ignored = ignored_of(c);
  tensor gy = read_of(c->of, 0), labels = read_of(c->of, 1), number = read_of(c->of, 2),
         gx = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, ROWS), KERNEL_LAMBDA(int64_t i) {
        int64_t label = label_of(labels, i, ignored);
        if (label >= 0) store(gx, i * columns + label, -(load(gy, 0) / load(number, 0)));
      });
}

/* Reads logits, labels; writes losses, log_sum_exp of the rows, and its penalty, which is off. */
extern "C" void EXACT(log_probs_forward)(cuda_call *c)
{
  int64_t columns = dim_of(c->of, COLUMNS), ignored = ignored_of(c);
  tensor x = read_of(c->of, 0), labels = read_of(c->of, 1), losses = write_of(c->of, 0),
         sums = write_of(c->of, 1), penalty = write_of(c->of, 2);
  for_each(
      c, dim_of(c->of, ROWS), KERNEL_LAMBDA(int64_t i) {
        int64_t label = label_of(labels, i, ignored);
        float all = log_sum_exp(x, i * columns, columns);
        store(losses, i, label < 0 ? 0 : all - load(x, i * columns + label));
        store(sums, i, all);
        store(penalty, i, 0);
      });
}

/* Reads gy, logits, log_sum_exp, labels; gx = gy (exp(x - log_sum_exp) - 1 at the label), which may
 * overwrite the logits. */
extern "C" void EXACT(log_probs_backward)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, ROWS), columns = dim_of(c->of, COLUMNS), ignored = ignored_of(c);
  tensor gy = read_of(c->of, 0), x = read_of(c->of, 1), sums = read_of(c->of, 2),
         labels = read_of(c->of, 3), gx = write_of(c->of, 0);
  for_each(
      c, rows * columns, KERNEL_LAMBDA(int64_t i) {
        int64_t row = i / columns, label = label_of(labels, row, ignored);
        float probability = exact_expf(load(x, i) - load(sums, row));
        float factor = label < 0 ? 0 : load(gy, row);
        store(gx, i, factor * (i % columns == label ? probability - 1 : probability));
      });
}

/* Rows of integers, one element longer than the rows read: the last element is the call's value. */
extern "C" void EXACT(pad)(cuda_call *c)
{
  enum { VALUE, LENGTH };
  int64_t length = (int64_t)c->of->call->scalars[LENGTH],
          value = (int64_t)c->of->call->scalars[VALUE], rows = dim_of(c->of, 0) / length;
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  assert(elements_of(x) == rows * (length - 1));
  for_each(
      c, rows * length, KERNEL_LAMBDA(int64_t i) {
        int64_t row = i / length, k = i % length;
        if (k < length - 1)
          copy_element(x, row * (length - 1) + k, y, i);
        else
          store_int(y, i, value);
      });
}
