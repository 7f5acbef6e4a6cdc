/*
 * Rows of an embedding table. Over TP a rank has its own rows: indices of other ranks are masked
 * (Megatron-LM core/tensor_parallel/layers.py: VocabParallelEmbedding), and their rows are zeros.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"

/* reads indices, writes those into the rank's rows, 0 for the others, and a mask, 1 for the
 * others. */
void ref_vocabulary_part(const exec_call *c)
{
  int64_t rows = (int64_t)c->call->scalars[0], first = rows * c->rank->group[GROUP_TP].index;
  int64_t count = exec_elements(&c->reads[0]);
  assert(REF_WRITES(c, count, count));
  for (int64_t i = 0; i < count; i++) {
    int64_t index = ref_load_int(&c->reads[0], i) - first;
    bool foreign = index < 0 || index >= rows;
    ref_store_int(&c->writes[0], i, foreign ? 0 : index);
    ref_store_int(&c->writes[1], i, foreign);
  }
}

static bool is_masked(const exec_tensor *mask, int64_t i)
{
  return mask != NULL && ref_load_int(mask, i) != 0;
}

/* reads indices, table [, mask], writes rows. */
void ref_embedding_forward(const exec_call *c)
{
  int64_t tokens = exec_dim(c, 0), h = exec_dim(c, 1), rows = exec_elements(&c->reads[1]) / h;
  const exec_tensor *mask = c->read_count > 2 ? &c->reads[2] : NULL;
  real *zeros = ref_reals(h);
  assert(exec_elements(&c->reads[0]) == tokens && rows * h == exec_elements(&c->reads[1]));
  assert(REF_WRITES(c, tokens * h));
  for (int64_t i = 0; i < h; i++)
    zeros[i] = 0;
  for (int64_t t = 0; t < tokens; t++) {
    int64_t index = ref_load_int(&c->reads[0], t);
    assert(index >= 0 && index < rows);
    if (is_masked(mask, t))
      ref_store_row(&c->writes[0], t * h, h, zeros);
    else
      ref_copy_row(&c->reads[1], index * h, &c->writes[0], t * h, h);
  }
  free(zeros);
}

/* The tokens of each row, in ascending order: first[row], then next[token] up to -1. */
typedef struct row_tokens {
  int64_t *first, *next;
} row_tokens;

static row_tokens find_tokens(const exec_call *c, int64_t rows, int64_t tokens)
{
  const exec_tensor *mask = c->read_count > 2 ? &c->reads[2] : NULL;
  row_tokens of = { ref_bytes(rows * 8), ref_bytes(tokens * 8) };
  for (int64_t r = 0; r < rows; r++)
    of.first[r] = -1;
  for (int64_t t = tokens; t-- > 0;) {
    int64_t row = ref_load_int(&c->reads[1], t);
    assert(row >= 0 && row < rows);
    if (is_masked(mask, t)) continue;
    of.next[t] = of.first[row];
    of.first[row] = t;
  }
  return of;
}

/* reads gy, indices [, mask], writes the table's gradient: a row's is the sum over its tokens,
 * ascending. */
void ref_embedding_backward(const exec_call *c)
{
  int64_t tokens = exec_dim(c, 0), h = exec_dim(c, 1), rows = exec_elements(&c->writes[0]) / h;
  row_tokens of = find_tokens(c, rows, tokens);
  real *sum = ref_reals(2 * h), *gy = sum + h;
  assert(exec_elements(&c->reads[0]) == tokens * h && rows * h == exec_elements(&c->writes[0]));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < h; i++)
      sum[i] = 0;
    for (int64_t t = of.first[r]; t >= 0; t = of.next[t]) {
      ref_load_row(&c->reads[0], t * h, h, gy);
      for (int64_t i = 0; i < h; i++)
        sum[i] += gy[i];
    }
    ref_store_row(&c->writes[0], r * h, h, sum);
  }
  free(sum);
  free(of.first);
  free(of.next);
}
