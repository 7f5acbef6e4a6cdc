/*
 * ref/kernels/collectives.c for GPUs. A member's operands are one row of elements, one operand
 * after the other; the members' n-th operands have equal lengths.
 *
 * Sums begin with the first member's element and add the others' in the group's order, in fp32.
 *
 * A written operand may be one that is read if every element is read only for the element written
 * in its place: all-reduces in place, a rank's part of a gathered or scattered whole. Other
 * overlaps are refused.
 */
#include <assert.h>

#include "cuda/kernels/exact/collectives.cuh"

/* ---- rows ----------------------------------------------------------------------------------- */

/* Elements read_first .. + count of a reading row, and equally many of a writing row, each within
 * one operand. */
typedef struct piece {
  uint32_t read, write;          /* operands */
  int64_t read_from, write_from; /* elements of them */
  int64_t count;
} piece;

static int64_t row_length(const tensor *operands, uint32_t count)
{
  int64_t elements = 0;
  for (uint32_t i = 0; i < count; i++)
    elements += elements_of(operands[i]);
  return elements;
}

static int64_t read_length(const exec_call *c)
{
  return row_length(c->reads, c->read_count);
}

/* The operand with element `i` of a row; `i` becomes its index there. */
static uint32_t operand_at(const tensor *operands, uint32_t count, int64_t *i)
{
  uint32_t k = 0;
  while (k + 1 < count && *i >= elements_of(operands[k]))
    *i -= elements_of(operands[k++]);
  return k;
}

/* The piece that begins at these elements of the rows and has at most `most`. */
static piece piece_at(const exec_call *c, int64_t read_from, int64_t write_from, int64_t most)
{
  piece p;
  p.read = operand_at(c->reads, c->read_count, &read_from);
  p.write = operand_at(c->writes, c->write_count, &write_from);
  p.read_from = read_from;
  p.write_from = write_from;
  int64_t of_read = elements_of(c->reads[p.read]) - read_from;
  int64_t of_write = elements_of(c->writes[p.write]) - write_from;
  assert(of_read > 0 && of_write > 0 && "an element after the last of a row");
  p.count = of_read < most ? of_read : most;
  if (of_write < p.count) p.count = of_write;
  return p;
}

/* ---- operands in one place ------------------------------------------------------------------ */

static bool same_strides(const tensor &a, const tensor &b)
{
  bool same = a.rank == b.rank;
  for (int d = 0; same && d < a.rank; d++)
    same = a.shape[d] == b.shape[d] && a.strides[d] == b.strides[d];
  return same;
}

/* Is element i of the reading row, from which element i + shift of the writing row comes, in the
 * same place? `first`: of the operands, in their rows. */
static bool in_place(const tensor &from, int64_t first_from, const tensor &to, int64_t first_to,
                     int64_t shift)
{
  int64_t size = dtype_bytes((dtype)from.type);
  int64_t apart = first_from + shift - first_to; /* elements of `to` before the first of `from` */
  bool alike = (exec_is_contiguous(&from) && exec_is_contiguous(&to)) ||
               (apart == 0 && same_strides(from, to));
  return from.type == to.type && alike &&
         (const char *)from.data == (const char *)to.data + apart * size;
}

/* Compares the writes of member `to` with the reads of member `from`. */
static bool keeps_clear(const exec_call *to, const exec_call *from, int64_t shift)
{
  int64_t first_to = 0;
  for (uint32_t w = 0; w < to->write_count; first_to += elements_of(to->writes[w++])) {
    int64_t first_from = 0;
    for (uint32_t r = 0; r < from->read_count; first_from += elements_of(from->reads[r++]))
      if (overlap(to->writes[w], from->reads[r]) &&
          (to != from || !in_place(from->reads[r], first_from, to->writes[w], first_to, shift)))
        return false;
  }
  return true;
}

/* In place: member m reads element i of its row and writes it as element i + m x step. */
static bool can_go(cuda_call *const *members, uint32_t count, int64_t step)
{
  if (count > MEMBERS_MAX) members[0]->failure = too_many_members;
  for (uint32_t to = 0; to < count; to++)
    for (uint32_t from = 0; from < count; from++)
      if (!keeps_clear(members[to]->of, members[from]->of, to * step))
        members[0]->failure = "operands of a collective overlap";
  return members[0]->failure == NULL;
}

