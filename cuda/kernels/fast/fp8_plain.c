#include "cuda/kernels/fast/fp8_plain.h"

#include "ref/kernels/fp8.h"

enum { M, N, K, BATCH, EXPERTS };
enum { PLACE = 256, SCALE_BYTES = 4 };

typedef struct matrix_size {
  int64_t rows, columns;
} matrix_size;

static char *take(char *scratch, fp8_plain *p, int64_t bytes)
{
  char *at = scratch == NULL ? NULL : scratch + p->bytes;
  p->bytes += round_up(bytes, PLACE);
  return at;
}

static exec_tensor matrices(void *data, int64_t count, matrix_size s)
{
  return (exec_tensor){ .data = data,
                        .type = DTYPE_BF16,
                        .rank = 3,
                        .shape = { count, s.rows, s.columns },
                        .strides = { s.rows * s.columns, s.columns, 1 } };
}

/* Factor `i`, one copy: [rows][columns] as stored, or turned. */
static bool take_copy(fp8_plain *p, uint32_t i, int code, matrix_size s, bool turned, char *scratch)
{
  const exec_tensor *t = &p->reads[i];
  int64_t bytes = exec_elements(t), bare = s.rows * s.columns;
  fp8_scaling scaling = bytes == bare ? FP8_UNIT : fp8_scaling_of(code);
  if (dtype_bytes((dtype)t->type) != 1 || !exec_is_contiguous(t) ||
      (t->rank == 2 && t->shape[0] > 1) || bytes != fp8_copy_bytes(scaling, s.rows, s.columns))
    return false;
  if (((uintptr_t)t->data + (uint64_t)bare) % SCALE_BYTES != 0) return false;
  char *to = take(scratch, p, bare * dtype_bytes(DTYPE_BF16));
  p->copies[p->copy_count++] = (fp8_source){ .data = t->data,
                                             .outer = s.rows,
                                             .inner = s.columns,
                                             .scaling = scaling,
                                             .e5m2 = (code & FP8_E5M2) != 0,
                                             .turned = turned,
                                             .to = to };
  p->reads[i] = matrices(to, 1, turned ? (matrix_size){ s.columns, s.rows } : s);
  return true;
}

/* Operands that are weights: one for all experts, or one for each. */
static uint32_t weights_in(const exec_call *c, int64_t experts)
{
  const exec_tensor *last = &c->reads[c->read_count - 1];
  bool indexed = last->type == DTYPE_INT32 || last->type == DTYPE_INT64;
  bool biased = c->call->kind == KERNEL_GROUPED_GEMM && c->call->scalars[GEMM_BIASED] != 0;
  if (c->call->kind == KERNEL_GEMM) return 1;
  return (c->read_count - 1 - indexed) / (biased ? 2 : 1) == experts ? (uint32_t)experts : 1;
}

/* Experts of one operand may follow each other the other way round. */
static int64_t next_expert(const exec_tensor *t, int64_t experts)
{
  return experts > 1 && t->rank >= 2 && t->shape[0] == experts ? t->strides[0]
                                                               : exec_elements(t) / experts;
}

static bool lies_by_experts(const exec_tensor *t, int64_t experts)
{
  exec_tensor one = *t;
  if (experts > 1 && t->rank >= 2 && t->shape[0] == experts) one.shape[0] = 1;
  return exec_is_contiguous(&one);
}

/* `across`: the product goes along the rows' number. */
static bool take_weights(fp8_plain *p, const exec_call *c, fp8_scaling scaling, matrix_size s,
                         bool across, char *scratch)
{
  int64_t elements = s.rows * s.columns;
  p->weight_count = weights_in(c, p->experts);
  if (p->weight_count > 1) p->experts = 1;
  p->weight = (fp8_weight){ .fp32 = c->reads[1].type == DTYPE_FP32,
                            .turned = across,
                            .outer = across ? s.columns : s.rows,
                            .inner = across ? s.rows : s.columns,
                            .scaling = scaling };
  for (uint32_t i = 1; i <= p->weight_count; i++) {
    const exec_tensor *t = &c->reads[i];
    if ((t->type != DTYPE_BF16 && t->type != DTYPE_FP32) || t->type != c->reads[1].type ||
        exec_elements(t) != p->experts * elements || !lies_by_experts(t, p->experts))
      return false;
    int64_t bytes = p->experts * elements * dtype_bytes(DTYPE_BF16);
    p->reads[i] = matrices(take(scratch, p, bytes), p->experts, s);
  }
  int64_t tiles = fp8_weight_tiles(p->weight.outer, p->weight.inner);
  p->weight.maxima = (float *)(void *)take(scratch, p, tiles * (int64_t)sizeof(float));
  return true;
}

bool fp8_plain_of(const exec_call *c, char *scratch, fp8_plain *p)
{
  const int64_t *d = c->call->dims;
  int code = (int)c->call->scalars[GEMM_FP8];
  bool grouped = c->call->kind == KERNEL_GROUPED_GEMM;
  gemm_layout layout = (gemm_layout)c->call->scalars[GEMM_LAYOUT];
  bool turned = grouped && layout == GEMM_TN_COPIES; /* rows of experts come first */
  bool by_columns = layout == GEMM_NT || layout == GEMM_TN_COPIES;
  matrix_size a = { d[M], d[K] }, b = { d[K], d[N] };
  if (code == FP8_NONE || d[BATCH] != 1 || c->read_count > FP8_PLAIN_READS) return false;
  if (layout == GEMM_TN) a = (matrix_size){ d[K], d[M] };
  if (by_columns) b = (matrix_size){ d[N], d[K] };
  p->bytes = p->copy_count = p->weight_count = 0;
  p->experts = grouped ? d[EXPERTS] : 1;
  p->call = *c->call;
  p->call.scalars[GEMM_FP8] = FP8_NONE;
  if (turned) p->call.scalars[GEMM_LAYOUT] = GEMM_TN;
  for (uint32_t i = 0; i < c->read_count; i++)
    p->reads[i] = c->reads[i];
  p->of = *c;
  p->of.call = &p->call;
  p->of.reads = p->reads;
  if (!take_copy(p, 0, code, a, turned, scratch)) return false;
  return c->reads[1].type == DTYPE_FP8
             ? take_copy(p, 1, code % FP8_SCALINGS, b, turned, scratch)
             : take_weights(p, c, fp8_scaling_of(code), b, !by_columns, scratch);
}

void fp8_plain_fill(cuda_call *c, const fp8_plain *p, const exec_call *original)
{
  for (uint32_t i = 0; i < p->copy_count; i++)
    fp8_values_of(c, &p->copies[i]);
  for (uint32_t i = 1; i <= p->weight_count; i++) {
    const exec_tensor *t = &original->reads[i];
    int64_t from = next_expert(t, p->experts) * dtype_bytes((dtype)t->type);
    int64_t to = p->weight.outer * p->weight.inner * dtype_bytes(DTYPE_BF16);
    for (int64_t e = 0; e < p->experts; e++) {
      fp8_weight one = p->weight;
      one.data = (const char *)t->data + e * from;
      fp8_round_values(c, &one, (char *)p->reads[i].data + e * to);
    }
  }
}
