/*
 * What an operator's forward and backward issue.
 *
 * The operator table has one function for each direction. Lowering a chunk calls it once per operator (and
 * again for recomputation). It lists, in program order, the kernels and collectives, the storages that they
 * read and write, and the temporaries between them. A reference is opaque: a storage, and how a kernel sees
 * it (plan_view).
 *
 *   static void linear_backward(emitter *e, const graph *g, const graph_node *n)
 *   {
 *     ref gy = emit_grad_of(e, n->outputs[0]);
 *     ref x = emit_saved(e, 0);
 *     ref gx = emit_grad_for(e, n->inputs[0]);
 *     emit_gemm(e, DTYPE_BF16, rows, in, out, 1, (ref[]){ gy, weight, 0 }, gx);
 *     ...
 *   }
 *
 * Temporaries live until the function returns (as Python locals do) or until emit_drop.
 * Saved tensors live until the operator's backward has returned.
 * The incoming gradients live until the operator's backward has returned, or until emit_drop.
 */
#ifndef OFFSIM_SIM_GRAPH_EMITTER_H
#define OFFSIM_SIM_GRAPH_EMITTER_H

#include "sim/graph/graph.h"

typedef uint32_t ref; /* 0 ends a list */
typedef struct emitter emitter;

typedef struct operator_kind {
  const char *name;
  void (*forward)(emitter *e, const graph *g, const graph_node *n);
  void (*backward)(emitter *e, const graph *g, const graph_node *n);
} operator_kind;

/* Forward: an input or a parameter; an output, which is allocated now (views are not). */
ref emit_input(emitter *e, tensor_id t);
ref emit_output(emitter *e, tensor_id t);

/* A temporary of this operator. */
ref emit_temporary(emitter *e, const char *name, dtype type, int64_t d0, int64_t d1, int64_t d2,
                   int64_t d3, buffer_class class);
void emit_drop(emitter *e, ref r);
/* Another view of the storage of `r`: it begins `offset` elements of `type` after `r`. `strides` are in
 * elements; NULL means contiguous. */
ref emit_strided(emitter *e, ref r, dtype type, int64_t offset, uint32_t rank, const int64_t *shape,
                 const int64_t *strides);
/* Rows of one of equal parts of `r`, which turns with the tensor parallel rank (plan_view): the rank of index
 * 0 sees part number `part`. */
ref emit_turned(emitter *e, ref r, dtype type, uint32_t part, uint32_t parts, int64_t rows,
                int64_t columns);
/* Rows of a matrix from row `first`, in the type of `r`: a weight's may be fp8. */
ref emit_matrix_rows(emitter *e, ref r, int64_t first, int64_t rows, int64_t columns);
/* The same elements with permuted dimensions: dimension i is dimension order[i] of `r`. `shape` is the shape
 * of `r`; if `r` is a tensor, it must be that tensor's shape. */
ref emit_permuted(emitter *e, ref r, uint32_t rank, const int64_t *shape, const uint8_t *order);

/* Forward: attribute `number` of the chunk's modules refers to the storage, and no longer to what it was set
 * to before. It keeps the storage until then, also into the next step. */
void emit_attribute(emitter *e, ref r, uint32_t number);

/* Backward: the gradient of an output (0: nothing flows into it); the i-th saved tensor; a parameter. */
ref emit_grad_of(emitter *e, tensor_id output);
ref emit_saved(emitter *e, uint32_t i);
/* Backward: a tensor that an earlier operator has saved. It lives until the backward of that operator has
 * run. */
ref emit_kept(emitter *e, tensor_id t);
ref emit_parameter(emitter *e, tensor_id parameter);

/* Backward: a new gradient for an input, allocated now. If the input already has a gradient, the new one is
 * added to it in place after this operator, and dies. */
ref emit_grad_for(emitter *e, tensor_id input);
/* Backward: the gradient of `input` is the storage `r` itself or a view of it (residual adds, views). */
void emit_grad_is(emitter *e, tensor_id input, ref r);

/* Backward: the parameter's gradient. With gradient accumulation fusion the kernel adds to the gradient
 * buffer, which this returns. Without it the kernel writes a new temporary; the hook of the gradient
 * accumulator adds that to the buffer, and it dies. The lowering decides from the settings. */
ref emit_parameter_grad(emitter *e, tensor_id parameter, bool fused_with_gemm);
/* The same where the gradient is the storage `r` itself. */
void emit_parameter_grad_is(emitter *e, tensor_id parameter, ref r);

/* A buffer of the framework that many operators use in turn, named after its static allocation
 * (static_buffers.h): its first `rows` x `columns` elements. As an operand it counts `bytes`. */
ref emit_shared_buffer(emitter *e, const char *name, dtype type, int64_t rows, int64_t columns,
                       int64_t bytes);

/* Kernels. `reads` and `writes` end with 0. `stream` is STREAM_COMPUTE or STREAM_COMM. */
typedef struct kernel_shape {
  kernel_kind kind;
  dtype type;
  int64_t dims[PLAN_DIMS];
  int64_t bytes; /* 0: the sum of the operands' sizes */
  double scalars[PLAN_SCALARS];
  uint32_t uncounted; /* that sum leaves out the last `uncounted` reads */
} kernel_shape;

/* The size of an operand as a call's default bytes count it. */
int64_t emit_bytes(const emitter *e, ref r);
void emit_kernel(emitter *e, kernel_shape shape, const ref *reads, const ref *writes);
void emit_gemm(emitter *e, dtype type, int64_t m, int64_t n, int64_t k, int64_t batch,
               gemm_layout layout, const ref *reads, ref write);
/* Backward: one product computes the weight gradient of a linear. With delay_wgrad_compute, a schedule that
 * runs chunks in parts runs it after the rest of the part. A frozen weight gets no product. */
void emit_weight_gradient(emitter *e, kernel_shape shape, const ref *reads, tensor_id weight);
/* A product that waits for the end of the schedule in the first `wgrad_deferral_limit` micro-batches (0: in
 * all). Its operands live until then. */
void emit_deferred_gemm(emitter *e, dtype type, int64_t m, int64_t n, int64_t k, int64_t batch,
                        gemm_layout layout, const ref *reads, ref write);
void emit_collective(emitter *e, plan_stream stream, collective_kind kind, comm_group group,
                     int64_t bytes, const ref *reads, const ref *writes);
/* An all-to-all of tokens that go once to each rank with an expert of theirs: `bytes` of those copies, `once`
 * bytes of the tokens. */
void emit_token_exchange(emitter *e, comm_group group, int64_t bytes, int64_t once,
                         const ref *reads, const ref *writes);
/* A collective in which each rank sends to the one `by` further on, by copy engines. */
void emit_shift(emitter *e, plan_stream stream, comm_group group, int64_t by, int64_t bytes,
                const ref *reads, const ref *writes);
/* The collective that was emitted last waits with the deferred product that follows it. */
void emit_defer(emitter *e);
/* Compute waits for everything issued on the comm stream so far, or the reverse. */
void emit_join(emitter *e, plan_stream waiting, plan_stream waited_for);
/* Copies the weights of experts [first, first + count) of a grouped parameter, which is on the host, to `to`
 * on `stream`, one after the other: a copy each. */
void emit_weights_in(emitter *e, plan_stream stream, tensor_id weight, int64_t first, int64_t count,
                     ref to);
/* The host thread waits for everything issued on the compute stream; emit_host_read: and copies a value from
 * there (`.item()`, `.tolist()`). */
void emit_host_wait(emitter *e);
void emit_host_read(emitter *e);

const settings *emit_settings(const emitter *e);

#endif
