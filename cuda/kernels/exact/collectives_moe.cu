/*
 * ref/kernels/moe_exchange.c for GPUs: rows to the ranks of their experts, and back.
 *
 * A row's place among those of its expert is the number of earlier rows with this expert. Blocks of
 * rows count theirs, prefix sums give the counts before each block, and every row adds those before
 * it in its block. Rows without a token become 0. Rows move between GPUs in words of 8 bytes if all
 * operands consist of such words.
 */
#include <assert.h>

#include "cuda/kernels/exact/collectives.cuh"
#include "cuda/kernels/exact/moe_rows.cuh"

enum { SLOT_RANKS, SLOT_EXPERTS, SLOT_ROWS, SLOT_WIDTH, SLOT_DIMS };
enum { BLOCK_ROWS = 256 };

typedef struct shape {
  bool back;
  int64_t ranks, experts; /* of a rank */
  int64_t slot, width;    /* rows of an expert from one rank */
  int64_t rows, blocks;   /* of a rank */
} shape;

typedef struct places {
  row_owners owners;
  int64_t *place;  /* [rows]: rank x rows at a rank + row there, -1: dropped */
  int64_t *before; /* [blocks, experts of all ranks] */
  int64_t *found;  /* [experts of all ranks] */
} places;

extern "C" bool EXACT(is_moe_exchange)(const exec_call *c)
{
  return c->read_count == 2 && (c->reads[1].type == DTYPE_INT32 || c->reads[1].type == DTYPE_INT64);
}

