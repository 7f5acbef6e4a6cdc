#include "sim/machine/call_time.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/machine/roofline.h"

/* A million operations of a femtojoule each are a nanojoule. */
enum { MILLION = 1000000 };

typedef enum cost_class {
  COST_GEMM,
  COST_ATTENTION,
  COST_MEMORY,
  COST_STRIDED,
  COST_MIXED,
  COST_ROW_CAST,
  COST_ROTARY,
  COST_NORM,
  COST_HOST
} cost_class;

static cost_class class_of(kernel_kind kind)
{
#define X(id, name, class, ...) COST_##class,
  static const cost_class classes[KERNEL_KINDS] = { PLAN_KERNELS(X) };
#undef X
  assert(kind < KERNEL_KINDS);
  return classes[kind];
}

bool call_is_memory_bound(const plan_call *c)
{
  cost_class class = class_of((kernel_kind)c->kind);
  return !c->is_collective && class != COST_GEMM && class != COST_ATTENTION && class != COST_HOST;
}

bool call_is_on_host(const plan_call *c)
{
  return !c->is_collective && class_of((kernel_kind)c->kind) == COST_HOST;
}

/* Tensor cores multiply bytes as fast as fp8. */
static roofline_dtype rate_of(dtype type)
{
  if (type == DTYPE_FP8 || type == DTYPE_BYTE) return ROOFLINE_FP8;
  return type == DTYPE_FP32 || type == DTYPE_FP64 ? ROOFLINE_TF32 : ROOFLINE_BF16;
}

static attention_shape shape_of(const plan_call *c)
{
  return (attention_shape){ .batch = c->dims[0],
                            .heads = c->dims[1],
                            .q_len = c->dims[2],
                            .kv_len = c->dims[3],
                            .qk_dim = c->dims[4],
                            .v_dim = c->dims[5],
                            .causal = c->dims[6] != 0,
                            .window = c->dims[7],
                            .kv_heads = (int64_t)c->scalars[0],
                            .drops = c->scalars[2] > 0,
                            .backward = c->kind == KERNEL_ATTENTION_BACKWARD };
}

static int64_t attention_ps(const machine *m, const plan_call *c)
{
  attention_shape shape = shape_of(c);
  return roofline_attention_ps(m, rate_of((dtype)c->dtype), &shape);
}

static int64_t gemm_ps(const machine *m, const plan_call *c)
{
  bool is_grouped = c->kind == KERNEL_GROUPED_GEMM,
       has_scalars = is_grouped || c->kind == KERNEL_GEMM;
  gemm_shape shape = { .m = c->dims[0],
                       .n = c->dims[1],
                       .k = c->dims[2],
                       .batch = c->dims[3],
                       .experts = is_grouped ? c->dims[4] : 0,
                       .splits_k = is_grouped && c->scalars[GEMM_LAYOUT] >= GEMM_TN,
                       .adds = has_scalars && c->scalars[GEMM_ADD] != 0,
                       .parts = c->kind == KERNEL_GEMM ? c->dims[GEMM_PARTS] : 0 };
  return roofline_gemm_ps(m, rate_of((dtype)c->dtype), &shape);
}

/* The compiled backward of a gated activation forms both halves of its result by separate threads, each of
 * which reads all three operands: eight passes over a half instead of five (525 of 515 us on an H200). A
 * fill only writes, which reaches 0.95 of the memory's rate where others reach 0.76 (67 MB to 1.1 GB on an
 * H100). */
static int64_t moved_bytes(const plan_call *c)
{
  bool gated = (c->kind == KERNEL_WEIGHTED_ACTIVATION_BACKWARD && c->scalars[1] == 0) ||
               (c->kind == KERNEL_ACTIVATION_BACKWARD && c->scalars[1] != 0);
  if (c->kind == KERNEL_FILL_EMPTY) return capped_muldiv(c->bytes, 4, 5);
  return gated ? capped_muldiv(c->bytes, 8, 5) : c->bytes;
}

static bool is_eager_loss(const plan_call *c)
{
  bool is_loss = c->kind == KERNEL_CROSS_ENTROPY_MAXIMA || c->kind == KERNEL_CROSS_ENTROPY_SUMS ||
                 c->kind == KERNEL_CROSS_ENTROPY_LOSS || c->kind == KERNEL_CROSS_ENTROPY_BACKWARD;
  return is_loss && c->scalars[CROSS_ENTROPY_EAGER] != 0;
}

