#include "ref/kernels/moe_rows.h"

#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/storage.h"
#include "sim/base/diag.h"
#include "sim/base/units.h"

enum { EXPERT_BIT = 32 };

int64_t *moe_numbers(int64_t count)
{
  int64_t *numbers = calloc((size_t)(count > 0 ? count : 1), sizeof *numbers);
  if (numbers == NULL)
    die_refused("memory: a kernel requested %lld bytes, the system has none left",
                (long long)count * (long long)sizeof *numbers);
  return numbers;
}

static moe_rows nobodys(int64_t count)
{
  moe_rows r = { count, moe_numbers(count), moe_numbers(count) };
  for (int64_t i = 0; i < count; i++)
    r.token[i] = r.expert[i] = -1;
  return r;
}

void moe_rows_release(moe_rows *r)
{
  free(r->token);
  free(r->expert);
}

/* If the rows do not divide evenly, the first experts have one more. */
static moe_span equal_span(int64_t rows, int64_t experts, int64_t e)
{
  int64_t each = rows / experts, more = rows % experts;
  return (moe_span){ e * each + min_i64(e, more), each + (e < more) };
}

static bool chooses(const moe_choice *c, int64_t token, int64_t expert)
{
  int64_t cell = c->by_expert ? expert * c->tokens + token : token * c->experts + expert;
  return ref_load_int(c->map, cell) != 0;
}

moe_rows moe_sort_rows(const moe_choice *c, int64_t rows, bool slotted)
{
  moe_rows r = nobodys(rows);
  int64_t next = 0;
  assert(exec_elements(c->map) == c->tokens * c->experts);
  for (int64_t e = 0; e < c->experts; e++) {
    moe_span slot = equal_span(rows, c->experts, e);
    int64_t end = slotted ? slot.first + slot.count : rows;
    if (slotted) next = slot.first;
    for (int64_t t = 0; t < c->tokens && next < end; t++)
      if (chooses(c, t, e)) {
        r.token[next] = t;
        r.expert[next++] = e;
      }
  }
  return r;
}

void moe_leave_out(const exec_call *c, int64_t choices)
{
  if (c->is_forward && c->step->left_out != NULL) *c->step->left_out += choices;
}

static moe_rows read_map(const exec_tensor *index, int64_t rows)
{
  assert(index->rank == 2 && index->shape[1] % 2 == 1);
  moe_rows r = nobodys(rows);
  int64_t width = index->shape[1], experts = width / 2;
  for (int64_t t = 0; t < index->shape[0]; t++)
    for (int64_t e = 0; e < experts; e++) {
      int64_t row = ref_load_int(index, t * width + e);
      if (row < 0) continue;
      assert(row < rows);
      r.token[row] = t;
      r.expert[row] = e;
    }
  return r;
}

moe_rows moe_read_rows(const exec_tensor *index, int64_t rows)
{
  if (index->type == DTYPE_INT32) return read_map(index, rows);
  moe_rows r = nobodys(rows);
  for (int64_t i = 0; i < min_i64(rows, exec_elements(index)); i++) {
    int64_t cell = ref_load_int(index, i);
    if (cell < 0) continue;
    r.token[i] = cell & INT64_C(0xffffffff);
    r.expert[i] = cell >> EXPERT_BIT;
  }
  return r;
}

static void write_map(const moe_rows *r, int64_t tokens, int64_t experts, const exec_tensor *index)
{
  int64_t width = 2 * experts + 1;
  assert(exec_elements(index) == tokens * width);
  for (int64_t i = 0; i < tokens * width; i++)
    ref_store_int(index, i, i % width < experts ? -1 : 0);
  for (int64_t i = 0; i < r->count; i++)
    if (r->token[i] >= 0) ref_store_int(index, r->token[i] * width + r->expert[i], i);
}

void moe_write_rows(const moe_rows *r, int64_t tokens, int64_t experts, const exec_tensor *index)
{
  if (index->type == DTYPE_INT32) {
    write_map(r, tokens, experts, index);
    return;
  }
  for (int64_t i = 0; i < exec_elements(index); i++) {
    bool mine = i < r->count && r->token[i] >= 0;
    ref_store_int(index, i, mine ? r->expert[i] << EXPERT_BIT | r->token[i] : -1);
  }
}

static bool is_counts(const exec_tensor *index)
{
  return index->type == DTYPE_INT32 && index->rank == 1;
}

/* Rows that exceed the buffer are dropped. */
static moe_span counted_span(const exec_tensor *counts, int64_t rows, int64_t e)
{
  moe_span s = { 0, 0 };
  assert(e < exec_elements(counts));
  for (int64_t i = 0; i < e; i++)
    s.first += ref_load_int(counts, i);
  s.first = min_i64(s.first, rows);
  s.count = min_i64(ref_load_int(counts, e), rows - s.first);
  return s;
}

moe_span moe_span_of(const exec_tensor *index, int64_t rows, int64_t experts, int64_t e)
{
  if (index == NULL) return equal_span(rows, experts, e);
  if (is_counts(index)) return counted_span(index, rows, e);
  moe_rows r = moe_read_rows(index, rows);
  moe_span s = { 0, 0 };
  for (int64_t i = 0; i < rows; i++) {
    s.first += r.expert[i] >= 0 && r.expert[i] < e;
    s.count += r.expert[i] == e;
  }
  moe_rows_release(&r);
  return s;
}