static shape shape_of(const exec_call *c)
{
  shape s;
  s.back = c->reads[0].rank == SLOT_DIMS;
  const tensor &slots = s.back ? c->reads[0] : c->writes[0];
  const tensor &own = s.back ? c->writes[0] : c->reads[0];
  assert(slots.rank == SLOT_DIMS && "equally many rows for each rank and expert");
  s.ranks = slots.shape[SLOT_RANKS];
  s.experts = slots.shape[SLOT_EXPERTS];
  s.slot = slots.shape[SLOT_ROWS];
  s.width = slots.shape[SLOT_WIDTH];
  s.rows = elements_of(own) / s.width;
  s.blocks = (s.rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
  return s;
}

static places take_places(scratch_arena *a, const shape &s)
{
  places p;
  p.owners = take_owners(a, s.rows);
  p.place = take<int64_t>(a, s.rows);
  p.before = take<int64_t>(a, s.blocks * s.ranks * s.experts);
  p.found = take<int64_t>(a, s.ranks * s.experts);
  return p;
}

extern "C" int64_t EXACT(moe_exchange_scratch)(const exec_call *const *members, uint32_t count)
{
  scratch_arena a = arena_of_nothing();
  (void)count;
  take_places(&a, shape_of(members[0]));
  return a.used;
}

/* ---- where rows go -------------------------------------------------------------------------- */

/* Rows of a block up to row `end` that have this expert. */
DEVICE static int64_t rows_of(const places &p, int64_t block, int64_t end, int64_t expert)
{
  int64_t count = 0;
  for (int64_t i = block * BLOCK_ROWS; i < end; i++)
    count += p.owners.expert[i] == expert;
  return count;
}

static void count_rows(cuda_call *c, const shape &s, const places &p)
{
  int64_t experts = s.ranks * s.experts, blocks = s.blocks, rows = s.rows;
  for_each(
      c, blocks * experts, KERNEL_LAMBDA(int64_t i) {
        int64_t end = (i / experts + 1) * BLOCK_ROWS;
        p.before[i] = rows_of(p, i / experts, end < rows ? end : rows, i % experts);
      });
  for_each(
      c, experts, KERNEL_LAMBDA(int64_t e) {
        int64_t sum = 0;
        for (int64_t b = 0; b < blocks; b++) {
          int64_t count = p.before[b * experts + e];
          p.before[b * experts + e] = sum;
          sum += count;
        }
        p.found[e] = sum;
      });
}

static void find_places(cuda_call *c, int64_t source, const shape &s, const places &p,
                        int64_t *left_out)
{
  for_each(
      c, s.rows, KERNEL_LAMBDA(int64_t i) {
        int64_t e = p.owners.expert[i], block = i / BLOCK_ROWS;
        p.place[i] = -1;
        if (e < 0) return;
        int64_t used = p.before[block * s.ranks * s.experts + e] + rows_of(p, block, i, e);
        if (used < s.slot)
          p.place[i] = e / s.experts * s.ranks * s.experts * s.slot +
                       (source * s.experts + e % s.experts) * s.slot + used;
        else if (left_out != NULL)
          (void)count_up(left_out, 1);
      });
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* One operand of each member, and the other of this one. */
typedef struct sides {
  many slots;
  tensor own;
} sides;

/* From own rows to slots. */
static void send_rows(cuda_call *c, const sides &to, const shape &s, const places &p)
{
  int64_t at_rank = s.ranks * s.experts * s.slot;
  for_each(
      c, s.rows * s.width, KERNEL_LAMBDA(int64_t i) {
        int64_t place = p.place[i / s.width];
        if (place < 0) return;
        copy_element(to.own, i, to.slots.of[place / at_rank],
                     place % at_rank * s.width + i % s.width);
      });
}

/* Slots of this source beyond its rows. */
static void clear_slots(cuda_call *c, int64_t source, const sides &to, const shape &s,
                        const places &p)
{
  int64_t of_expert = s.slot * s.width;
  for_each(
      c, s.ranks * s.experts * of_expert, KERNEL_LAMBDA(int64_t i) {
        int64_t expert = i / of_expert, rank = expert / s.experts;
        if (i % of_expert / s.width < p.found[expert]) return;
        clear_element(to.slots.of[rank],
                      (source * s.experts + expert % s.experts) * of_expert + i % of_expert);
      });
}

/* From slots to own rows. */
static void fetch_rows(cuda_call *c, const sides &from, const shape &s, const places &p)
{
  int64_t at_rank = s.ranks * s.experts * s.slot;
  for_each(
      c, s.rows * s.width, KERNEL_LAMBDA(int64_t i) {
        int64_t place = p.place[i / s.width];
        if (place < 0)
          clear_element(from.own, i);
        else
          copy_element(from.slots.of[place / at_rank], place % at_rank * s.width + i % s.width,
                       from.own, i);
      });
}

static void move_rows(cuda_call *c, int64_t source, sides all, shape s, const places &p)
{
  if (are_words(all.slots, all.own, s.width)) s.width /= in_words(&all.slots, &all.own);
  if (s.back) {
    fetch_rows(c, all, s, p);
    return;
  }
  clear_slots(c, source, all, s, p);
  send_rows(c, all, s, p);
}

extern "C" void EXACT(moe_exchange)(cuda_call *const *members, uint32_t count)
{
  cuda_call *c = members[0];
  shape s = shape_of(c->of);
  assert(s.ranks == count);
  if (!are_apart(members, count)) return;
  scratch_arena a = arena_of(c);
  places p = take_places(&a, s);
  assert(a.used <= c->scratch_bytes);
  sides all;
  all.slots = s.back ? reads_of(members, count, 0) : writes_of(members, count, 0);
  for (uint32_t m = 0; m < count; m++) {
    const exec_call *of = members[m]->of;
    all.own = s.back ? write_of(of, 0) : read_of(of, 0);
    read_owners(c, of->reads[1], p.owners); /* its shape says which form it has */
    count_rows(c, s, p);
    /* Probabilities take the same way; each dropped row is counted only once. */
    find_places(c, m, s, p, !s.back && s.width > 1 ? left_out_of(c) : NULL);
    move_rows(c, m, all, s, p);
  }
}
