/* grouped_gemm: the operands of ref/kernels/moe_experts.c. */
#include "cuda/kernels/fast/grouped.h"

#include <string.h>

#include "cuda/kernels/fast/fp8_plain.h"
#include "cuda/kernels/fast/functions.h"
#include "cuda/kernels/fast/product.h"

enum { GROUPED_M, GROUPED_N, GROUPED_K, GROUPED_BATCH, GROUPED_EXPERTS, GROUPED_FIRST, GROUPED_OF };
enum { TABLE_PLACE = 256 };
enum { PIECE = 8, PIECE_BYTES = 16 }; /* elements in bf16 that are copied at once */

static bool fits_int32(int64_t x)
{
  return x > 0 && x <= INT32_MAX;
}

static bool is_aligned(const void *p)
{
  return (uintptr_t)p % PIECE_BYTES == 0;
}

/* The last read operand, if it is an index. */
static const exec_tensor *index_of(const exec_call *c)
{
  const exec_tensor *last = &c->reads[c->read_count - 1];
  return last->type == DTYPE_INT32 || last->type == DTYPE_INT64 ? last : NULL;
}

static bool take_index(const exec_tensor *index, grouped_product *p)
{
  p->form = EXPERTS_EQUAL;
  if (index == NULL) return true;
  p->index = index->data;
  p->index_elements = exec_elements(index);
  p->form = EXPERTS_COUNTS;
  if (index->type == DTYPE_INT64) p->form = EXPERTS_CELLS;
  if (index->type == DTYPE_INT32 && index->rank == 2) {
    p->form = EXPERTS_MAP;
    p->index_elements = index->shape[0];
    if (index->shape[1] != 2 * p->experts + 1) return false;
  }
  if (p->form == EXPERTS_CELLS && p->index_elements > p->rows) p->index_elements = p->rows;
  return exec_is_contiguous(index);
}

/* Rows of `columns` bf16 elements in pieces of 16 bytes. */
static bool take_rows(const exec_tensor *t, int64_t rows, int64_t columns, const void **data,
                      int64_t *stride)
{
  fast_matrix m;
  if (t->type != DTYPE_BF16 || columns % PIECE != 0 ||
      !fast_matrix_of(t, 1, 1, rows, columns, &m) || m.column_stride != 1)
    return false;
  *data = m.data;
  *stride = rows > 1 ? m.row_stride : columns;
  return is_aligned(m.data) && *stride % PIECE == 0;
}

/* One operand for all: experts may follow each other the other way round. */
static bool take_stack(const exec_tensor *t, int32_t experts, int64_t elements, void **of_expert)
{
  bool stacked = t->rank >= 2 && t->shape[0] == experts;
  int64_t next = stacked ? t->strides[0] : elements;
  exec_tensor one = *t;
  if (stacked) one.shape[0] = 1;
  if (!exec_is_contiguous(&one) || exec_elements(t) != elements * experts) return false;
  for (int32_t e = 0; e < experts; e++)
    of_expert[e] = (char *)t->data + e * next * dtype_bytes((dtype)t->type);
  return next * dtype_bytes((dtype)t->type) % PIECE_BYTES == 0 && is_aligned(t->data);
}

/* A parameter of `elements` for each expert: one operand, or several. */
static bool take_parameter(const exec_tensor *t, uint32_t operands, int32_t experts,
                           int64_t elements, void **of_expert)
{
  if (operands == 1) return take_stack(t, experts, elements, of_expert);
  for (int32_t e = 0; e < experts; e++)
    if (t[e].type != t->type || !take_stack(&t[e], 1, elements, &of_expert[e])) return false;
  return true;
}

/* Weights of some experts: the others' rows belong to other calls. */
static bool take_some(const exec_call *c, grouped_product *p)
{
  int64_t first = exec_dim(c, GROUPED_FIRST), count = exec_dim(c, GROUPED_EXPERTS);
  if (exec_dim(c, GROUPED_OF) == 0) return true;
  void *own[GROUPED_EXPERTS_MOST];
  if (p->has_bias || first + count > p->experts) return false;
  memcpy(own, p->of_expert, (size_t)count * sizeof *own);
  for (int32_t e = 0; e < p->experts; e++)
    p->of_expert[e] = e >= first && e < first + count ? own[e - first] : NULL;
  p->leaves_rest = first + count < p->experts;
  return true;
}

