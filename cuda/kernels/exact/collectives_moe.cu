/*
 * ref/kernels/moe_exchange.c for GPUs: rows to the ranks of their experts, and back.
 *
 * A row's place among those of its expert is how many rows with this expert come before it. Blocks
 * of rows count theirs, the counts before each block are summed up, and every row adds those before
 * it in its block.
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
  int64_t *place;  /* [rows]: rank x rows at a rank + row there, -1: left out */
  int64_t *before; /* [blocks, experts of all ranks] */
} places;

extern "C" bool EXACT(is_moe_exchange)(const ref_call *c)
{
  return c->read_count == 2 && (c->reads[1].type == DTYPE_INT32 || c->reads[1].type == DTYPE_INT64);
}

static shape shape_of(const ref_call *c)
{
  shape s;
  s.back = c->reads[0].rank == SLOT_DIMS;
  const tensor &slots = s.back ? c->reads[0] : c->writes[0];
  const tensor &own = s.back ? c->writes[0] : c->reads[0];
  assert(slots.rank == SLOT_DIMS && "as many rows for each rank and expert");
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
  return p;
}

extern "C" int64_t EXACT(moe_exchange_scratch)(const ref_call *const *members, uint32_t count)
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

static void move_rows(cuda_call *c, const many &there, const tensor &own, const shape &s,
                      const places &p)
{
  int64_t at_rank = s.ranks * s.experts * s.slot;
  for_each(
      c, s.rows * s.width, KERNEL_LAMBDA(int64_t i) {
        int64_t place = p.place[i / s.width];
        if (place < 0) return;
        const tensor &slots = there.of[place / at_rank];
        int64_t at = place % at_rank * s.width + i % s.width;
        if (s.back)
          copy_element(slots, at, own, i);
        else
          copy_element(own, i, slots, at);
      });
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
  many there = s.back ? reads_of(members, count, 0) : writes_of(members, count, 0);
  for (uint32_t m = 0; m < count; m++)
    clear(c, write_of(members[m]->of, 0));
  for (uint32_t m = 0; m < count; m++) {
    const ref_call *of = members[m]->of;
    /* Probabilities go the same way, and none of theirs counts twice. */
    int64_t *left_out = !s.back && s.width > 1 ? left_out_of(c) : NULL;
    read_owners(c, of->reads[1], p.owners); /* its shape says how it is made */
    count_rows(c, s, p);
    find_places(c, m, s, p, left_out);
    move_rows(c, there, s.back ? write_of(of, 0) : read_of(of, 0), s, p);
  }
}
