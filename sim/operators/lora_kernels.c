/*
 * Axolotl's fused linears with adapters: src/axolotl/kernels/lora.py (067b021c), matmul_lora,
 * LoRA_QKV, LoRA_O, LoRA_MLP; kernels/swiglu.py. Backward computes the products with A again, so
 * the adapters save nothing of the size of the activations.
 */
#include <assert.h>

#include "sim/operators/lora.h"
#include "sim/operators/shared.h"

enum { PROJECTIONS = 3, GATE = 0, UP = 1, DOWN = 2 };

/* One linear of a node. */
typedef struct projection {
  tensor_id base[4], bias; /* weight [, absmax, nested_absmax, nested_offset] */
  tensor_id a, b, a16, b16;
  int64_t inputs, outputs, rank;
  bool quantized, cast; /* A and B are cast */
} projection;

typedef struct projections {
  projection of[PROJECTIONS];
  uint32_t count;
  int64_t rows;
  dtype type;
} projections;

static projection projection_at(const graph *g, const graph_node *n, uint32_t i)
{
  uint32_t first = (n->flags & LORA_DROPPED ? 2 : 1) + 2 * i;
  lora_base base = lora_base_at((tensor_id)n->dims[i], (n->flags & LORA_QUANTIZED) != 0,
                                (n->flags & LORA_BIASED) != 0);
  projection p = { .base = { base.weight, base.absmax, base.nested_absmax, base.nested_offset },
                   .bias = base.bias,
                   .a = (tensor_id)n->dims[PROJECTIONS + i],
                   .a16 = n->inputs[first],
                   .b16 = n->inputs[first + 1],
                   .quantized = base.absmax != 0 };
  p.b = p.a + 1;
  p.rank = g->tensors.items[p.a].shape[0];
  p.inputs = g->tensors.items[p.a].shape[1];
  p.outputs = g->tensors.items[p.b].shape[0];
  p.cast = p.a16 != p.a;
  assert(g->tensors.items[p.a].parameter && g->tensors.items[p.b].parameter);
  assert(g->tensors.items[p.b].shape[1] == p.rank);
  return p;
}

static projections projections_of(const graph *g, const graph_node *n)
{
  projections all = { .type = type_of(g, n->inputs[0]) };
  while (all.count < PROJECTIONS && n->dims[all.count] != 0) {
    all.of[all.count] = projection_at(g, n, all.count);
    all.count++;
  }
  assert(all.count > 0 && tensor_elements(g, n->inputs[0]) % all.of[0].inputs == 0);
  all.rows = tensor_elements(g, n->inputs[0]) / all.of[0].inputs;
  return all;
}

/* ---- pieces ---- */

static void product(emitter *e, dtype type, int64_t m, int64_t n, int64_t k, gemm_layout layout,
                    ref left, ref right, ref to)
{
  emit_gemm(e, type, m, n, k, 1, layout, (ref[]){ left, right, 0 }, to);
}

/* Products with both A and B are scaled (addmm's alpha). `addend` 0: nothing is added. */
static void scaled_product(emitter *e, dtype type, int64_t m, int64_t n, int64_t k,
                           gemm_layout layout, ref left, ref right, ref addend, ref to)
{
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_SCALED_GEMM,
                              .type = type,
                              .dims = { m, n, k, 1 },
                              .scalars = { layout, lora_scale(emit_settings(e)) } },
              (ref[]){ left, right, addend, 0 }, (ref[]){ to, 0 });
}

/* The transposed view of a contiguous matrix of rows x columns. */
static ref turned(emitter *e, dtype type, int64_t rows, int64_t columns, ref r)
{
  return emit_strided(e, r, type, 0, 2, (int64_t[]){ columns, rows }, (int64_t[]){ 1, columns });
}

