/*
 * moe_flex.h, and the maps of experts that DeepEP needs: moe_multihot_forward reads probabilities
 * and numbers of experts [rows, k], -1: none; writes [scratch,] the probabilities and a map [rows,
 * experts of the rank]. Backward: reads the gradient of the former, the numbers; writes that of the
 * probabilities, 0 where the expert is another rank's.
 */
#include "ref/kernels/moe_flex.h"

#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/moe_rows.h"
#include "ref/kernels/storage.h"

enum { TABLE_TOKENS, TABLE_RANKS, TABLE_DIMS = 3 };
enum { BY_TOKEN_ROWS, BY_EXPERT_ROWS, ROWS_WIDTH = 3, ROWS_DIMS };
enum { EXPERT_BITS = 31 };

/* ---- the table ------------------------------------------------------------------------------- */

bool ref_is_flex_table(const exec_call *c)
{
  return c->write_count == 2 && c->read_count == 1 && c->reads[0].type == DTYPE_BYTE &&
         c->writes[0].type == DTYPE_INT32 && c->writes[1].type == DTYPE_INT32;
}

/* Ranks that share experts are consecutive, and get the same tokens. */
static int64_t experts_of(const exec_call *c, int64_t experts, int64_t ranks)
{
  return experts * c->rank->group[GROUP_ETP].size / ranks;
}

static int64_t first_expert(const exec_call *c, int64_t own, int64_t rank)
{
  return rank / c->rank->group[GROUP_ETP].size * own;
}

static void write_table(const exec_call *c, uint32_t ranks, int64_t *counts)
{
  const exec_tensor *map = &c->reads[0], *table = &c->writes[1];
  int64_t tokens = exec_elements(table) / ranks, experts = exec_elements(map) / tokens;
  int64_t own = experts_of(c, experts, ranks);
  assert(own <= EXPERT_BITS);
  for (int64_t i = 0; i < tokens * ranks; i++) {
    int64_t rank = i % ranks, cell = i / ranks * experts + first_expert(c, own, rank), bits = 0;
    for (int64_t e = 0; e < own; e++) {
      if (ref_load_int(map, cell + e) == 0) continue;
      bits |= INT64_C(1) << e;
      counts[rank * EXPERT_BITS + e]++;
    }
    ref_store_int(table, i, bits);
  }
}

void ref_flex_table(const exec_call *const *members, uint32_t count)
{
  int64_t *counts = moe_numbers((int64_t)count * EXPERT_BITS);
  for (uint32_t m = 0; m < count; m++)
    write_table(members[m], count, counts);
  for (uint32_t m = 0; m < count; m++) {
    const exec_tensor *to = &members[m]->writes[0];
    for (int64_t i = 0; i < exec_elements(to); i++)
      ref_store_int(to, i, i < EXPERT_BITS ? counts[m * EXPERT_BITS + i] : 0);
  }
  free(counts);
}

/* ---- rows ------------------------------------------------------------------------------------ */

bool ref_is_flex_exchange(const exec_call *c)
{
  return c->read_count == 2 && c->reads[1].type == DTYPE_INT32 && c->reads[1].rank == TABLE_DIMS;
}

/* One row at the experts, and its token. */
typedef struct journey {
  uint32_t source, rank;
  int64_t token, expert, row; /* expert: of the rank; -1: all of the token's */
} journey;

/* An exchange of rows; towards tokens `to` has an operand for each member. */
typedef struct exchange {
  const exec_call *const *members;
  uint32_t count;
  bool back;
  real **sums;
} exchange;

static const exec_tensor *experts_side(const exchange *x, uint32_t rank)
{
  return x->back ? &x->members[rank]->reads[0] : &x->members[rank]->writes[0];
}

static const exec_tensor *tokens_side(const exchange *x, uint32_t rank)
{
  return x->back ? &x->members[rank]->writes[0] : &x->members[rank]->reads[0];
}

static int64_t table_at(const exchange *x, const journey *j)
{
  return ref_load_int(&x->members[j->source]->reads[1], j->token * x->count + j->rank);
}

static bool is_integer(const exec_tensor *t)
{
  return t->type == DTYPE_INT32 || t->type == DTYPE_INT64;
}

static void move(const exchange *x, const journey *j)
{
  const exec_tensor *there = experts_side(x, j->rank), *here = tokens_side(x, j->source);
  int64_t width = there->shape[ROWS_WIDTH];
  int64_t tokens = x->members[j->source]->reads[1].shape[TABLE_TOKENS];
  int64_t columns = exec_elements(here) / tokens, column = 0;
  if (columns != width)
    column =
        j->expert + first_expert(x->members[j->source],
                                 experts_of(x->members[j->source], columns, x->count), j->rank);
  int64_t at = j->token * columns + column;
  if (!x->back) ref_copy_row(here, at, there, j->row * width, width);
  for (int64_t i = 0; x->back && i < width; i++)
    x->sums[j->source][at + i] += ref_load(there, j->row * width + i);
}

