/* Cases of matrix products: small ones that the CPU can follow, and those of models. */
#include <stdio.h>

#include "sim/plan/fp8_copy.h"
#include "tests/gpu/fast_cases.h"

typedef struct product_row {
  const char *name;
  int64_t m, n, k, batch;
  gemm_layout layout;
  dtype from, to;
  bool adds, biased;
} product_row;

static const char *const layouts[] = { "nt", "nn", "tn" };

static void add_factors(fast_case *c, const product_row *r)
{
  bool a_turned = r->layout == GEMM_TN, b_turned = r->layout == GEMM_NT;
  add_read(c, r->from, DATA_NORMAL, 3, r->batch, a_turned ? r->k : r->m, a_turned ? r->m : r->k);
  add_read(c, r->from, r->layout == GEMM_TN ? DATA_NORMAL : DATA_SMALL, 3, r->batch,
           b_turned ? r->n : r->k, b_turned ? r->k : r->n);
}

static void add_product(fast_cases *cases, const product_row *r, bool timed_only)
{
  char name[FAST_NAME];
  (void)snprintf(name, sizeof name, "%s %s %s%s%s %lldx%lldx%lld%s", r->name, layouts[r->layout],
                 dtype_name(r->from), r->to != r->from ? " to " : "",
                 r->to != r->from ? dtype_name(r->to) : "", (long long)r->m, (long long)r->n,
                 (long long)r->k,
                 r->adds     ? " add"
                 : r->biased ? " bias"
                             : "");
  fast_case *c = add_case(cases, name, KERNEL_GEMM);
  set_dims(c, 4, r->m, r->n, r->k, r->batch);
  c->call.scalars[GEMM_LAYOUT] = r->layout;
  c->call.scalars[GEMM_ADD] = r->adds;
  add_factors(c, r);
  if (r->biased) add_read(c, r->to, DATA_NORMAL, 1, r->n);
  add_write(c, r->to, 3, r->batch, r->m, r->n)->holds = r->adds ? DATA_NORMAL : DATA_ZERO;
  c->flops = 2.0 * (double)r->m * (double)r->n * (double)r->k * (double)r->batch;
  c->timed_only = timed_only;
}

/* Heads of samples, side by side in [sample, position, head, width]. */
static void see_heads(exec_tensor *t, int64_t samples, int64_t positions, int64_t heads,
                      int64_t width)
{
  *t = (exec_tensor){ .type = t->type,
                      .rank = 4,
                      .shape = { samples, heads, positions, width },
                      .strides = { positions * heads * width, width, heads * width, 1 } };
}

static void add_heads(fast_cases *cases)
{
  const int64_t samples = 3, heads = 4, positions = 256, width = 64;
  fast_case *c = add_case(cases, "batch of heads 3 x 4", KERNEL_GEMM);
  set_dims(c, 4, positions, positions, width, samples * heads);
  c->call.scalars[GEMM_LAYOUT] = GEMM_NT;
  for (int i = 0; i < 2; i++)
    see_heads(&add_read(c, DTYPE_BF16, DATA_NORMAL, 0)->tensor, samples, positions, heads, width);
  add_write(c, DTYPE_BF16, 4, samples, heads, positions, positions);

  /* Rows that are spread over heads: [head, position, width]. */
  c = add_case(cases, "heads as rows, turned weight", KERNEL_GEMM);
  set_dims(c, 4, positions, (int64_t)96, heads * width, (int64_t)1);
  c->call.scalars[GEMM_LAYOUT] = GEMM_NT;
  add_read(c, DTYPE_BF16, DATA_NORMAL, 0)->tensor =
      (exec_tensor){ .type = DTYPE_BF16,
                     .rank = 3,
                     .shape = { positions, heads, width },
                     .strides = { width, positions * width, 1 } };
  add_read(c, DTYPE_FP32, DATA_SMALL, 2, (int64_t)96, heads * width);
  add_write(c, DTYPE_FP32, 2, positions, (int64_t)96);
}

/* ---- grouped ---- */

