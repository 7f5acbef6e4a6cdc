#include "sim/machine/host_work.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/plan/fp8_copy.h"

/* Calls that one kernel of a plan represents. */
typedef struct host_work {
  uint8_t operators;        /* eager operators */
  uint8_t checks;           /* of a library around its call: quantizers, workspaces, backends */
  uint8_t products;         /* calls of cuBLASLt */
  uint8_t compiled;         /* regions of torch.compile, with guards */
  uint8_t parameters;       /* hooks that add a gradient to its buffer */
  uint8_t expert_operators; /* the same for each expert */
  bool by_expert;           /* all of it, in a loop */
  bool launch_alone;        /* inside another operator */
} host_work;

/* Kernels that are not here are one operator. Where a kernel counts several operators, the plan has one
 * kernel for what the framework does in several, or views and bookkeeping go with it. */
static const host_work works[KERNEL_KINDS] = {
  [KERNEL_EMBEDDING_FORWARD] = { .operators = 14 },
  [KERNEL_EMBEDDING_BACKWARD] = { .operators = 14 },
  [KERNEL_LAYERNORM_FORWARD] = { .checks = 1 },
  [KERNEL_LAYERNORM_BACKWARD] = { .operators = 4 },
  [KERNEL_RMSNORM_FORWARD] = { .checks = 1 },
  [KERNEL_RMSNORM_BACKWARD] = { .operators = 4 },
  [KERNEL_UNSCALED_NORM_FORWARD] = { .compiled = 1 },
  [KERNEL_UNSCALED_NORM_BACKWARD] = { .compiled = 1 },
  [KERNEL_BIAS_ADD] = { .operators = 1 },
  [KERNEL_ROPE_FORWARD] = { .operators = 2 },
  [KERNEL_ROPE_BACKWARD] = { .operators = 1 },
  [KERNEL_MLA_KEY_VALUE_FORWARD] = { .operators = 6 },
  [KERNEL_MLA_KEY_VALUE_BACKWARD] = { .operators = 4 },
  /* split of the projection, choice of the backend, layouts, sequence lengths, dropout state; then cuDNN's
   * graph: in traces of two dense models on H200s as long as a norm with its product (0.9 and 1.0 times) */
  [KERNEL_ATTENTION_FORWARD] = { .operators = 8, .checks = 1 },
  [KERNEL_ATTENTION_BACKWARD] = { .operators = 8, .checks = 1 },
  [KERNEL_JOIN] = { .operators = 2 },
  /* its backward launches nothing, but is a node of autograd: counted here */
  [KERNEL_BIAS_DROPOUT_ADD_FORWARD] = { .operators = 6, .compiled = 1 },
  [KERNEL_BIAS_DROPOUT_ADD_BACKWARD] = { .operators = 2 },
  [KERNEL_ACTIVATION_FORWARD] = { .compiled = 1 },
  [KERNEL_ACTIVATION_BACKWARD] = { .compiled = 1 },
  [KERNEL_WEIGHTED_ACTIVATION_FORWARD] = { .compiled = 1 },
  [KERNEL_WEIGHTED_ACTIVATION_BACKWARD] = { .operators = 6, .compiled = 1 },
  [KERNEL_ROUTER_TOPK_FORWARD] = { .operators = 11 },
  [KERNEL_ROUTER_TOPK_BACKWARD] = { .operators = 4 },
  [KERNEL_ROUTER_SCATTER_FORWARD] = { .operators = 18 },
  [KERNEL_ROUTER_SCATTER_BACKWARD] = { .operators = 3 },
  [KERNEL_ROUTER_FORWARD] = { .operators = 6 },
  [KERNEL_ROUTER_BACKWARD] = { .operators = 4 },
  [KERNEL_ROUTER_AUX_FORWARD] = { .operators = 12 },
  [KERNEL_ROUTER_AUX_BACKWARD] = { .operators = 4 },
  [KERNEL_ROUTER_AUX_GRADIENT] = { .operators = 6 },
  [KERNEL_SOFTMAX_FORWARD] = { .operators = 8 },
  [KERNEL_SOFTMAX_BACKWARD] = { .operators = 2 },
  /* token_dispatcher.py, preprocess: sums and views over ranks and experts; copies of three of them to the
   * host, each with a buffer there, an event and a view by numpy */
  [KERNEL_MOE_COUNT] = { .operators = 22 },
  [KERNEL_MOE_PERMUTE_FORWARD] = { .operators = 30 },
  [KERNEL_MOE_PERMUTE_BACKWARD] = { .operators = 9 },
  [KERNEL_PERMUTE] = { .operators = 9 },
  [KERNEL_UNPERMUTE] = { .operators = 9 },
  [KERNEL_MOE_SORT_CHUNKS_FORWARD] = { .operators = 11 },
  [KERNEL_MOE_SORT_CHUNKS_BACKWARD] = { .operators = 10 },
  /* experts.py, _apply_bias: product and sum in Python; back, products and sums by autograd's engine */
  [KERNEL_EXPERT_BIAS_FORWARD] = { .operators = 2, .by_expert = true },
  [KERNEL_EXPERT_BIAS_BACKWARD] = { .operators = 3, .parameters = 1, .by_expert = true },
  /* inside at::empty: with 2,000 of them a step took as long as without, within its noise of 5 % */
  [KERNEL_FILL_EMPTY] = { .launch_alone = true },
  /* scales, quantizers, the state of a recipe. Of experts, grouped_linear.py has a list of quantizers and
   * cast.cpp, split_quantize, makes tensors one by one: with fp8, tensorwise, a step with 64 experts on an
   * H100 took 856 ms, in bf16 404 (16 x 2 layers; forward and backward quantise once each) */
  [KERNEL_QUANTIZE] = { .operators = 6, .checks = 1, .expert_operators = 7 },
  /* a view of the weight's shard, its scales, the transposed copy: 110 to 180 us, 54 of them the profiler's,
   * beside a host that takes 1.5 times as long as that of H200-SXM */
  [KERNEL_CAST_TRANSPOSE_ROW] = { .operators = 5 },
  [KERNEL_MUON_NORM] = { .operators = 3 },
  [KERNEL_MUON_PRODUCT] = { .operators = 1 },
  [KERNEL_CROSS_ENTROPY_MAXIMA] = { .operators = 10 },
  [KERNEL_CROSS_ENTROPY_SUMS] = { .operators = 25 },
  [KERNEL_CROSS_ENTROPY_LOSS] = { .operators = 20 },
  [KERNEL_CROSS_ENTROPY_BACKWARD] = { .operators = 18 },
};

