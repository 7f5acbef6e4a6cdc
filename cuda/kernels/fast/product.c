#include "cuda/kernels/fast/product.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/fast/handles.h"
#include "cuda/kernels/fast/product_shape.h"
#include "sim/base/array.h"
#include "sim/base/diag.h"

/* A shape that has been met: its descriptors, and the algorithm. */
typedef struct known_product {
  blas_shape shape;
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, addend, result;
  cublasLtMatmulAlgo_t algorithm;
} known_product;

typedef struct known_products {
  known_product *items;
  uint32_t count, capacity;
} known_products;

/* Calls of cuBLASLt one after the other, until one fails. */
typedef struct steps {
  const cublaslt_functions *f;
  cublasStatus_t status;
} steps;

static void set_operation(steps *s, cublasLtMatmulDesc_t operation,
                          cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
  if (s->status == CUBLAS_STATUS_SUCCESS)
    s->status = s->f->cublasLtMatmulDescSetAttribute(operation, attribute, value, bytes);
}

static void set_layout(steps *s, cublasLtMatrixLayout_t layout,
                       cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t bytes)
{
  if (s->status == CUBLAS_STATUS_SUCCESS)
    s->status = s->f->cublasLtMatrixLayoutSetAttribute(layout, attribute, value, bytes);
}

static void set_preference(steps *s, cublasLtMatmulPreference_t preference,
                           cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                           size_t bytes)
{
  if (s->status == CUBLAS_STATUS_SUCCESS)
    s->status = s->f->cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, bytes);
}

/* ---- descriptors ---- */

static cudaDataType type_of(const blas_matrix *m)
{
  switch ((dtype)m->type) {
  case DTYPE_BF16: return CUDA_R_16BF;
  case DTYPE_FP16: return CUDA_R_16F;
  case DTYPE_FP8: return m->e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
  case DTYPE_BYTE:
  case DTYPE_FP32:
  case DTYPE_FP64:
  case DTYPE_INT32:
  case DTYPE_INT64:
  case DTYPES: break;
  }
  return CUDA_R_32F;
}

