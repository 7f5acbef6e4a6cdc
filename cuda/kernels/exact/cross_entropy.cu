/*
 * ref/kernels/cross_entropy.c for GPUs. One thread computes a sum or a maximum of a row, ascending;
 * everything else has a thread for each element.
 */
#include "cuda/kernels/cross_entropy.cuh"
#include "cuda/kernels/scratch.cuh"
#include "cuda/kernels/sequence_part.cuh"

static int64_t first_label(const exec_call *c)
{
  return dim_of(c, 1) * c->rank->group[GROUP_TP].index;
}

/* The label's column of this rank's part; -1 when it is another rank's. */
DEVICE static inline int64_t own_label(const tensor &labels, int64_t token, int64_t first,
                                       int64_t vocab)
{
  int64_t label = load_int(labels, token) - first;
  return label >= 0 && label < vocab ? label : -1;
}

/* ---- the unfused sequence and Megatron's fusion of it ---------------------------------------- */

/* reads logits, writes them in another type, and the largest of each row. */
extern "C" void EXACT(cross_entropy_maxima)(cuda_call *c)
{
  int64_t tokens = dim_of(c->of, 0), vocab = dim_of(c->of, 1);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0), maxima = write_of(c->of, 1);
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t t) { store(maxima, t, largest_of(x, t * vocab, vocab)); });
  for_each(
      c, tokens * vocab, KERNEL_LAMBDA(int64_t i) { store(y, i, load(x, i)); });
}

/* reads logits, labels, maxima; writes exp(logit - maximum), a mask of labels that other ranks
 * have, labels as columns (0 for masked ones), the label's logit - maximum (0 for masked ones), the
 * sum of the exponentials. */
extern "C" void EXACT(cross_entropy_sums)(cuda_call *c)
{
  int64_t tokens = dim_of(c->of, 0), vocab = dim_of(c->of, 1), first = first_label(c->of);
  tensor x = read_of(c->of, 0), labels = read_of(c->of, 1), maxima = read_of(c->of, 2);
  tensor y = write_of(c->of, 0), mask = write_of(c->of, 1), columns = write_of(c->of, 2),
         predicted = write_of(c->of, 3), sums = write_of(c->of, 4);
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t t) {
        int64_t label = own_label(labels, t, first, vocab);
        float maximum = load(maxima, t);
        store_int(mask, t, label < 0);
        store_int(columns, t, label < 0 ? 0 : label);
        store(predicted, t, label >= 0 ? load(x, t * vocab + label) - maximum : 0);
        store(sums, t, sum_of_exponentials(x, t * vocab, vocab, maximum));
      });
  for_each(
      c, tokens * vocab,
      KERNEL_LAMBDA(int64_t i) { store(y, i, exact_expf(load(x, i) - load(maxima, i / vocab))); });
}

/* loss = log(sum) - predicted, softmax = exponential / sum. reads exponentials, sums, predicted,
 * writes losses, softmax. */
extern "C" void EXACT(cross_entropy_loss)(cuda_call *c)
{
  int64_t tokens = dim_of(c->of, 0), vocab = dim_of(c->of, 1);
  tensor x = read_of(c->of, 0), sums = read_of(c->of, 1), predicted = read_of(c->of, 2);
  tensor losses = write_of(c->of, 0), y = write_of(c->of, 1);
  for_each(
      c, tokens * vocab,
      KERNEL_LAMBDA(int64_t i) { store(y, i, load(x, i) / load(sums, i / vocab)); });
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t t) {
        store(losses, t, exact_logf(load(sums, t)) - load(predicted, t));
      });
}

/* (softmax - [label]) gy. reads gy, softmax, mask, labels as columns, writes the gradient of the
 * logits. */
extern "C" void EXACT(cross_entropy_backward)(cuda_call *c)
{
  int64_t tokens = dim_of(c->of, 0), vocab = dim_of(c->of, 1);
  tensor gy = read_of(c->of, 0), softmax = read_of(c->of, 1), mask = read_of(c->of, 2),
         columns = read_of(c->of, 3), gx = write_of(c->of, 0);
  for_each(
      c, tokens * vocab, KERNEL_LAMBDA(int64_t i) {
        int64_t t = i / vocab;
        float x = load(softmax, i);
        if (load_int(columns, t) == i % vocab && load_int(mask, t) == 0) x -= 1;
        store(gx, i, x * load(gy, t));
      });
}

/* ---- Transformer Engine's two kernels -------------------------------------------------------- */

/* A rank's numbers for a token: the largest logit, the sum of exponentials relative to it, the
 * label's logit (minus infinity if another rank has the label). */
enum { ROW_MAXIMUM, ROW_SUM, ROW_LABEL, ROW_NUMBERS };

