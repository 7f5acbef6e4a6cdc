#include "sim/model/saved_marks.h"

#include "sim/graph/sizes.h"
#include "sim/model/hf/hf.h"
#include "sim/operators/moe.h"
#include "sim/operators/operators.h"

enum { ATTENTION_CP = 6 }; /* of operator_attention's dims */
enum { ALL = 0xffff, FIRST = 0x1, QUERY_KEY_VALUE = 0x7 };

static const struct {
  const operator_kind *kind;
  saved_marks by_te, by_megatron; /* transformer_impl transformer_engine, or local */
} rows[] = {
  { &operator_linear, { FIRST, FIRST, 0 }, { FIRST, 0, 0 } },
  { &operator_norm_linear, { ALL, FIRST, 0 }, { 0 } },
  { &operator_norm, { ALL, 0, 0 }, { 0 } },
  { &operator_grouped_linear, { 0, FIRST, 0 }, { 0 } },
  { &operator_attention, { ALL, QUERY_KEY_VALUE, QUERY_KEY_VALUE }, { 0 } },
};

/* The fused kernel's function marks all its tensors, flash attention's wrapper marks its
 * arguments. The function that exchanges keys and values over context parallel ranks marks
 * nothing. */
static saved_marks marks_of_attention(const graph_node *n, saved_marks marks)
{
  bool flash = (n->flags & ATTENTION_FLASH) != 0;
  bool exchanged = n->dims[ATTENTION_CP] > 1;

  if (flash) marks.marked = QUERY_KEY_VALUE;
  if (exchanged) marks.marked = 0;
  if (exchanged && !flash) marks.early = marks.base = 0;
  return marks;
}

/* By saved tensor: whether the operator makes it, as a linear in fp8 its copy of the input and attention's
 * ring the joined keys and values. It announces none sooner, and none is a view of an argument. */
static uint16_t made_by(const graph_node *n)
{
  uint16_t made = 0;
  for (int i = 0; i < NODE_SAVED && n->saved[i] != 0; i++)
    for (int k = 0; k < NODE_OUTPUTS && n->outputs[k] != 0; k++)
      if (n->outputs[k] == n->saved[i]) made = (uint16_t)(made | 1u << i);
  return made;
}

/* Among activations, the fused SwiGLU and those of TE mark their saved tensors. */
static saved_marks marks_of_activation(const settings *s)
{
  bool fused = s->model.bias_activation_fusion && s->model.swiglu;

  return (saved_marks){ .marked = s->model.use_te_activation_func || fused ? FIRST : 0 };
}

saved_marks saved_marks_of(const settings *s, const graph_node *n)
{
  if (uses_hf(s)) return (saved_marks){ .early = hf_packed_early(n) };
  if (n->kind == &operator_activation) return marks_of_activation(s);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (rows[i].kind == n->kind) {
      saved_marks marks = uses_te(s) ? rows[i].by_te : rows[i].by_megatron;
      if (n->kind == &operator_attention) marks = marks_of_attention(n, marks);
      marks.early &= (uint16_t)~made_by(n);
      marks.base &= (uint16_t)~made_by(n);
      return marks;
    }
  return (saved_marks){ 0 };
}

/* Parameters in fp8 are Parameters, which no engine takes. The fuser's linears are others. */
int64_t saved_wrapped_elements(const settings *s, const graph *g, const graph_node *n)
{
  bool experts = n->kind == &operator_grouped_linear;
  bool linear = n->kind == &operator_linear || n->kind == &operator_norm_linear;
  bool quantizes =
      (linear && (n->flags & LINEAR_QUANTIZES) != 0) ||
      (experts && n->dims[GROUPED_GRADIENT_BYTES] > 0 && !s->model.use_transformer_engine_op_fuser);

  if (!quantizes || s->training.fp8_param_gather) return 0;
  return tensor_elements(g, n->inputs[1]) / (experts ? n->dims[GROUPED_EXPERTS] : 1);
}