/* C = A W_e. */
static bool take_products_of_rows(const exec_call *c, grouped_product *p)
{
  uint32_t others = 1 + (index_of(c) != NULL), parameters = p->has_bias ? 2 : 1;
  uint32_t parts = (c->read_count - others) / parameters;
  const exec_tensor *weights = &c->reads[1], *biases = &c->reads[1 + parts];
  void *bias[GROUPED_EXPERTS_MOST] = { 0 };
  const void *to;
  exec_tensor result = c->writes[0];
  result.type = DTYPE_BF16; /* of 2 or 4 bytes: strides are all that is looked at */
  p->m = 0;
  p->expert_stride = p->layout == GEMM_NT ? p->k : p->n;
  int32_t experts = (int32_t)exec_dim(c, GROUPED_EXPERTS);
  if (parts != 1 && parts != (uint32_t)experts) return false;
  if (weights->type != DTYPE_BF16 || p->expert_stride % PIECE != 0 ||
      !take_rows(&c->reads[0], p->rows, p->k, &p->a, &p->a_stride) ||
      !take_rows(&result, p->rows, p->n, &to, &p->c_stride) ||
      !take_parameter(weights, parts, experts, (int64_t)p->n * p->k, p->of_expert) ||
      !take_some(c, p))
    return false;
  p->c = c->writes[0].data;
  if (!p->has_bias) return true;
  if (biases->type != DTYPE_BF16 || !take_parameter(biases, parts, p->experts, p->n, bias))
    return false;
  for (int32_t e = 0; e < p->experts; e++)
    p->bias[e] = bias[e];
  return true;
}

/* C_e = A^T B. */
static bool take_products_of_weights(const exec_call *c, grouped_product *p)
{
  p->k = 0;
  p->expert_stride = p->n;
  p->adds = c->call->scalars[GEMM_ADD] != 0;
  return take_rows(&c->reads[0], p->rows, p->m, &p->a, &p->a_stride) &&
         take_rows(&c->reads[1], p->rows, p->n, &p->b, &p->b_stride) &&
         take_stack(&c->writes[0], p->experts, (int64_t)p->m * p->n, p->of_expert);
}

static bool product_of(const exec_call *c, grouped_product *p)
{
  int64_t m = exec_dim(c, GROUPED_M), n = exec_dim(c, GROUPED_N), k = exec_dim(c, GROUPED_K),
          experts = exec_dim(c, GROUPED_EXPERTS), of = exec_dim(c, GROUPED_OF);
  gemm_layout layout = (gemm_layout)c->call->scalars[GEMM_LAYOUT];
  dtype result = (dtype)c->writes[0].type;
  *p = (grouped_product){ .layout = layout,
                          .experts = (int32_t)(of > 0 ? of : experts),
                          .result_fp32 = result == DTYPE_FP32,
                          .has_bias = c->call->scalars[GEMM_BIASED] != 0 };
  if (!fits_int32(m) || !fits_int32(n) || !fits_int32(k) ||
      max_i64(experts, of) > GROUPED_EXPERTS_MOST || c->call->scalars[GEMM_FP8] != 0 ||
      (result != DTYPE_BF16 && result != DTYPE_FP32))
    return false;
  p->m = (int32_t)m;
  p->n = (int32_t)n;
  p->k = (int32_t)k;
  p->rows = layout == GEMM_TN ? p->k : p->m;
  if (of > 0) p->rows = (int32_t)(exec_elements(&c->reads[0]) / k);
  if (!take_index(index_of(c), p)) return false;
  return layout == GEMM_TN ? take_products_of_weights(c, p) : take_products_of_rows(c, p);
}

/* In fp8: as the product in bf16 of the same numbers, which are after the table of experts. */
static bool plain_product_of(const exec_call *c, char *scratch, fp8_plain *plain,
                             grouped_product *p)
{
  return fp8_plain_of(c, scratch, plain) && product_of(&plain->of, p);
}

static bool is_fp8(const exec_call *c)
{
  return c->call->scalars[GEMM_FP8] != 0;
}

bool fast_suits_grouped_gemm(const exec_call *c)
{
  grouped_product p;
  fp8_plain plain;
  return is_fp8(c) ? plain_product_of(c, NULL, &plain, &p) : product_of(c, &p);
}

static int64_t table_bytes(void)
{
  return round_up(fast_grouped_scratch(), TABLE_PLACE);
}

int64_t fast_scratch_grouped_gemm(const exec_call *c)
{
  fp8_plain plain;
  return table_bytes() + (is_fp8(c) && fp8_plain_of(c, NULL, &plain) ? plain.bytes : 0);
}

void fast_grouped_gemm(cuda_call *c)
{
  grouped_product p;
  fp8_plain plain;
  bool fp8 = is_fp8(c->of);
  if (fp8 ? !plain_product_of(c->of, (char *)c->scratch + table_bytes(), &plain, &p)
          : !product_of(c->of, &p)) {
    c->failure = "the fast kernel supports this product of experts";
    return;
  }
  if (fp8) fp8_plain_fill(c, &plain, c->of);
  fast_grouped_multiply(c, &p);
}
