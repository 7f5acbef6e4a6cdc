/*
 * The gated delta rule of flash-linear-attention (fla-org, bc3b101d):
 * fla/ops/gated_delta_rule/chunk.py, ChunkGatedDeltaRuleFunction. One kernel here for each of its
 * kernels, with the tensors that these functions allocate, in their order.
 *
 * A head's state S is a matrix [key, value]. Position i decays it by exp(g_i) and adds
 * beta_i k_i (v_i - k_i S)^T; its output is q_i S / sqrt(width of a key). Positions go by chunks of C,
 * with G the sums of g within a chunk:
 *
 *   kernel                  source                                        operations of a head's chunk
 *   DELTA_INVERSE           chunk_fwd.py: ..._kkt_solve_kernel            2 C C K + 2 C C C
 *   DELTA_UPDATES           wy_fast.py: recompute_w_u_fwd                 2 C C (K + V)
 *   DELTA_STATES            common/chunk_delta_h.py: ..._fwd_h            4 C K V
 *   DELTA_OUTPUT            common/chunk_o.py: chunk_fwd_o                2 C K V + 2 C C (K + V)
 *   DELTA_VALUE_GRADIENT    common/chunk_o.py: chunk_bwd_dv_local         2 C C (K + V)
 *   DELTA_STATES_BACKWARD   common/chunk_delta_h.py: ..._bwd_dhu          6 C K V
 *   DELTA_OUTPUT_BACKWARD   common/chunk_o.py: chunk_bwd_dqkwg            6 C K V + 2 C C (3 K + V)
 *   DELTA_UPDATES_BACKWARD  wy_fast.py: prepare_wy_repr_bwd               2 C C (5 K + 2 V) + 4 C C C
 *
 * With widths of 128 these are at most 80 operations for each byte that a kernel reads and writes,
 * fewer than tensor cores do in the time of a byte: the bytes decide how long they take.
 */

#include "sim/base/units.h"
#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

enum {
  BATCH,
  TOKENS,
  KEY_HEADS,
  HEADS,
  QK_DIM,
  V_DIM,
  CHUNK
};                             /* dims of the node and its kernels */
enum { Q, K, V, DECAY, BETA }; /* inputs */
enum { OUT, Q_NORMED, Q_INVERSE, K_NORMED, K_INVERSE, V_ROWS, SUMS, INVERSES };
enum { SAVED_Q, SAVED_Q_INVERSE, SAVED_K, SAVED_K_INVERSE, SAVED_V, SAVED_SUMS, SAVED_BETA };
enum { SAVED_INVERSES = 8 };
static const double l2norm_epsilon = 1e-6;

/* What the kernels share. */
typedef struct rule {
  const int64_t *dims;
  dtype type;
  ref q, k, v, sums, beta, inverses;
} rule;

static void emit_delta(emitter *e, const rule *r, kernel_kind kind, const ref *reads,
                       const ref *writes)
{
  kernel_shape shape = { .kind = kind, .type = r->type };
  for (int i = 0; i <= CHUNK; i++)
    shape.dims[i] = r->dims[i];
  emit_kernel(e, shape, reads, writes);
}

/* [batch, tokens, heads, width]; without the last dimension if the width is 0. */
static ref by_position(emitter *e, const rule *r, const char *name, dtype type, int64_t heads,
                       int64_t width)
{
  return emit_temporary(e, name, type, r->dims[BATCH], r->dims[TOKENS], heads, width,
                        CLASS_TRANSIENT);
}

static ref by_head(emitter *e, const rule *r, const char *name, int64_t width)
{
  return by_position(e, r, name, r->type, r->dims[HEADS], width);
}

/* A state for each chunk of each head. */
static ref states(emitter *e, const rule *r, const char *name)
{
  int64_t chunks = ceil_div(r->dims[TOKENS], r->dims[CHUNK]);
  return emit_temporary(e, name, r->type, r->dims[BATCH] * chunks, r->dims[HEADS], r->dims[QK_DIM],
                        r->dims[V_DIM], CLASS_TRANSIENT);
}

static void sum_in_chunks(emitter *e, const rule *r, bool reversed, ref from, ref to)
{
  emit_kernel(
      e,
      (kernel_shape){ .kind = KERNEL_CHUNK_SUMS,
                      .type = DTYPE_FP32,
                      .dims = { r->dims[BATCH], r->dims[TOKENS], r->dims[HEADS], r->dims[CHUNK] },
                      .scalars = { reversed } },
      (ref[]){ from, 0 }, (ref[]){ to, 0 });
}

/* fla/utils/_decorators.py, input_guard: slices are copied, and the copies live as long as the call. */
static ref contiguous(emitter *e, const graph *g, tensor_id x, ref to)
{
  ref from = emit_input(e, x);
  emit_memory_kernel(e, KERNEL_COPY_STRIDED, type_of(g, x), tensor_elements(g, x),
                     (ref[]){ from, 0 }, (ref[]){ to, 0 });
  return to;
}

