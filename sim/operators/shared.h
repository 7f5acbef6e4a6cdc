/* Helpers of several operator files. */
#ifndef OFFSIM_SIM_OPERATORS_SHARED_H
#define OFFSIM_SIM_OPERATORS_SHARED_H

#include "sim/graph/emitter.h"

/* A temporary that no other operator sees. */
static inline ref emit_vector(emitter *e, const char *name, dtype type, int64_t elements)
{
  return emit_temporary(e, name, type, elements, 0, 0, 0, CLASS_TRANSIENT);
}
static inline ref emit_matrix(emitter *e, const char *name, dtype type, int64_t rows,
                              int64_t columns)
{
  return emit_temporary(e, name, type, rows, columns, 0, 0, CLASS_TRANSIENT);
}

/* A kernel whose shape is its elements, or its rows and columns. */
void emit_memory_kernel(emitter *e, kernel_kind kind, dtype type, int64_t elements,
                        const ref *reads, const ref *writes);
void emit_row_kernel(emitter *e, kernel_kind kind, dtype type, int64_t rows, int64_t columns,
                     const ref *reads, const ref *writes);

/* `to`, of `type`, gets the elements of `from`. */
static inline void emit_copy(emitter *e, dtype type, int64_t elements, ref from, ref to)
{
  emit_memory_kernel(e, KERNEL_COPY, type, elements, (ref[]){ from, 0 }, (ref[]){ to, 0 });
}
/* `to` gets zeros. */
static inline void emit_fill(emitter *e, dtype type, int64_t elements, ref to)
{
  emit_memory_kernel(e, KERNEL_FILL, type, elements, (ref[]){ 0 }, (ref[]){ to, 0 });
}

/* The same with a number that the kernel computes with. */
void emit_number_kernel(emitter *e, kernel_kind kind, dtype type, int64_t elements, double number,
                        const ref *reads, const ref *writes);

/* Whether an elementwise kernel of PyTorch that computes operands[0] from the others computes the address of
 * each element. kernels.h has a row for either case. */
bool is_strided(const graph *g, const tensor_id *operands, uint32_t count);

/* LayerNorm or RMSNorm. A list may hold zeros only at its end. Backward also reads gamma, after
 * the others; the call's bytes do not count it. */
void emit_norm(emitter *e, bool layernorm, dtype type, int64_t rows, int64_t width,
               const ref *reads, const ref *writes);
void emit_norm_backward(emitter *e, bool layernorm, dtype type, int64_t rows, int64_t width,
                        const ref *reads, ref gamma, const ref *writes);

/* The tokens of a chunk; its part of a tensor with one number for each token. */
typedef struct token_rows {
  int64_t first, count;
} token_rows;

static inline ref emit_numbers_of_tokens(emitter *e, ref whole, dtype type, const token_rows *r)
{
  return emit_strided(e, whole, type, r->first, 1, &r->count, NULL);
}

/* The last tensor of a node's list. */
tensor_id last_tensor(const tensor_id *list, uint32_t capacity);

/* For operators that issue nothing in one direction: nothing at all; outputs that are views, or that others
 * have filled; the gradient of the output is that of the first input. */
void emit_nothing(emitter *e, const graph *g, const graph_node *n);
void emit_outputs(emitter *e, const graph *g, const graph_node *n);
void emit_same_gradient(emitter *e, const graph *g, const graph_node *n);

/* ---- eager PyTorch --------------------------------------------------------------------------- */

/* The saved tensor `t` of the node that is emitting its backward; 0 if it was not saved. */
ref hf_saved(emitter *e, const graph_node *n, tensor_id t);

/* A kernel with one number besides its operands. */
void hf_number_kernel(emitter *e, kernel_kind kind, dtype type, int64_t elements, double number,
                      ref from, ref to);

/* A fused kernel of act(gate) up, GATED_SILU_FORWARD or _BACKWARD. With another hidden_act than silu
 * it moves the same bytes and has no arithmetic here. */
void hf_gated_kernel(emitter *e, kernel_kind kind, dtype type, int64_t rows, int64_t columns,
                     const ref *reads, const ref *writes);

/* A kernel between rows of all columns and rows of some. */
void hf_columns_kernel(emitter *e, const graph *g, kernel_kind kind, tensor_id all, tensor_id some,
                       const ref *reads, const ref *writes);

/* What attention scores are multiplied by; `width` of a head. */
double hf_score_factor(const settings *s, int64_t width);

/* `r`, which is the tensor `t`, broadcast to the shape of `like`. */
ref hf_expanded(emitter *e, const graph *g, ref r, tensor_id t, tensor_id like);

/* Sums `rows` rows of `from` into the vector `to`. Blocks that share a column write their partial
 * sums to a temporary (aten/src/ATen/native/cuda/Reduce.cuh). */
void hf_sum_rows(emitter *e, dtype type, int64_t rows, int64_t columns, ref from, ref to);

#endif
