/* Kernels and views that several operators use. */
#include "sim/operators/shared.h"

#include <math.h>

#include <assert.h>

#include "sim/base/units.h"

void emit_nothing(emitter *e, const graph *g, const graph_node *n)
{
  (void)e, (void)g, (void)n;
}

void emit_outputs(emitter *e, const graph *g, const graph_node *n)
{
  (void)g;
  for (uint32_t i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    emit_output(e, n->outputs[i]);
}

void emit_same_gradient(emitter *e, const graph *g, const graph_node *n)
{
  (void)g;
  emit_grad_is(e, n->inputs[0], emit_grad_of(e, n->outputs[0]));
}

void emit_memory_kernel(emitter *e, kernel_kind kind, dtype type, int64_t elements,
                        const ref *reads, const ref *writes)
{
  assert(kind < KERNEL_KINDS && elements > 0);
  emit_kernel(e, (kernel_shape){ .kind = kind, .type = type, .dims = { elements } }, reads, writes);
}

void emit_row_kernel(emitter *e, kernel_kind kind, dtype type, int64_t rows, int64_t columns,
                     const ref *reads, const ref *writes)
{
  assert(kind < KERNEL_KINDS && rows > 0 && columns > 0);
  emit_kernel(e, (kernel_shape){ .kind = kind, .type = type, .dims = { rows, columns } }, reads,
              writes);
}

void emit_number_kernel(emitter *e, kernel_kind kind, dtype type, int64_t elements, double number,
                        const ref *reads, const ref *writes)
{
  emit_kernel(
      e, (kernel_shape){ .kind = kind, .type = type, .dims = { elements }, .scalars = { number } },
      reads, writes);
}

bool is_strided(const graph *g, const tensor_id *operands, uint32_t count)
{
  const graph_tensor *result = &g->tensors.items[operands[0]];
  for (uint32_t i = 0; i < count; i++) {
    const graph_tensor *t = &g->tensors.items[operands[i]];
    bool alike =
        t->contiguous && tensor_elements(g, operands[i]) == tensor_elements(g, operands[0]);
    bool widened = dtype_bytes((dtype)t->dtype) < dtype_bytes((dtype)result->dtype);
    if (!alike || widened) return true;
  }
  return false;
}

void emit_norm(emitter *e, bool layernorm, dtype type, int64_t rows, int64_t width,
               const ref *reads, const ref *writes)
{
  const settings *s = emit_settings(e);
  emit_kernel(e,
              (kernel_shape){ .kind = layernorm ? KERNEL_LAYERNORM_FORWARD : KERNEL_RMSNORM_FORWARD,
                              .type = type,
                              .dims = { rows, width },
                              .scalars = { s->model.norm_epsilon, s->model.apply_layernorm_1p } },
              reads, writes);
}

/* Transformer Engine: rmsnorm_bwd_semi_cuda_kernel.cu; 8192 came with 1.6, the others are older. */
static bool has_own_kernel(int64_t rows, int64_t width)
{
  static const int64_t widths[] = { 512, 768, 1024, 2048, 4096, 8192 };
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    if (widths[i] == width) return rows % 4 == 0;
  return false;
}

void emit_norm_backward(emitter *e, bool layernorm, dtype type, int64_t rows, int64_t width,
                        const ref *reads, ref gamma, const ref *writes)
{
  const settings *s = emit_settings(e);
  bool general =
      !layernorm && s->model.transformer_impl == TRANSFORMER_TE && !has_own_kernel(rows, width);
  ref all[6] = { 0 };
  uint32_t count = 0;
  for (; reads[count] != 0; count++)
    all[count] = reads[count];
  assert(count < 5);
  all[count] = gamma;
  emit_kernel(
      e,
      (kernel_shape){ .kind = layernorm ? KERNEL_LAYERNORM_BACKWARD : KERNEL_RMSNORM_BACKWARD,
                      .type = type,
                      .dims = { rows, width },
                      .scalars = { s->model.apply_layernorm_1p, general },
                      .uncounted = 1 },
      all, writes);
}

tensor_id last_tensor(const tensor_id *list, uint32_t capacity)
{
  uint32_t count = 0;
  while (count < capacity && list[count] != 0)
    count++;
  assert(count > 0);
  return list[count - 1];
}

/* ---- eager PyTorch --------------------------------------------------------------------------- */

ref hf_saved(emitter *e, const graph_node *n, tensor_id t)
{
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++)
    if (n->saved[i] == t) return emit_saved(e, i);
  return 0;
}

