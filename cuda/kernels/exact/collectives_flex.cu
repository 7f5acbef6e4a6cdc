/*
 * ref/kernels/moe_flex.c for GPUs: the table of destinations, and rows by it.
 *
 * A rank's rows are ordered by its experts, then by the ranks and tokens that they come from.
 * Blocks of tokens count their rows; prefix sums of these counts give each block's first row. Rows
 * move to experts in words of 8 bytes if they consist of such words.
 */
#include <assert.h>

#include "cuda/kernels/exact/collectives.cuh"

enum { TABLE_TOKENS, TABLE_RANKS, TABLE_DIMS = 3 };
enum { BY_TOKEN_ROWS, BY_EXPERT_ROWS, ROWS_WIDTH = 3, ROWS_DIMS };
enum { EXPERT_BITS = 31, BLOCK_TOKENS = 128 };

/* Ranks that share experts are consecutive, and get the same tokens. */
static int64_t experts_of(const exec_call *c, int64_t experts, int64_t ranks)
{
  return experts * c->rank->group[GROUP_ETP].size / ranks;
}

/* Of a rank's experts; `sharing`: number of ranks with the same experts. */
DEVICE static int64_t first_expert(int64_t own, int64_t sharing, int64_t rank)
{
  return rank / sharing * own;
}

/* ---- the table ------------------------------------------------------------------------------ */

extern "C" bool EXACT(is_flex_table)(const exec_call *c)
{
  return c->write_count == 2 && c->read_count == 1 && c->reads[0].type == DTYPE_BYTE &&
         c->writes[0].type == DTYPE_INT32 && c->writes[1].type == DTYPE_INT32;
}

/* How many rows come for each rank and expert. */
extern "C" int64_t EXACT(flex_table_scratch)(const exec_call *const *members, uint32_t count)
{
  scratch_arena a = arena_of_nothing();
  (void)members;
  take<int64_t>(&a, (int64_t)count * EXPERT_BITS);
  return a.used;
}

static void write_table(cuda_call *issuer, const exec_call *c, uint32_t ranks, int64_t *counts)
{
  tensor map = read_of(c, 0), table = write_of(c, 1);
  int64_t tokens = elements_of(table) / ranks, experts = elements_of(map) / tokens;
  int64_t own = experts_of(c, experts, ranks), sharing = c->rank->group[GROUP_ETP].size;
  assert(own <= EXPERT_BITS);
  for_each(
      issuer, tokens * ranks, KERNEL_LAMBDA(int64_t i) {
        int64_t rank = i % ranks, bits = 0;
        int64_t cell = i / ranks * experts + first_expert(own, sharing, rank);
        for (int64_t e = 0; e < own; e++) {
          if (load_int(map, cell + e) == 0) continue;
          bits |= INT64_C(1) << e;
          (void)count_up(&counts[rank * EXPERT_BITS + e], 1);
        }
        store_int(table, i, bits);
      });
}

extern "C" void EXACT(flex_table)(cuda_call *const *members, uint32_t count)
{
  cuda_call *c = members[0];
  if (!are_apart(members, count)) return;
  scratch_arena a = arena_of(c);
  int64_t *counts = take<int64_t>(&a, (int64_t)count * EXPERT_BITS);
  assert(a.used <= c->scratch_bytes);
  for_each(
      c, (int64_t)count * EXPERT_BITS, KERNEL_LAMBDA(int64_t i) { counts[i] = 0; });
  for (uint32_t m = 0; m < count; m++)
    write_table(c, members[m]->of, count, counts);
  for (uint32_t m = 0; m < count; m++) {
    tensor to = write_of(members[m]->of, 0);
    for_each(
        c, elements_of(to), KERNEL_LAMBDA(int64_t i) {
          store_int(to, i, i < EXPERT_BITS ? counts[m * EXPERT_BITS + i] : 0);
        });
  }
}

/* ---- rows: who goes where ------------------------------------------------------------------- */

extern "C" bool EXACT(is_flex_exchange)(const exec_call *c)
{
  return c->read_count == 2 && c->reads[1].type == DTYPE_INT32 && c->reads[1].rank == TABLE_DIMS;
}

/* A cell is an expert of a rank (or the rank, if a token goes there once), and a token of a rank
 * that it comes from; in the order of (rank, expert, source, token). */
typedef struct exchange {
  many tables;              /* of the sources */
  int64_t ranks, tokens;    /* `tokens` of each source */
  int64_t experts;          /* EXPERT_BITS, or 1: a token goes once */
  int64_t rows, width;      /* of a rank */
  int64_t columns, sharing; /* numbers of a token on its own side; see first_expert */
  int64_t own;              /* experts of a rank, where columns are experts */
  int64_t blocks;           /* of a source's tokens */
  int64_t block_count;      /* of a rank: experts x sources x blocks */
  int64_t *before;          /* [ranks, experts, sources, blocks] rows in earlier blocks of the
                               expert */
  int64_t *of_expert;       /* [ranks, experts] rows of earlier experts */
  int64_t *comes;           /* [ranks, rows] source x tokens + token, and expert; -1: none */
  int64_t *goes;            /* [sources, tokens, ranks x experts] row, rank and expert; -1: end */
  bool back, by_expert;
  int64_t *left_out;
} exchange;

