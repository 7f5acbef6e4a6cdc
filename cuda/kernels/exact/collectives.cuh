/*
 * Shared by collectives for GPUs. The kernels of one member read and write all members' operands in
 * place.
 */
#ifndef OFFSIM_CUDA_KERNELS_EXACT_COLLECTIVES_CUH
#define OFFSIM_CUDA_KERNELS_EXACT_COLLECTIVES_CUH

#include "cuda/kernels/block.cuh"
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

/* Kernels get the tensors of all members by value. */
enum { MEMBERS_MAX = 64 };

/* One operand of every member, in the group's order. */
typedef struct many {
  tensor of[MEMBERS_MAX];
  uint32_t count;
} many;

static inline many reads_of(cuda_call *const *members, uint32_t count, uint32_t operand)
{
  many all;
  all.count = count;
  for (uint32_t m = 0; m < count; m++)
    all.of[m] = read_of(members[m]->of, operand);
  return all;
}

static inline many writes_of(cuda_call *const *members, uint32_t count, uint32_t operand)
{
  many all;
  all.count = count;
  for (uint32_t m = 0; m < count; m++)
    all.of[m] = write_of(members[m]->of, operand);
  return all;
}

/* Whether rows of an operand of each member and of one more consist of words (tensor.cuh), all of
 * one type; rows of one number do not. */
static inline bool are_words(const many &all, const tensor &one, int64_t row_elements)
{
  bool words = is_words(one) && row_elements % elements_of_word(one) == 0;
  for (uint32_t m = 0; m < all.count; m++)
    words = words && is_words(all.of[m]) && all.of[m].type == one.type;
  return words;
}

/* Views them as words; returns the number of elements in a word. */
static inline int64_t in_words(many *all, tensor *one)
{
  int64_t elements = elements_of_word(*one);
  *one = as_words(*one);
  for (uint32_t m = 0; m < all->count; m++)
    all->of[m] = as_words(all->of[m]);
  return elements;
}

/* ---- where operands are --------------------------------------------------------------------- */

static const char *const too_many_members = "a group of more than 64 ranks in one process";

static inline int64_t reach_bytes(const tensor &t)
{
  int64_t last = 0;
  for (int d = 0; d < t.rank; d++)
    last += (t.shape[d] - 1) * t.strides[d];
  return elements_of(t) == 0 ? 0 : (last + 1) * dtype_bytes((dtype)t.type);
}

static inline bool overlap(const tensor &a, const tensor &b)
{
  const char *begin_a = (const char *)a.data, *begin_b = (const char *)b.data;
  return begin_a < begin_b + reach_bytes(b) && begin_b < begin_a + reach_bytes(a);
}

static inline bool writes_into(const exec_call *to, const exec_call *from)
{
  for (uint32_t w = 0; w < to->write_count; w++)
    for (uint32_t r = 0; r < from->read_count; r++)
      if (overlap(to->writes[w], from->reads[r])) return true;
  return false;
}

/* Checks that no written operand is also read; otherwise the call fails. */
static inline bool are_apart(cuda_call *const *members, uint32_t count)
{
  if (count > MEMBERS_MAX) members[0]->failure = too_many_members;
  for (uint32_t to = 0; to < count; to++)
    for (uint32_t from = 0; from < count; from++)
      if (writes_into(members[to]->of, members[from]->of))
        members[0]->failure = "operands of an exchange overlap";
  return members[0]->failure == NULL;
}

/* The counter of dropped choices (ref/kernels/moe_rows.h, moe_leave_out); NULL: none. */
static inline int64_t *left_out_of(const cuda_call *c)
{
  return c->of->is_forward ? c->left_out : NULL;
}

/* ---- rows for experts: collectives_moe.cu, collectives_flex.cu ------------------------------ */

extern "C" {
cuda_collective EXACT(moe_exchange), EXACT(flex_table), EXACT(flex_exchange);
bool EXACT(is_moe_exchange)(const exec_call *c);
bool EXACT(is_flex_table)(const exec_call *c);
bool EXACT(is_flex_exchange)(const exec_call *c);
int64_t EXACT(moe_exchange_scratch)(const exec_call *const *members, uint32_t count);
int64_t EXACT(flex_table_scratch)(const exec_call *const *members, uint32_t count);
int64_t EXACT(flex_exchange_scratch)(const exec_call *const *members, uint32_t count);
}

#endif