static bool are_alike(cuda_call *const *members, uint32_t count)
{
  const exec_call *first = members[0]->of;
  for (uint32_t m = 1; m < count; m++) {
    const exec_call *c = members[m]->of;
    if (c->read_count != first->read_count || c->write_count != first->write_count) return false;
    for (uint32_t k = 0; k < c->read_count; k++)
      if (elements_of(c->reads[k]) != elements_of(first->reads[k])) return false;
    for (uint32_t k = 0; k < c->write_count; k++)
      if (elements_of(c->writes[k]) != elements_of(first->writes[k])) return false;
  }
  return true;
}

/* ---- sums and maxima ------------------------------------------------------------------------ */

enum reduction { SUM, LARGEST };

DEVICE static float reduced(const many &all, int64_t i, enum reduction how)
{
  float total = load(all.of[0], i);
  for (uint32_t m = 1; m < all.count; m++) {
    float other = load(all.of[m], i);
    if (how == SUM)
      total += other;
    else if (other > total)
      total = other;
  }
  return total;
}

DEVICE static int64_t reduced_int(const many &all, int64_t i, enum reduction how)
{
  int64_t total = load_int(all.of[0], i);
  for (uint32_t m = 1; m < all.count; m++) {
    int64_t other = load_int(all.of[m], i);
    if (how == SUM)
      total += other;
    else if (other > total)
      total = other;
  }
  return total;
}

static void reduce_piece(cuda_call *c, const many &from, const many &to, const piece &p,
                         enum reduction how)
{
  int64_t read = p.read_from, write = p.write_from;
  assert(holds_codes(from.of[0]) == holds_codes(to.of[0]));
  if (holds_codes(from.of[0]))
    for_each(
        c, p.count, KERNEL_LAMBDA(int64_t i) {
          int64_t x = reduced_int(from, read + i, how);
          for (uint32_t m = 0; m < to.count; m++)
            store_int(to.of[m], write + i, x);
        });
  else
    for_each(
        c, p.count, KERNEL_LAMBDA(int64_t i) {
          float x = reduced(from, read + i, how);
          for (uint32_t m = 0; m < to.count; m++)
            store(to.of[m], write + i, x);
        });
}

/* Elements first .. first + length of the rows of all become the first ones that members
 * to .. to + receivers write. */
static void reduce(cuda_call *const *members, uint32_t count, int64_t first, int64_t length,
                   uint32_t to, uint32_t receivers, enum reduction how)
{
  piece p;
  for (int64_t done = 0; done < length; done += p.count) {
    p = piece_at(members[to]->of, first + done, done, length - done);
    many from = reads_of(members, count, p.read);
    many writers = writes_of(members + to, receivers, p.write);
    reduce_piece(members[0], from, writers, p, how);
  }
}

static void reduce_to_all(cuda_call *const *members, uint32_t count, enum reduction how)
{
  assert(are_alike(members, count));
  if (can_go(members, count, 0))
    reduce(members, count, 0, read_length(members[0]->of), 0, count, how);
}

extern "C" void EXACT(all_reduce)(cuda_call *const *members, uint32_t count)
{
  reduce_to_all(members, count, SUM);
}

extern "C" void EXACT(all_reduce_max)(cuda_call *const *members, uint32_t count)
{
  reduce_to_all(members, count, LARGEST);
}

extern "C" void EXACT(reduce_scatter)(cuda_call *const *members, uint32_t count)
{
  int64_t length = read_length(members[0]->of), part = length / count;
  assert(are_alike(members, count) && part * count == length);
  if (!can_go(members, count, -part)) return;
  for (uint32_t m = 0; m < count; m++)
    reduce(members, count, m * part, part, m, 1, SUM);
}

/* ---- what is only moved --------------------------------------------------------------------- */

/* As in ref: floats through float, codes and integers unchanged. */
static void move_piece(cuda_call *c, const tensor &from, const many &to, const piece &p)
{
  int64_t read = p.read_from, write = p.write_from;
  assert(holds_codes(from) == holds_codes(to.of[0]));
  if (holds_codes(from))
    for_each(
        c, p.count, KERNEL_LAMBDA(int64_t i) {
          int64_t x = load_int(from, read + i);
          for (uint32_t m = 0; m < to.count; m++)
            store_int(to.of[m], write + i, x);
        });
  else
    for_each(
        c, p.count, KERNEL_LAMBDA(int64_t i) {
          float x = load(from, read + i);
          for (uint32_t m = 0; m < to.count; m++)
            store(to.of[m], write + i, x);
        });
}

