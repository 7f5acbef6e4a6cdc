/* linkedin/Liger-Kernel 0.8.0, src/liger_kernel/ops: swiglu.py, fused_linear_cross_entropy.py. */
#include "sim/model/hf/operators_liger.h"

#include "sim/base/units.h"
#include "sim/model/operators_shared.h"

/* ---- LIGER_GLU ---- */

static void glu_kernel(emitter *e, const graph *g, const graph_node *n, kernel_kind kind,
                       const ref *reads, const ref *writes)
{
  const graph_tensor *gate = &g->tensors.items[n->inputs[0]];
  int64_t width = gate->shape[gate->rank - 1];
  emit_row_kernel(e, kind, (dtype)gate->dtype, tensor_elements(g, n->inputs[0]) / width, width,
                  reads, writes);
}

static void glu_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref gate = emit_input(e, n->inputs[0]), up = emit_input(e, n->inputs[1]);
  glu_kernel(e, g, n, KERNEL_ACTIVATION_FORWARD, (ref[]){ gate, up, 0 },
             (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void glu_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  ref gate = emit_saved(e, 0), up = emit_saved(e, 1);
  glu_kernel(e, g, n, KERNEL_ACTIVATION_BACKWARD, (ref[]){ gy, gate, up, 0 },
             (ref[]){ gate, up, 0 });
  emit_grad_is(e, n->inputs[0], gate);
  emit_grad_is(e, n->inputs[1], up);
}

const operator_kind operator_liger_glu = { "liger_glu", glu_forward, glu_backward };

/* ---- LIGER_LINEAR_CROSS_ENTROPY ---- */

enum { ROWS, WIDTH, VOCABULARY };
/* The kernel goes over a row for the sums and once more for the gradient, which it leaves there. */
enum { LOSS_PASSES = 3 };

/* As many tokens as make the chunk's logits about as large as x, up to a power of two. */
static int64_t chunk_rows(const graph_node *n)
{
  int64_t parts = ceil_div(n->dims[VOCABULARY], n->dims[WIDTH]);
  int64_t wanted = ceil_div(n->dims[ROWS], parts), chunk = 1;
  while (chunk < wanted)
    chunk *= 2;
  return min_i64(chunk, n->dims[ROWS]);
}

static void fill(emitter *e, const graph *g, tensor_id of, ref to)
{
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, of), tensor_elements(g, of), (ref[]){ 0 },
                     (ref[]){ to, 0 });
}

typedef struct linear_loss {
  int64_t width, vocabulary;
  dtype type;
  ref x, weight, labels, losses, gx, gw; /* gw: 0 for a frozen weight */
} linear_loss;

static ref temporary(emitter *e, const char *name, dtype type, int64_t rows, int64_t columns)
{
  return emit_temporary(e, name, type, rows, columns, 0, 0, CLASS_TRANSIENT);
}

static void add(emitter *e, kernel_kind kind, dtype type, int64_t elements, ref from, ref to)
{
  ref kept = kind == KERNEL_ELEMENTWISE ? to : 0;
  emit_memory_kernel(e, kind, type, elements, (ref[]){ from, kept, 0 }, (ref[]){ to, 0 });
}

/* Written into its rows of the whole. */
static void input_gradient(emitter *e, const linear_loss *l, int64_t rows, ref logits)
{
  ref part = temporary(e, "hidden_gradient_chunk", l->type, rows, l->width);
  emit_gemm(e, l->type, rows, l->width, l->vocabulary, 1, (ref[]){ logits, l->weight, 0 }, part);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_COPY,
                              .type = l->type,
                              .dims = { rows * l->width },
                              .bytes = 2 * rows * l->width * dtype_bytes(l->type) },
              (ref[]){ part, 0 }, (ref[]){ l->gx, 0 });
  emit_drop(e, part);
}

/* gw += product.float() */
static void weight_gradient(emitter *e, const linear_loss *l, int64_t rows, ref logits)
{
  int64_t elements = l->vocabulary * l->width;
  ref part = temporary(e, "weight_gradient_chunk", l->type, l->vocabulary, l->width);
  emit_gemm(e, l->type, l->vocabulary, l->width, rows, 1, (ref[]){ logits, l->x, 0 }, part);
  ref wide = temporary(e, "weight_gradient_chunk_fp32", DTYPE_FP32, l->vocabulary, l->width);
  add(e, KERNEL_COPY, DTYPE_FP32, elements, part, wide);
  emit_drop(e, part);
  add(e, KERNEL_ELEMENTWISE, l->type, elements, wide, l->gw);
  emit_drop(e, wide);
}

/* The chunk before is let go when the next one's logits are there. */
static ref one_chunk(emitter *e, const linear_loss *l, int64_t rows, ref before)
{
  int64_t bytes = rows * l->vocabulary * dtype_bytes(l->type);
  ref logits = temporary(e, "logits_chunk", l->type, rows, l->vocabulary);
  emit_gemm(e, l->type, rows, l->vocabulary, l->width, 1, (ref[]){ l->x, l->weight, 0 }, logits);
  if (before != 0) emit_drop(e, before);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_CROSS_ENTROPY_FORWARD,
                              .type = l->type,
                              .dims = { rows, l->vocabulary },
                              .bytes = LOSS_PASSES * bytes },
              (ref[]){ logits, l->labels, 0 }, (ref[]){ logits, l->losses, 0 });
  input_gradient(e, l, rows, logits);
  if (l->gw != 0) weight_gradient(e, l, rows, logits);
  return logits;
}

static void linear_loss_forward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t rows = n->dims[ROWS], chunk = chunk_rows(n);
  linear_loss l = { .width = n->dims[WIDTH],
                    .vocabulary = n->dims[VOCABULARY],
                    .type = type_of(g, n->inputs[0]),
                    .x = emit_input(e, n->inputs[0]),
                    .weight = emit_parameter(e, n->inputs[1]),
                    .labels = emit_input(e, n->inputs[2]) };
  l.gx = emit_output(e, n->outputs[1]);
  fill(e, g, n->outputs[1], l.gx);
  l.gw = n->outputs[2] != 0 ? emit_output(e, n->outputs[2]) : 0;
  if (l.gw != 0) fill(e, g, n->outputs[2], l.gw);
  l.losses = emit_temporary(e, "losses", DTYPE_FP32, rows, 0, 0, 0, CLASS_TRANSIENT);
  emit_host_sync(e); /* how many labels count */
  ref logits = 0;
  for (int64_t done = 0; done < rows; done += chunk)
    logits = one_chunk(e, &l, min_i64(chunk, rows - done), logits);
  emit_memory_kernel(e, KERNEL_REDUCE, DTYPE_FP32, rows, (ref[]){ l.losses, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* The gradients are there, but for the factor that the trainer divides the loss by. */
static void scale(emitter *e, const graph *g, tensor_id of, ref gy, ref what)
{
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, of), tensor_elements(g, of),
                     (ref[]){ what, gy, 0 }, (ref[]){ what, 0 });
}

static void linear_loss_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]), gx = emit_saved(e, 0);
  emit_host_sync(e); /* is it 1? */
  scale(e, g, n->outputs[1], gy, gx);
  emit_grad_is(e, n->inputs[0], gx);
  if (n->outputs[2] == 0) return;
  ref gw = emit_saved(e, 1);
  scale(e, g, n->outputs[2], gy, gw);
  emit_parameter_grad_is(e, n->inputs[1], gw);
}

const operator_kind operator_liger_linear_cross_entropy = { "liger_linear_cross_entropy",
                                                            linear_loss_forward,
                                                            linear_loss_backward };