/* Several exchanges move the same rows. Only one counts dropped rows: that of expert numbers, or of
 * one number for each row. */
static bool counts_left_out(const exchange *x)
{
  const exec_tensor *there = experts_side(x, 0);
  return !x->back && (is_integer(there) || there->shape[ROWS_WIDTH] == 1);
}

static int64_t ones_of(int64_t bits)
{
  int64_t ones = 0;
  for (; bits != 0; bits >>= 1)
    ones += bits & 1;
  return ones;
}

/* Moves all rows for one rank: of one expert, or of all experts if a token comes once. */
static int64_t move_rows(const exchange *x, journey j, int64_t row, int64_t rows)
{
  for (j.source = 0; j.source < x->count; j.source++)
    for (j.token = 0; j.token < x->members[j.source]->reads[1].shape[TABLE_TOKENS]; j.token++) {
      int64_t bits = table_at(x, &j);
      bool goes = j.expert < 0 ? bits != 0 : (bits >> j.expert & 1) != 0;
      if (!goes) continue;
      j.row = row++;
      if (j.row < rows)
        move(x, &j);
      else if (counts_left_out(x))
        moe_leave_out(x->members[j.source], j.expert < 0 ? ones_of(bits) : 1);
    }
  return row;
}

static void move_all(const exchange *x)
{
  for (uint32_t rank = 0; rank < x->count; rank++) {
    const exec_tensor *there = experts_side(x, rank);
    assert(there->rank == ROWS_DIMS);
    bool by_expert = there->shape[BY_TOKEN_ROWS] == 1;
    int64_t rows = there->shape[BY_TOKEN_ROWS] * there->shape[BY_EXPERT_ROWS], row = 0;
    for (int64_t e = by_expert ? 0 : -1; e < (by_expert ? EXPERT_BITS : 0); e++)
      row = move_rows(x, (journey){ .rank = rank, .expert = e }, row, rows);
  }
}

static void clear(const exec_tensor *t)
{
  for (int64_t i = 0; i < exec_elements(t); i++)
    if (is_integer(t))
      ref_store_int(t, i, -1);
    else
      ref_store(t, i, 0);
}

static void start(exchange *x)
{
  for (uint32_t m = 0; m < x->count; m++) {
    const exec_tensor *to = &x->members[m]->writes[0];
    if (!x->back) {
      clear(to);
      continue;
    }
    x->sums[m] = ref_reals(exec_elements(to));
    for (int64_t i = 0; i < exec_elements(to); i++)
      x->sums[m][i] = 0;
  }
}

void ref_flex_exchange(const exec_call *const *members, uint32_t count)
{
  exchange x = { members, count, members[0]->reads[0].rank == ROWS_DIMS, NULL };
  assert(members[0]->reads[1].shape[TABLE_RANKS] == count);
  x.sums = ref_bytes((int64_t)count * (int64_t)sizeof *x.sums);
  start(&x);
  move_all(&x);
  for (uint32_t m = 0; x.back && m < count; m++) {
    ref_store_row(&members[m]->writes[0], 0, exec_elements(&members[m]->writes[0]), x.sums[m]);
    free(x.sums[m]);
  }
  free(x.sums);
}

/* ---- numbers to columns ---------------------------------------------------------------------- */

enum { HOT_ROWS, HOT_EXPERTS, HOT_K };

/* The index of choice `i` among the rank's experts; -1: it is another rank's expert. */
static int64_t own_column(const exec_call *c, const exec_tensor *numbers, int64_t i)
{
  int64_t experts = exec_dim(c, HOT_EXPERTS), expert = ref_load_int(numbers, i);
  int64_t e = expert - c->rank->group[GROUP_EP].index * experts;
  return expert >= 0 && e >= 0 && e < experts ? e : -1;
}

void ref_moe_multihot_forward(const exec_call *c)
{
  const exec_tensor *to = &c->writes[c->write_count - 2], *map = &c->writes[c->write_count - 1];
  int64_t experts = exec_dim(c, HOT_EXPERTS), k = exec_dim(c, HOT_K);
  for (int64_t i = 0; i < exec_dim(c, HOT_ROWS) * experts; i++) {
    ref_store(to, i, 0);
    ref_store_int(map, i, 0);
  }
  for (int64_t i = 0; i < exec_dim(c, HOT_ROWS) * k; i++) {
    int64_t e = own_column(c, &c->reads[1], i);
    if (e < 0) continue;
    ref_copy(&c->reads[0], i, to, i / k * experts + e);
    ref_store_int(map, i / k * experts + e, 1);
  }
}

void ref_moe_multihot_backward(const exec_call *c)
{
  int64_t experts = exec_dim(c, HOT_EXPERTS), k = exec_dim(c, HOT_K);
  for (int64_t i = 0; i < exec_dim(c, HOT_ROWS) * k; i++) {
    int64_t e = own_column(c, &c->reads[1], i);
    ref_store(&c->writes[0], i, e < 0 ? 0 : ref_load(&c->reads[0], i / k * experts + e));
  }
}