static cublasLtMatrixLayout_t layout_of(steps *s, const blas_matrix *m, int64_t batch)
{
  cublasLtMatrixLayout_t layout = NULL;
  int32_t count = (int32_t)batch;
  if (s->status == CUBLAS_STATUS_SUCCESS)
    s->status = s->f->cublasLtMatrixLayoutCreate(&layout, type_of(m), (uint64_t)m->rows,
                                                 (uint64_t)m->columns, m->leading);
  if (batch > 1) {
    set_layout(s, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    set_layout(s, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->next, sizeof m->next);
  }
  return layout;
}

#if CUBLAS_VERSION >= 120900

static void set_scaling(steps *s, cublasLtMatmulDesc_t operation,
                        cublasLtMatmulDescAttributes_t attribute, const blas_matrix *m)
{
  static const int32_t modes[] = { [FAST_SCALE_1X128] = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
                                   [FAST_SCALE_128X128] =
                                       CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F };
  if (m->scaling > FAST_SCALE_MATRIX)
    set_operation(s, operation, attribute, &modes[m->scaling], sizeof modes[0]);
}

static void set_scalings(steps *s, const known_product *k)
{
  set_scaling(s, k->operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &k->shape.a);
  set_scaling(s, k->operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &k->shape.b);
}

#else

/* Scales of blocks came with CUDA 12.9. */
static void set_scalings(steps *s, const known_product *k)
{
  if (k->shape.a.scaling > FAST_SCALE_MATRIX) s->status = CUBLAS_STATUS_NOT_SUPPORTED;
}

#endif

static void describe(steps *s, known_product *k)
{
  const blas_shape *shape = &k->shape;
  cublasOperation_t op_a = shape->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                    op_b = shape->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
  s->status = s->f->cublasLtMatmulDescCreate(&k->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  set_operation(s, k->operation, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
  set_operation(s, k->operation, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
  if (shape->has_bias)
    set_operation(s, k->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof bias);
  set_scalings(s, k);
  k->a = layout_of(s, &shape->a, shape->batch);
  k->b = layout_of(s, &shape->b, shape->batch);
  k->addend = layout_of(s, &shape->addend, shape->batch);
  k->result = layout_of(s, &shape->result, shape->batch);
}

/* ---- the algorithm ---- */

static void prefer(steps *s, cublasLtMatmulPreference_t preference, const blas_shape *shape)
{
  uint64_t workspace = FAST_PRODUCT_WORKSPACE;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const blas_matrix *const matrices[] = { &shape->a, &shape->b, &shape->addend, &shape->result };
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
  };
  set_preference(s, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                 sizeof workspace);
  set_preference(s, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                 sizeof reductions);
  for (int i = 0; i < 4; i++) {
    uint32_t alignment = (uint32_t)matrices[i]->alignment;
    set_preference(s, preference, alignments[i], &alignment, sizeof alignment);
  }
}

static void choose(steps *s, cublasLtHandle_t handle, known_product *k)
{
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  if (s->status != CUBLAS_STATUS_SUCCESS) return;
  s->status = s->f->cublasLtMatmulPreferenceCreate(&preference);
  prefer(s, preference, &k->shape);
  if (s->status == CUBLAS_STATUS_SUCCESS)
    s->status = s->f->cublasLtMatmulAlgoGetHeuristic(handle, k->operation, k->a, k->b, k->addend,
                                                     k->result, preference, 1, &found, &count);
  if (s->status == CUBLAS_STATUS_SUCCESS && count == 0) s->status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (s->status == CUBLAS_STATUS_SUCCESS) k->algorithm = found.algo;
  if (preference != NULL) (void)s->f->cublasLtMatmulPreferenceDestroy(preference);
}

/* ---- what is remembered ---- */

static void release_product(const cublaslt_functions *f, const known_product *k)
{
  const cublasLtMatrixLayout_t layouts[] = { k->a, k->b, k->addend, k->result };
  if (k->operation != NULL) (void)f->cublasLtMatmulDescDestroy(k->operation);
  for (int i = 0; i < 4; i++)
    if (layouts[i] != NULL) (void)f->cublasLtMatrixLayoutDestroy(layouts[i]);
}

static void release_products(cuda_libraries *l, void *items)
{
  known_products *all = items;
  for (uint32_t i = 0; i < all->count; i++)
    release_product(l->cublaslt, &all->items[i]);
  ARRAY_FREE(all);
  free(all);
}

static known_products *products_of(cuda_libraries *l)
{
  if (l->products.items == NULL) {
    l->products.release = release_products;
    l->products.items = calloc(1, sizeof(known_products));
    if (l->products.items == NULL) die_refused("no memory for a list of matrix products");
  }
  return l->products.items;
}

/* Addresses beside those of matrices; the heuristic looks at them, too. */
static void point(steps *s, const known_product *k, const blas_product *p)
{
  if (k->shape.has_bias)
    set_operation(s, k->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
  if (p->a->scaling != FAST_SCALE_NONE)
    set_operation(s, k->operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->a->scales,
                  sizeof p->a->scales);
  if (p->b->scaling != FAST_SCALE_NONE)
    set_operation(s, k->operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->b->scales,
                  sizeof p->b->scales);
}

/* NULL: cuBLASLt does not want it, s->status says why. */
static const known_product *known(steps *s, cuda_libraries *l, const blas_product *p)
{
  known_products *all = products_of(l);
  for (uint32_t i = 0; i < all->count; i++)
    if (memcmp(&all->items[i].shape, &p->shape, sizeof p->shape) == 0) return &all->items[i];
  known_product new = { .shape = p->shape };
  describe(s, &new);
  point(s, &new, p);
  choose(s, l->cublaslt_handle, &new);
  if (s->status != CUBLAS_STATUS_SUCCESS) {
    release_product(s->f, &new);
    return NULL;
  }
  *ARRAY_PUSH(all) = new;
  return &all->items[all->count - 1];
}

/* ---- a call ---- */

static void run_batch(cuda_call *c, const fast_product *product, void *workspace)
{
  cuda_libraries *l = c->libraries;
  steps s = { l->cublaslt, CUBLAS_STATUS_SUCCESS };
  blas_product p;
  float beta = product->has_addend ? 1 : 0;
  if (!blas_product_of(product, &p)) {
    c->failure = "a matrix product has a layout that cuBLASLt does not support";
    return;
  }
  const known_product *k = known(&s, l, &p);
  if (k != NULL) point(&s, k, &p);
  if (k != NULL && s.status == CUBLAS_STATUS_SUCCESS)
    s.status = s.f->cublasLtMatmul(l->cublaslt_handle, k->operation, &p.alpha, p.a->data, k->a,
                                   p.b->data, k->b, &beta, p.addend->data, k->addend,
                                   p.result->data, k->result, &k->algorithm, workspace,
                                   FAST_PRODUCT_WORKSPACE, (cudaStream_t)c->stream);
  if (s.status != CUBLAS_STATUS_SUCCESS) c->failure = s.f->cublasLtGetStatusString(s.status);
}

static void next_batch(fast_matrix *m)
{
  if (m->data != NULL) m->data = (char *)m->data + m->next_batch * dtype_bytes(m->type);
}

void fast_run_product(cuda_call *c, const fast_product *product, void *workspace)
{
  fast_product p = *product;
  for (int64_t i = 0; i < p.batches && c->failure == NULL; i++) {
    run_batch(c, &p, workspace);
    next_batch(&p.a);
    next_batch(&p.b);
    next_batch(&p.c);
    next_batch(&p.addend);
  }
}
