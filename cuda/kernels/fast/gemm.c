/*
 * gemm and scaled_gemm by cuBLASLt: the operands of ref/kernels/gemm.c and torch_lora.c,
 * those in fp8 of gemm_operands.c.
 */
#include <assert.h>

#include "cuda/kernels/fast/fp8_factors.h"
#include "cuda/kernels/fast/fp8_plain.h"
#include "cuda/kernels/fast/functions.h"
#include "cuda/kernels/fast/product.h"

enum { GEMM_M, GEMM_N, GEMM_K, GEMM_BATCH };
enum { SCALED_ALPHA = 1 }; /* scaled_gemm: after GEMM_LAYOUT */

static bool is_scaled(const exec_call *c)
{
  return c->call->kind == KERNEL_SCALED_GEMM;
}

static bool is_fp8(const exec_call *c)
{
  return !is_scaled(c) && c->call->scalars[GEMM_FP8] != 0;
}

static bool factors_of(const exec_call *c, fast_product *p)
{
  gemm_layout layout = (gemm_layout)c->call->scalars[GEMM_LAYOUT];
  bool a_turned = layout == GEMM_TN, b_turned = layout == GEMM_NT || layout == GEMM_TN_COPIES;
  int64_t a_rows = a_turned ? p->k : p->m, b_rows = b_turned ? p->n : p->k;
  if (!fast_matrix_of(&c->reads[0], p->batches, p->batch, a_rows, p->m + p->k - a_rows, &p->a) ||
      !fast_matrix_of(&c->reads[1], p->batches, p->batch, b_rows, p->n + p->k - b_rows, &p->b))
    return false;
  if (a_turned) p->a = fast_transposed(p->a);
  if (b_turned) p->b = fast_transposed(p->b);
  return true;
}

/* A bias of n elements, a matrix like c, c itself, or nothing. */
static bool addend_of(const exec_call *c, fast_product *p)
{
  bool adds = !is_scaled(c) && c->call->scalars[GEMM_ADD] != 0;
  if (c->read_count == 2 && !adds) return true;
  const exec_tensor *t = adds ? &c->writes[0] : &c->reads[2];
  p->has_bias = exec_elements(t) != p->batches * p->batch * p->m * p->n;
  p->has_addend = !p->has_bias;
  return p->has_bias ? fast_matrix_of(t, 1, 1, 1, p->n, &p->bias)
                     : fast_matrix_of(t, p->batches, p->batch, p->m, p->n, &p->addend);
}

/* In `batches` of equal numbers of matrices. `weight`: of a product in fp8 that rounds it. */
static bool product_in(const exec_call *c, int64_t batches, fast_product *p, fp8_weight *weight)
{
  *weight = (fp8_weight){ 0 };
  *p = (fast_product){ .m = exec_dim(c, GEMM_M),
                       .n = exec_dim(c, GEMM_N),
                       .k = exec_dim(c, GEMM_K),
                       .batch = exec_dim(c, GEMM_BATCH) / batches,
                       .batches = batches,
                       .alpha = is_scaled(c) ? (float)c->call->scalars[SCALED_ALPHA] : 1 };
  return (is_fp8(c) ? fp8_factors_of(c, p, weight) : factors_of(c, p)) &&
         fast_matrix_of(&c->writes[0], batches, p->batch, p->m, p->n, &p->c) && addend_of(c, p) &&
         fast_product_suits(p);
}

/* The outer one of two dimensions of matrices that some operand has: heads of samples. */
static int64_t batches_of(const exec_call *c)
{
  const exec_tensor *const operands[] = { &c->reads[0], &c->reads[1], &c->writes[0] };
  for (int i = 0; i < 3; i++)
    if (operands[i]->rank == 4 && exec_dim(c, GEMM_BATCH) % operands[i]->shape[0] == 0)
      return operands[i]->shape[0];
  return 1;
}

/* ---- what is done before the product ---- */

enum { FACTORS = 2, READS = 3, PLACE = 256 };

typedef struct gemm_work {
  fast_product product;
  fp8_weight weight;        /* data NULL: none is rounded */
  exec_tensor reads[READS]; /* of the product */
  unsigned copied;          /* bits: factors stored as no matrix, in another type, or unaligned */
  int64_t weight_at, bytes; /* of scratch, after the workspace: the rounded weight, and all */
} gemm_work;

static exec_tensor contiguous(const exec_tensor *t, uint8_t type, void *data)
{
  exec_tensor to = *t;
  int64_t next = 1;
  to.type = type;
  to.data = data;
  for (int d = to.rank; d-- > 0; next *= to.shape[d])
    to.strides[d] = next;
  return to;
}

