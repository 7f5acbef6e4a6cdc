/*
 * Rows into the order of experts and back, 16 bytes at a time: a block for each row that is
 * written. The owner of a row is found as in the exact kernels; sums have one order here, too.
 */
#include <cuda_bf16.h>

#include "cuda/kernels/exact/moe_token_rows.cuh"
#include "cuda/kernels/fast/functions.h"

enum { ROWS, WIDTH, TOKENS, EXPERTS };      /* dims of kernels on rows */
enum { SLOTTED };                           /* scalars */
enum { MOVE_THREADS = 256, MOVE_EACH = 4 }; /* 16-byte pieces of a thread at a time */

/* Rows of pieces of 16 bytes, one after the other. */
typedef struct row_pieces {
  const uint4 *from;
  uint4 *to;
  int32_t pieces;
} row_pieces;

static int64_t bytes_of(const tensor &t)
{
  return dtype_bytes((dtype)t.type);
}

static bool lies_in_pieces(const tensor &t, int64_t width)
{
  tensor one = merged(t);
  return (t.type == DTYPE_BF16 || t.type == DTYPE_FP32) && one.rank == 1 && one.strides[0] == 1 &&
         (uintptr_t)t.data % sizeof(uint4) == 0 &&
         width * bytes_of(t) % (int64_t)sizeof(uint4) == 0;
}

static bool rows_suit(const tensor &from, const tensor &to, int64_t width)
{
  return from.type == to.type && width > 0 && width * bytes_of(from) < INT32_MAX &&
         lies_in_pieces(from, width) && lies_in_pieces(to, width) &&
         elements_of(to) / width < INT32_MAX;
}

static row_pieces pieces_of(const tensor &from, const tensor &to, int64_t width)
{
  row_pieces p = { (const uint4 *)from.data, (uint4 *)to.data,
                   (int32_t)(width * bytes_of(from) / (int64_t)sizeof(uint4)) };
  return p;
}

static void note_launch(cuda_call *c)
{
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}

/* ---- into the order of experts -------------------------------------------------------------- */

__global__ void __launch_bounds__(MOVE_THREADS) spread_kernel(row_pieces p, const int32_t *tokens)
{
  int64_t token = tokens[blockIdx.x];
  const uint4 *from = p.from + (token < 0 ? 0 : token) * p.pieces;
  uint4 *to = p.to + (int64_t)blockIdx.x * p.pieces;
  for (int32_t i = (int32_t)threadIdx.x; i < p.pieces; i += MOVE_EACH * MOVE_THREADS) {
    uint4 x[MOVE_EACH] = {};
#pragma unroll
    for (int k = 0; k < MOVE_EACH; k++)
      if (token >= 0 && i + k * MOVE_THREADS < p.pieces) x[k] = from[i + k * MOVE_THREADS];
#pragma unroll
    for (int k = 0; k < MOVE_EACH; k++)
      if (i + k * MOVE_THREADS < p.pieces) to[i + k * MOVE_THREADS] = x[k];
  }
}

static void spread(cuda_call *c, const tensor &from, const tensor &to, row_owners r)
{
  row_pieces p = pieces_of(from, to, dim_of(c->of, WIDTH));
  if (r.count == 0 || c->failure != NULL) return;
  spread_kernel<<<(unsigned)r.count, MOVE_THREADS, 0, (cudaStream_t)c->stream>>>(p, r.token);
  note_launch(c);
}

/* ---- back, a sum for every token ------------------------------------------------------------ */

template <class T> struct piece_sums;

template <> struct piece_sums<float> {
  float x[4];
  __device__ inline void add(uint4 piece)
  {
    x[0] += __uint_as_float(piece.x);
    x[1] += __uint_as_float(piece.y);
    x[2] += __uint_as_float(piece.z);
    x[3] += __uint_as_float(piece.w);
  }
  __device__ inline uint4 rounded() const
  {
    return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                      __float_as_uint(x[3]));
  }
};

template <> struct piece_sums<__nv_bfloat16> {
  float x[8];
  __device__ inline void add_two(int i, uint32_t two)
  {
    x[i] += __uint_as_float(two << 16);
    x[i + 1] += __uint_as_float(two & 0xffff0000U);
  }
  __device__ inline void add(uint4 piece)
  {
    add_two(0, piece.x);
    add_two(2, piece.y);
    add_two(4, piece.z);
    add_two(6, piece.w);
  }
  __device__ inline uint32_t two(int i) const
  {
    uint32_t low = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
    uint32_t high = __bfloat16_as_ushort(__float2bfloat16_rn(x[i + 1]));
    return low | high << 16;
  }
  __device__ inline uint4 rounded() const
  {
    return make_uint4(two(0), two(2), two(4), two(6));
  }
};

template <class T>
__global__ void __launch_bounds__(MOVE_THREADS)
    gather_kernel(row_pieces p, const int64_t *first, const int32_t *rows)
{
  int64_t begin = first[blockIdx.x], end = first[blockIdx.x + 1];
  uint4 *to = p.to + (int64_t)blockIdx.x * p.pieces;
  for (int32_t i = (int32_t)threadIdx.x; i < p.pieces; i += MOVE_THREADS) {
    piece_sums<T> sums = {};
#pragma unroll 4
    for (int64_t n = begin; n < end; n++)
      sums.add(p.from[(int64_t)rows[n] * p.pieces + i]);
    to[i] = sums.rounded();
  }
}

