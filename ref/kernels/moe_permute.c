/*
 * Rows into the order of experts and back (moe_rows.h). Rows without a token are zeros; several
 * rows of a token become their sum by ascending row, rounded once.
 *
 * moe_permute_forward: reads rows, probabilities, map; writes [scratch,] rows, index,
 * probabilities. moe_permute_backward: reads the gradients of rows and probabilities, index.
 * permute: reads rows, index. unpermute: reads rows, index. Each is the other's gradient.
 * moe_count: reads a map, writes numbers.
 * moe_sort_cells: reads a map, writes [scratch,] the same index twice. moe_row_map: ... once.
 * moe_permute_probs_*: reads probabilities [tokens, experts] or gradients of rows, index.
 * moe_select_probs_*: reads [the gradients of rows,] probabilities [experts, tokens], mask.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/moe_rows.h"
#include "ref/kernels/storage.h"

enum { ROWS, WIDTH, TOKENS, EXPERTS };         /* dims of kernels on rows */
enum { CELL_ROWS, CELL_TOKENS, CELL_EXPERTS }; /* ... only on probabilities and maps */
enum { COUNT_TOKENS, COUNT_EXPERTS };          /* ... of moe_count */
enum { SLOTTED };                              /* scalars */

static void spread(const exec_tensor *from, const moe_rows *r, int64_t width, const exec_tensor *to)
{
  assert(exec_elements(to) == r->count * width);
  real *row = ref_reals(width), *zeros = ref_reals(width);
  for (int64_t j = 0; j < width; j++)
    zeros[j] = 0;
  for (int64_t i = 0; i < r->count; i++) {
    bool mine = r->token[i] >= 0;
    if (mine) ref_load_row(from, r->token[i] * width, width, row);
    ref_store_row(to, i * width, width, mine ? row : zeros);
  }
  free(row);
  free(zeros);
}

static void gather(const exec_tensor *from, const moe_rows *r, int64_t width, const exec_tensor *to)
{
  int64_t elements = exec_elements(to);
  assert(exec_elements(from) == r->count * width && elements % width == 0);
  real *sums = ref_reals(elements), *row = ref_reals(width);
  for (int64_t i = 0; i < elements; i++)
    sums[i] = 0;
  for (int64_t i = 0; i < r->count; i++) {
    if (r->token[i] < 0) continue;
    real *sum = sums + r->token[i] * width;
    ref_load_row(from, i * width, width, row);
    for (int64_t j = 0; j < width; j++)
      sum[j] += row[j];
  }
  ref_store_row(to, 0, elements, sums);
  free(sums);
  free(row);
}

/* Cell of row `i` in a matrix of probabilities. */
static int64_t cell_of(const moe_rows *r, int64_t i, int64_t tokens, int64_t experts,
                       bool by_expert)
{
  return by_expert ? r->expert[i] * tokens + r->token[i] : r->token[i] * experts + r->expert[i];
}

/* A matrix of probabilities as [tokens, experts], or [experts, tokens] if `by_expert`. */
typedef struct cells {
  const exec_tensor *t;
  int64_t tokens, experts;
  bool by_expert;
} cells;

static void pick(const cells *from, const moe_rows *r, const exec_tensor *to)
{
  assert(exec_elements(to) == r->count);
  for (int64_t i = 0; i < r->count; i++) {
    int64_t cell = cell_of(r, i, from->tokens, from->experts, from->by_expert);
    ref_store(to, i, r->token[i] >= 0 ? ref_load(from->t, cell) : 0);
  }
}

static void put(const exec_tensor *from, const moe_rows *r, const cells *to)
{
  assert(exec_elements(from) == r->count && exec_elements(to->t) == to->tokens * to->experts);
  ref_clear(to->t);
  for (int64_t i = 0; i < r->count; i++)
    if (r->token[i] >= 0)
      ref_store(to->t, cell_of(r, i, to->tokens, to->experts, to->by_expert), ref_load(from, i));
}

static moe_rows sort_rows(const exec_call *c, const moe_choice *choice, int64_t rows)
{
  moe_rows r = moe_sort_rows(choice, rows, ref_scalar(c, SLOTTED) != 0);
  int64_t choices = 0, placed = 0;
  for (int64_t i = 0; i < choice->tokens * choice->experts; i++)
    choices += ref_load_int(choice->map, i) != 0;
  for (int64_t i = 0; i < r.count; i++)
    placed += r.token[i] >= 0;
  moe_leave_out(c, choices - placed);
  return r;
}

void ref_moe_permute_forward(const exec_call *c)
{
  int64_t rows = exec_dim(c, ROWS), tokens = exec_dim(c, TOKENS), experts = exec_dim(c, EXPERTS);
  const exec_tensor *to = c->writes + c->write_count - 3;
  moe_choice choice = { &c->reads[2], tokens, experts, false };
  moe_rows r = sort_rows(c, &choice, rows);
  spread(&c->reads[0], &r, exec_dim(c, WIDTH), &to[0]);
  moe_write_rows(&r, tokens, experts, &to[1]);
  pick(&(cells){ &c->reads[1], tokens, experts, false }, &r, &to[2]);
  moe_rows_release(&r);
}

