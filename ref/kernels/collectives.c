/*
 * Collectives: a member's operands are one row of elements, those of the first operand, then those
 * of the second, and so on. Everything is read before anything is written.
 *
 * A sum begins with the first member's element and adds the others' in the group's order, in
 * `real`, and is rounded where it is stored: once, and to the same bits everywhere. Integers are
 * added as such. Elements that are only moved keep their bits (doubles go through `real`).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/moe_exchange.h"
#include "ref/kernels/moe_flex.h"
#include "ref/kernels/moe_rows.h"
#include "ref/kernels/storage.h"
#include "sim/base/units.h"

static bool is_integer(const exec_tensor *t)
{
  return t->type == DTYPE_BYTE || t->type == DTYPE_FP8 || t->type == DTYPE_INT32 ||
         t->type == DTYPE_INT64;
}

/* Elements of operands of integers are in `integers`, those of other operands in `reals`, with 0 in
 * the other array. `integers` is NULL if no operand has integers. */
typedef struct row {
  real *reals;
  int64_t *integers;
  int64_t count;
} row;

static int64_t elements_of(const exec_tensor *operands, uint32_t count)
{
  int64_t elements = 0;
  for (uint32_t i = 0; i < count; i++)
    elements += exec_elements(&operands[i]);
  return elements;
}

static bool has_integers(const exec_call *c)
{
  for (uint32_t i = 0; i < c->read_count; i++)
    if (is_integer(&c->reads[i])) return true;
  return false;
}

static row row_of(int64_t count, bool has_integers)
{
  row r = { .reals = ref_reals(count), .count = count };
  memset(r.reals, 0, (size_t)count * sizeof *r.reals);
  if (has_integers) r.integers = moe_numbers(count);
  return r;
}

static void row_release(row *r)
{
  free(r->reals);
  free(r->integers);
}

static void read_operand(const exec_tensor *t, int64_t at, const row *to)
{
  int64_t count = exec_elements(t);
  if (!is_integer(t))
    ref_load_row(t, 0, count, to->reals + at);
  else
    for (int64_t i = 0; i < count; i++)
      to->integers[at + i] = ref_load_int(t, i);
}

static void write_operand(const exec_tensor *t, int64_t at, const row *from)
{
  int64_t count = exec_elements(t);
  if (!is_integer(t))
    ref_store_row(t, 0, count, from->reals + at);
  else
    for (int64_t i = 0; i < count; i++)
      ref_store_int(t, i, from->integers[at + i]);
}

static void write_all(const exec_call *c, const row *r)
{
  int64_t at = 0;
  assert(elements_of(c->writes, c->write_count) == r->count);
  for (uint32_t k = 0; k < c->write_count; at += exec_elements(&c->writes[k++]))
    write_operand(&c->writes[k], at, r);
}

/* All members' rows, one after the other; all have the same length. */
static row read_members(const exec_call *const *members, uint32_t count)
{
  int64_t each = elements_of(members[0]->reads, members[0]->read_count), at = 0;
  row all = row_of(each * count, has_integers(members[0]));
  for (uint32_t m = 0; m < count; m++) {
    const exec_call *c = members[m];
    assert(elements_of(c->reads, c->read_count) == each &&
           has_integers(c) == (all.integers != NULL) &&
           "members of a collective have equally many elements");
    for (uint32_t k = 0; k < c->read_count; at += exec_elements(&c->reads[k++]))
      read_operand(&c->reads[k], at, &all);
  }
  return all;
}

/* A part of the row, which still owns its memory. */
static row part_of(const row *r, int64_t first, int64_t count)
{
  return (row){ r->reals + first, r->integers == NULL ? NULL : r->integers + first, count };
}

static void copy_part(const row *from, const row *to)
{
  size_t count = (size_t)to->count;
  memcpy(to->reals, from->reals, count * sizeof *to->reals);
  if (to->integers != NULL) memcpy(to->integers, from->integers, count * sizeof *to->integers);
}

