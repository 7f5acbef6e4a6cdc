/*
 * ref/kernels/moe_permute.c for GPUs. If several rows belong to one token, the token's rows are
 * first listed in ascending order, and its elements add them one by one.
 */
#include "cuda/kernels/exact/moe_token_rows.cuh"

enum { ROWS, WIDTH, TOKENS, EXPERTS };         /* dims of kernels on rows */
enum { CELL_ROWS, CELL_TOKENS, CELL_EXPERTS }; /* ... only on probabilities and maps */
enum { COUNT_TOKENS, COUNT_EXPERTS };          /* ... of moe_count */
enum { SLOTTED };                              /* scalars */

/* ---- rows ----------------------------------------------------------------------------------- */

static void spread(cuda_call *c, tensor from, row_owners r, int64_t width, tensor to)
{
  assert(elements_of(to) == r.count * width);
  for_each(
      c, r.count * width, KERNEL_LAMBDA(int64_t i) {
        int64_t token = r.token[i / width];
        store(to, i, token >= 0 ? load(from, token * width + i % width) : 0);
      });
}

static void gather(cuda_call *c, tensor from, row_owners r, token_rows l, int64_t width, tensor to)
{
  int64_t tokens = elements_of(to) / width;
  assert(elements_of(from) == r.count * width && elements_of(to) % width == 0);
  list_rows(c, r, l, tokens);
  for_each(
      c, tokens * width, KERNEL_LAMBDA(int64_t i) {
        int64_t t = i / width, j = i % width;
        float sum = 0;
        for (int64_t n = l.first[t]; n < l.first[t + 1]; n++)
          sum += load(from, l.row[n] * width + j);
        store(to, i, sum);
      });
}

/* ---- probabilities -------------------------------------------------------------------------- */

/* A matrix of probabilities as [tokens, experts], or [experts, tokens] if `by_expert`. */
typedef struct prob_cells {
  tensor t;
  int64_t tokens, experts;
  bool by_expert;
} prob_cells;

DEVICE static inline int64_t cell_of(const prob_cells &p, const row_owners &r, int64_t i)
{
  return p.by_expert ? r.expert[i] * p.tokens + r.token[i] : r.token[i] * p.experts + r.expert[i];
}

static void pick(cuda_call *c, prob_cells from, row_owners r, tensor to)
{
  assert(elements_of(to) == r.count);
  for_each(
      c, r.count, KERNEL_LAMBDA(int64_t i) {
        store(to, i, r.token[i] >= 0 ? load(from.t, cell_of(from, r, i)) : 0);
      });
}

static void put(cuda_call *c, tensor from, row_owners r, prob_cells to)
{
  assert(elements_of(from) == r.count && elements_of(to.t) == to.tokens * to.experts);
  clear(c, to.t);
  for_each(
      c, r.count, KERNEL_LAMBDA(int64_t i) {
        if (r.token[i] >= 0) store(to.t, cell_of(to, r, i), load(from, i));
      });
}

/* ---- rows and probabilities ----------------------------------------------------------------- */

static bool is_slotted(const cuda_call *c)
{
  return c->of->call->scalars[SLOTTED] != 0;
}

extern "C" int64_t EXACT(moe_permute_forward_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_owners(&a, dim_of(c, ROWS));
  (void)take_sort_room(&a, dim_of(c, TOKENS), dim_of(c, EXPERTS));
  return a.used;
}

extern "C" void EXACT(moe_permute_forward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t tokens = dim_of(c->of, TOKENS), experts = dim_of(c->of, EXPERTS);
  row_owners r = take_owners(&room, dim_of(c->of, ROWS));
  sort_room s = take_sort_room(&room, tokens, experts);
  expert_choice h = { read_of(c->of, 2), tokens, experts, false, is_slotted(c) };
  prob_cells probs = { read_of(c->of, 1), tokens, experts, false };
  sort_rows(c, h, s, r);
  count_left_out(c, h, s, r.count);
  spread(c, read_of(c->of, 0), r, dim_of(c->of, WIDTH), write_from_end(c->of, 3));
  write_owners(c, r, tokens, experts, write_from_end(c->of, 2));
  pick(c, probs, r, write_from_end(c->of, 1));
}

/* Tokens: number of rows of the last write but `back`. */
static int64_t room_to_gather(const exec_call *c, uint32_t back)
{
  scratch_arena a = arena_of_nothing();
  (void)take_owners(&a, dim_of(c, ROWS));
  (void)take_token_rows(&a, elements_of(c->writes[c->write_count - back]) / dim_of(c, WIDTH),
                        dim_of(c, ROWS));
  return a.used;
}

/* Reads rows, index; writes sums. */
static void gather_rows(cuda_call *c, scratch_arena *room, row_owners r, uint32_t back)
{
  tensor to = write_from_end(c->of, back);
  token_rows l = take_token_rows(room, elements_of(to) / dim_of(c->of, WIDTH), r.count);
  gather(c, read_of(c->of, 0), r, l, dim_of(c->of, WIDTH), to);
}

extern "C" int64_t EXACT(moe_permute_backward_scratch)(const exec_call *c)
{
  return room_to_gather(c, 2);
}