static exchange exchange_of(const exec_call *const *members, uint32_t count)
{
  exchange x;
  const exec_call *c = members[0];
  x.back = c->reads[0].rank == ROWS_DIMS;
  const tensor &there = x.back ? c->reads[0] : c->writes[0];
  const tensor &here = x.back ? c->writes[0] : c->reads[0];
  assert(there.rank == ROWS_DIMS && c->reads[1].shape[TABLE_RANKS] == count);
  x.ranks = count;
  x.tokens = c->reads[1].shape[TABLE_TOKENS];
  x.by_expert = there.shape[BY_TOKEN_ROWS] == 1;
  x.experts = x.by_expert ? EXPERT_BITS : 1;
  x.rows = there.shape[BY_TOKEN_ROWS] * there.shape[BY_EXPERT_ROWS];
  x.width = there.shape[ROWS_WIDTH];
  x.columns = elements_of(here) / x.tokens;
  x.sharing = c->rank->group[GROUP_ETP].size;
  x.own = experts_of(c, x.columns, count);
  x.blocks = (x.tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
  x.block_count = x.experts * x.ranks * x.blocks;
  x.left_out = NULL;
  return x;
}

static void take_room(scratch_arena *a, exchange *x)
{
  x->before = take<int64_t>(a, x->ranks * x->block_count);
  x->of_expert = take<int64_t>(a, x->ranks * x->experts);
  x->comes = take<int64_t>(a, x->back ? 0 : x->ranks * x->rows);
  x->goes = take<int64_t>(a, x->back ? x->ranks * x->tokens * x->ranks * x->experts : 0);
}

extern "C" int64_t EXACT(flex_exchange_scratch)(const exec_call *const *members, uint32_t count)
{
  exchange x = exchange_of(members, count);
  scratch_arena a = arena_of_nothing();
  take_room(&a, &x);
  return a.used;
}

DEVICE static bool is_of(const exchange &x, int64_t rank, int64_t expert, int64_t source,
                         int64_t token)
{
  int64_t bits = load_int(x.tables.of[source], token * x.ranks + rank);
  return x.by_expert ? (bits >> expert & 1) != 0 : bits != 0;
}

/* Tokens of a block up to `end` that go there. */
DEVICE static int64_t tokens_of(const exchange &x, int64_t rank, int64_t expert, int64_t source,
                                int64_t block, int64_t end)
{
  int64_t count = 0;
  for (int64_t t = block * BLOCK_TOKENS; t < end; t++)
    count += is_of(x, rank, expert, source, t);
  return count;
}

static void count_tokens(cuda_call *c, const exchange &x)
{
  for_each(
      c, x.ranks * x.block_count, KERNEL_LAMBDA(int64_t i) {
        int64_t block = i % x.blocks, source = i / x.blocks % x.ranks;
        int64_t expert = i / (x.blocks * x.ranks) % x.experts, rank = i / x.block_count;
        int64_t end = (block + 1) * BLOCK_TOKENS;
        x.before[i] = tokens_of(x, rank, expert, source, block, end < x.tokens ? end : x.tokens);
      });
}

/* Exclusive prefix sums in place; returns the sum of all. */
DEVICE static int64_t sum_up(int64_t *at, int64_t count)
{
  int64_t sum = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t own = at[i];
    at[i] = sum;
    sum += own;
  }
  return sum;
}

static void sum_up_tokens(cuda_call *c, const exchange &x)
{
  int64_t each = x.ranks * x.blocks;
  for_each(
      c, x.ranks * x.experts,
      KERNEL_LAMBDA(int64_t i) { x.of_expert[i] = sum_up(x.before + i * each, each); });
  for_each(
      c, x.ranks,
      KERNEL_LAMBDA(int64_t rank) { sum_up(x.of_expert + rank * x.experts, x.experts); });
}

DEVICE static int64_t ones_of(int64_t bits)
{
  int64_t ones = 0;
  for (; bits != 0; bits >>= 1)
    ones += bits & 1;
  return ones;
}

/* The number of dropped choices of a token that does not fit. */
DEVICE static int64_t choices_of(const exchange &x, int64_t rank, int64_t source, int64_t token)
{
  if (x.by_expert) return 1;
  return ones_of(load_int(x.tables.of[source], token * x.ranks + rank));
}

static void number_rows(cuda_call *c, const exchange &x)
{
  int64_t each = x.ranks * x.tokens;
  for_each(
      c, x.ranks * x.experts * each, KERNEL_LAMBDA(int64_t i) {
        int64_t token = i % x.tokens, source = i / x.tokens % x.ranks;
        int64_t expert = i / each % x.experts, rank = i / each / x.experts;
        int64_t block = token / BLOCK_TOKENS, row = -1;
        if (is_of(x, rank, expert, source, token))
          row = x.of_expert[rank * x.experts + expert] +
                x.before[((rank * x.experts + expert) * x.ranks + source) * x.blocks + block] +
                tokens_of(x, rank, expert, source, block, token);
        if (row >= x.rows) {
          if (x.left_out != NULL) (void)count_up(x.left_out, choices_of(x, rank, source, token));
          row = -1;
        }
        if (x.back)
          x.goes[((source * x.tokens + token) * x.ranks + rank) * x.experts + expert] = row;
        else if (row >= 0)
          x.comes[rank * x.rows + row] = (source * x.tokens + token) * x.experts + expert;
      });
}