typedef void reduction(const row *total, const row *other);

static void add(const row *total, const row *other)
{
  for (int64_t i = 0; i < total->count; i++)
    total->reals[i] += other->reals[i];
  for (int64_t i = 0; total->integers != NULL && i < total->count; i++)
    total->integers[i] += other->integers[i];
}

static void take_larger(const row *total, const row *other)
{
  for (int64_t i = 0; i < total->count; i++)
    if (other->reals[i] > total->reals[i]) total->reals[i] = other->reals[i];
  for (int64_t i = 0; total->integers != NULL && i < total->count; i++)
    total->integers[i] = max_i64(total->integers[i], other->integers[i]);
}

/* Reduces all rows into the first member's. */
static row reduced(const exec_call *const *members, uint32_t count, reduction *of)
{
  row all = read_members(members, count);
  int64_t length = all.count / count;
  all.count = length;
  for (uint32_t m = 1; m < count; m++) {
    row other = part_of(&all, m * length, length);
    of(&all, &other);
  }
  return all;
}

static void reduce_to_all(const exec_call *const *members, uint32_t count, reduction *of)
{
  row total = reduced(members, count, of);
  for (uint32_t m = 0; m < count; m++)
    write_all(members[m], &total);
  row_release(&total);
}

void ref_all_reduce(const exec_call *const *members, uint32_t count)
{
  reduce_to_all(members, count, add);
}

void ref_all_reduce_max(const exec_call *const *members, uint32_t count)
{
  reduce_to_all(members, count, take_larger);
}

void ref_all_gather(const exec_call *const *members, uint32_t count)
{
  row all = read_members(members, count);
  for (uint32_t m = 0; m < count; m++)
    write_all(members[m], &all);
  row_release(&all);
}

void ref_reduce_scatter(const exec_call *const *members, uint32_t count)
{
  row total = reduced(members, count, add);
  int64_t part = total.count / count;
  assert(part * count == total.count);
  for (uint32_t m = 0; m < count; m++) {
    row own = part_of(&total, m * part, part);
    write_all(members[m], &own);
  }
  row_release(&total);
}

void ref_shift(const exec_call *const *members, uint32_t count)
{
  uint32_t by = (uint32_t)exec_dim(members[0], COLLECTIVE_DETAIL);
  row all = read_members(members, count);
  int64_t each = all.count / count;
  assert(by > 0 && by < count);
  for (uint32_t m = 0; m < count; m++) {
    row sent = part_of(&all, (m + count - by) % count * each, each);
    write_all(members[m], &sent);
  }
  row_release(&all);
}

/* Equal parts: member m gets the m-th part of each member, in the group's order. If a member reads
 * only one part, every member gets it. */
void ref_all_to_all(const exec_call *const *members, uint32_t count)
{
  const exec_call *first = members[0];
  if (ref_is_flex_table(first)) {
    ref_flex_table(members, count);
    return;
  }
  if (ref_is_flex_exchange(first)) {
    ref_flex_exchange(members, count);
    return;
  }
  if (ref_is_moe_exchange(first)) {
    ref_moe_exchange(members, count);
    return;
  }
  int64_t read = elements_of(first->reads, first->read_count);
  if (elements_of(first->writes, first->write_count) == count * read) {
    ref_all_gather(members, count);
    return;
  }
  row all = read_members(members, count);
  int64_t length = all.count / count, part = length / count;
  row got = row_of(length, all.integers != NULL);
  assert(part * count == length && "parts of equal size");
  for (uint32_t m = 0; m < count; m++) {
    for (uint32_t from = 0; from < count; from++) {
      row sent = part_of(&all, from * length + m * part, part);
      row place = part_of(&got, from * part, part);
      copy_part(&sent, &place);
    }
    write_all(members[m], &got);
  }
  row_release(&got);
  row_release(&all);
}