/* fla/modules/l2norm.py: l2norm_fwd. */
static ref normed(emitter *e, const rule *r, ref x, tensor_id to, tensor_id inverse)
{
  int64_t rows = r->dims[BATCH] * r->dims[TOKENS] * r->dims[KEY_HEADS];
  ref y = emit_output(e, to);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_L2NORM_FORWARD,
                              .type = r->type,
                              .dims = { rows, r->dims[QK_DIM] },
                              .scalars = { l2norm_epsilon } },
              (ref[]){ x, 0 }, (ref[]){ y, emit_output(e, inverse), 0 });
  return y;
}

/* The states before all chunks and the new values, from what positions read and write. */
typedef struct updates {
  ref read, write, states, values;
} updates;

static updates update(emitter *e, const rule *r)
{
  updates u = { .read = by_head(e, r, "delta_read", r->dims[QK_DIM]),
                .write = by_head(e, r, "delta_write", r->dims[V_DIM]) };
  emit_delta(e, r, KERNEL_DELTA_UPDATES, (ref[]){ r->k, r->v, r->beta, r->inverses, r->sums, 0 },
             (ref[]){ u.read, u.write, 0 });
  u.states = states(e, r, "delta_states");
  u.values = by_head(e, r, "delta_values", r->dims[V_DIM]);
  emit_delta(e, r, KERNEL_DELTA_STATES, (ref[]){ r->k, u.read, u.write, r->sums, 0 },
             (ref[]){ u.states, u.values, 0 });
  return u;
}

static void delta_rule_forward(emitter *e, const graph *g, const graph_node *n)
{
  const tensor_id *in = n->inputs, *out = n->outputs;
  rule r = { .dims = n->dims, .type = type_of(g, in[Q]) };
  ref q = by_position(e, &r, "query_rows", r.type, r.dims[KEY_HEADS], r.dims[QK_DIM]);
  q = contiguous(e, g, in[Q], q);
  ref k = by_position(e, &r, "key_rows", r.type, r.dims[KEY_HEADS], r.dims[QK_DIM]);
  k = contiguous(e, g, in[K], k);
  r.v = contiguous(e, g, in[V], emit_output(e, out[V_ROWS]));
  r.beta = emit_input(e, in[BETA]);
  r.q = normed(e, &r, q, out[Q_NORMED], out[Q_INVERSE]);
  r.k = normed(e, &r, k, out[K_NORMED], out[K_INVERSE]);
  r.sums = emit_output(e, out[SUMS]);
  sum_in_chunks(e, &r, false, emit_input(e, in[DECAY]), r.sums);
  r.inverses = emit_output(e, out[INVERSES]);
  emit_fill(e, r.type, tensor_elements(g, out[INVERSES]), r.inverses);
  emit_delta(e, &r, KERNEL_DELTA_INVERSE, (ref[]){ r.k, r.sums, r.beta, 0 },
             (ref[]){ r.inverses, 0 });
  updates u = update(e, &r);
  emit_delta(e, &r, KERNEL_DELTA_OUTPUT, (ref[]){ r.q, r.k, u.values, u.states, r.sums, 0 },
             (ref[]){ emit_output(e, out[OUT]), 0 });
}

/* Sums over the value heads that share a key head; `from` itself if each has its own. */
static ref by_key_head(emitter *e, const rule *r, const char *name, ref from)
{
  int64_t width = r->dims[QK_DIM],
          elements = r->dims[BATCH] * r->dims[TOKENS] * r->dims[HEADS] * width;
  if (r->dims[HEADS] == r->dims[KEY_HEADS]) return from;
  ref sum = by_position(e, r, name, r->type, r->dims[KEY_HEADS], width);
  emit_kernel(
      e,
      (kernel_shape){ .kind = KERNEL_REPEAT_BACKWARD,
                      .type = r->type,
                      .dims = { elements },
                      .scalars = { (double)(r->dims[HEADS] / r->dims[KEY_HEADS]), (double)width } },
      (ref[]){ from, 0 }, (ref[]){ sum, 0 });
  emit_drop(e, from);
  return sum;
}

static void add(emitter *e, dtype type, int64_t elements, ref to, ref what)
{
  emit_memory_kernel(e, KERNEL_ADD, type, elements, (ref[]){ to, what, 0 }, (ref[]){ to, 0 });
}

static void drop(emitter *e, const ref *dead)
{
  for (; *dead != 0; dead++)
    emit_drop(e, *dead);
}

typedef struct gradients {
  ref q, k, v, sums, beta;
} gradients;

/* The sums of the decay have gradients of 128 columns of keys each. */
static ref joined_sums(emitter *e, const rule *r, ref parts, int64_t count)
{
  int64_t elements = r->dims[BATCH] * r->dims[TOKENS] * r->dims[HEADS];
  ref sum = by_position(e, r, "sums_gradient", DTYPE_FP32, r->dims[HEADS], 0);
  emit_memory_kernel(e, KERNEL_COLUMN_SUMS, DTYPE_FP32, count * elements, (ref[]){ parts, 0 },
                     (ref[]){ sum, 0 });
  emit_drop(e, parts);
  return sum;
}

/* common/chunk_o.py, chunk_bwd_dqkwg: CONST_TILING of GPUs since Hopper. */
enum { KEY_COLUMNS = 128 };