static void find_rows(cuda_call *c, const exchange &x)
{
  count_tokens(c, x);
  sum_up_tokens(c, x);
  if (!x.back)
    for_each(
        c, x.ranks * x.rows, KERNEL_LAMBDA(int64_t i) { x.comes[i] = -1; });
  number_rows(c, x);
}

/* The first of a token's numbers that move with a row. */
DEVICE static int64_t column_of(const exchange &x, int64_t rank, int64_t expert)
{
  return x.columns == x.width ? 0 : expert + first_expert(x.own, x.sharing, rank);
}

/* ---- to experts ----------------------------------------------------------------------------- */

static void bring_rows(cuda_call *c, exchange x, many here, tensor there, int64_t rank)
{
  bool codes = holds_codes(there);
  /* Rows of numbers of experts, or of one number for each expert, are short. */
  if (x.columns == x.width && are_words(here, there, x.width))
    x.columns = x.width /= in_words(&here, &there);
  for_each(
      c, x.rows * x.width, KERNEL_LAMBDA(int64_t i) {
        int64_t cell = x.comes[rank * x.rows + i / x.width];
        if (cell < 0) {
          if (codes)
            store_int(there, i, -1);
          else
            clear_element(there, i);
          return;
        }
        int64_t from = cell / x.experts;
        int64_t expert = x.by_expert ? cell % x.experts : -1;
        int64_t at = from % x.tokens * x.columns + column_of(x, rank, expert) + i % x.width;
        copy_element(here.of[from / x.tokens], at, there, i);
      });
}

/* ---- back to tokens ------------------------------------------------------------------------- */

/* A token's rows, one after the other. */
static void gather_rows(cuda_call *c, const exchange &x)
{
  int64_t each = x.ranks * x.experts;
  for_each(
      c, x.ranks * x.tokens, KERNEL_LAMBDA(int64_t i) {
        int64_t *goes = x.goes + i * each, next = 0;
        for (int64_t k = 0; k < each; k++)
          if (goes[k] >= 0) goes[next++] = goes[k] * each + k;
        if (next < each) goes[next] = -1;
      });
}

DEVICE static float sum_of_rows(const exchange &x, const many &there, const int64_t *goes,
                                int64_t column)
{
  int64_t each = x.ranks * x.experts;
  float sum = 0;
  for (int64_t k = 0; k < each && goes[k] >= 0; k++) {
    int64_t row = goes[k] / each, rank = goes[k] % each / x.experts;
    int64_t expert = x.by_expert ? goes[k] % x.experts : -1;
    int64_t i = column - column_of(x, rank, expert);
    if (i >= 0 && i < x.width) sum += load(there.of[rank], row * x.width + i);
  }
  return sum;
}

static void bring_back(cuda_call *c, const exchange &x, const many &there, const tensor &here,
                       int64_t source)
{
  int64_t each = x.ranks * x.experts;
  for_each(
      c, x.tokens * x.columns, KERNEL_LAMBDA(int64_t i) {
        const int64_t *goes = x.goes + (source * x.tokens + i / x.columns) * each;
        store(here, i, sum_of_rows(x, there, goes, i % x.columns));
      });
}

/* ---- both ----------------------------------------------------------------------------------- */

/* Several exchanges move the same rows. Only one counts dropped rows: that of expert numbers, or of
 * one number for each row. */
static bool counts_left_out(const exchange &x, const exec_call *c)
{
  return !x.back && (holds_codes(c->writes[0]) || x.width == 1);
}

extern "C" void EXACT(flex_exchange)(cuda_call *const *members, uint32_t count)
{
  cuda_call *c = members[0];
  const exec_call *calls[MEMBERS_MAX];
  if (!are_apart(members, count)) return;
  assert(count >= 1 && count <= MEMBERS_MAX);
  for (uint32_t m = 0; m < count; m++)
    calls[m] = members[m]->of;
  exchange x = exchange_of(calls, count);
  scratch_arena a = arena_of(c);
  take_room(&a, &x);
  assert(a.used <= c->scratch_bytes);
  x.tables = reads_of(members, count, 1);
  if (counts_left_out(x, c->of)) x.left_out = left_out_of(c);
  find_rows(c, x);
  if (x.back) gather_rows(c, x);
  many others = reads_of(members, count, 0);
  for (uint32_t m = 0; m < count; m++)
    if (x.back)
      bring_back(c, x, others, write_of(calls[m], 0), m);
    else
      bring_rows(c, x, others, write_of(calls[m], 0), m);
}