static void gather(cuda_call *c, const tensor &from, const tensor &to, row_owners r, token_rows l)
{
  int64_t width = dim_of(c->of, WIDTH), tokens = elements_of(to) / width;
  row_pieces p = pieces_of(from, to, width);
  list_rows(c, r, l, tokens);
  if (tokens == 0 || c->failure != NULL) return;
  if (from.type == DTYPE_BF16)
    gather_kernel<__nv_bfloat16>
        <<<(unsigned)tokens, MOVE_THREADS, 0, (cudaStream_t)c->stream>>>(p, l.first, l.row);
  else
    gather_kernel<float>
        <<<(unsigned)tokens, MOVE_THREADS, 0, (cudaStream_t)c->stream>>>(p, l.first, l.row);
  note_launch(c);
}

/* ---- the rows of the table ------------------------------------------------------------------ */

/* Of the rows that are written, `back` from the end. */
static const tensor &written(const exec_call *c, uint32_t back)
{
  return c->writes[c->write_count - back];
}

static bool moves_suit(const exec_call *c, uint32_t back)
{
  return rows_suit(c->reads[0], written(c, back), dim_of(c, WIDTH));
}

typedef struct gather_room {
  row_owners owners;
  token_rows lists;
} gather_room;

static gather_room take_gather_room(scratch_arena *a, const exec_call *c, uint32_t back)
{
  gather_room g;
  g.owners = take_owners(a, dim_of(c, ROWS));
  g.lists = take_token_rows(a, elements_of(written(c, back)) / dim_of(c, WIDTH), dim_of(c, ROWS));
  return g;
}

static int64_t gather_bytes(const exec_call *c, uint32_t back)
{
  scratch_arena a = arena_of_nothing();
  (void)take_gather_room(&a, c, back);
  return a.used;
}

static int64_t owners_bytes(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_owners(&a, dim_of(c, ROWS));
  return a.used;
}

extern "C" bool fast_suits_permute(const exec_call *c)
{
  return moves_suit(c, 1);
}

extern "C" int64_t fast_scratch_permute(const exec_call *c)
{
  return owners_bytes(c);
}

extern "C" void fast_permute(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  row_owners r = take_owners(&room, dim_of(c->of, ROWS));
  read_owners(c, c->of->reads[1], r);
  spread(c, c->of->reads[0], written(c->of, 1), r);
}

extern "C" bool fast_suits_unpermute(const exec_call *c)
{
  return moves_suit(c, 1);
}

extern "C" int64_t fast_scratch_unpermute(const exec_call *c)
{
  return gather_bytes(c, 1);
}

extern "C" void fast_unpermute(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  gather_room g = take_gather_room(&room, c->of, 1);
  read_owners(c, c->of->reads[1], g.owners);
  gather(c, c->of->reads[0], written(c->of, 1), g.owners, g.lists);
}

extern "C" bool fast_suits_moe_permute_forward(const exec_call *c)
{
  return moves_suit(c, 3);
}

extern "C" int64_t fast_scratch_moe_permute_forward(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_owners(&a, dim_of(c, ROWS));
  (void)take_sort_room(&a, dim_of(c, TOKENS), dim_of(c, EXPERTS));
  return a.used;
}

/* The probability of each row, 0 of no token's. */
static void pick(cuda_call *c, tensor from, row_owners r, tensor to)
{
  int64_t experts = dim_of(c->of, EXPERTS);
  for_each(
      c, r.count, KERNEL_LAMBDA(int64_t i) {
        store(to, i, r.token[i] < 0 ? 0 : load(from, r.token[i] * experts + r.expert[i]));
      });
}

extern "C" void fast_moe_permute_forward(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t tokens = dim_of(c->of, TOKENS), experts = dim_of(c->of, EXPERTS);
  row_owners r = take_owners(&room, dim_of(c->of, ROWS));
  sort_room s = take_sort_room(&room, tokens, experts);
  expert_choice h = { read_of(c->of, 2), tokens, experts, false,
                      c->of->call->scalars[SLOTTED] != 0 };
  sort_rows(c, h, s, r);
  count_left_out(c, h, s, r.count);
  spread(c, c->of->reads[0], written(c->of, 3), r);
  write_owners(c, r, tokens, experts, write_from_end(c->of, 2));
  pick(c, read_of(c->of, 1), r, write_from_end(c->of, 1));
}

extern "C" bool fast_suits_moe_permute_backward(const exec_call *c)
{
  return moves_suit(c, 2);
}

extern "C" int64_t fast_scratch_moe_permute_backward(const exec_call *c)
{
  return gather_bytes(c, 2);
}

/* The gradient of each row's probability, 0 of what no token has chosen. */
static void put(cuda_call *c, tensor from, row_owners r, tensor to)
{
  int64_t experts = dim_of(c->of, EXPERTS);
  clear(c, to);
  for_each(
      c, r.count, KERNEL_LAMBDA(int64_t i) {
        if (r.token[i] >= 0) store(to, r.token[i] * experts + r.expert[i], load(from, i));
      });
}

extern "C" void fast_moe_permute_backward(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  gather_room g = take_gather_room(&room, c->of, 2);
  read_owners(c, c->of->reads[2], g.owners);
  gather(c, c->of->reads[0], written(c->of, 2), g.owners, g.lists);
  put(c, read_of(c->of, 1), g.owners, write_from_end(c->of, 1));
}