enum { GEMM_CALL_BATCH = 3, GROUPED_CALL_OF = 6 }; /* plan/kernels.h */

static bool is_product(const plan_call *c)
{
  return c->kind == KERNEL_GEMM || c->kind == KERNEL_GROUPED_GEMM || c->kind == KERNEL_SCALED_GEMM;
}

/* Forward and the gradient of the input come with the library's checks; the gradient of the weight
 * comes after the latter in one node, and its hook after that. A product of some experts is called
 * without the library's module, and so are batched ones (torch.baddbmm of unfused attention). */
static host_work work_of_product(const plan_call *c)
{
  static const host_work called = { .operators = 2, .products = 1 };
  if (c->kind == KERNEL_GROUPED_GEMM && c->dims[GROUPED_CALL_OF] > 0) return called;
  if (c->kind == KERNEL_GEMM && c->dims[GEMM_CALL_BATCH] > 1) return called;
  bool of_weight = c->scalars[GEMM_LAYOUT] >= GEMM_TN;
  return of_weight ? (host_work){ .operators = 2, .products = 1, .parameters = 1 }
                   : (host_work){ .checks = 1, .products = 1 };
}

static host_work work_of(const plan_call *c)
{
  static const host_work one = { .operators = 1 }, none = { 0 };
  if (is_product(c)) return work_of_product(c);
  host_work w = works[c->kind];
  return memcmp(&w, &none, sizeof w) == 0 ? one : w;
}

