/*
 * Operands of gemm and grouped_gemm as matrices: the twin of ref/kernels/gemm_operands.c and
 * gemm_operands.c. Where the strides of an operand do not make it a matrix, or where it is in fp8,
 * its numbers are copied to scratch memory.
 *
 * All functions take room from an arena in the same order. With a NULL call they launch nothing,
 * and only count the room that is needed.
 */
#ifndef OFFSIM_CUDA_KERNELS_PRODUCT_OPERANDS_CUH
#define OFFSIM_CUDA_KERNELS_PRODUCT_OPERANDS_CUH

extern "C" {
#include "ref/kernels/gemm.h"
}
#include "cuda/kernels/exact/fp8.cuh"
#include "cuda/kernels/product.cuh"

/* Matrices of one shape, one after the other. */
typedef struct matrices {
  matrix first;
  int64_t next; /* elements from a matrix to the next */
} matrices;

EXACT_FUNCTION matrix matrix_number(const matrices &m, int64_t i)
{
  return matrix_at(m.first, i * m.next);
}

static inline matrices no_matrices(void)
{
  matrices none = { { NULL, DTYPE_FP32, 0, 0 }, 0 };
  return none;
}

/* `elements` floats as a tensor. */
static inline tensor floats_of(float *data, int64_t elements)
{
  tensor t = { data, DTYPE_FP32, 1, { elements }, { 1 } };
  return t;
}

static inline matrices own_matrices(scratch_arena *room, int64_t count, int64_t rows,
                                    int64_t columns)
{
  float *data = take<float>(room, count * rows * columns);
  matrices m = { { data, DTYPE_FP32, columns, 1 }, rows * columns };
  return m;
}

/* False: its strides make it none. */
static inline bool lies_as_matrices(const tensor &t, int64_t count, int64_t rows, int64_t columns,
                                    matrices *m)
{
  int64_t sizes[] = { count, rows, columns }, strides[] = { 0, 0, 0 };
  assert(elements_of(t) == count * rows * columns);
  if (elements_of(t) > 0 && !ref_strides_of(&t, 3, sizes, strides)) return false;
  matrices found = { { t.data, t.type, strides[1], strides[2] }, strides[0] };
  *m = found;
  return true;
}

/* All elements of the tensor, as floats. */
static inline matrices copied_matrices(cuda_call *c, scratch_arena *room, tensor t, int64_t count,
                                       int64_t rows, int64_t columns)
{
  matrices m = own_matrices(room, count, rows, columns);
  tensor from = merged(t);
  float *to = (float *)m.first.data;
  if (c != NULL)
    for_each(
        c, elements_of(t), KERNEL_LAMBDA(int64_t i) { to[i] = load(from, i); });
  return m;
}

static inline matrices read_matrices(cuda_call *c, scratch_arena *room, tensor t, int64_t count,
                                     int64_t rows, int64_t columns)
{
  matrices m;
  if (lies_as_matrices(t, count, rows, columns, &m)) return m;
  return copied_matrices(c, room, t, count, rows, columns);
}

/* For a result; store_matrices copies it to the operand when it is complete. */
static inline matrices write_matrices(scratch_arena *room, tensor t, int64_t count, int64_t rows,
                                      int64_t columns)
{
  matrices m;
  if (lies_as_matrices(t, count, rows, columns, &m)) return m;
  return own_matrices(room, count, rows, columns);
}

static inline void store_matrices(cuda_call *c, const matrices &m, tensor t)
{
  const float *from = (const float *)m.first.data;
  tensor to = merged(t);
  if (m.first.data == t.data) return;
  for_each(
      c, elements_of(t), KERNEL_LAMBDA(int64_t i) { store(to, i, from[i]); });
}

/* ---- by the call's layout -------------------------------------------------------------------- */

static inline gemm_layout layout_of(const exec_call *c)
{
  return (gemm_layout)c->call->scalars[GEMM_LAYOUT];
}

static inline int fp8_code(const exec_call *c)
{
  return (int)c->call->scalars[GEMM_FP8];
}

/* Joins copies of slices along the outer or the inner dimension into one matrix. */
static inline matrices dequantized(cuda_call *c, scratch_arena *room, int code, tensor t,
                                   int64_t outer, int64_t inner, bool parts_are_inner)
{
  matrices m = own_matrices(room, 1, outer, inner);
  fp8_buffer b = fp8_buffer_of(t);
  int64_t part_outer = parts_are_inner ? outer : outer / b.parts;
  int64_t part_inner = parts_are_inner ? inner / b.parts : inner;
  int64_t next = parts_are_inner ? part_inner : part_outer * inner;
  for (int64_t i = 0; c != NULL && i < b.parts; i++) {
    fp8_view part = { floats_of((float *)m.first.data + i * next, outer * inner - i * next),
                      part_outer, part_inner, inner, 1 };
    fp8_dequantize(c, code, b.data + i * b.part_bytes, b.part_bytes, part);
  }
  return m;
}

/* The tiles of a weight run along the product: along the columns of the operand, or across them. */
static inline matrices rounded_weights(cuda_call *c, scratch_arena *room, int code, tensor t,
                                       int64_t count, int64_t rows, int64_t columns,
                                       bool product_across)
{
  matrices m = copied_matrices(c, room, t, count, rows, columns);
  int64_t outer = product_across ? columns : rows, inner = product_across ? rows : columns;
  uint32_t *largest = take<uint32_t>(room, fp8_tiles_of(code, true, outer, inner).count);
  for (int64_t i = 0; c != NULL && i < count; i++) {
    fp8_view weight = { floats_of((float *)m.first.data + i * m.next, m.next), rows, columns,
                        columns, 1 };
    fp8_round_weight(c, code, product_across ? fp8_turned(weight) : weight, largest);
  }
  return m;
}

/* The first read as m x k; in memory: k x m or m x k. What tensor-parallel ranks have gathered is split
 * along m, or in the product of a weight's gradient along k. */
static inline matrices left_operand(cuda_call *c, const exec_call *of, scratch_arena *room,
                                    int64_t count, int64_t m, int64_t k)
{
  bool turned = layout_of(of) == GEMM_TN, along_k = layout_of(of) == GEMM_TN_COPIES;
  int64_t rows = turned ? k : m, columns = turned ? m : k;
  int code = fp8_code(of);
  assert(count == 1 || code == FP8_NONE);
  matrices a = code == FP8_NONE ? read_matrices(c, room, of->reads[0], count, rows, columns)
                                : dequantized(c, room, code, of->reads[0], rows, columns, along_k);
  if (turned) a.first = matrix_transposed(a.first);
  return a;
}

/* The second read as k x n; in memory: n x k or k x n. What tensor-parallel ranks have gathered is
 * split along k; anything that is not in fp8 is a weight. */
static inline matrices right_operand(cuda_call *c, const exec_call *of, scratch_arena *room,
                                     int64_t count, int64_t k, int64_t n)
{
  tensor t = of->reads[1];
  bool turned = layout_of(of) == GEMM_NT || layout_of(of) == GEMM_TN_COPIES;
  int64_t rows = turned ? n : k, columns = turned ? k : n;
  int code = fp8_code(of) % FP8_SCALINGS; /* e4m3, also beside an e5m2 operand */
  matrices b = code == FP8_NONE ? read_matrices(c, room, t, count, rows, columns)
               : t.type == DTYPE_FP8
                   ? dequantized(c, room, code, t, count * rows, columns, turned)
                   : rounded_weights(c, room, code, t, count, rows, columns, !turned);
  if (turned) b.first = matrix_transposed(b.first);
  return b;
}

#endif
