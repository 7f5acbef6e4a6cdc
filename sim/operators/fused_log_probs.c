/*
 * verl's fused output layer: log-probabilities and entropies of the tokens, 512 of them at a time,
 * so that the logits of one chunk are there at once; backward makes them again. Sizes and order of
 * its tensors as in verl/utils/experimental/torch_functional.py (FusedLinearForPPOFunction).
 * Picking one number of each row is left out.
 */
#include "sim/base/units.h"
#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

enum { ROWS, WIDTH, VOCABULARY };
enum { CHUNK_ROWS = 512 };

typedef struct output_layer {
  int64_t width, vocabulary;
  dtype type;
  ref x, weight, gx, gw; /* gradients: 0 where there is none */
} output_layer;

static ref of_chunk(emitter *e, const output_layer *l, const token_rows *r, const char *name,
                    dtype type)
{
  return emit_matrix(e, name, type, r->count, l->vocabulary);
}

/* Some rows of x, or of its gradient. */
static ref rows_of(emitter *e, const output_layer *l, ref whole, const token_rows *r)
{
  return emit_strided(e, whole, l->type, r->first * l->width, 2, (int64_t[]){ r->count, l->width },
                      NULL);
}

/* A kernel over a chunk's logits, into a new tensor. */
static ref computed(emitter *e, const output_layer *l, const token_rows *r, const char *name,
                    dtype type, kernel_kind kind, const ref *reads)
{
  ref y = of_chunk(e, l, r, name, type);
  emit_memory_kernel(e, kind, type, r->count * l->vocabulary, reads, (ref[]){ y, 0 });
  return y;
}

static ref computed_rows(emitter *e, const output_layer *l, const token_rows *r, const char *name,
                         kernel_kind kind, const ref *reads)
{
  ref y = of_chunk(e, l, r, name, DTYPE_FP32);
  emit_row_kernel(e, kind, DTYPE_FP32, r->count, l->vocabulary, reads, (ref[]){ y, 0 });
  return y;
}

/* Divided by the temperature, in fp32. */
static ref logits_of(emitter *e, const output_layer *l, const token_rows *r)
{
  ref product = of_chunk(e, l, r, "product_chunk", l->type);
  emit_gemm(e, l->type, r->count, l->vocabulary, l->width, 1, GEMM_NT,
            (ref[]){ rows_of(e, l, l->x, r), l->weight, 0 }, product);
  ref logits = computed(e, l, r, "logits_chunk", l->type, KERNEL_DIVIDE, (ref[]){ product, 0 });
  emit_drop(e, product);
  ref wide = computed(e, l, r, "logits_chunk_fp32", DTYPE_FP32, KERNEL_COPY, (ref[]){ logits, 0 });
  emit_drop(e, logits);
  return wide;
}

/* Sums of the rows of a tensor that only they need. */
static void summed(emitter *e, const output_layer *l, const token_rows *r, ref terms, ref sums)
{
  emit_row_kernel(e, KERNEL_ROW_SUM_FORWARD, DTYPE_FP32, r->count, l->vocabulary,
                  (ref[]){ terms, 0 }, (ref[]){ sums, 0 });
  emit_drop(e, terms);
}

static void chunk_forward(emitter *e, const output_layer *l, const token_rows *r, ref log_probs,
                          ref entropies)
{
  ref logits = logits_of(e, l, r);
  ref probabilities =
      computed_rows(e, l, r, "probabilities", KERNEL_SOFTMAX_FORWARD, (ref[]){ logits, 0 });
  ref logs =
      computed_rows(e, l, r, "log_probabilities", KERNEL_LOG_SOFTMAX_FORWARD, (ref[]){ logits, 0 });
  ref sums = emit_vector(e, "logsumexp", DTYPE_FP32, r->count);
  summed(e, l, r,
         computed_rows(e, l, r, "exponentials", KERNEL_SOFTMAX_FORWARD, (ref[]){ logits, 0 }),
         sums);
  summed(e, l, r,
         computed(e, l, r, "products", DTYPE_FP32, KERNEL_MULTIPLY,
                  (ref[]){ probabilities, logits, 0 }),
         sums);
  emit_copy(e, l->type, r->count, sums, emit_numbers_of_tokens(e, log_probs, l->type, r));
  emit_copy(e, l->type, r->count, sums, emit_numbers_of_tokens(e, entropies, l->type, r));
  const ref locals[] = { logits, probabilities, logs, sums };
  for (size_t i = 0; i < sizeof locals / sizeof locals[0]; i++)
    emit_drop(e, locals[i]);
}

/* Of the log-probabilities: the one-hot vectors of the labels less the probabilities. The caller
 * drops the gradient; the function's locals live until its products exist. */
typedef struct chunk_gradient {
  ref logits; /* in the model's type */
  ref locals[4];
} chunk_gradient;