static uint8_t wider(uint8_t a, uint8_t b)
{
  return dtype_bytes((dtype)a) < dtype_bytes((dtype)b) ? b : a;
}

/* The copy of a factor, by the kernel of that row. */
static bool suits_copy(const exec_call *c, const exec_tensor *from, const exec_tensor *to)
{
  plan_call copy = { .kind = KERNEL_COPY, .dims = { exec_elements(from) } };
  exec_call one = *c;
  one.call = &copy;
  one.reads = from;
  one.writes = to;
  one.read_count = one.write_count = 1;
  return fast_suits_copy(&one);
}

static void run_copy(cuda_call *c, const exec_tensor *from, const exec_tensor *to)
{
  plan_call call = { .kind = KERNEL_COPY, .dims = { exec_elements(from) } };
  exec_call one = *c->of;
  cuda_call copy = *c;
  one.call = &call;
  one.reads = from;
  one.writes = to;
  one.read_count = one.write_count = 1;
  copy.of = &one;
  fast_copy(&copy);
  c->failure = copy.failure;
}

/* With copies of these factors at `scratch`, in the wider of both types unless they are fp8. */
static bool work_with(const exec_call *c, unsigned copied, char *scratch, gemm_work *w)
{
  exec_call of = *c;
  *w = (gemm_work){ .copied = copied };
  for (uint32_t i = 0; i < c->read_count; i++) {
    w->reads[i] = c->reads[i];
    if ((copied >> i & 1) == 0) continue;
    uint8_t type = is_fp8(c) ? c->reads[i].type : wider(c->reads[0].type, c->reads[1].type);
    w->reads[i] = contiguous(&c->reads[i], type, scratch == NULL ? NULL : scratch + w->bytes);
    w->bytes += round_up(exec_elements(&c->reads[i]) * dtype_bytes((dtype)type), PLACE);
    if (!suits_copy(c, &c->reads[i], &w->reads[i])) return false;
  }
  of.reads = w->reads;
  if (!product_in(&of, 1, &w->product, &w->weight) &&
      !product_in(&of, batches_of(&of), &w->product, &w->weight))
    return false;
  w->weight_at = w->bytes;
  if (w->weight.data != NULL) w->bytes += fp8_rounded_bytes(&w->weight);
  return true;
}

/* With the fewest copies; `scratch` NULL: only counts w->bytes. */
static bool work_of(const exec_call *c, char *scratch, gemm_work *w)
{
  assert(c->read_count <= READS);
  for (unsigned copied = 0; copied < 1U << FACTORS; copied++)
    if (work_with(c, copied, scratch, w)) return true;
  return false;
}

/* ... or, in fp8, as a product in bf16. */
static bool plain_work_of(const exec_call *c, char *scratch, fp8_plain *plain, gemm_work *w)
{
  if (!is_fp8(c) || !fp8_plain_of(c, scratch, plain)) return false;
  if (!work_of(&plain->of, scratch == NULL ? NULL : scratch + plain->bytes, w)) return false;
  w->bytes += plain->bytes;
  return true;
}

bool fast_suits_gemm(const exec_call *c)
{
  gemm_work w;
  fp8_plain plain;
  return work_of(c, NULL, &w) || plain_work_of(c, NULL, &plain, &w);
}

int64_t fast_scratch_gemm(const exec_call *c)
{
  gemm_work w;
  fp8_plain plain;
  bool suits = work_of(c, NULL, &w) || plain_work_of(c, NULL, &plain, &w);
  return FAST_PRODUCT_WORKSPACE + (suits ? w.bytes : 0);
}

/* `reads`: of the call that the work is of. */
static void run_work(cuda_call *c, const gemm_work *work, const exec_tensor *reads, char *scratch)
{
  fast_product product = work->product;
  fp8_weight weight = work->weight;
  for (uint32_t i = 0; i < FACTORS; i++)
    if (work->copied >> i & 1) run_copy(c, &reads[i], &work->reads[i]);
  if (weight.data != NULL) {
    fp8_place_rounded(&weight, scratch + work->weight_at, &product);
    fp8_round_weight_to(c, &weight);
  }
  fast_run_product(c, &product, c->scratch);
}

void fast_gemm(cuda_call *c)
{
  gemm_work w;
  fp8_plain plain;
  char *after_workspace = (char *)c->scratch + FAST_PRODUCT_WORKSPACE;
  if (work_of(c->of, after_workspace, &w)) {
    run_work(c, &w, c->of->reads, after_workspace);
  } else if (plain_work_of(c->of, after_workspace, &plain, &w)) {
    fp8_plain_fill(c, &plain, c->of);
    run_work(c, &w, plain.reads, after_workspace + plain.bytes);
  } else {
    c->failure = "the fast kernel supports this matrix product";
  }
}