typedef struct grouped_row {
  const char *name;
  int64_t rows, n, k, experts;
  bool uneven, apart; /* rows differ from expert to expert; weights are operands apart */
} grouped_row;

static void add_weights(fast_case *c, const grouped_row *r, bool turned)
{
  int64_t first = turned ? r->k : r->n, second = turned ? r->n : r->k;
  for (int64_t e = 0; r->apart && e < r->experts; e++)
    add_read(c, DTYPE_BF16, DATA_SMALL, 2, first, second);
  if (!r->apart) add_read(c, DTYPE_BF16, DATA_SMALL, 3, r->experts, first, second);
}

/* One of GEMM_NT, GEMM_NN (n and k the other way round) and GEMM_TN. */
static void add_grouped(fast_cases *cases, const grouped_row *r, gemm_layout layout,
                        bool timed_only)
{
  char name[FAST_NAME];
  (void)snprintf(name, sizeof name, "%s %s %lldx%lldx%lld %lld experts%s%s", r->name,
                 layouts[layout], (long long)r->rows, (long long)r->n, (long long)r->k,
                 (long long)r->experts, r->uneven ? " uneven" : "", r->apart ? " apart" : "");
  fast_case *c = add_case(cases, name, KERNEL_GROUPED_GEMM);
  c->call.scalars[GEMM_LAYOUT] = layout;
  c->call.scalars[GEMM_ADD] = layout == GEMM_TN;
  if (layout == GEMM_TN) {
    set_dims(c, 5, r->n, r->k, r->rows, (int64_t)1, r->experts);
    add_read(c, DTYPE_BF16, DATA_NORMAL, 2, r->rows, r->n);
    add_read(c, DTYPE_BF16, DATA_NORMAL, 2, r->rows, r->k);
    add_write(c, DTYPE_FP32, 3, r->experts, r->n, r->k)->holds = DATA_NORMAL;
  } else {
    set_dims(c, 5, r->rows, r->n, r->k, (int64_t)1, r->experts);
    add_read(c, DTYPE_BF16, DATA_NORMAL, 2, r->rows, r->k);
    add_weights(c, r, layout == GEMM_NN);
    add_write(c, DTYPE_BF16, 2, r->rows, r->n)->holds = DATA_NORMAL;
  }
  if (r->uneven) add_read(c, DTYPE_INT32, DATA_COUNTS, 1, r->experts)->limit = r->rows;
  c->flops = 2.0 * (double)r->rows * (double)r->n * (double)r->k;
  c->timed_only = timed_only;
}

/* ---- fp8 ---- */

static const char *const scalings[] = { "", "unit", "tensor", "blocks", "mx" };

static void add_copy(fast_case *c, int code, int64_t outer, int64_t inner)
{
  fp8_scaling s = (fp8_scaling)(code % FP8_SCALINGS);
  fast_operand *o = add_read(c, DTYPE_FP8, DATA_FP8, 1, fp8_copy_bytes(s, outer, inner));
  o->limit = code;
  o->inner = inner;
}

/* Forward and gradient of the input round a weight; that of the weight reads copies, into fp32. */
static void add_fp8(fast_cases *cases, int code, gemm_layout layout, int64_t m, int64_t n,
                    int64_t k)
{
  char name[FAST_NAME];
  (void)snprintf(name, sizeof name, "fp8 %s%s layout %d %lldx%lldx%lld",
                 scalings[code % FP8_SCALINGS], code & FP8_E5M2 ? " e5m2" : "", (int)layout,
                 (long long)m, (long long)n, (long long)k);
  fast_case *c = add_case(cases, name, KERNEL_GEMM);
  set_dims(c, 4, m, n, k, (int64_t)1);
  c->call.scalars[GEMM_LAYOUT] = layout;
  c->call.scalars[GEMM_FP8] = code;
  c->call.scalars[GEMM_ADD] = layout == GEMM_TN_COPIES;
  c->flops = 2.0 * (double)m * (double)n * (double)k;
  c->timed_only = m * n * k > 1L << 30;
  add_copy(c, code, m, k);
  if (layout == GEMM_TN_COPIES)
    add_copy(c, code % FP8_SCALINGS, n, k);
  else
    add_read(c, DTYPE_BF16, DATA_SMALL, 2, layout == GEMM_NT ? n : k, layout == GEMM_NT ? k : n);
  if (layout == GEMM_TN_COPIES)
    add_write(c, DTYPE_FP32, 2, m, n)->holds = DATA_NORMAL;
  else
    add_write(c, DTYPE_BF16, 2, m, n);
}