/* The base's weight as the product reads it. The caller drops `made` afterwards. */
static ref base_weight(emitter *e, const graph *g, const projections *all, const projection *p,
                       ref *made)
{
  *made = p->quantized ? emit_dequantized(e, g, p->base, all->type, p->outputs, p->inputs) : 0;
  return *made != 0 ? *made : emit_parameter(e, p->base[0]);
}

/* A or B for a product in forward; a cast lives for the call. */
static ref adapter_weight(emitter *e, const graph *g, const projections *all, const projection *p,
                          tensor_id weight, ref *made)
{
  *made = 0;
  if (!p->cast) return emit_parameter(e, weight);
  int64_t elements = tensor_elements(g, weight);
  *made = emit_vector(e, "adapter_16", all->type, elements);
  emit_copy(e, all->type, elements, emit_parameter(e, weight), *made);
  return *made;
}

/* matmul_lora: x W + (A's input) A B + bias. */
static void multiply(emitter *e, const graph *g, const projections *all, const projection *p, ref x,
                     ref x_lora, ref y)
{
  ref weight, a, b;
  product(e, all->type, all->rows, p->outputs, p->inputs, GEMM_NT, x,
          base_weight(e, g, all, p, &weight), y);
  emit_drop(e, weight);
  ref a16 = adapter_weight(e, g, all, p, p->a, &a);
  ref b16 = adapter_weight(e, g, all, p, p->b, &b);
  ref inner = emit_matrix(e, "x_a", all->type, all->rows, p->rank);
  product(e, all->type, all->rows, p->rank, p->inputs, GEMM_NT, x_lora, a16, inner);
  scaled_product(e, all->type, all->rows, p->outputs, p->rank, GEMM_NT, inner, b16, y, y);
  if (p->bias != 0)
    emit_row_kernel(e, KERNEL_BIAS_ADD, all->type, all->rows, p->outputs,
                    (ref[]){ y, emit_parameter(e, p->bias), 0 }, (ref[]){ y, 0 });
  emit_drop(e, inner);
  emit_drop(e, b);
  emit_drop(e, a);
}

/* The gradients of one projection's adapter; returns gy B, which the input gradient needs too. */
typedef struct adapter_gradients {
  ref gy_b, a, b;
} adapter_gradients;

/* The gradient of the transposed weight. The graph holds the gradient of a cast; that of a
 * parameter is a temporary. */
static ref gradient_of(emitter *e, const projections *all, const projection *p, tensor_id weight,
                       int64_t rows, int64_t columns)
{
  return p->cast ? turned(e, all->type, columns, rows, emit_grad_for(e, weight))
                 : emit_matrix(e, "adapter_gradient", all->type, rows, columns);
}

static adapter_gradients differentiate(emitter *e, const projections *all, const projection *p,
                                       ref gy, ref x_lora, ref a16, ref b16)
{
  dtype type = all->type;
  adapter_gradients made = { .gy_b = emit_matrix(e, "gradient_b", type, all->rows, p->rank) };
  product(e, type, all->rows, p->rank, p->outputs, GEMM_NN, gy, b16, made.gy_b);
  made.a = gradient_of(e, all, p, p->a16, p->inputs, p->rank);
  made.b = gradient_of(e, all, p, p->b16, p->rank, p->outputs);
  scaled_product(e, type, p->inputs, p->rank, all->rows, GEMM_TN, x_lora, made.gy_b, 0, made.a);
  ref inner = emit_matrix(e, "x_a", type, p->rank, all->rows);
  product(e, type, p->rank, all->rows, p->inputs, GEMM_NT, a16, x_lora, inner);
  scaled_product(e, type, p->rank, p->outputs, all->rows, GEMM_NN, inner, gy, 0, made.b);
  emit_drop(e, inner);
  return made;
}

/* `.grad` has the layout of its parameter; `made` is transposed. */
static void give_gradient(emitter *e, const graph *g, tensor_id parameter, ref made)
{
  const graph_tensor *t = &g->tensors.items[parameter];
  ref gradient = emit_parameter_grad(e, parameter, false);
  if (gradient != 0)
    emit_copy(e, (dtype)t->dtype, tensor_elements(g, parameter),
              turned(e, (dtype)t->dtype, t->shape[1], t->shape[0], made), gradient);
}

