/* linkedin/Liger-Kernel 0.8.0, src/liger_kernel/ops: swiglu.py, geglu.py, fused_linear_cross_entropy.py. */
#include "sim/operators/liger.h"

#include "sim/base/units.h"
#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

/* ---- LIGER_GLU ---- */

static void glu_kernel(emitter *e, const graph *g, const graph_node *n, kernel_kind kind,
                       const ref *reads, const ref *writes)
{
  const graph_tensor *gate = &g->tensors.items[n->inputs[0]];
  int64_t width = gate->shape[gate->rank - 1];
  hf_gated_kernel(e, kind, (dtype)gate->dtype, tensor_elements(g, n->inputs[0]) / width, width,
                  reads, writes);
}

static void glu_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref gate = emit_input(e, n->inputs[0]), up = emit_input(e, n->inputs[1]);
  glu_kernel(e, g, n, KERNEL_GATED_SILU_FORWARD, (ref[]){ gate, up, 0 },
             (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void glu_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  ref gate = emit_saved(e, 0), up = emit_saved(e, 1);
  glu_kernel(e, g, n, KERNEL_GATED_SILU_BACKWARD, (ref[]){ gy, gate, up, 0 },
             (ref[]){ gate, up, 0 });
  emit_grad_is(e, n->inputs[0], gate);
  emit_grad_is(e, n->inputs[1], up);
}

const operator_kind operator_liger_glu = { "liger_glu", glu_forward, glu_backward };

/* ---- LIGER_LINEAR_CROSS_ENTROPY ---- */

enum { ROWS, WIDTH, VOCABULARY };
/* The kernel goes over a row once for the sums and once for the gradient, which it writes in
 * place. */
enum { LOSS_PASSES = 3 };

/* The tokens of a chunk: its logits are about as large as x, rounded up to a power of two. */
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
  emit_fill(e, type_of(g, of), tensor_elements(g, of), to);
}

typedef struct linear_loss {
  int64_t width, vocabulary;
  dtype type;
  ref x, weight, labels, losses, gx, gw; /* gw: 0 for a frozen weight */
} linear_loss;

/* Some rows of x, or of its gradient. */
static ref rows_of(emitter *e, const linear_loss *l, ref whole, const token_rows *r)
{
  return emit_strided(e, whole, l->type, r->first * l->width, 2, (int64_t[]){ r->count, l->width },
                      NULL);
}

/* Writes the chunk's rows of the whole tensor. */
static void input_gradient(emitter *e, const linear_loss *l, const token_rows *r, ref logits)
{
  ref part = emit_matrix(e, "hidden_gradient_chunk", l->type, r->count, l->width);
  emit_gemm(e, l->type, r->count, l->width, l->vocabulary, 1, GEMM_NN,
            (ref[]){ logits, l->weight, 0 }, part);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_COPY,
                              .type = l->type,
                              .dims = { r->count * l->width },
                              .bytes = 2 * r->count * l->width * dtype_bytes(l->type) },
              (ref[]){ part, 0 }, (ref[]){ rows_of(e, l, l->gx, r), 0 });
  emit_drop(e, part);
}

/* gw += product.float() */
static void weight_gradient(emitter *e, const linear_loss *l, const token_rows *r, ref logits)
{
  int64_t elements = l->vocabulary * l->width;
  ref part = emit_matrix(e, "weight_gradient_chunk", l->type, l->vocabulary, l->width);
  emit_gemm(e, l->type, l->vocabulary, l->width, r->count, 1, GEMM_TN,
            (ref[]){ logits, rows_of(e, l, l->x, r), 0 }, part);
  ref wide = emit_matrix(e, "weight_gradient_chunk_fp32", DTYPE_FP32, l->vocabulary, l->width);
  emit_copy(e, DTYPE_FP32, elements, part, wide);
  emit_drop(e, part);
  emit_memory_kernel(e, KERNEL_ADD, l->type, elements, (ref[]){ wide, l->gw, 0 },
                     (ref[]){ l->gw, 0 });
  emit_drop(e, wide);
}

/* The previous chunk is freed once the next one's logits exist. */
static ref one_chunk(emitter *e, const linear_loss *l, const token_rows *r, ref before)
{
  int64_t bytes = r->count * l->vocabulary * dtype_bytes(l->type);
  ref logits = emit_matrix(e, "logits_chunk", l->type, r->count, l->vocabulary);
  emit_gemm(e, l->type, r->count, l->vocabulary, l->width, 1, GEMM_NT,
            (ref[]){ rows_of(e, l, l->x, r), l->weight, 0 }, logits);
  if (before != 0) emit_drop(e, before);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_ROWS_CROSS_ENTROPY,
                              .type = l->type,
                              .dims = { r->count, l->vocabulary },
                              .bytes = LOSS_PASSES * bytes },
              (ref[]){ logits, emit_numbers_of_tokens(e, l->labels, DTYPE_INT64, r), l->labels, 0 },
              (ref[]){ logits, emit_numbers_of_tokens(e, l->losses, DTYPE_FP32, r), 0 });
  input_gradient(e, l, r, logits);
  if (l->gw != 0) weight_gradient(e, l, r, logits);
  return logits;
}

static void linear_loss_forward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t all = n->dims[ROWS], chunk = chunk_rows(n);
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
  l.losses = emit_vector(e, "losses", DTYPE_FP32, all);
  emit_host_read(e); /* how many labels count */
  ref logits = 0;
  for (int64_t done = 0; done < all; done += chunk)
    logits = one_chunk(e, &l, &(token_rows){ done, min_i64(chunk, all - done) }, logits);
  hf_number_kernel(e, KERNEL_SUM, DTYPE_FP32, all, 1, l.losses, emit_output(e, n->outputs[0]));
}

/* The gradients exist already; only the factor by which the trainer divides the loss is missing. */
static void scale(emitter *e, const graph *g, tensor_id of, ref gy, ref what)
{
  int64_t elements = tensor_elements(g, of);
  ref everywhere = emit_strided(e, gy, DTYPE_FP32, 0, 1, &elements, (int64_t[]){ 0 });
  emit_memory_kernel(e, KERNEL_MULTIPLY, type_of(g, of), elements, (ref[]){ what, everywhere, 0 },
                     (ref[]){ what, 0 });
}

static void linear_loss_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]), gx = emit_saved(e, 0);
  emit_host_read(e); /* is it 1? */
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