void hf_number_kernel(emitter *e, kernel_kind kind, dtype type, int64_t elements, double number,
                      ref from, ref to)
{
  emit_kernel(
      e, (kernel_shape){ .kind = kind, .type = type, .dims = { elements }, .scalars = { number } },
      (ref[]){ from, 0 }, (ref[]){ to, 0 });
}

void hf_gated_kernel(emitter *e, kernel_kind kind, dtype type, int64_t rows, int64_t columns,
                     const ref *reads, const ref *writes)
{
  if (emit_settings(e)->model.hidden_act == HIDDEN_ACT_SILU)
    emit_row_kernel(e, kind, type, rows, columns, reads, writes);
  else
    emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, rows * columns, reads, writes);
}

void hf_columns_kernel(emitter *e, const graph *g, kernel_kind kind, tensor_id all, tensor_id some,
                       const ref *reads, const ref *writes)
{
  const graph_tensor *of_all = &g->tensors.items[all], *of_some = &g->tensors.items[some];
  assert(of_all->rank == 2 && of_some->rank == 2 && of_all->shape[0] == of_some->shape[0]);
  emit_kernel(e,
              (kernel_shape){ .kind = kind,
                              .type = type_of(g, some),
                              .dims = { of_all->shape[0], of_all->shape[1], of_some->shape[1] } },
              reads, writes);
}

double hf_score_factor(const settings *s, int64_t width)
{
  double given = s->model.attention_multiplier;
  return given != 0 ? given : 1 / sqrt((double)width);
}

ref hf_expanded(emitter *e, const graph *g, ref r, tensor_id t, tensor_id like)
{
  const graph_tensor *from = &g->tensors.items[t], *to = &g->tensors.items[like];
  if (tensor_elements(g, t) == tensor_elements(g, like)) return r;
  int64_t strides[4] = { 0 }, stride = 1;
  uint8_t missing = (uint8_t)(to->rank - from->rank);
  assert(from->rank <= to->rank && (from->contiguous || from->view.rank == from->rank));
  for (uint8_t i = to->rank; i-- > missing;) {
    int64_t extent = from->shape[i - missing];
    int64_t own = from->contiguous ? stride : from->view.strides[i - missing];
    assert(extent == to->shape[i] || extent == 1);
    strides[i] = extent == to->shape[i] ? own : 0;
    stride *= extent;
  }
  return emit_strided(e, r, (dtype)from->dtype, 0, to->rank, to->shape, strides);
}

static int64_t multiprocessors(const settings *s)
{
  static const struct {
    int least, count;
  } of_capability[] = { { 100, 148 }, { 90, 132 }, { 0, 108 } };
  size_t i = 0;
  while (s->derived.compute_capability < of_capability[i].least)
    i++;
  return of_capability[i].count;
}

/* Reduce.cuh, setReduceConfig: blocks of 32 x 4 threads, each thread with four columns. A column
 * gets as many blocks as fill the device, as long as each thread has 16 to 256 rows. The buffer
 * has a number for every thread's column of every block, for every column. */
static int64_t staging_elements(const settings *s, int64_t rows, int64_t columns)
{
  enum { WIDTH = 32, HEIGHT = 4, VECTOR = 4, THREADS_OF_SM = 2048, FEW = 16, MANY = 256 };
  int64_t rows_of_thread = ceil_div(rows, HEIGHT);
  if (columns % VECTOR != 0 || rows_of_thread < HEIGHT * FEW) return 0;
  int64_t wanted = multiprocessors(s) * (THREADS_OF_SM / (WIDTH * HEIGHT));
  int64_t grid = ceil_div(columns / VECTOR, WIDTH);
  int64_t shared = min_i64(ceil_div(wanted, grid), ceil_div(rows_of_thread, FEW));
  shared = max_i64(shared, ceil_div(rows_of_thread, MANY));
  return shared > 1 ? columns * shared * WIDTH * VECTOR : 0;
}

void hf_sum_rows(emitter *e, dtype type, int64_t rows, int64_t columns, ref from, ref to)
{
  int64_t staging = staging_elements(emit_settings(e), rows, columns);
  ref parts = staging > 0 ? emit_temporary(e, "reduction_parts", DTYPE_FP32, staging, 0, 0, 0,
                                           CLASS_WORKSPACE)
                          : 0;
  emit_memory_kernel(e, KERNEL_COLUMN_SUMS, type, rows * columns, (ref[]){ from, 0 },
                     (ref[]){ to, 0 });
  emit_drop(e, parts);
}