static void give_gradients(emitter *e, const graph *g, const projections *all,
                           const adapter_gradients *made)
{
  for (uint32_t i = 0; i < all->count && !all->of[i].cast; i++) {
    give_gradient(e, g, all->of[i].a, made[i].a);
    give_gradient(e, g, all->of[i].b, made[i].b);
  }
}

/* gx (+)= gy W: the first linear writes gx, the others add to it. */
static void add_base_gradient(emitter *e, const graph *g, const projections *all,
                              const projection *p, ref gy, bool first, ref gx)
{
  ref made;
  ref weight = base_weight(e, g, all, p, &made);
  emit_gemm(e, all->type, all->rows, p->inputs, p->outputs, 1, GEMM_NN,
            (ref[]){ gy, weight, first ? 0 : gx, 0 }, gx);
  emit_drop(e, made);
}

/* The adapters' part of the input gradient: added to gx, or with dropout a separate gradient. */
static void add_adapter_gradients(emitter *e, const graph_node *n, const projections *all,
                                  uint32_t count, const adapter_gradients *made, const ref *a16,
                                  ref gx)
{
  ref to = gx;
  if (n->flags & LORA_DROPPED) {
    to = emit_grad_for(e, n->inputs[1]);
    emit_fill(e, all->type, all->rows * all->of[0].inputs, to);
  }
  for (uint32_t i = 0; i < count; i++)
    scaled_product(e, all->type, all->rows, all->of[i].inputs, all->of[i].rank, GEMM_NN,
                   made[i].gy_b, a16[i], to, to);
}

/* ---- LORA_PROJECTIONS ---- */

static ref lora_input(emitter *e, const graph_node *n)
{
  return emit_input(e, n->inputs[n->flags & LORA_DROPPED ? 1 : 0]);
}

static void projections_forward(emitter *e, const graph *g, const graph_node *n)
{
  projections all = projections_of(g, n);
  ref x = emit_input(e, n->inputs[0]);
  for (uint32_t i = 0; i < all.count; i++) {
    ref y = emit_output(e, n->outputs[i]);
    multiply(e, g, &all, &all.of[i], x, lora_input(e, n), y);
  }
}

enum { SAVED_X_LORA = 1, SAVED_ADAPTERS = 2, SAVED_GATE = 2, SAVED_UP = 3, SAVED_MLP_ADAPTERS = 4 };

static void projections_backward(emitter *e, const graph *g, const graph_node *n)
{
  projections all = projections_of(g, n);
  adapter_gradients made[PROJECTIONS];
  ref gy[PROJECTIONS], a16[PROJECTIONS];
  ref x_lora = emit_saved(e, SAVED_X_LORA);
  for (uint32_t i = 0; i < all.count; i++) {
    gy[i] = emit_grad_of(e, n->outputs[i]);
    a16[i] = emit_saved(e, SAVED_ADAPTERS + 2 * i);
    made[i] = differentiate(e, &all, &all.of[i], gy[i], x_lora, a16[i],
                            emit_saved(e, SAVED_ADAPTERS + 2 * i + 1));
  }
  ref gx = emit_grad_for(e, n->inputs[0]);
  for (uint32_t i = 0; i < all.count && gx != 0; i++)
    add_base_gradient(e, g, &all, &all.of[i], gy[i], i == 0, gx);
  if (gx != 0) add_adapter_gradients(e, n, &all, all.count, made, a16, gx);
  give_gradients(e, g, &all, made);
}

const operator_kind operator_lora_projections = { "lora_projections", projections_forward,
                                                  projections_backward };

/* ---- LORA_MLP ---- */