/* Experts for which the framework loops over products, parameters or all operators in Python. */
static int64_t experts_of(const plan_call *c)
{
  int64_t experts = c->kind == KERNEL_GROUPED_GEMM ? c->dims[4]
                    : c->kind == KERNEL_QUANTIZE   ? c->dims[1]
                    : works[c->kind].by_expert     ? c->dims[2]
                                                   : 1;
  return max_i64(1, min_i64(experts, INT32_MAX));
}

/* cuBLASLt searches for a kernel when it has not kept the sizes of a product. Routing that is not
 * balanced yet gives an expert `x` rows with a probability of exp(-x / mean) / mean. */
enum {
  KEPT_SIZES = 8192, /* those asked for last */
  PRODUCTS = 6,      /* of an expert with as many rows: two layers, forward and two gradients */
  FP8_ROWS = 16      /* rows of fp8 products are padded to a multiple of this */
};
#define FIXED_POINT (INT64_C(1) << 30)

/* exp(-n / d) in parts of FIXED_POINT, as (1 - n / 1024 d) to the power of 1024. */
static int64_t exp_minus(int64_t n, int64_t d)
{
  enum { SQUARINGS = 10 };
  assert(n >= 0 && d > 0);
  int64_t part = muldiv_i64(min_i64(n, INT32_MAX), FIXED_POINT >> SQUARINGS, d);
  int64_t power = max_i64(0, FIXED_POINT - part);
  for (int i = 0; i < SQUARINGS; i++)
    power = power * power / FIXED_POINT;
  return power;
}

/* Parts of FIXED_POINT: a number of rows that none of `earlier` experts had, the integral of
 * p exp(-earlier p) over all x, where p is the probability of x. */
static int64_t new_part(int64_t mean, int64_t earlier)
{
  int64_t known = FIXED_POINT - exp_minus(earlier, mean);
  return known == 0 ? FIXED_POINT : muldiv_i64(known, mean, earlier);
}

static int64_t searched_ns(const machine *m, const plan_call *c)
{
  if (m->routings == 0) return 0;
  bool of_weight = c->scalars[GEMM_LAYOUT] >= GEMM_TN;
  int64_t mean = min_i64(c->dims[of_weight ? 2 : 0] / experts_of(c), INT32_MAX);
  if (c->dtype == DTYPE_FP8) mean /= FP8_ROWS;
  mean = max_i64(1, mean);
  int64_t earlier = min_i64(capped_mul(m->routings, experts_of(c)), INT32_MAX);
  int64_t dropped = exp_minus(KEPT_SIZES / PRODUCTS, mean);
  return muldiv_i64(m->issue.search_ns, max_i64(dropped, new_part(mean, earlier)), FIXED_POINT);
}

/* Of experts whose rows are scaled by their largest magnitude: each has a quantizer, tensors, and four
 * kernels (zeros, the magnitude, the scale, the copies). Other scalings allocate for all experts at once and
 * launch one kernel each (cast.cpp, split_quantize): not measured, and left out. */
static int64_t quantized_experts_ns(const machine *m, const plan_call *c, const host_work *w)
{
  enum { QUANTIZE_FP8 = 1, SCALED_LAUNCHES = 4 };
  bool scaled = (int)c->scalars[QUANTIZE_FP8] % FP8_SCALINGS == FP8_TENSOR;
  if (c->kind != KERNEL_QUANTIZE || c->dims[1] == 0 || !scaled) return 0;
  int64_t each_ns =
      w->expert_operators * m->issue.operator_ns + SCALED_LAUNCHES * m->issue.kernel_ns;
  return capped_mul(experts_of(c), each_ns);
}