/* Of one member's row to the rows that members to .. to + receivers write. */
typedef struct journey {
  uint32_t from;
  int64_t read_from;
  uint32_t to, receivers;
  int64_t write_from, length;
} journey;

static void move(cuda_call *const *members, const journey &j)
{
  piece p;
  for (int64_t done = 0; done < j.length; done += p.count) {
    const exec_call *c = members[j.from]->of;
    p = piece_at(c, j.read_from + done, j.write_from + done, j.length - done);
    move_piece(members[0], read_of(c, p.read), writes_of(members + j.to, j.receivers, p.write), p);
  }
}

extern "C" void EXACT(all_gather)(cuda_call *const *members, uint32_t count)
{
  int64_t each = read_length(members[0]->of);
  assert(are_alike(members, count));
  if (!can_go(members, count, each)) return;
  for (uint32_t m = 0; m < count; m++) {
    journey j = { m, 0, 0, count, m * each, each };
    move(members, j);
  }
}

extern "C" void EXACT(shift)(cuda_call *const *members, uint32_t count)
{
  int64_t each = read_length(members[0]->of);
  uint32_t by = (uint32_t)members[0]->of->call->dims[COLLECTIVE_DETAIL];
  assert(are_alike(members, count) && by > 0 && by < count);
  if (!are_apart(members, count)) return;
  for (uint32_t from = 0; from < count; from++) {
    journey j = { from, 0, (from + by) % count, 1, 0, each };
    move(members, j);
  }
}

static void exchange_parts(cuda_call *const *members, uint32_t count)
{
  int64_t length = read_length(members[0]->of), part = length / count;
  assert(are_alike(members, count) && part * count == length && "parts of equal size");
  if (!are_apart(members, count)) return;
  for (uint32_t to = 0; to < count; to++)
    for (uint32_t from = 0; from < count; from++) {
      journey j = { from, to * part, to, 1, from * part, part };
      move(members, j);
    }
}

extern "C" void EXACT(all_to_all)(cuda_call *const *members, uint32_t count)
{
  const exec_call *first = members[0]->of;
  if (EXACT(is_flex_table)(first))
    EXACT(flex_table)(members, count);
  else if (EXACT(is_flex_exchange)(first))
    EXACT(flex_exchange)(members, count);
  else if (EXACT(is_moe_exchange)(first))
    EXACT(moe_exchange)(members, count);
  else if (row_length(first->writes, first->write_count) == count * read_length(first))
    EXACT(all_gather)(members, count);
  else
    exchange_parts(members, count);
}

extern "C" int64_t EXACT(all_to_all_group_scratch)(const exec_call *const *members, uint32_t count)
{
  if (EXACT(is_flex_table)(members[0])) return EXACT(flex_table_scratch)(members, count);
  if (EXACT(is_flex_exchange)(members[0])) return EXACT(flex_exchange_scratch)(members, count);
  if (EXACT(is_moe_exchange)(members[0])) return EXACT(moe_exchange_scratch)(members, count);
  return 0;
}

/* ---- rows for libraries --------------------------------------------------------------------- */

static tensor row_of(void *row, const tensor *operands, uint32_t count)
{
  tensor t = operands[0];
  t.data = row;
  t.rank = 1;
  t.shape[0] = row_length(operands, count);
  t.strides[0] = 1;
  return t;
}

extern "C" void EXACT(pack)(cuda_call *c, void *row)
{
  tensor to = row_of(row, c->of->reads, c->of->read_count);
  int64_t at = 0;
  for (uint32_t k = 0; k < c->of->read_count; k++) {
    tensor from = read_of(c->of, k);
    assert(from.type == to.type);
    for_each(
        c, elements_of(from), KERNEL_LAMBDA(int64_t i) { copy_element(from, i, to, at + i); });
    at += elements_of(from);
  }
}

extern "C" void EXACT(unpack)(cuda_call *c, void *row)
{
  tensor from = row_of(row, c->of->writes, c->of->write_count);
  int64_t at = 0;
  for (uint32_t k = 0; k < c->of->write_count; k++) {
    tensor to = write_of(c->of, k);
    assert(from.type == to.type);
    for_each(
        c, elements_of(to), KERNEL_LAMBDA(int64_t i) { copy_element(from, at + i, to, i); });
    at += elements_of(to);
  }
}
