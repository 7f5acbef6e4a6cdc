/*
 * The optimizer step of ref/kernels/optimizer.c: all parameters of a call in one kernel. Blocks
 * take tiles; a tile is of one parameter.
 */
#include "cuda/kernels/fast/layout.cuh"

enum { MOST_TENSORS = 32, MOST_STATES = 2, STEP_THREADS = 256, STEP_EACH = 4, STEP_TURNS = 2 };
enum { TILE = STEP_THREADS * STEP_EACH * STEP_TURNS }; /* elements */
enum { STATES_READ = 2, WEIGHT = STATES_READ + MOST_STATES, COPY, STATES_WRITTEN };
enum { STEP_OPERANDS = STATES_WRITTEN + MOST_STATES }; /* gradient and main come first */

struct step_tensor {
  void *data[STEP_OPERANDS];
  int64_t elements;
  uint32_t first_tile;
  uint8_t type[STEP_OPERANDS];
};

struct step_rules {
  float rate, clip, decay, beta1, beta2, epsilon;
  float correction1, correction2; /* 1 / (1 - beta^t) */
};

struct step_call {
  step_rules r;
  int tensors;
  step_tensor tensor[MOST_TENSORS];
};

template <int STATES>
static __device__ inline float stepped(const step_rules &r, float g, float p, float *state)
{
  g *= r.clip;
  if (STATES == MOST_STATES) {
    state[0] = r.beta1 * state[0] + (1 - r.beta1) * g;
    state[1] = r.beta2 * state[1] + (1 - r.beta2) * g * g;
    float m = state[0] * r.correction1, v = state[1] * r.correction2;
    return p - r.rate * (__fdividef(m, sqrtf(v) + r.epsilon) + r.decay * p);
  }
  float d = g + r.decay * p;
  if (STATES == 1) d = state[0] = r.beta1 * state[0] + d;
  return p - r.rate * d;
}

template <int STATES, int V>
static __device__ inline void step_vector(const step_rules &r, const step_tensor &t, int64_t i)
{
  float g[V], p[V], state[MOST_STATES][V];
  load<V>(t.data[0], t.type[0], i, g);
  load<V>(t.data[1], t.type[1], i, p);
#pragma unroll
  for (int k = 0; k < STATES; k++)
    load<V>(t.data[STATES_READ + k], t.type[STATES_READ + k], i, state[k]);
#pragma unroll
  for (int j = 0; j < V; j++) {
    float own[MOST_STATES];
#pragma unroll
    for (int k = 0; k < STATES; k++)
      own[k] = state[k][j];
    p[j] = stepped<STATES>(r, g[j], p[j], own);
#pragma unroll
    for (int k = 0; k < STATES; k++)
      state[k][j] = own[k];
  }
#pragma unroll
  for (int k = 0; k < STATES; k++)
    store<V>(t.data[STATES_WRITTEN + k], t.type[STATES_WRITTEN + k], i, state[k]);
  store<V>(t.data[WEIGHT], t.type[WEIGHT], i, p);
  if (t.data[COPY] != NULL) store<V>(t.data[COPY], t.type[COPY], i, p);
}

template <int STATES>
__global__ void __launch_bounds__(STEP_THREADS) step_kernel(const __grid_constant__ step_call s)
{
  int which = 0;
  while (which + 1 < s.tensors && s.tensor[which + 1].first_tile <= blockIdx.x)
    which++;
  const step_tensor &t = s.tensor[which];
  int64_t first = (int64_t)(blockIdx.x - t.first_tile) * TILE;
#pragma unroll
  for (int turn = 0; turn < STEP_TURNS; turn++) {
    int64_t i = first + (turn * STEP_THREADS + (int)threadIdx.x) * STEP_EACH;
    if (i + STEP_EACH <= t.elements)
      step_vector<STATES, STEP_EACH>(s.r, t, i);
    else
      for (; i < t.elements; i++)
        step_vector<STATES, 1>(s.r, t, i);
  }
}

static float correction(double beta, uint32_t steps)
{
  double power = 1;
  for (uint32_t i = 0; i < steps; i++)
    power *= beta;
  return power < 1 ? (float)(1 / (1 - power)) : 1.0f;
}

static step_rules rules_of(const exec_call *c)
{
  const double *s = c->call->scalars;
  step_rules r;
  r.rate = c->step->learning_rate;
  r.clip = c->step->clip_coefficient;
  r.decay = (float)s[0];
  r.beta1 = (float)s[1];
  r.beta2 = (float)s[2];
  r.epsilon = (float)s[3];
  r.correction1 = correction(s[1], c->step->number + 1);
  r.correction2 = correction(s[2], c->step->number + 1);
  return r;
}

/* Operand `which` of a parameter of `elements`. */
static bool take(step_tensor *to, int which, const tensor &t)
{
  to->data[which] = t.data;
  to->type[which] = t.type;
  return is_number(t) && is_contiguous(t) && elements_of(t) == to->elements &&
         (uintptr_t)t.data % (size_t)(STEP_EACH * size_of(t)) == 0;
}

static bool step_of(const exec_call *c, step_call *s, uint32_t *tiles)
{
  int64_t tensors = c->call->dims[1], states = c->call->dims[2], main = c->call->dims[3];
  const tensor *read = c->reads, *written = c->writes;
  bool suits = tensors <= MOST_TENSORS && states <= MOST_STATES;
  s->tensors = (int)tensors;
  *tiles = 0;
  for (int i = 0; suits && i < s->tensors; i++) {
    step_tensor *t = &s->tensor[i];
    *t = step_tensor{};
    t->elements = elements_of(read[0]);
    t->first_tile = *tiles;
    suits = take(t, 0, *read++) && take(t, 1, *read++) && take(t, WEIGHT, *written++);
    if (suits && main != 0) suits = take(t, COPY, *written++);
    for (int k = 0; suits && k < states; k++)
      suits = take(t, STATES_READ + k, *read++) && take(t, STATES_WRITTEN + k, *written++);
    *tiles += blocks_of(t->elements, TILE);
  }
  return suits;
}

KERNEL_SUITS(optimizer_step)
{
  step_call s;
  uint32_t tiles;
  return step_of(c, &s, &tiles);
}

KERNEL_LAUNCH(optimizer_step)
{
  step_call s;
  uint32_t tiles;
  if (!step_of(c->of, &s, &tiles) || tiles == 0) return;
  s.r = rules_of(c->of);
  switch (c->of->call->dims[2]) {
  case 2: step_kernel<2><<<tiles, STEP_THREADS, 0, stream_of(c)>>>(s); break;
  case 1: step_kernel<1><<<tiles, STEP_THREADS, 0, stream_of(c)>>>(s); break;
  default: step_kernel<0><<<tiles, STEP_THREADS, 0, stream_of(c)>>>(s); break;
  }
  launched(c);
}
