/*
 * Rotary embedding, and the keys and values of latent attention, which have a rotated part.
 *
 * Transformer Engine: attention/rope.py (d0067d0d); Megatron-LM:
 * core/models/common/embeddings/rope_utils.py, core/fusions/fused_mla_yarn_rope_apply.py.
 */
#include "sim/operators/operators.h"

#include <assert.h>

#include "sim/operators/shared.h"

enum { TOKENS, HEADS, WIDTH, BATCH, PAIRS };
enum { PAIRS_SCALAR = 2, SINE_SCALAR };

static double theta_of(const emitter *e)
{
  return emit_settings(e)->model.rotary_base;
}

static kernel_shape rope_shape(const emitter *e, const graph *g, const graph_node *n,
                               kernel_kind kind)
{
  return (
      kernel_shape){ .kind = kind,
                     .type = type_of(g, n->inputs[0]),
                     .dims = { n->dims[TOKENS], n->dims[HEADS], n->dims[WIDTH] },
                     .scalars = { theta_of(e), (double)n->dims[BATCH], (double)n->dims[PAIRS] } };
}

/* The pairs of the products' results: halves for any pairs of x, except neighbours that stay in
 * place. */
static double pairs_of_products(const graph_node *n)
{
  return n->dims[PAIRS] == ROPE_PAIRS_NEIGHBOURS ? ROPE_PAIRS_NEIGHBOURS : ROPE_PAIRS_HALVES;
}

/* x times cosine, or the rotated half times sine; backward reads the factors again. */
static ref product(emitter *e, const graph *g, const graph_node *n, const char *name, bool sine,
                   ref x, ref factors)
{
  kernel_shape shape = rope_shape(e, g, n, KERNEL_ROPE_PRODUCT);
  int64_t elements = n->dims[TOKENS] * n->dims[HEADS] * n->dims[WIDTH];
  ref y = emit_vector(e, name, shape.type, elements);
  if (sine) shape.scalars[PAIRS_SCALAR] = pairs_of_products(n);
  shape.scalars[SINE_SCALAR] = sine;
  shape.bytes = emit_bytes(e, x) + emit_bytes(e, y);
  emit_kernel(e, shape, (ref[]){ x, 0 }, (ref[]){ y, factors, 0 });
  return y;
}

/* (-x2, x1) of the pairs (x1, x2). */
static ref rotated_half(emitter *e, const graph *g, const graph_node *n, ref x)
{
  int64_t elements = n->dims[TOKENS] * n->dims[HEADS] * n->dims[WIDTH];
  kernel_shape shape = { .type = type_of(g, n->inputs[0]),
                         .dims = { n->dims[TOKENS], n->dims[HEADS], n->dims[WIDTH] },
                         .scalars = { (double)n->dims[PAIRS] } };
  ref negated = emit_vector(e, "negated_half", shape.type, elements / 2);
  shape.kind = KERNEL_ROPE_NEGATED_HALF;
  emit_kernel(e, shape, (ref[]){ x, 0 }, (ref[]){ negated, 0 });
  ref rotated = emit_vector(e, "rotated_half", shape.type, elements);
  shape.kind = KERNEL_ROPE_ROTATED_HALF;
  emit_kernel(e, shape, (ref[]){ x, negated, 0 }, (ref[]){ rotated, 0 });
  emit_drop(e, negated);
  return rotated;
}

/* Without fusion (rope_utils.py: _apply_rotary_pos_emb_bshd): x cos, the rotated half, the
 * rotated half times sin, their sum, and the concatenation with the part that is not rotated, are
 * each a new tensor. */
