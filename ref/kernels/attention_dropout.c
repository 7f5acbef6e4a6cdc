#include "ref/kernels/attention.h"
#include "ref/kernels/dropout.h"

/* Head `head` of this rank, counted over a sequence's heads on all ranks, and those of a sequence
 * before. */
static uint64_t head_of_all(const attention *a, int64_t batch, int64_t head)
{
  exec_position of = a->call->rank->group[GROUP_TP];
  uint64_t ranks = of.size > 1 ? of.size : 1, rank = ranks > 1 ? of.index : 0;
  if (a->part.size > 1 && !a->local_queries) {
    rank = rank * a->part.size + a->part.index;
    ranks *= a->part.size;
  }
  return ((uint64_t)batch * ranks + rank) * (uint64_t)a->heads + (uint64_t)head;
}

void attention_dropout_factors(const attention *a, int64_t batch, int64_t head, int64_t position,
                               int64_t count, real *factors)
{
  const double probability = a->call->call->scalars[2];
  const real kept = probability > 0 ? 1 / (1 - a->dropout) : 1;
  const uint64_t key = ref_dropout_key(a->call);
  uint64_t row = head_of_all(a, batch, head) * (uint64_t)a->keys + (uint64_t)position;
  for (int64_t j = 0; j < count; j++) {
    uint64_t element = row * (uint64_t)a->keys + (uint64_t)j;
    factors[j] = probability == 0 || ref_is_kept(key, element, probability) ? kept : 0;
  }
}