/* Experts of an uneven number of rows. */
static void add_grouped_fp8(fast_cases *cases, int code, gemm_layout layout)
{
  const int64_t rows = 640, n = 256, k = 384, experts = 4;
  char name[FAST_NAME];
  (void)snprintf(name, sizeof name, "fp8 experts %s layout %d", scalings[code % FP8_SCALINGS],
                 (int)layout);
  fast_case *c = add_case(cases, name, KERNEL_GROUPED_GEMM);
  bool weights = layout == GEMM_TN_COPIES;
  set_dims(c, 5, weights ? n : rows, weights ? k : n, weights ? rows : k, (int64_t)1, experts);
  c->call.scalars[GEMM_LAYOUT] = layout;
  c->call.scalars[GEMM_FP8] = code;
  add_copy(c, code, weights ? n : rows, weights ? rows : k);
  if (weights) {
    add_copy(c, code, k, rows);
    add_write(c, DTYPE_FP32, 3, experts, n, k);
  } else {
    bool turned = layout == GEMM_NN;
    add_read(c, DTYPE_BF16, DATA_SMALL, 3, experts, turned ? k : n, turned ? n : k);
    add_write(c, DTYPE_BF16, 2, rows, n);
  }
  add_read(c, DTYPE_INT32, DATA_COUNTS, 1, experts)->limit = rows;
}

static void add_all_fp8(fast_cases *cases)
{
  static const int codes[] = { FP8_UNIT, FP8_TENSOR,          FP8_BLOCKS,
                               FP8_MX,   FP8_UNIT | FP8_E5M2, FP8_TENSOR | FP8_E5M2 };
  static const gemm_layout used[] = { GEMM_NT, GEMM_NN, GEMM_TN_COPIES };
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
    for (size_t j = 0; j < 3; j++)
      add_fp8(cases, codes[i], used[j], 512, 768, 640);
  for (size_t i = FP8_UNIT; i <= FP8_MX; i++)
    for (size_t j = 0; j < 3; j++)
      add_grouped_fp8(cases, (int)i, used[j]);
  for (size_t i = FP8_TENSOR; i <= FP8_MX; i++)
    for (size_t j = 0; j < 3; j++)
      add_fp8(cases, (int)i, used[j], 4096, 4096, 7168);
}

/* ---- low-rank adapters ---- */

static void add_scaled(fast_cases *cases)
{
  fast_case *c = add_case(cases, "scaled 512x768x16 + addend", KERNEL_SCALED_GEMM);
  set_dims(c, 4, (int64_t)512, (int64_t)768, (int64_t)16, (int64_t)1);
  c->call.scalars[0] = GEMM_NT;
  c->call.scalars[1] = 0.5;
  add_read(c, DTYPE_BF16, DATA_NORMAL, 2, (int64_t)512, (int64_t)16);
  add_read(c, DTYPE_BF16, DATA_NORMAL, 2, (int64_t)768, (int64_t)16);
  add_read(c, DTYPE_BF16, DATA_NORMAL, 2, (int64_t)512, (int64_t)768);
  add_write(c, DTYPE_BF16, 2, (int64_t)512, (int64_t)768);
}

/* ---- output layer and loss ---- */