extern "C" void EXACT(moe_permute_backward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  row_owners r = take_owners(&room, dim_of(c->of, ROWS));
  prob_cells probs = { write_from_end(c->of, 1), dim_of(c->of, TOKENS), dim_of(c->of, EXPERTS),
                       false };
  read_owners(c, c->of->reads[2], r);
  gather_rows(c, &room, r, 2);
  put(c, read_of(c->of, 1), r, probs);
}

extern "C" int64_t EXACT(owners_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_owners(&a, dim_of(c, ROWS));
  return a.used;
}

extern "C" void EXACT(permute)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  row_owners r = take_owners(&room, dim_of(c->of, ROWS));
  read_owners(c, c->of->reads[1], r);
  spread(c, read_of(c->of, 0), r, dim_of(c->of, WIDTH), write_from_end(c->of, 1));
}

extern "C" int64_t EXACT(unpermute_scratch)(const exec_call *c)
{
  return room_to_gather(c, 1);
}

extern "C" void EXACT(unpermute)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  row_owners r = take_owners(&room, dim_of(c->of, ROWS));
  read_owners(c, c->of->reads[1], r);
  gather_rows(c, &room, r, 1);
}

/* ---- cells ---------------------------------------------------------------------------------- */

extern "C" int64_t EXACT(sorted_cells_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_owners(&a, dim_of(c, CELL_ROWS));
  (void)take_sort_room(&a, dim_of(c, CELL_TOKENS), dim_of(c, CELL_EXPERTS));
  return a.used;
}

static row_owners sorted_cells(cuda_call *c, tensor map, bool by_expert, bool counted)
{
  scratch_arena room = arena_of(c);
  expert_choice h = { map, dim_of(c->of, CELL_TOKENS), dim_of(c->of, CELL_EXPERTS), by_expert,
                      is_slotted(c) };
  row_owners r = take_owners(&room, dim_of(c->of, CELL_ROWS));
  sort_room s = take_sort_room(&room, h.tokens, h.experts);
  sort_rows(c, h, s, r);
  if (counted) count_left_out(c, h, s, r.count);
  return r;
}

static void write_cells(cuda_call *c, row_owners r, tensor index)
{
  write_owners(c, r, dim_of(c->of, CELL_TOKENS), dim_of(c->of, CELL_EXPERTS), index);
}

extern "C" void EXACT(moe_row_map)(cuda_call *c)
{
  write_cells(c, sorted_cells(c, read_of(c->of, 0), false, true), write_of(c->of, 0));
}

extern "C" void EXACT(moe_sort_cells)(cuda_call *c)
{
  row_owners r = sorted_cells(c, read_of(c->of, 0), false, true);
  write_cells(c, r, write_from_end(c->of, 2));
  write_cells(c, r, write_from_end(c->of, 1));
}

static prob_cells cells_of(const cuda_call *c, tensor t, bool by_expert)
{
  prob_cells p = { t, dim_of(c->of, CELL_TOKENS), dim_of(c->of, CELL_EXPERTS), by_expert };
  return p;
}

static row_owners read_cells(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  row_owners r = take_owners(&room, dim_of(c->of, CELL_ROWS));
  read_owners(c, c->of->reads[1], r);
  return r;
}

extern "C" void EXACT(moe_permute_probs_forward)(cuda_call *c)
{
  row_owners r = read_cells(c);
  pick(c, cells_of(c, read_of(c->of, 0), false), r, write_from_end(c->of, 1));
}

extern "C" void EXACT(moe_permute_probs_backward)(cuda_call *c)
{
  row_owners r = read_cells(c);
  put(c, read_of(c->of, 0), r, cells_of(c, write_of(c->of, 0), false));
}

extern "C" void EXACT(moe_select_probs_forward)(cuda_call *c)
{
  row_owners r = sorted_cells(c, read_of(c->of, 1), true, false);
  pick(c, cells_of(c, read_of(c->of, 0), true), r, write_of(c->of, 0));
}

extern "C" void EXACT(moe_select_probs_backward)(cuda_call *c)
{
  row_owners r = sorted_cells(c, read_of(c->of, 2), true, false);
  put(c, read_of(c->of, 0), r, cells_of(c, write_of(c->of, 0), true));
}

/* ---- counts --------------------------------------------------------------------------------- */

extern "C" int64_t EXACT(moe_count_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take<int64_t>(&a, dim_of(c, COUNT_EXPERTS));
  return a.used;
}

extern "C" void EXACT(moe_count)(cuda_call *c)
{
  int64_t tokens = dim_of(c->of, COUNT_TOKENS), experts = dim_of(c->of, COUNT_EXPERTS);
  scratch_arena room = arena_of(c);
  int64_t *count = take<int64_t>(&room, experts);
  tensor map = read_of(c->of, 0), to = write_of(c->of, 0);
  assert(elements_of(map) == tokens * experts && elements_of(to) == experts);
  for_each(
      c, experts, KERNEL_LAMBDA(int64_t e) { count[e] = 0; });
  for_each(
      c, tokens * experts, KERNEL_LAMBDA(int64_t i) {
        if (load_int(map, i) != 0) (void)count_up(&count[i % experts], 1);
      });
  for_each(
      c, experts, KERNEL_LAMBDA(int64_t e) { store_int(to, e, count[e]); });
}