static void rope_apart(emitter *e, const graph *g, const graph_node *n, ref x)
{
  dtype type = type_of(g, n->inputs[0]);
  int64_t elements = n->dims[TOKENS] * n->dims[HEADS] * n->dims[WIDTH];
  ref cosine = emit_output(e, n->outputs[1]);
  ref sine = emit_output(e, n->outputs[2]);
  ref scaled = product(e, g, n, "x_cos", false, x, cosine);
  ref rotated = rotated_half(e, g, n, x);
  ref turned = product(e, g, n, "rotated_sin", true, rotated, sine);
  emit_drop(e, rotated);
  ref sum = emit_vector(e, "rotated", type, elements);
  emit_memory_kernel(e, KERNEL_ADD, type, elements, (ref[]){ scaled, turned, 0 },
                     (ref[]){ sum, 0 });
  emit_drop(e, scaled);
  emit_drop(e, turned);
  ref y = emit_output(e, n->outputs[0]);
  kernel_shape join = { .kind = KERNEL_ROPE_JOIN,
                        .type = type,
                        .dims = { n->dims[TOKENS], n->dims[HEADS], n->dims[WIDTH] },
                        .bytes = emit_bytes(e, sum) + emit_bytes(e, y),
                        .scalars = { (double)n->dims[PAIRS] } };
  emit_kernel(e, join, (ref[]){ sum, x, 0 }, (ref[]){ y, 0 });
}

static void rope_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) % (n->dims[TOKENS] * n->dims[HEADS]) == 0);
  assert(n->dims[WIDTH] % 2 == 0 && n->dims[TOKENS] % n->dims[BATCH] == 0);
  ref x = emit_input(e, n->inputs[0]);
  if (n->flags != 0)
    rope_apart(e, g, n, x);
  else
    emit_kernel(e, rope_shape(e, g, n, KERNEL_ROPE_FORWARD), (ref[]){ x, 0 },
                (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

/* If forward rotates in place, backward rotates the gradient in place. */
static void rope_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  bool in_place = tensor_storage(g, n->outputs[0]) == tensor_storage(g, n->inputs[0]);
  if (in_place) emit_grad_is(e, n->inputs[0], gy);
  ref gx = in_place ? gy : emit_grad_for(e, n->inputs[0]);
  if (gx == 0) return;
  kernel_shape shape = rope_shape(e, g, n, KERNEL_ROPE_BACKWARD);
  shape.bytes = emit_bytes(e, gy) + emit_bytes(e, gx);
  ref reads[4] = { gy };
  for (uint32_t i = 0; i < 2 && n->flags != 0; i++)
    reads[1 + i] = emit_saved(e, i);
  emit_kernel(e, shape, reads, (ref[]){ gx, 0 });
}

const operator_kind operator_rope = { "rope", rope_forward, rope_backward };

/* ---- latent attention ------------------------------------------------------------------------ */

/* Triton kernels, or the concatenations without them: forward writes new keys and values;
 * backward writes one gradient for the projection and one for the rotary part. */
static void mla_key_value_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref kv = emit_input(e, n->inputs[0]);
  ref rotary = emit_input(e, n->inputs[1]);
  ref key = emit_output(e, n->outputs[0]);
  ref value = emit_output(e, n->outputs[1]);
  emit_kernel(e, rope_shape(e, g, n, KERNEL_MLA_KEY_VALUE_FORWARD), (ref[]){ kv, rotary, 0 },
              (ref[]){ key, value, 0 });
}

static void mla_key_value_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gkey = emit_grad_of(e, n->outputs[0]);
  ref gvalue = emit_grad_of(e, n->outputs[1]);
  if (gkey == 0) return;
  ref gkv = emit_grad_for(e, n->inputs[0]);
  ref grotary = emit_grad_for(e, n->inputs[1]);
  emit_kernel(e, rope_shape(e, g, n, KERNEL_MLA_KEY_VALUE_BACKWARD), (ref[]){ gkey, gvalue, 0 },
              (ref[]){ gkv, grotary, 0 });
}

const operator_kind operator_mla_key_value = { "mla_key_value", mla_key_value_forward,
                                               mla_key_value_backward };