void ref_moe_permute_backward(const exec_call *c)
{
  moe_rows r = moe_read_rows(&c->reads[2], exec_dim(c, ROWS));
  const exec_tensor *to = c->writes + c->write_count - 2;
  gather(&c->reads[0], &r, exec_dim(c, WIDTH), &to[0]);
  put(&c->reads[1], &r, &(cells){ &to[1], exec_dim(c, TOKENS), exec_dim(c, EXPERTS), false });
  moe_rows_release(&r);
}

void ref_permute(const exec_call *c)
{
  moe_rows r = moe_read_rows(&c->reads[1], exec_dim(c, ROWS));
  spread(&c->reads[0], &r, exec_dim(c, WIDTH), &c->writes[c->write_count - 1]);
  moe_rows_release(&r);
}

void ref_unpermute(const exec_call *c)
{
  moe_rows r = moe_read_rows(&c->reads[1], exec_dim(c, ROWS));
  gather(&c->reads[0], &r, exec_dim(c, WIDTH), &c->writes[c->write_count - 1]);
  moe_rows_release(&r);
}

static moe_rows sorted_cells(const exec_call *c)
{
  moe_choice choice = { &c->reads[0], exec_dim(c, CELL_TOKENS), exec_dim(c, CELL_EXPERTS), false };
  return sort_rows(c, &choice, exec_dim(c, CELL_ROWS));
}

void ref_moe_row_map(const exec_call *c)
{
  moe_rows r = sorted_cells(c);
  moe_write_rows(&r, exec_dim(c, CELL_TOKENS), exec_dim(c, CELL_EXPERTS), &c->writes[0]);
  moe_rows_release(&r);
}

void ref_moe_sort_cells(const exec_call *c)
{
  moe_rows r = sorted_cells(c);
  const exec_tensor *to = c->writes + c->write_count - 2;
  moe_write_rows(&r, exec_dim(c, CELL_TOKENS), exec_dim(c, CELL_EXPERTS), &to[0]);
  moe_write_rows(&r, exec_dim(c, CELL_TOKENS), exec_dim(c, CELL_EXPERTS), &to[1]);
  moe_rows_release(&r);
}

void ref_moe_permute_probs_forward(const exec_call *c)
{
  moe_rows r = moe_read_rows(&c->reads[1], exec_dim(c, CELL_ROWS));
  pick(&(cells){ &c->reads[0], exec_dim(c, CELL_TOKENS), exec_dim(c, CELL_EXPERTS), false }, &r,
       &c->writes[c->write_count - 1]);
  moe_rows_release(&r);
}

void ref_moe_permute_probs_backward(const exec_call *c)
{
  moe_rows r = moe_read_rows(&c->reads[1], exec_dim(c, CELL_ROWS));
  put(&c->reads[0], &r,
      &(cells){ &c->writes[0], exec_dim(c, CELL_TOKENS), exec_dim(c, CELL_EXPERTS), false });
  moe_rows_release(&r);
}

static moe_rows selected(const exec_call *c, const exec_tensor *mask)
{
  moe_choice choice = { mask, exec_dim(c, CELL_TOKENS), exec_dim(c, CELL_EXPERTS), true };
  return moe_sort_rows(&choice, exec_dim(c, CELL_ROWS), ref_scalar(c, SLOTTED) != 0);
}

void ref_moe_select_probs_forward(const exec_call *c)
{
  moe_rows r = selected(c, &c->reads[1]);
  pick(&(cells){ &c->reads[0], exec_dim(c, CELL_TOKENS), exec_dim(c, CELL_EXPERTS), true }, &r,
       &c->writes[0]);
  moe_rows_release(&r);
}

void ref_moe_select_probs_backward(const exec_call *c)
{
  moe_rows r = selected(c, &c->reads[2]);
  put(&c->reads[0], &r,
      &(cells){ &c->writes[0], exec_dim(c, CELL_TOKENS), exec_dim(c, CELL_EXPERTS), true });
  moe_rows_release(&r);
}

void ref_moe_count(const exec_call *c)
{
  int64_t tokens = exec_dim(c, COUNT_TOKENS), experts = exec_dim(c, COUNT_EXPERTS);
  assert(exec_elements(&c->reads[0]) == tokens * experts);
  assert(exec_elements(&c->writes[0]) == experts);
  for (int64_t e = 0; e < experts; e++) {
    int64_t count = 0;
    for (int64_t t = 0; t < tokens; t++)
      count += ref_load_int(&c->reads[0], t * experts + e) != 0;
    ref_store_int(&c->writes[0], e, count);
  }
}