static void add_linear_loss(fast_cases *cases, int64_t tokens, int64_t vocab, int64_t width,
                            bool timed_only)
{
  char name[FAST_NAME];
  for (int backward = 0; backward < 2; backward++) {
    (void)snprintf(name, sizeof name, "linear loss %s %lldx%lldx%lld",
                   backward ? "back" : "forward", (long long)tokens, (long long)vocab,
                   (long long)width);
    fast_case *c = add_case(cases, name,
                            backward ? KERNEL_LINEAR_CROSS_ENTROPY_BACKWARD
                                     : KERNEL_LINEAR_CROSS_ENTROPY_FORWARD);
    set_dims(c, 4, tokens, vocab, width, (int64_t)1);
    c->flops = 2.0 * (double)tokens * (double)vocab * (double)width;
    c->timed_only = timed_only;
    add_read(c, DTYPE_BF16, DATA_NORMAL, 2, tokens, width);
    add_read(c, DTYPE_BF16, DATA_SMALL, 2, vocab, width);
    if (backward) add_read(c, DTYPE_FP32, DATA_POSITIVE, 1, tokens);
    add_read(c, DTYPE_INT64, DATA_INTEGERS, 1, tokens)->limit = vocab;
    for (uint32_t w = 1; backward && w < 3; w++) { /* maxima and sums of other numbers do as well */
      fast_operand *o = add_read(c, DTYPE_FP32, DATA_RESULT, 1, tokens);
      o->from_case = 1;
      o->from_write = w;
    }
    if (backward)
      add_write(c, DTYPE_BF16, 2, tokens, vocab);
    else
      for (int w = 0; w < 3; w++)
        add_write(c, DTYPE_FP32, 1, tokens);
  }
}

/* ---- the lists ---- */

static const product_row small[] = {
  { "small", 512, 768, 1024, 1, GEMM_NT, DTYPE_BF16, DTYPE_BF16, false, false },
  { "small", 512, 768, 1024, 1, GEMM_NT, DTYPE_BF16, DTYPE_BF16, false, true },
  { "small", 512, 768, 1024, 1, GEMM_NN, DTYPE_BF16, DTYPE_BF16, false, false },
  { "small", 512, 768, 1024, 1, GEMM_TN, DTYPE_BF16, DTYPE_BF16, true, false },
  { "small", 512, 768, 1024, 1, GEMM_TN, DTYPE_BF16, DTYPE_FP32, true, false },
  { "small", 512, 768, 1024, 1, GEMM_NT, DTYPE_BF16, DTYPE_FP32, false, false },
  { "small", 512, 768, 1024, 1, GEMM_NT, DTYPE_BF16, DTYPE_FP32, false, true },
  { "small", 512, 768, 1024, 1, GEMM_NT, DTYPE_FP16, DTYPE_FP16, false, true },
  { "small", 512, 768, 1024, 1, GEMM_NT, DTYPE_FP16, DTYPE_FP32, false, true },
  { "small", 512, 768, 1024, 1, GEMM_NT, DTYPE_FP32, DTYPE_FP32, false, true },
  { "small", 512, 768, 1024, 1, GEMM_NN, DTYPE_FP32, DTYPE_FP32, false, false },
  { "small", 512, 768, 1024, 1, GEMM_TN, DTYPE_FP32, DTYPE_FP32, true, false },
  { "odd", 257, 131, 67, 1, GEMM_NT, DTYPE_BF16, DTYPE_BF16, false, true },
  { "odd", 257, 131, 67, 1, GEMM_NN, DTYPE_BF16, DTYPE_BF16, false, false },
  { "odd", 257, 131, 67, 1, GEMM_TN, DTYPE_BF16, DTYPE_FP32, true, false },
  { "row", 1, 4096, 1024, 1, GEMM_NT, DTYPE_BF16, DTYPE_BF16, false, false },
  { "column", 4096, 1, 1024, 1, GEMM_NT, DTYPE_BF16, DTYPE_BF16, false, false },
  { "split", 64, 64, 32768, 1, GEMM_NT, DTYPE_BF16, DTYPE_BF16, false, false },
  { "split", 64, 64, 32768, 1, GEMM_TN, DTYPE_BF16, DTYPE_FP32, true, false },
  { "batch", 256, 256, 128, 12, GEMM_NT, DTYPE_BF16, DTYPE_BF16, false, false },
  { "batch", 256, 256, 128, 12, GEMM_NN, DTYPE_BF16, DTYPE_BF16, false, false },
  { "batch", 256, 256, 128, 12, GEMM_TN, DTYPE_BF16, DTYPE_BF16, false, false },
};

