/* grouped_gemm (ref/kernels/moe_experts.c) for GPUs: only the device knows the number of an
 * expert's rows. */
#include "cuda/kernels/exact/moe_experts.cuh"
#include "cuda/kernels/product_operands.cuh"

enum { GROUPED_M, GROUPED_N, GROUPED_K, GROUPED_BATCH, GROUPED_EXPERTS, GROUPED_FIRST, GROUPED_OF };

/* The experts whose rows the operands have: the call's own, or all of which these are some. */
static int64_t experts_with_rows(const exec_call *of)
{
  int64_t all = dim_of(of, GROUPED_OF);
  return all > 0 ? all : dim_of(of, GROUPED_EXPERTS);
}

static int64_t all_rows(const exec_call *of)
{
  return dim_of(of, GROUPED_OF) > 0 ? elements_of(of->reads[0]) / dim_of(of, GROUPED_K)
                                    : dim_of(of, GROUPED_M);
}

static row_span *spans_of_experts(cuda_call *c, const exec_call *of, scratch_arena *room,
                                  int64_t rows)
{
  int64_t experts = experts_with_rows(of);
  expert_spans s = take_spans(room, rows, experts);
  if (c != NULL) find_spans(c, index_of(of), s, experts);
  return s.of;
}

DEVICE static inline matrix at_row(const matrix &m, int64_t row)
{
  return matrix_at(m, row * m.row_stride);
}

DEVICE static inline matrix at_column(const matrix &m, int64_t column)
{
  return matrix_at(m, column * m.column_stride);
}

/* ---- y = x w of each expert's rows ---------------------------------------------------------- */

/* Weights and biases of experts from `first` on, `count` of them. */
typedef struct expert_weights {
  int64_t first, count;
  matrices w, biases;
} expert_weights;

/* Biases have as many operands as weights. */
static matrices biases_of(cuda_call *c, const exec_call *of, scratch_arena *room, uint32_t parts,
                          int64_t e)
{
  int64_t n = dim_of(of, GROUPED_N);
  if (of->call->scalars[GEMM_BIASED] == 0) return no_matrices();
  matrices biases = parts == 1
                        ? read_matrices(c, room, of->reads[2], dim_of(of, GROUPED_EXPERTS), 1, n)
                        : read_matrices(c, room, of->reads[1 + parts + e], 1, 1, n);
  biases.first.row_stride = 0;
  return biases;
}

static expert_weights weights_of(cuda_call *c, const exec_call *of, scratch_arena *room,
                                 uint32_t parts, int64_t e)
{
  int64_t n = dim_of(of, GROUPED_N), k = dim_of(of, GROUPED_K);
  exec_call one = *of;
  tensor reads[2] = { of->reads[0], of->reads[1 + e] };
  expert_weights w = { e, parts == 1 ? dim_of(of, GROUPED_EXPERTS) : 1, no_matrices(),
                       no_matrices() };
  one.reads = reads;
  one.read_count = 2;
  w.w = right_operand(c, &one, room, w.count, k, n);
  w.biases = biases_of(c, of, room, parts, e);
  return w;
}

static void multiply_experts(cuda_call *c, const row_span *spans, expert_weights w, matrix x,
                             matrix y)
{
  int64_t rows = all_rows(c->of), n = dim_of(c->of, GROUPED_N), k = dim_of(c->of, GROUPED_K),
          first = dim_of(c->of, GROUPED_FIRST) + w.first;
  multiply(
      c, w.count, rows, n, KERNEL_LAMBDA(int64_t i) {
        row_span s = spans[first + i];
        product p = { s.count,
                      n,
                      k,
                      at_row(x, s.first),
                      matrix_number(w.w, i),
                      matrix_number(w.biases, i),
                      at_row(y, s.first),
                      false,
                      1 };
        return p;
      });
}

static void clear_other_rows(cuda_call *c, const row_span *spans)
{
  int64_t n = dim_of(c->of, GROUPED_N), experts = experts_with_rows(c->of);
  if (dim_of(c->of, GROUPED_FIRST) + dim_of(c->of, GROUPED_EXPERTS) < experts) return;
  tensor y = write_of(c->of, 0);
  for_each(
      c, elements_of(y), KERNEL_LAMBDA(int64_t i) {
        if (i / n >= rows_of_experts(spans, experts)) store(y, i, 0);
      });
}

/* Reserves scratch memory and, with a call, launches. */
static void multiply_rows(cuda_call *c, const exec_call *of, scratch_arena *room)
{
  int64_t rows = all_rows(of), experts = dim_of(of, GROUPED_EXPERTS);
  uint32_t parts = parts_of(of, 1, of->call->scalars[GEMM_BIASED] != 0 ? 2 : 1, experts);
  row_span *spans = spans_of_experts(c, of, room, rows);
  matrices x = left_operand(c, of, room, 1, rows, dim_of(of, GROUPED_K));
  matrices y = write_matrices(room, of->writes[0], 1, rows, dim_of(of, GROUPED_N));
  for (uint32_t e = 0; e < parts; e++) {
    expert_weights w = weights_of(c, of, room, parts, e);
    if (c != NULL) multiply_experts(c, spans, w, x.first, y.first);
  }
  if (c == NULL) return;
  store_matrices(c, y, of->writes[0]);
  clear_other_rows(c, spans);
}

/* ---- gw = gy^T x of each expert's rows ------------------------------------------------------ */

static void multiply_weights(cuda_call *c, const exec_call *of, scratch_arena *room)
{
  int64_t m = dim_of(of, GROUPED_M), n = dim_of(of, GROUPED_N), rows = dim_of(of, GROUPED_K),
          experts = dim_of(of, GROUPED_EXPERTS);
  bool adds = of->call->scalars[GEMM_ADD] != 0;
  const row_span *spans = spans_of_experts(c, of, room, rows);
  matrices a = left_operand(c, of, room, 1, m, rows), b = right_operand(c, of, room, 1, rows, n);
  matrices to = write_matrices(room, of->writes[0], experts, m, n), old = no_matrices();
  if (adds) old = read_matrices(c, room, of->writes[0], experts, m, n);
  if (c == NULL) return;
  multiply(
      c, experts, m, n, KERNEL_LAMBDA(int64_t e) {
        row_span s = spans[e];
        product p = { m,
                      n,
                      s.count,
                      at_column(a.first, s.first),
                      at_row(b.first, s.first),
                      matrix_number(old, e),
                      matrix_number(to, e),
                      false,
                      1 };
        return p;
      });
  store_matrices(c, to, of->writes[0]);
}

static void multiply_grouped(cuda_call *c, const exec_call *of, scratch_arena *room)
{
  gemm_layout layout = layout_of(of);
  assert(of->write_count == 1 && dim_of(of, GROUPED_BATCH) == 1);
  if (layout == GEMM_TN || layout == GEMM_TN_COPIES)
    multiply_weights(c, of, room);
  else
    multiply_rows(c, of, room);
}

extern "C" int64_t EXACT(grouped_gemm_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  multiply_grouped(NULL, c, &a);
  return a.used;
}

extern "C" void EXACT(grouped_gemm)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  multiply_grouped(c, c->of, &room);
}
