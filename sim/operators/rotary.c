/*
 * Rotary position embedding in eager operators (transformers modeling_llama.py:
 * LlamaRotaryEmbedding, rotate_half, apply_rotary_pos_emb).
 */
#include <assert.h>
#include <string.h>

#include "sim/graph/node.h"
#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

/* [.., 1, positions, width] or [.., positions, 1, width] */
static int64_t positions_of(const graph_tensor *table)
{
  assert(table->rank == 4 && (table->shape[1] == 1 || table->shape[2] == 1));
  return table->shape[1] * table->shape[2];
}

/* One table of complex numbers: angles, the numbers, and these scaled. */
static void complex_table(emitter *e, const graph *g, const graph_node *n)
{
  const graph_tensor *table = &g->tensors.items[n->outputs[0]];
  int64_t elements = tensor_elements(g, n->outputs[0]);
  ref angles = emit_vector(e, "angles", DTYPE_FP32, elements / 2);
  ref unscaled = emit_vector(e, "unscaled", DTYPE_FP32, elements);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_ROTARY_ANGLES,
                              .type = DTYPE_FP32,
                              .dims = { elements },
                              .scalars = { node_number(n), (double)positions_of(table),
                                           (double)table->shape[3] } },
              (ref[]){ 0 }, (ref[]){ angles, 0 });
  emit_memory_kernel(e, KERNEL_ROTARY_POLAR, DTYPE_FP32, elements, (ref[]){ angles, 0 },
                     (ref[]){ unscaled, 0 });
  hf_number_kernel(e, KERNEL_SCALE, DTYPE_FP32, elements, 1, unscaled,
                   emit_output(e, n->outputs[0]));
}

/* Angles in fp32, twice in a row; then their cosine and sine, scaled and converted. */
static void tables_forward(emitter *e, const graph *g, const graph_node *n)
{
  if (n->outputs[1] == 0) {
    complex_table(e, g, n);
    return;
  }
  const graph_tensor *table = &g->tensors.items[n->outputs[0]];
  dtype type = (dtype)table->dtype;
  int64_t elements = tensor_elements(g, n->outputs[0]);
  ref half = emit_vector(e, "angles", DTYPE_FP32, elements / 2);
  ref angles = emit_vector(e, "angles_twice", DTYPE_FP32, elements);
  emit_kernel(e,
              (kernel_shape){
                  .kind = KERNEL_ROTARY_ANGLES,
                  .type = DTYPE_FP32,
                  .dims = { elements },
                  .scalars = { node_number(n), (double)table->shape[1], (double)table->shape[2] } },
              (ref[]){ 0 }, (ref[]){ half, angles, 0 });
  ref of_angles[2];
  for (int i = 0; i < 2; i++) {
    ref unscaled = emit_vector(e, "unscaled", DTYPE_FP32, elements);
    emit_memory_kernel(e, i == 0 ? KERNEL_COSINE : KERNEL_SINE, DTYPE_FP32, elements,
                       (ref[]){ angles, 0 }, (ref[]){ unscaled, 0 });
    of_angles[i] = type == DTYPE_FP32
                       ? emit_output(e, n->outputs[i])
                       : emit_vector(e, i == 0 ? "cos_fp32" : "sin_fp32", DTYPE_FP32, elements);
    hf_number_kernel(e, KERNEL_SCALE, DTYPE_FP32, elements, 1, unscaled, of_angles[i]);
    emit_drop(e, unscaled);
  }
  for (int i = 0; i < 2 && type != DTYPE_FP32; i++)
    emit_copy(e, type, elements, of_angles[i], emit_output(e, n->outputs[i]));
}

const operator_kind operator_hf_rotary_tables = { "rotary_tables", tables_forward, NULL };

/* A view of one half of each row of `r`, whose layout is `strides`: the first or second elements,
 * or the even or odd ones. */
static ref half_rows(emitter *e, const graph *g, const graph_node *n, ref r, const int64_t *strides,
                     bool second)
{
  const graph_tensor *y = &g->tensors.items[n->outputs[0]];
  int64_t shape[4], half = y->shape[3] / 2;
  assert(y->rank == 4 && y->shape[3] % 2 == 0);
  memcpy(shape, y->shape, sizeof shape);
  shape[3] = half;
  if (n->flags == 0)
    return emit_strided(e, r, (dtype)y->dtype, second ? half : 0, 4, shape, strides);
  return emit_strided(e, r, (dtype)y->dtype, second, 4, shape,
                      (int64_t[]){ strides[0], strides[1], strides[2], 2 * strides[3] });
}

static void contiguous_strides(const graph_tensor *t, int64_t strides[4])
{
  int64_t stride = 1;
  for (int i = 4; i-- > 0;) {
    strides[i] = stride;
    stride *= t->shape[i];
  }
}

/* One half of the rows, negated, as a new tensor. */
static ref negated_half(emitter *e, const graph *g, const graph_node *n, ref half)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]) / 2;
  ref negated = emit_vector(e, "negated_half", type, elements);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_NEGATE_STRIDED,
                              .type = type,
                              .dims = { elements },
                              .bytes = 2 * elements * dtype_bytes(type) },
              (ref[]){ half, 0 }, (ref[]){ negated, 0 });
  return negated;
}