/* Outputs and inputs of linear layers. */
typedef struct linear_row {
  const char *name;
  int64_t tokens, outputs, inputs;
} linear_row;

static const linear_row linears[] = {
  { "llama qkv", 8192, 6144, 4096 },    { "llama proj", 8192, 4096, 4096 },
  { "llama fc1", 8192, 28672, 4096 },   { "llama fc2", 8192, 4096, 14336 },
  { "llama vocab", 8192, 32000, 4096 }, { "dsv3 q_down", 4096, 1536, 7168 },
  { "dsv3 q_up", 4096, 24576, 1536 },   { "dsv3 kv_down", 4096, 576, 7168 },
  { "dsv3 kv_up", 4096, 32768, 512 },   { "dsv3 proj", 4096, 7168, 16384 },
  { "dsv3 shared", 4096, 4096, 7168 },  { "dsv3 router", 4096, 256, 7168 },
};

/* Forward, gradient of the input, gradient of the weight into fp32. */
static void add_linear(fast_cases *cases, const linear_row *l)
{
  add_product(cases,
              &(product_row){ l->name, l->tokens, l->outputs, l->inputs, 1, GEMM_NT, DTYPE_BF16,
                              DTYPE_BF16, false, false },
              true);
  add_product(cases,
              &(product_row){ l->name, l->tokens, l->inputs, l->outputs, 1, GEMM_NN, DTYPE_BF16,
                              DTYPE_BF16, false, false },
              true);
  add_product(cases,
              &(product_row){ l->name, l->outputs, l->inputs, l->tokens, 1, GEMM_TN, DTYPE_BF16,
                              DTYPE_FP32, true, false },
              true);
}

static const product_row others[] = {
  { "llama fc1", 28672, 4096, 8192, 1, GEMM_TN, DTYPE_BF16, DTYPE_BF16, false, false },
  { "fp32", 4096, 4096, 4096, 1, GEMM_NT, DTYPE_FP32, DTYPE_FP32, false, false },
  { "scores", 2048, 2048, 128, 64, GEMM_NT, DTYPE_BF16, DTYPE_BF16, false, false },
};

static const grouped_row grouped_small[] = {
  { "grouped", 1000, 384, 256, 4, false, false },
  { "grouped", 1000, 392, 200, 5, true, false },
  { "grouped", 640, 384, 256, 8, true, true },
  { "grouped", 2048, 512, 512, 3, true, false },
};

static const grouped_row grouped_large[] = {
  { "dsv3 fc1", 32768, 4096, 7168, 8, false, false },
  { "dsv3 fc2", 32768, 7168, 2048, 8, false, false },
  { "dsv3 fc1", 32768, 4096, 7168, 8, true, false },
  { "dsv3 fc1", 32768, 4096, 7168, 32, true, false },
  { "mixtral fc1", 16384, 28672, 4096, 8, true, false },
  { "qwen fc1", 65536, 1536, 2048, 64, true, false },
};

static const gemm_layout grouped_layouts[] = { GEMM_NT, GEMM_NN, GEMM_TN };

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

void add_products_cases(fast_cases *cases)
{
  for (size_t i = 0; i < COUNT(small); i++)
    add_product(cases, &small[i], false);
  add_heads(cases);
  add_scaled(cases);
  add_all_fp8(cases);
  add_linear_loss(cases, 300, 1024, 256, false);
  add_linear_loss(cases, 8192, 32000, 4096, true);
  for (size_t i = 0; i < COUNT(grouped_small) * 3; i++)
    add_grouped(cases, &grouped_small[i / 3], grouped_layouts[i % 3], false);
  for (size_t i = 0; i < COUNT(linears); i++)
    add_linear(cases, &linears[i]);
  for (size_t i = 0; i < COUNT(others); i++)
    add_product(cases, &others[i], true);
  for (size_t i = 0; i < COUNT(grouped_large) * 3; i++)
    add_grouped(cases, &grouped_large[i / 3], grouped_layouts[i % 3], true);
}
