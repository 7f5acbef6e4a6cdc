/* ref/kernels/optimizer.c for GPUs; its comment has the formulas. */
#include "cuda/kernels/operands.cuh"

enum { MOST_STATES = 2 };

typedef struct rules {
  float rate, clip, decay, beta1, beta2, epsilon;
  float correction1, correction2; /* 1 - beta^t */
} rules;

static float correction(double beta, uint32_t steps)
{
  double power = 1;
  for (uint32_t i = 0; i < steps; i++)
    power *= beta;
  return (float)(1 - power);
}

static rules rules_of(const exec_call *c)
{
  const double *s = c->call->scalars;
  rules r = { c->step->learning_rate,
              c->step->clip_coefficient,
              (float)s[0],
              (float)s[1],
              (float)s[2],
              (float)s[3],
              correction(s[1], c->step->number + 1),
              correction(s[2], c->step->number + 1) };
  return r;
}

DEVICE static inline float stepped(const rules &r, int64_t states, float g, float p,
                                   float state[MOST_STATES])
{
  g *= r.clip;
  if (states == MOST_STATES) {
    state[0] = r.beta1 * state[0] + (1 - r.beta1) * g;
    state[1] = r.beta2 * state[1] + (1 - r.beta2) * g * g;
    float m = state[0] / r.correction1, v = state[1] / r.correction2;
    return p - r.rate * (m / (exact_sqrtf(v) + r.epsilon) + r.decay * p);
  }
  float d = g + r.decay * p;
  if (states == 1) d = state[0] = r.beta1 * state[0] + d;
  return p - r.rate * d;
}

/* One parameter's operands, with its states and its copy if it has them. */
typedef struct parameter_operands {
  tensor gradient, main, weight, copy, states[MOST_STATES], new_states[MOST_STATES];
} parameter_operands;

static void step_one(cuda_call *c, rules r, int64_t states, bool has_copy, parameter_operands o)
{
  for_each(
      c, elements_of(o.gradient), KERNEL_LAMBDA(int64_t i) {
        float own[MOST_STATES] = { 0, 0 };
        for (int64_t k = 0; k < states; k++)
          own[k] = load(o.states[k], i);
        float p = stepped(r, states, load(o.gradient, i), load(o.main, i), own);
        for (int64_t k = 0; k < states; k++)
          store(o.new_states[k], i, own[k]);
        store(o.weight, i, p);
        if (has_copy) store(o.copy, i, p);
      });
}

extern "C" void EXACT(optimizer_step)(cuda_call *c)
{
  rules r = rules_of(c->of);
  int64_t tensors = dim_of(c->of, 1), states = dim_of(c->of, 2), main = dim_of(c->of, 3);
  const tensor *read = c->of->reads, *written = c->of->writes;
  assert(c->of->read_count == tensors * (2 + states) &&
         c->of->write_count == tensors * (1 + main + states) && states <= MOST_STATES);
  for (int64_t i = 0; i < tensors; i++, read += 2 + states, written += 1 + main + states) {
    parameter_operands o = {
      merged(read[0]), merged(read[1]), merged(written[0]), merged(written[main != 0]), {}, {}
    };
    for (int64_t k = 0; k < states; k++) {
      o.states[k] = merged(read[2 + k]);
      o.new_states[k] = merged(written[1 + main + k]);
    }
    step_one(c, r, states, main != 0, o);
  }
}

extern "C" void EXACT(by_trainer)(cuda_call *c)
{
  (void)c;
}
