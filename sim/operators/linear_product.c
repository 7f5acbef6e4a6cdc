#include "sim/operators/linear.h"
#include "sim/operators/operators.h"

dtype linear_gemm_type(const linear_node *l)
{
  return l->flags & LINEAR_QUANTIZES ? DTYPE_FP8 : l->type;
}

void linear_multiply(emitter *e, const linear_node *l, const linear_product *p, int64_t rows,
                     int64_t parts, ref x, ref to)
{
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_GEMM,
                              .type = linear_gemm_type(l),
                              .dims = { rows, p->outer, p->inner, 1, [GEMM_PARTS] = parts },
                              .scalars = { [GEMM_LAYOUT] = p->layout, [GEMM_FP8] = p->fp8 } },
              (ref[]){ x, p->weight, p->bias, 0 }, (ref[]){ to, 0 });
}