/* cat(-x[second half], x[first half]) */
static void rotate_half_forward(emitter *e, const graph *g, const graph_node *n)
{
  const graph_tensor *from = &g->tensors.items[n->inputs[0]];
  ref x = emit_input(e, n->inputs[0]);
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]), strides[4];
  contiguous_strides(&g->tensors.items[n->outputs[0]], strides);
  const int64_t *of_x = from->view.rank == 0 ? strides : from->view.strides;
  ref negated = negated_half(e, g, n, half_rows(e, g, n, x, of_x, true));
  ref y = emit_output(e, n->outputs[0]);
  emit_kernel(
      e,
      (kernel_shape){ .kind = KERNEL_COPY_STRIDED,
                      .type = type,
                      .dims = { elements },
                      .bytes = 2 * elements * dtype_bytes(type) },
      (ref[]){ negated, half_rows(e, g, n, x, of_x, false), 0 },
      (ref[]){ half_rows(e, g, n, y, strides, false), half_rows(e, g, n, y, strides, true), 0 });
}

/* A slice's gradient is a zeroed tensor of the whole size, into which the part is copied. */
static void slice_gradient(emitter *e, const graph *g, const graph_node *n, ref part, bool second)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t elements = tensor_elements(g, n->outputs[0]), strides[4];
  ref whole = emit_grad_for(e, n->inputs[0]);
  emit_fill(e, type, elements, whole);
  contiguous_strides(&g->tensors.items[n->outputs[0]], strides);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_COPY_STRIDED,
                              .type = type,
                              .dims = { elements / 2 },
                              .bytes = elements * dtype_bytes(type) },
              (ref[]){ part, 0 }, (ref[]){ half_rows(e, g, n, whole, strides, second), 0 });
}

static void rotate_half_backward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t strides[4];
  contiguous_strides(&g->tensors.items[n->outputs[0]], strides);
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref negated = negated_half(e, g, n, half_rows(e, g, n, gy, strides, false));
  slice_gradient(e, g, n, negated, true);
  emit_drop(e, negated);
  slice_gradient(e, g, n, half_rows(e, g, n, gy, strides, true), false);
}

const operator_kind operator_hf_rotate_half = { "rotate_half", rotate_half_forward,
                                                rotate_half_backward };

static void relayout_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_COPY_STRIDED, type_of(g, n->inputs[0]),
                     tensor_elements(g, n->inputs[0]), (ref[]){ gy, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_relayout = { "relayout", emit_outputs, relayout_backward };

/* cos[..., : width / 2].repeat_interleave(2) */
static void interleaved_forward(emitter *e, const graph *g, const graph_node *n)
{
  const graph_tensor *t = &g->tensors.items[n->outputs[0]];
  int64_t elements = tensor_elements(g, n->outputs[0]), width = t->shape[3];
  ref half = emit_strided(e, emit_input(e, n->inputs[0]), (dtype)t->dtype, 0, 2,
                          (int64_t[]){ elements / width, width / 2 }, (int64_t[]){ width, 1 });
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_REPEAT_FORWARD,
                              .type = (dtype)t->dtype,
                              .dims = { elements },
                              .scalars = { 2, 1 } },
              (ref[]){ half, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

const operator_kind operator_hf_interleaved_table = { "interleaved_table", interleaved_forward,
                                                      NULL };

static void rotate_complex(emitter *e, const graph *g, const graph_node *n, ref x, ref table, ref y,
                           bool back)
{
  table = hf_expanded(e, g, table, n->inputs[1], n->outputs[0]);
  emit_number_kernel(e, KERNEL_COMPLEX_MULTIPLY, type_of(g, n->outputs[0]),
                     tensor_elements(g, n->outputs[0]), back, (ref[]){ x, table, 0 },
                     (ref[]){ y, 0 });
}

static void rotate_complex_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]), table = emit_input(e, n->inputs[1]);
  rotate_complex(e, g, n, x, table, emit_output(e, n->outputs[0]), false);
}

static void rotate_complex_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  rotate_complex(e, g, n, gy, emit_saved(e, 0), emit_grad_for(e, n->inputs[0]), true);
}

const operator_kind operator_hf_rotate_complex = { "rotate_complex", rotate_complex_forward,
                                                   rotate_complex_backward };

static void slice_backward(emitter *e, const graph *g, const graph_node *n)
{
  const graph_tensor *x = &g->tensors.items[n->inputs[0]];
  int64_t all = x->shape[x->rank - 1];
  int64_t elements = tensor_elements(g, n->outputs[0]);
  int64_t rows = tensor_elements(g, n->inputs[0]) / all;
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_fill(e, type_of(g, n->inputs[0]), rows * all, gx);
  ref part = emit_strided(e, gx, type_of(g, n->inputs[0]), n->dims[0], 2,
                          (int64_t[]){ rows, elements / rows }, (int64_t[]){ all, n->dims[1] });
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_COPY_STRIDED,
                              .type = type_of(g, n->inputs[0]),
                              .dims = { elements },
                              .bytes = 2 * elements * dtype_bytes(type_of(g, n->inputs[0])) },
              (ref[]){ gy, 0 }, (ref[]){ part, 0 });
}

const operator_kind operator_hf_slice = { "slice", emit_outputs, slice_backward };

/* Llama 4 counts positions from 1, Ministral 3 from 0 (modeling_llama4.py: Llama4TextAttention.forward;
 * modeling_ministral3.py: get_llama_4_attn_scale). */
static void position_scale_forward(emitter *e, const graph *g, const graph_node *n)
{
  const struct model_settings *m = &emit_settings(e)->model;
  double first = m->attention_class == ATTENTION_LLAMA4;
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_POSITION_SCALE,
                              .type = type_of(g, n->outputs[0]),
                              .dims = { tensor_elements(g, n->outputs[0]) },
                              .scalars = { m->attn_scale, m->floor_scale, first } },
              (ref[]){ 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

const operator_kind operator_hf_position_scale = { "position_scale", position_scale_forward, NULL };