static int64_t kernel_work_ns(const machine *m, const plan_call *c)
{
  host_work w = work_of(c);
  int64_t product_ns =
      c->kind == KERNEL_GROUPED_GEMM ? m->issue.expert_ns + searched_ns(m, c) : m->issue.product_ns;
  int64_t operators_ns = w.operators * m->issue.operator_ns;
  operators_ns += quantized_experts_ns(m, c, &w);
  int64_t each_ns = w.products * product_ns + w.parameters * m->issue.parameter_ns +
                    (w.by_expert ? operators_ns : 0);
  return (w.by_expert ? 0 : operators_ns) + w.checks * m->issue.check_ns +
         w.compiled * m->issue.compiled_ns + capped_mul(experts_of(c), each_ns);
}

/* An exchange of unequal parts comes with lists of their sizes. */
static int64_t calls_of(const plan_call *c)
{
  return c->kind == COLLECTIVE_ALL_TO_ALL ? 2 : 1;
}

/* Transformer Engine issues a product in parts and its exchanges in one call: a kernel for each part; for a
 * shift a copy, a kernel that says so to the receiver, and one that waits for the sender. */
static int64_t host_part_ns(const machine *m, const plan_call *c)
{
  enum { SHIFT_LAUNCHES = 3 };
  if (c->is_collective) return SHIFT_LAUNCHES * m->issue.kernel_ns;
  return m->issue.kernel_ns + (m->issue.framework_ns + kernel_work_ns(m, c)) / c->dims[GEMM_PARTS];
}

int64_t host_call_ns(const machine *m, const plan_call *c)
{
  int64_t launch_ns = m->issue.kernel_ns + m->issue.framework_ns;
  bool is_part = c->is_collective ? c->kind == COLLECTIVE_SHIFT
                                  : c->kind == KERNEL_GEMM && c->dims[GEMM_PARTS] > 0;
  if (is_part) return host_part_ns(m, c);
  if (c->is_collective) return launch_ns + calls_of(c) * m->issue.collective_ns;
  if (c->kind == KERNEL_OPTIMIZER_STEP || c->kind == KERNEL_HOST_OPTIMIZER_STEP)
    return launch_ns + capped_mul(max_i64(1, min_i64(c->dims[1], INT32_MAX)), m->issue.tensor_ns);
  return launch_ns + kernel_work_ns(m, c);
}

int64_t host_entry_ns(const machine *m, mark_kind phase)
{
  if (phase == MARK_FORWARD) return m->issue.module_ns;
  return phase == MARK_BACKWARD ? m->issue.node_ns : 0;
}

int64_t host_phase_ns(const machine *m, mark_kind phase)
{
  switch (phase) {
  case MARK_FORWARD: return m->issue.forward_ns;
  case MARK_BACKWARD: return m->issue.backward_ns;
  case MARK_OPTIMIZER: return m->issue.step_ns;
  case MARK_SETUP:
  case MARK_FINISH:
  case MARK_KINDS: break;
  }
  return 0;
}

machine host_without_megatron(const machine *m)
{
  machine plain = *m;
  plain.issue.framework_ns = m->issue.eager_ns;
  plain.issue.module_ns = plain.issue.node_ns = plain.issue.operator_ns = 0;
  plain.issue.check_ns = plain.issue.product_ns = plain.issue.expert_ns = 0;
  plain.issue.compiled_ns = plain.issue.parameter_ns = plain.issue.tensor_ns = 0;
  plain.issue.search_ns = plain.issue.collective_ns = plain.issue.offload_out_ns =
      plain.issue.offload_in_ns = 0;
  plain.issue.forward_ns = plain.issue.batch_ns = plain.issue.backward_ns = plain.issue.step_ns = 0;
  return plain;
}

machine host_without_framework(const machine *m)
{
  machine bare = host_without_megatron(m);
  bare.issue.framework_ns = bare.issue.eager_ns = 0;
  return bare;
}