static chunk_gradient gradient_of(emitter *e, const output_layer *l, const token_rows *r, ref gy)
{
  ref logits = logits_of(e, l, r);
  ref probabilities =
      computed_rows(e, l, r, "probabilities", KERNEL_SOFTMAX_FORWARD, (ref[]){ logits, 0 });
  ref one_hot = computed(e, l, r, "one_hot", DTYPE_FP32, KERNEL_FILL, (ref[]){ 0 });
  ref less = computed(e, l, r, "one_hot_less_probabilities", DTYPE_FP32, KERNEL_ADD,
                      (ref[]){ one_hot, probabilities, 0 });
  ref weighted = computed_rows(e, l, r, "weighted", KERNEL_WEIGHT_ROWS_FORWARD,
                               (ref[]){ less, emit_numbers_of_tokens(e, gy, l->type, r), 0 });
  emit_drop(e, less);
  ref wide = computed(e, l, r, "logits_gradient_fp32", DTYPE_FP32, KERNEL_ADD_NUMBER,
                      (ref[]){ weighted, 0 });
  emit_drop(e, weighted);
  ref narrow = computed(e, l, r, "logits_gradient", l->type, KERNEL_COPY, (ref[]){ wide, 0 });
  ref divided =
      computed(e, l, r, "logits_gradient_divided", l->type, KERNEL_DIVIDE, (ref[]){ narrow, 0 });
  emit_drop(e, wide);
  emit_drop(e, narrow);
  return (chunk_gradient){ divided, { logits, probabilities, one_hot, divided } };
}

/* Returns the chunk's gradient of the weight, which the next chunk's replaces. */
static ref chunk_backward(emitter *e, const output_layer *l, const token_rows *r, ref gy,
                          ref before)
{
  chunk_gradient c = gradient_of(e, l, r, gy);
  ref hidden = emit_matrix(e, "hidden_gradient_chunk", l->type, r->count, l->width);
  emit_gemm(e, l->type, r->count, l->width, l->vocabulary, 1, GEMM_NN,
            (ref[]){ c.logits, l->weight, 0 }, hidden);
  ref weight = emit_matrix(e, "weight_gradient_chunk", l->type, l->vocabulary, l->width);
  emit_gemm(e, l->type, l->vocabulary, l->width, r->count, 1, GEMM_TN,
            (ref[]){ c.logits, rows_of(e, l, l->x, r), 0 }, weight);
  for (size_t i = 0; i < sizeof c.locals / sizeof c.locals[0]; i++)
    emit_drop(e, c.locals[i]);
  if (before != 0) emit_drop(e, before);
  ref part = rows_of(e, l, l->gx, r);
  emit_memory_kernel(e, KERNEL_ADD, l->type, r->count * l->width, (ref[]){ part, hidden, 0 },
                     (ref[]){ part, 0 });
  emit_drop(e, hidden);
  if (l->gw != 0)
    emit_memory_kernel(e, KERNEL_ADD, l->type, l->vocabulary * l->width,
                       (ref[]){ l->gw, weight, 0 }, (ref[]){ l->gw, 0 });
  return weight;
}

static output_layer layer_of(const graph *g, const graph_node *n)
{
  return (output_layer){ .width = n->dims[WIDTH],
                         .vocabulary = n->dims[VOCABULARY],
                         .type = type_of(g, n->inputs[0]) };
}

static void fused_forward(emitter *e, const graph *g, const graph_node *n)
{
  output_layer l = layer_of(g, n);
  int64_t all = n->dims[ROWS];
  l.x = emit_input(e, n->inputs[0]);
  l.weight = emit_parameter(e, n->inputs[1]);
  ref log_probs = emit_output(e, n->outputs[0]), entropies = emit_output(e, n->outputs[1]);
  emit_fill(e, l.type, all, log_probs);
  emit_fill(e, l.type, all, entropies);
  for (int64_t done = 0; done < all; done += CHUNK_ROWS)
    chunk_forward(e, &l, &(token_rows){ done, min_i64(CHUNK_ROWS, all - done) }, log_probs,
                  entropies);
}

static void fused_backward(emitter *e, const graph *g, const graph_node *n)
{
  output_layer l = layer_of(g, n);
  int64_t all = n->dims[ROWS];
  ref gy = emit_grad_of(e, n->outputs[0]), before = 0;
  l.x = emit_saved(e, 0);
  l.weight = emit_saved(e, 1);
  l.gx = emit_grad_for(e, n->inputs[0]);
  emit_fill(e, l.type, all * l.width, l.gx);
  if (g->tensors.items[n->inputs[1]].requires_grad) {
    l.gw = emit_parameter_grad(e, n->inputs[1], false);
    emit_fill(e, l.type, l.vocabulary * l.width, l.gw);
  }
  for (int64_t done = 0; done < all; done += CHUNK_ROWS)
    before =
        chunk_backward(e, &l, &(token_rows){ done, min_i64(CHUNK_ROWS, all - done) }, gy, before);
}

const operator_kind operator_fused_log_probs = { "fused_log_probs", fused_forward, fused_backward };
