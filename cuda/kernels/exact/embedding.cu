/* ref/kernels/embedding.c for GPUs. */
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

/* reads indices, writes those into the rank's rows, 0 for the others, and a mask, 1 for the
 * others. */
extern "C" void EXACT(vocabulary_part)(cuda_call *c)
{
  int64_t rows = (int64_t)c->of->call->scalars[0];
  int64_t first = rows * c->of->rank->group[GROUP_TP].index;
  tensor indices = read_of(c->of, 0), own = write_of(c->of, 0), mask = write_of(c->of, 1);
  for_each(
      c, elements_of(indices), KERNEL_LAMBDA(int64_t i) {
        int64_t index = load_int(indices, i) - first;
        bool foreign = index < 0 || index >= rows;
        store_int(own, i, foreign ? 0 : index);
        store_int(mask, i, foreign);
      });
}

/* Of read 2, if there is one. */
typedef struct token_mask {
  tensor of;
  bool exists;
} token_mask;

static token_mask mask_of(const exec_call *c)
{
  token_mask m = { c->reads[0], c->read_count > 2 };
  if (m.exists) m.of = read_of(c, 2);
  return m;
}

DEVICE static inline bool is_masked(const token_mask &m, int64_t token)
{
  return m.exists && load_int(m.of, token) != 0;
}

/* reads indices, table [, mask], writes rows. */
extern "C" void EXACT(embedding_forward)(cuda_call *c)
{
  int64_t tokens = dim_of(c->of, 0), h = dim_of(c->of, 1);
  tensor indices = read_of(c->of, 0), table = read_of(c->of, 1), y = write_of(c->of, 0);
  token_mask mask = mask_of(c->of);
  for_each(
      c, tokens * h, KERNEL_LAMBDA(int64_t i) {
        int64_t token = i / h;
        if (is_masked(mask, token))
          store(y, i, 0);
        else
          copy_element(table, load_int(indices, token) * h + i % h, y, i);
      });
}

/* The tokens of a row of the table, ascending: whether a token is the first of them, and the
 * distance to the next one; 0: there is none. */
typedef struct row_tokens {
  int32_t *next;
  uint8_t *is_first;
} row_tokens;

static row_tokens take_tokens(scratch_arena *a, int64_t tokens)
{
  row_tokens of;
  of.next = take<int32_t>(a, tokens);
  of.is_first = take<uint8_t>(a, tokens);
  return of;
}

extern "C" int64_t EXACT(embedding_backward_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_tokens(&a, dim_of(c, 0));
  return a.used;
}

static row_tokens find_tokens(cuda_call *c, tensor indices, int64_t tokens)
{
  scratch_arena room = arena_of(c);
  row_tokens of = take_tokens(&room, tokens);
  token_mask mask = mask_of(c->of);
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t token) {
        int64_t row = load_int(indices, token), before = token - 1, after = token + 1;
        while (before >= 0 && (load_int(indices, before) != row || is_masked(mask, before)))
          before--;
        while (after < tokens && (load_int(indices, after) != row || is_masked(mask, after)))
          after++;
        of.is_first[token] = before < 0 && !is_masked(mask, token);
        of.next[token] = (int32_t)(after < tokens ? after - token : 0);
      });
  return of;
}

/* reads gy, indices [, mask], writes the table's gradient: a row's is the sum over its tokens,
 * ascending. */
extern "C" void EXACT(embedding_backward)(cuda_call *c)
{
  int64_t tokens = dim_of(c->of, 0), h = dim_of(c->of, 1);
  tensor gy = read_of(c->of, 0), indices = read_of(c->of, 1), gradient = write_of(c->of, 0);
  row_tokens of = find_tokens(c, indices, tokens);
  clear(c, gradient);
  for_each(
      c, tokens * h, KERNEL_LAMBDA(int64_t i) {
        int64_t token = i / h, column = i % h;
        float sum = 0;
        if (!of.is_first[token]) return;
        for (int64_t t = token;; t += of.next[t]) {
          sum += load(gy, t * h + column);
          if (of.next[t] == 0) break;
        }
        store(gradient, load_int(indices, token) * h + column, sum);
      });
}