/* Each of the eager loss's four parts has one kernel whose threads compute each element's address: it
 * converts the logits to fp32, or broadcasts a number for each row. In fp32 such elements take 1.1 times
 * as long: 111 and 109 us for 8192 x 4096 on an H200, where bf16 results take 90 to 101. Maxima,
 * exponentials and sums are bound by their bytes. */
static int64_t eager_loss_ps(const machine *m, const plan_call *c)
{
  int64_t elements = capped_mul(c->dims[0], c->dims[1]);
  int64_t pass_bytes = capped_mul(dtype_bytes((dtype)c->dtype), elements), after_bytes = 0;
  if (c->kind == KERNEL_CROSS_ENTROPY_MAXIMA) after_bytes = pass_bytes;
  if (c->kind == KERNEL_CROSS_ENTROPY_SUMS) after_bytes = capped_mul(3, pass_bytes);
  after_bytes = min_i64(after_bytes, c->bytes);
  int64_t ps = roofline_elements_ps(m, m->compute.strided_elements_per_us,
                                    capped_muldiv(elements, 11, 10), c->bytes - after_bytes);
  assert(after_bytes >= 0 && ps >= 0);
  return after_bytes > 0 ? ps + roofline_memory_ps(m, after_bytes) : ps;
}

/* Transformer Engine's rotary kernels are bound by their elements, not by the memory that they read: 32
 * heads of 128 take 64 to 77 us for 8192 tokens on an H200, 8 heads 20 to 23, 4 heads 13; forward as long
 * as backward. */
static int64_t rotary_ps(const machine *m, const plan_call *c)
{
  int64_t elements = capped_mul(capped_mul(c->dims[0], c->dims[1]), c->dims[2]);
  return roofline_elements_ps(m, m->compute.strided_elements_per_us, capped_muldiv(elements, 2, 3),
                              c->bytes);
}

/* Transformer Engine's kernel of RMSNorm's backward for any width runs as many blocks as fit at a time, and
 * each leaves a row of parts of gamma's gradient. Then a second kernel adds them up: one warp in four takes
 * every fourth row, one after the other. Registers decide how many blocks of 128 threads a multiprocessor
 * holds (40, 100, 168, 96, 168; compiled for sm_80, sm_90 and sm_100; on sm_80 five of the second). Grids in
 * traces of an H200: 1584 blocks for rows of 128, 660 for 1536. */
static int64_t added_parts_ps(const machine *m, int64_t rows, int64_t width)
{
  enum { PARTS_AT_A_TIME = 4 };
  static const struct {
    int64_t width, rows, blocks; /* of a block; on a multiprocessor */
  } kernels[] = { { 128, 4, 12 }, { 512, 4, 4 }, { 1024, 4, 3 }, { 2048, 1, 5 }, { 4096, 1, 3 } };
  uint32_t k = 0, last = sizeof kernels / sizeof *kernels - 1;
  while (k < last && kernels[k].width < width)
    k++;
  int64_t blocks_of_row = max_i64(1, ceil_div(width, kernels[k].width));
  int64_t parts =
      min_i64(ceil_div(rows, kernels[k].rows), m->gpu.sm_count * kernels[k].blocks / blocks_of_row);
  return capped_mul(ceil_div(parts, PARTS_AT_A_TIME), m->compute.partial_row_ns * PS_PER_NS) +
         m->compute.kernel_fixed_ns * PS_PER_NS;
}

static int64_t norm_ps(const machine *m, const plan_call *c)
{
  enum { GENERAL = 1 };
  int64_t ps = roofline_memory_ps(m, c->bytes);
  return c->scalars[GENERAL] == 0 ? ps : ps + added_parts_ps(m, c->dims[0], c->dims[1]);
}

static int64_t kernel_ps(const machine *m, const plan_call *c)
{
  if (is_eager_loss(c)) return eager_loss_ps(m, c);
  switch (class_of((kernel_kind)c->kind)) {
  case COST_GEMM: return gemm_ps(m, c);
  case COST_ATTENTION: return attention_ps(m, c);
  case COST_STRIDED:
    return roofline_elements_ps(m, m->compute.strided_elements_per_us, c->dims[0], c->bytes);
  case COST_MIXED:
    return roofline_elements_ps(m, m->compute.mixed_elements_per_us, c->dims[0], c->bytes);
  case COST_ROW_CAST:
    return roofline_elements_ps(m, m->compute.row_cast_elements_per_us, c->dims[0], c->bytes);
  case COST_ROTARY: return rotary_ps(m, c);
  case COST_NORM: return norm_ps(m, c);
  case COST_HOST: return host_arithmetic_ps(m, c->bytes);
  case COST_MEMORY: break;
  }
  return roofline_memory_ps(m, moved_bytes(c));
}

