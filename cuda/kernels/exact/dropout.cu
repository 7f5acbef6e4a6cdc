/* ref/kernels/dropout.c for GPUs. */
#include "cuda/kernels/dropout.cuh"
#include "cuda/kernels/operands.cuh"

/* The rule for an element of the rank, and the factor of those that stay. */
typedef struct dropout {
  uint64_t key, blocks, part; /* blocks 0: all ranks have all elements; part: of a block */
  exec_position of;
  double probability;
  float factor;
} dropout;

static dropout dropout_of(const exec_call *c)
{
  dropout d = {
    ref_dropout_key(c),       (uint64_t)c->call->scalars[1], 0,
    c->rank->group[GROUP_TP], c->call->scalars[0],           1 / (1 - scalar_of(c, 0))
  };
  if (d.blocks > 0) d.part = (uint64_t)elements_of(c->reads[0]) / d.blocks;
  return d;
}

DEVICE static inline bool keeps(const dropout &d, int64_t i)
{
  uint64_t k = (uint64_t)i;
  if (d.blocks > 0) k = (k / d.part * d.of.size + d.of.index) * d.part + k % d.part;
  return is_kept(d.key, k, d.probability);
}

/* reads x, writes y and the mask: 1 for what is kept. */
extern "C" void EXACT(dropout_forward)(cuda_call *c)
{
  dropout d = dropout_of(c->of);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0), mask = write_of(c->of, 1);
  for_each(
      c, elements_of(x), KERNEL_LAMBDA(int64_t i) {
        bool kept = keeps(d, i);
        store(y, i, kept ? load(x, i) * d.factor : 0);
        store_int(mask, i, kept);
      });
}

/* reads gy[, mask], writes gx = gy 1/(1 - p) where kept. */
extern "C" void EXACT(dropout_backward)(cuda_call *c)
{
  bool has_mask = c->of->read_count > 1;
  float factor = has_mask ? 1 / (1 - scalar_of(c->of, 0)) : 1;
  tensor gy = read_of(c->of, 0), mask = read_of(c->of, has_mask ? 1 : 0), gx = write_of(c->of, 0);
  for_each(
      c, elements_of(gy), KERNEL_LAMBDA(int64_t i) {
        bool kept = !has_mask || load_int(mask, i) != 0;
        store(gx, i, kept ? load(gy, i) * factor : 0);
      });
}

/* y = dropout(x + bias) + residual, rounded once. reads x, residual[, bias], writes y[, mask];
 * without a mask nothing is dropped. */
extern "C" void EXACT(bias_dropout_add_forward)(cuda_call *c)
{
  bool has_bias = c->of->read_count > 2, has_mask = c->of->write_count > 1;
  dropout d = dropout_of(c->of);
  tensor x = read_of(c->of, 0), residual = read_of(c->of, 1), y = write_of(c->of, 0);
  tensor bias = read_of(c->of, has_bias ? 2 : 0), mask = write_of(c->of, has_mask ? 1 : 0);
  int64_t width = elements_of(bias);
  assert(elements_of(residual) == elements_of(x) && elements_of(y) == elements_of(x));
  for_each(
      c, elements_of(x), KERNEL_LAMBDA(int64_t i) {
        float value = load(x, i);
        if (has_bias) value += load(bias, i % width);
        if (has_mask) {
          bool kept = keeps(d, i);
          value = kept ? value * d.factor : 0;
          store_int(mask, i, kept);
        }
        store(y, i, value + load(residual, i));
      });
}
