/*
 * The optimizer step of some parameters: sim/compile/optimizer.h lists the operands.
 *
 * Each element separately, in `real`, with g the gradient times the clip coefficient and p the main
 * parameter:
 *
 *   two states, AdamW (Transformer Engine common/multi_tensor/adam.cu, ADAM_MODE_1):
 *     m = beta1 m + (1 - beta1) g
 *     v = beta2 v + ((1 - beta2) g) g
 *     p = p - rate ((m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay p)
 *   one state, SGD with momentum (torch.optim.SGD):
 *     m = beta1 m + (g + decay p)
 *     p = p - rate m
 *   no state, SGD:
 *     p = p - rate (g + decay p)
 *
 * t counts steps from 1; the powers are products of doubles, first to last. States, main parameter
 * and weight are rounded where they are stored; the weight is p before that rounding.
 */
#include <assert.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

enum { MOST_STATES = 2 };

typedef struct rules {
  real rate, clip, decay, beta1, beta2, epsilon;
  real correction1, correction2; /* 1 - beta^t */
} rules;

static real correction(double beta, uint32_t steps)
{
  double power = 1;
  for (uint32_t i = 0; i < steps; i++)
    power *= beta;
  return (real)(1 - power);
}

static rules rules_of(const exec_call *c)
{
  const double *s = c->call->scalars;
  return (rules){ .rate = c->step->learning_rate,
                  .clip = c->step->clip_coefficient,
                  .decay = (real)s[0],
                  .beta1 = (real)s[1],
                  .beta2 = (real)s[2],
                  .epsilon = (real)s[3],
                  .correction1 = correction(s[1], c->step->number + 1),
                  .correction2 = correction(s[2], c->step->number + 1) };
}

static real stepped(const rules *r, int64_t states, real g, real p, real state[MOST_STATES])
{
  g *= r->clip;
  if (states == MOST_STATES) {
    state[0] = r->beta1 * state[0] + (1 - r->beta1) * g;
    state[1] = r->beta2 * state[1] + (1 - r->beta2) * g * g;
    real m = state[0] / r->correction1, v = state[1] / r->correction2;
    return p - r->rate * (m / (real_sqrt(v) + r->epsilon) + r->decay * p);
  }
  real d = g + r->decay * p;
  if (states == 1) d = state[0] = r->beta1 * state[0] + d;
  return p - r->rate * d;
}

/* One parameter's operands among those of the call. */
typedef struct parameter_operands {
  const exec_tensor *gradient, *main, *weight,
      *copy; /* copy: the written main parameter; NULL: none */
  const exec_tensor *states, *new_states;
} parameter_operands;

enum { BLOCK = 256 }; /* elements at a time */

static void step_block(const rules *r, int64_t states, const parameter_operands *o, int64_t first,
                       int64_t count)
{
  real g[BLOCK], p[BLOCK], state[MOST_STATES][BLOCK];
  ref_load_row(o->gradient, first, count, g);
  ref_load_row(o->main, first, count, p);
  for (int64_t k = 0; k < states; k++)
    ref_load_row(&o->states[k], first, count, state[k]);
  for (int64_t i = 0; i < count; i++) {
    real own[MOST_STATES] = { states > 0 ? state[0][i] : 0, states > 1 ? state[1][i] : 0 };
    p[i] = stepped(r, states, g[i], p[i], own);
    for (int64_t k = 0; k < states; k++)
      state[k][i] = own[k];
  }
  for (int64_t k = 0; k < states; k++)
    ref_store_row(&o->new_states[k], first, count, state[k]);
  ref_store_row(o->weight, first, count, p);
  if (o->copy != NULL) ref_store_row(o->copy, first, count, p);
}

static void step_one(const rules *r, int64_t states, const parameter_operands *o)
{
  int64_t elements = exec_elements(o->gradient);
  assert(exec_elements(o->weight) == elements && exec_elements(o->main) == elements);
  for (int64_t i = 0; i < elements; i += BLOCK)
    step_block(r, states, o, i, elements - i < BLOCK ? elements - i : BLOCK);
}

void ref_optimizer_step(const exec_call *c)
{
  rules r = rules_of(c);
  int64_t tensors = exec_dim(c, 1), states = exec_dim(c, 2), main = exec_dim(c, 3);
  const exec_tensor *read = c->reads, *written = c->writes;
  assert(c->read_count == tensors * (2 + states) &&
         c->write_count == tensors * (1 + main + states));
  for (int64_t i = 0; i < tensors; i++, read += 2 + states, written += 1 + main + states) {
    parameter_operands o = { .gradient = &read[0],
                             .main = &read[1],
                             .weight = &written[0],
                             .copy = main != 0 ? &written[1] : NULL,
                             .states = read + 2,
                             .new_states = written + 1 + main };
    step_one(&r, states, &o);
  }
}

/* Norms and clipping of gradients: the trainer has both (exec_step.clip_coefficient). */
void ref_by_trainer(const exec_call *c)
{
  (void)c;
}