/* The number of a group's members that NVLink joins: the group has equal parts in the domains, and
 * ranks of a host and of a domain are consecutive. */
static int64_t ranks_joined(const machine *m, const plan_call *c)
{
  int64_t domain_gpus = machine_domain_gpus(m);
  assert(domain_gpus >= 1);
  int64_t joined = max_i64(1, min_i64(c->group_size, domain_gpus / max_i64(1, c->group_stride)));
  while (c->group_size % joined != 0)
    joined--;
  return joined;
}

bool call_is_joined(const machine *m, const plan_call *c)
{
  return c->is_collective && c->kind != COLLECTIVE_SHIFT && c->group_size > 1 &&
         ranks_joined(m, c) == c->group_size;
}

int64_t call_flops(const plan_call *c)
{
  if (c->is_collective) return 0;
  attention_shape shape = shape_of(c);
  switch (class_of((kernel_kind)c->kind)) {
  case COST_GEMM:
    return capped_mul(capped_mul(2, capped_mul(c->dims[0], c->dims[1])),
                      capped_mul(c->dims[2], c->dims[3]));
  case COST_ATTENTION: return attention_flops(&shape);
  case COST_HOST:
  case COST_STRIDED:
  case COST_MIXED:
  case COST_ROW_CAST:
  case COST_ROTARY:
  case COST_NORM:
  case COST_MEMORY: break;
  }
  return 0;
}

/* Energy is proportional to the width of the type: an fp8 operation counts half, an fp32 operation
 * twice. */
static int64_t operations_nj(const plan_call *c, int64_t flops, int64_t energy_fj)
{
  return capped_muldiv(capped_muldiv(flops, dtype_bytes((dtype)c->dtype), 2), energy_fj, MILLION);
}

static int64_t exchange_nj(const machine *m, const plan_call *c)
{
  int64_t sent_bytes =
      collective_sent_bytes((collective_kind)c->kind, c->bytes, max_i64(1, c->group_size));
  return capped_muldiv(sent_bytes, m->gpu.exchange_energy_fj, MILLION);
}

int64_t call_energy_nj(const machine *m, const plan_call *c)
{
  if (c->is_collective) return exchange_nj(m, c);
  switch (class_of((kernel_kind)c->kind)) {
  case COST_GEMM: return operations_nj(c, call_flops(c), m->gpu.product_energy_fj);
  case COST_ATTENTION: return operations_nj(c, call_flops(c), m->gpu.attention_energy_fj);
  case COST_HOST: return 0;
  case COST_STRIDED:
  case COST_MIXED:
  case COST_ROW_CAST:
  case COST_ROTARY:
  case COST_NORM:
  case COST_MEMORY: break;
  }
  return capped_muldiv(c->bytes, m->gpu.memory_energy_fj, MILLION);
}

slowed_kind call_slowed_kind(const plan_call *c)
{
  static const slowed_kind kinds[] = {
    [COST_GEMM] = SLOWED_PRODUCT, [COST_ATTENTION] = SLOWED_ATTENTION,
    [COST_MEMORY] = SLOWED_KINDS, [COST_STRIDED] = SLOWED_KINDS,
    [COST_MIXED] = SLOWED_KINDS,  [COST_ROW_CAST] = SLOWED_KINDS,
    [COST_ROTARY] = SLOWED_KINDS, [COST_NORM] = SLOWED_KINDS,
    [COST_HOST] = SLOWED_KINDS
  };
  return c->is_collective ? SLOWED_KINDS : kinds[class_of((kernel_kind)c->kind)];
}

int64_t call_slowdown_permille(const machine *m, const plan_call *c)
{
  int64_t of_attention = m->gpu.attention_slowdown_permille;
  switch (call_slowed_kind(c)) {
  case SLOWED_ATTENTION: return of_attention > 0 ? of_attention : m->gpu.power_slowdown_permille;
  case SLOWED_PRODUCT: return m->gpu.power_slowdown_permille;
  case SLOWED_KINDS: break;
  }
  return 0;
}

int64_t call_roofline_ps(const machine *m, const plan_call *c)
{
  if (c->is_collective && c->kind == COLLECTIVE_ALL_TO_ALL)
    return exchange_ps(m, c->bytes, c->dims[COLLECTIVE_DETAIL], max_i64(1, c->group_size),
                       ranks_joined(m, c));
  if (c->is_collective)
    return collective_ps(m, (collective_kind)c->kind, c->bytes, max_i64(1, c->group_size),
                         ranks_joined(m, c));
  return kernel_ps(m, c);
}