static void mlp_forward(emitter *e, const graph *g, const graph_node *n)
{
  projections all = projections_of(g, n);
  int64_t width = all.of[GATE].outputs;
  ref x = emit_input(e, n->inputs[0]), x_lora = lora_input(e, n);
  ref gate = emit_output(e, n->outputs[1 + GATE]);
  multiply(e, g, &all, &all.of[GATE], x, x_lora, gate);
  ref up = emit_output(e, n->outputs[1 + UP]);
  multiply(e, g, &all, &all.of[UP], x, x_lora, up);
  ref hidden = emit_matrix(e, "hidden", all.type, all.rows, width);
  hf_gated_kernel(e, KERNEL_GATED_SILU_FORWARD, all.type, all.rows, width, (ref[]){ gate, up, 0 },
                  (ref[]){ hidden, 0 });
  multiply(e, g, &all, &all.of[DOWN], hidden, hidden, emit_output(e, n->outputs[0]));
}

/* The gradient of what `down` multiplies: gy W + gy B A. */
static ref hidden_gradient(emitter *e, const graph *g, const projections *all, ref gy, ref a16,
                           ref b16)
{
  const projection *p = &all->of[DOWN];
  ref made;
  ref weight = base_weight(e, g, all, p, &made);
  ref gradient = emit_matrix(e, "hidden_gradient", all->type, all->rows, p->inputs);
  product(e, all->type, all->rows, p->inputs, p->outputs, GEMM_NN, gy, weight, gradient);
  emit_drop(e, made);
  ref inner = emit_matrix(e, "gradient_b", all->type, all->rows, p->rank);
  product(e, all->type, all->rows, p->rank, p->outputs, GEMM_NN, gy, b16, inner);
  scaled_product(e, all->type, all->rows, p->inputs, p->rank, GEMM_NN, inner, a16, gradient,
                 gradient);
  emit_drop(e, inner);
  return gradient;
}

/* SwiGLU's backward works in place: it writes the activation over its gradient, and the gradients
 * over gate and up. */
static void mlp_backward(emitter *e, const graph *g, const graph_node *n)
{
  projections all = projections_of(g, n);
  adapter_gradients made[PROJECTIONS];
  ref a16[PROJECTIONS], b16[PROJECTIONS];
  ref gy = emit_grad_of(e, n->outputs[0]), x_lora = emit_saved(e, SAVED_X_LORA);
  ref gate = emit_saved(e, SAVED_GATE), up = emit_saved(e, SAVED_UP);
  for (uint32_t i = 0; i < PROJECTIONS; i++) {
    a16[i] = emit_saved(e, SAVED_MLP_ADAPTERS + 2 * i);
    b16[i] = emit_saved(e, SAVED_MLP_ADAPTERS + 2 * i + 1);
  }
  ref hidden = hidden_gradient(e, g, &all, gy, a16[DOWN], b16[DOWN]);
  hf_gated_kernel(e, KERNEL_GATED_SILU_BACKWARD, all.type, all.rows, all.of[GATE].outputs,
                  (ref[]){ hidden, gate, up, 0 }, (ref[]){ hidden, gate, up, 0 });
  made[DOWN] = differentiate(e, &all, &all.of[DOWN], gy, hidden, a16[DOWN], b16[DOWN]);
  made[UP] = differentiate(e, &all, &all.of[UP], up, x_lora, a16[UP], b16[UP]);
  made[GATE] = differentiate(e, &all, &all.of[GATE], gate, x_lora, a16[GATE], b16[GATE]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  if (gx != 0) {
    add_base_gradient(e, g, &all, &all.of[UP], up, true, gx);
    add_base_gradient(e, g, &all, &all.of[GATE], gate, false, gx);
    add_adapter_gradients(e, n, &all, DOWN, made, a16, gx);
  }
  give_gradients(e, g, &all, made);
}

const operator_kind operator_lora_mlp = { "lora_mlp", mlp_forward, mlp_backward };
