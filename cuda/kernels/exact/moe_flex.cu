/* ref/kernels/moe_flex.c for GPUs: numbers of experts to columns. */
#include "cuda/kernels/operands.cuh"

enum { HOT_ROWS, HOT_EXPERTS, HOT_K };

/* The experts of a rank. */
typedef struct own_experts {
  int64_t first, count;
} own_experts;

static own_experts own_experts_of(const exec_call *c)
{
  int64_t count = dim_of(c, HOT_EXPERTS);
  own_experts own = { c->rank->group[GROUP_EP].index * count, count };
  return own;
}

/* The index of choice `i` among the rank's experts; -1: it is another rank's expert. */
DEVICE static inline int64_t own_column(own_experts own, const tensor &numbers, int64_t i)
{
  int64_t expert = load_int(numbers, i), e = expert - own.first;
  return expert >= 0 && e >= 0 && e < own.count ? e : -1;
}

extern "C" void EXACT(moe_multihot_forward)(cuda_call *c)
{
  own_experts own = own_experts_of(c->of);
  int64_t k = dim_of(c->of, HOT_K), rows = dim_of(c->of, HOT_ROWS);
  tensor probs = read_of(c->of, 0), numbers = read_of(c->of, 1), to = write_from_end(c->of, 2),
         map = write_from_end(c->of, 1);
  for_each(
      c, rows * own.count, KERNEL_LAMBDA(int64_t i) {
        store(to, i, 0);
        store_int(map, i, 0);
      });
  for_each(
      c, rows, KERNEL_LAMBDA(int64_t row) {
        for (int64_t i = row * k; i < (row + 1) * k; i++) {
          int64_t e = own_column(own, numbers, i);
          if (e < 0) continue;
          copy_element(probs, i, to, row * own.count + e);
          store_int(map, row * own.count + e, 1);
        }
      });
}

extern "C" void EXACT(moe_multihot_backward)(cuda_call *c)
{
  own_experts own = own_experts_of(c->of);
  int64_t k = dim_of(c->of, HOT_K);
  tensor g = read_of(c->of, 0), numbers = read_of(c->of, 1), to = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, HOT_ROWS) * k, KERNEL_LAMBDA(int64_t i) {
        int64_t e = own_column(own, numbers, i);
        store(to, i, e < 0 ? 0 : load(g, i / k * own.count + e));
      });
}
