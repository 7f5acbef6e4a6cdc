/*
 * ref/kernels/gemm.c for GPUs: reads a, b and optionally an addend: a bias of n elements, which
 * every row adds, or a matrix like c. With `add`, the addend is c's old contents. A batch is a
 * number of products, of consecutive matrices.
 *
 * scaled_gemm (ref/kernels/torch_lora.c): the product times alpha, then the addend, a matrix.
 */
#include "cuda/kernels/product_operands.cuh"

enum { GEMM_M, GEMM_N, GEMM_K, GEMM_BATCH };
enum { SCALED_LAYOUT, SCALED_ALPHA };

typedef struct gemm_operands {
  matrices a, b, addend, to;
} gemm_operands;

/* None: data is NULL. */
static matrices addend_of(cuda_call *c, const exec_call *of, scratch_arena *room, int64_t batch,
                          int64_t m, int64_t n)
{
  bool adds = of->call->kind == KERNEL_GEMM && of->call->scalars[GEMM_ADD] != 0;
  assert(of->read_count == 2 || (of->read_count == 3 && !adds));
  if (of->read_count == 2 && !adds) return no_matrices();
  tensor t = adds ? of->writes[0] : of->reads[2];
  if (elements_of(t) == batch * m * n) return read_matrices(c, room, t, batch, m, n);
  matrices bias = read_matrices(c, room, t, 1, 1, n);
  bias.first.row_stride = bias.next = 0;
  return bias;
}

static gemm_operands operands_of(cuda_call *c, const exec_call *of, scratch_arena *room)
{
  int64_t m = dim_of(of, GEMM_M), n = dim_of(of, GEMM_N), k = dim_of(of, GEMM_K),
          batch = dim_of(of, GEMM_BATCH);
  gemm_operands o;
  assert(of->write_count == 1);
  o.a = left_operand(c, of, room, batch, m, k);
  o.b = right_operand(c, of, room, batch, k, n);
  o.addend = addend_of(c, of, room, batch, m, n);
  o.to = write_matrices(room, of->writes[0], batch, m, n);
  return o;
}

static void multiply_all(cuda_call *c, bool scales, float factor)
{
  scratch_arena room = arena_of(c);
  int64_t m = dim_of(c->of, GEMM_M), n = dim_of(c->of, GEMM_N), k = dim_of(c->of, GEMM_K);
  gemm_operands o = operands_of(c, c->of, &room);
  multiply(
      c, dim_of(c->of, GEMM_BATCH), m, n, KERNEL_LAMBDA(int64_t i) {
        product p = { m,
                      n,
                      k,
                      matrix_number(o.a, i),
                      matrix_number(o.b, i),
                      matrix_number(o.addend, i),
                      matrix_number(o.to, i),
                      scales,
                      factor };
        return p;
      });
  store_matrices(c, o.to, c->of->writes[0]);
}

extern "C" int64_t EXACT(gemm_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)operands_of(NULL, c, &a);
  return a.used;
}

extern "C" void EXACT(gemm)(cuda_call *c)
{
  multiply_all(c, false, 1);
}

extern "C" void EXACT(scaled_gemm)(cuda_call *c)
{
  multiply_all(c, true, scalar_of(c->of, SCALED_ALPHA));
}
