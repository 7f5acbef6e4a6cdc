/* Softmax of rows, and of the scores of attention: ref/kernels/softmax.c. */
#include "cuda/kernels/fast/row_pass.cuh"

struct visible_columns {
  int32_t columns, queries; /* rows of a matrix of scores; 0: all columns count */
  __device__ int32_t of(uint32_t row) const
  {
    return queries == 0 ? columns : columns - queries + (int32_t)(row % (uint32_t)queries) + 1;
  }
};

struct softmax_forward {
  enum { INPUTS = 1, LOOKS = 1, WRITES = 1 };
  struct state {
    exponentials e;
    int32_t count;
    float inverse;
  };
  visible_columns visible;
  float scale;
  __device__ void begin(state *s, uint32_t row) const
  {
    s->e = no_exponentials();
    s->count = visible.of(row);
  }
  template <int V> __device__ void scores(const state *s, int32_t column, float *x) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] = column + j < s->count ? x[j] * scale : -FLT_MAX;
  }
  template <int V> __device__ void look(state *s, int32_t column, float *x, const float *) const
  {
    if (column >= s->count) return;
    scores<V>(s, column, x);
    take_exponentials<V>(&s->e, x);
  }
  __device__ void known(state *s, int32_t group) const
  {
    join_exponentials(&s->e, group);
    s->inverse = 1.0f / s->e.sum;
  }
  template <int V> __device__ void make(state *s, int32_t column, float *x, const float *) const
  {
    scores<V>(s, column, x);
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] = column + j < s->count ? __expf(x[j] - s->e.largest) * s->inverse : 0;
  }
  __device__ void end(state *, uint32_t, int32_t, int32_t) const
  {
  }
};

struct softmax_backward {
  enum { INPUTS = 2, LOOKS = 1, WRITES = 1 };
  struct state {
    float sum;
    int32_t count;
  };
  visible_columns visible;
  float scale;
  __device__ void begin(state *s, uint32_t row) const
  {
    s->sum = 0;
    s->count = visible.of(row);
  }
  template <int V> __device__ void look(state *s, int32_t column, float *gy, const float *y) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      s->sum += column + j < s->count ? gy[j] * y[j] : 0;
  }
  __device__ void known(state *s, int32_t group) const
  {
    s->sum = group_reduce<add_numbers>(group, s->sum);
  }
  template <int V> __device__ void make(state *s, int32_t column, float *gy, const float *y) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      gy[j] = column + j < s->count ? (gy[j] - s->sum) * y[j] * scale : 0;
  }
  __device__ void end(state *, uint32_t, int32_t, int32_t) const
  {
  }
};

template <class R>
static int operands(const exec_call *c, bool causal, row_operands<R::INPUTS> *o, R *r)
{
  int64_t rows = c->call->dims[0], columns = c->call->dims[1];
  const tensor *in[2] = { &c->reads[0], &c->reads[c->read_count - 1] };
  r->visible.columns = (int32_t)columns;
  r->visible.queries = causal ? (int32_t)c->call->scalars[1] : 0;
  r->scale = causal ? (float)c->call->scalars[0] : 1.0f;
  if (c->read_count != R::INPUTS || (causal && c->rank->group[GROUP_CP].size > 1)) return 0;
  return row_pass_operands<R::INPUTS>(in, &c->writes[0], rows, columns, o);
}

#define SOFTMAX_ROW(name, rule, causal)                                                            \
  KERNEL_SUITS(name)                                                                               \
  {                                                                                                \
    row_operands<rule::INPUTS> o;                                                                  \
    rule r;                                                                                        \
    return operands(c, causal, &o, &r) != 0;                                                       \
  }                                                                                                \
  KERNEL_LAUNCH(name)                                                                              \
  {                                                                                                \
    row_operands<rule::INPUTS> o;                                                                  \
    rule r;                                                                                        \
    int v = operands(c->of, causal, &o, &r);                                                       \
    row_pass(c, v, o, r);                                                                          \
  }

SOFTMAX_ROW(softmax_forward, softmax_forward, false)
SOFTMAX_ROW(softmax_backward, softmax_backward, false)
SOFTMAX_ROW(causal_softmax_forward, softmax_forward, true)
SOFTMAX_ROW(causal_softmax_backward, softmax_backward, true)