/* chunk_gated_delta_rule_bwd. */
static gradients differentiate(emitter *e, const rule *r, ref gy)
{
  int64_t parts = ceil_div(r->dims[QK_DIM], KEY_COLUMNS), heads = r->dims[HEADS];
  int64_t keys = r->dims[BATCH] * r->dims[TOKENS] * r->dims[KEY_HEADS] * r->dims[QK_DIM];
  updates u = update(e, r);
  ref local = by_head(e, r, "values_gradient_local", r->dims[V_DIM]);
  emit_delta(e, r, KERNEL_DELTA_VALUE_GRADIENT, (ref[]){ r->q, r->k, r->sums, gy, 0 },
             (ref[]){ local, 0 });
  ref of_states = states(e, r, "states_gradient");
  ref of_values = by_head(e, r, "values_gradient", r->dims[V_DIM]);
  emit_delta(e, r, KERNEL_DELTA_STATES_BACKWARD,
             (ref[]){ r->q, r->k, u.read, r->sums, gy, local, 0 },
             (ref[]){ of_states, of_values, 0 });
  emit_drop(e, local);
  gradients made = { .q = by_head(e, r, "query_gradient_by_head", r->dims[QK_DIM]),
                     .k = by_head(e, r, "key_gradient_by_head", r->dims[QK_DIM]) };
  ref of_sums = emit_temporary(e, "sums_gradient_parts", DTYPE_FP32, parts, r->dims[BATCH],
                               r->dims[TOKENS], heads, CLASS_TRANSIENT);
  ref of_read = by_head(e, r, "read_gradient", r->dims[QK_DIM]);
  emit_delta(e, r, KERNEL_DELTA_OUTPUT_BACKWARD,
             (ref[]){ r->q, r->k, u.values, r->sums, u.states, of_values, gy, of_states, 0 },
             (ref[]){ made.q, made.k, of_sums, of_read, 0 });
  made.q = by_key_head(e, r, "query_gradient", made.q);
  made.k = by_key_head(e, r, "key_gradient", made.k);
  of_sums = joined_sums(e, r, of_sums, parts);
  ref more_k = by_head(e, r, "key_gradient_of_updates_by_head", r->dims[QK_DIM]);
  made.v = by_head(e, r, "value_gradient", r->dims[V_DIM]);
  ref more_sums = by_position(e, r, "sums_gradient_of_updates", DTYPE_FP32, heads, 0);
  made.beta = by_position(e, r, "beta_gradient", r->type, heads, 0);
  emit_delta(e, r, KERNEL_DELTA_UPDATES_BACKWARD,
             (ref[]){ r->k, r->v, r->beta, r->sums, r->inverses, of_read, of_values, 0 },
             (ref[]){ more_k, made.v, made.beta, more_sums, 0 });
  more_k = by_key_head(e, r, "key_gradient_of_updates", more_k);
  emit_drop(e, of_values);
  add(e, r->type, keys, made.k, more_k);
  add(e, DTYPE_FP32, r->dims[BATCH] * r->dims[TOKENS] * heads, of_sums, more_sums);
  made.sums = by_position(e, r, "decay_gradient", DTYPE_FP32, heads, 0);
  sum_in_chunks(e, r, true, of_sums, made.sums);
  drop(e, (ref[]){ of_sums, u.read, u.write, u.states, u.values, of_states, of_read, more_k,
                   more_sums, 0 });
  return made;
}

static void normed_gradient(emitter *e, const rule *r, ref gy, ref y, ref inverse, tensor_id x)
{
  int64_t rows = r->dims[BATCH] * r->dims[TOKENS] * r->dims[KEY_HEADS];
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_L2NORM_BACKWARD,
                              .type = r->type,
                              .dims = { rows, r->dims[QK_DIM] } },
              (ref[]){ gy, y, inverse, 0 }, (ref[]){ emit_grad_for(e, x), 0 });
}

static void delta_rule_backward(emitter *e, const graph *g, const graph_node *n)
{
  rule r = { .dims = n->dims,
             .type = type_of(g, n->inputs[Q]),
             .q = emit_saved(e, SAVED_Q),
             .k = emit_saved(e, SAVED_K),
             .v = emit_saved(e, SAVED_V),
             .sums = emit_saved(e, SAVED_SUMS),
             .beta = emit_saved(e, SAVED_BETA),
             .inverses = emit_saved(e, SAVED_INVERSES) };
  gradients made = differentiate(e, &r, emit_grad_of(e, n->outputs[OUT]));
  normed_gradient(e, &r, made.q, r.q, emit_saved(e, SAVED_Q_INVERSE), n->inputs[Q]);
  emit_drop(e, made.q);
  normed_gradient(e, &r, made.k, r.k, emit_saved(e, SAVED_K_INVERSE), n->inputs[K]);
  emit_drop(e, made.k);
  emit_grad_is(e, n->inputs[V], made.v);
  emit_grad_is(e, n->inputs[DECAY], made.sums);
  emit_grad_is(e, n->inputs[BETA], made.beta);
}

const operator_kind operator_delta_rule = { "delta_rule", delta_rule_forward, delta_rule_backward };