/* reads logits, labels, writes three numbers for each row. */
extern "C" void EXACT(online_softmax)(cuda_call *c)
{
  int64_t tokens = dim_of(c->of, 0), vocab = dim_of(c->of, 1), first = first_label(c->of);
  tensor x = read_of(c->of, 0), labels = read_of(c->of, 1), numbers = write_of(c->of, 0);
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t t) {
        int64_t label = own_label(labels, t, first, vocab), row = t * ROW_NUMBERS;
        float maximum = largest_of(x, t * vocab, vocab);
        store(numbers, row + ROW_MAXIMUM, maximum);
        store(numbers, row + ROW_SUM, sum_of_exponentials(x, t * vocab, vocab, maximum));
        store(numbers, row + ROW_LABEL,
              label >= 0 ? load(x, t * vocab + label) : -(float)exact_infinity());
      });
}

extern "C" int64_t EXACT(fused_cross_entropy_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take<float>(&a, dim_of(c, 0) * ROW_NUMBERS);
  return a.used;
}

/* Combines the numbers of all ranks' parts, which follow each other. */
static float *join_parts(cuda_call *c, tensor parts, int64_t tokens, scratch_arena *room)
{
  int64_t count = elements_of(parts) / (tokens * ROW_NUMBERS);
  float *joined = take<float>(room, tokens * ROW_NUMBERS);
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t t) {
        float maximum = -(float)exact_infinity(), label = maximum, sum = 0;
        for (int64_t p = 0; p < count; p++) {
          int64_t part = (p * tokens + t) * ROW_NUMBERS;
          float own = load(parts, part + ROW_MAXIMUM), own_label = load(parts, part + ROW_LABEL);
          if (own > maximum) maximum = own;
          if (own_label > label) label = own_label;
        }
        for (int64_t p = 0; p < count; p++) {
          int64_t part = (p * tokens + t) * ROW_NUMBERS;
          sum +=
              load(parts, part + ROW_SUM) * exact_expf(load(parts, part + ROW_MAXIMUM) - maximum);
        }
        joined[t * ROW_NUMBERS + ROW_MAXIMUM] = maximum;
        joined[t * ROW_NUMBERS + ROW_SUM] = sum;
        joined[t * ROW_NUMBERS + ROW_LABEL] = label;
      });
  return joined;
}

/* loss = log(sum) - (label's logit - maximum), gradient = exp(logit - maximum) / sum - [label].
 * reads logits, labels, the numbers of all parts; writes losses, gradient. */
extern "C" void EXACT(fused_cross_entropy)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t tokens = dim_of(c->of, 0), vocab = dim_of(c->of, 1), first = first_label(c->of);
  tensor x = read_of(c->of, 0), labels = read_of(c->of, 1);
  tensor losses = write_of(c->of, 0), gradient = write_of(c->of, 1);
  const float *joined = join_parts(c, read_of(c->of, 2), tokens, &room);
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t t) {
        const float *of = joined + t * ROW_NUMBERS;
        store(losses, t, exact_logf(of[ROW_SUM]) - (of[ROW_LABEL] - of[ROW_MAXIMUM]));
      });
  for_each(
      c, tokens * vocab, KERNEL_LAMBDA(int64_t i) {
        const float *of = joined + i / vocab * ROW_NUMBERS;
        float value = exact_expf(load(x, i) - of[ROW_MAXIMUM]) / of[ROW_SUM];
        if (own_label(labels, i / vocab, first, vocab) == i % vocab) value -= 1;
        store(gradient, i, value);
      });
}

/* reads a number for each row, rows, writes rows. */
extern "C" void EXACT(scale_rows)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, 0), columns = dim_of(c->of, 1);
  tensor factors = read_of(c->of, 0), x = read_of(c->of, 1), y = write_of(c->of, 0);
  for_each(
      c, rows * columns,
      KERNEL_LAMBDA(int64_t i) { store(y, i, load(x, i) * load(factors, i / columns)); });
}

/* ---- multi-token prediction ------------------------------------------------------------------ */

/* writes the gradient of losses [rows, columns]; only the columns with a target count. */
extern "C" void EXACT(mtp_loss_gradient)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, 0), columns = dim_of(c->of, 1);
  exec_position part = sequence_part_of(c->of);
  int64_t last = part.size * columns - 1 - (int64_t)c->of->call->scalars[1], counted = 0;
  float weight = scalar_of(c->of, 0);
  tensor y = write_of(c->of, 0);
  for (int64_t i = 0; i < columns; i++)
    counted += position_of(part, columns, i) <= last;
  for_each(
      c, rows * columns, KERNEL_LAMBDA(int64_t i) {
        bool counts = position_of(part, columns, i % columns) <= last;
        store(y, i, counts ? weight / (float)(rows * counted) : 0);
      });
}
