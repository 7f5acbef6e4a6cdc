/* The losses of some tokens, and the gradient of their logits in place:
 * ref/kernels/torch_liger.c. */
#include "cuda/kernels/fast/labels.cuh"

enum { COUNT_THREADS = 1024 };

/* The labels that count, one block. */
__global__ void __launch_bounds__(COUNT_THREADS) count_kernel(layout labels, uint32_t n, float *to)
{
  int32_t count = 0;
  for (uint32_t first = 0; first < n; first += COUNT_THREADS) {
    uint32_t i = first + threadIdx.x;
    count += __syncthreads_count(i < n && index_at(labels, i < n ? i : 0) >= 0);
  }
  if (threadIdx.x == 0) *to = (float)count;
}

struct some_losses {
  enum { INPUTS = 1, LOOKS = 1, WRITES = 1 };
  struct state {
    exponentials e;
    float inverse, logit, share;
    int32_t label;
    bool owns;
  };
  own_labels labels;
  layout losses, all_labels;
  uint32_t all;
  const float *counted;
  static int of(const exec_call *c, some_losses *r, row_operands<1> *o)
  {
    const tensor *in[1] = { &c->reads[0] };
    int64_t tokens = c->call->dims[0], vocab = c->call->dims[1], all = elements_of(c->reads[2]);
    r->labels.first = 0;
    r->labels.columns = (int32_t)vocab;
    r->all = (uint32_t)all;
    r->counted = NULL;
    if (!indices_suit(c->reads[1], tokens, &r->labels.labels) || all >= INT32_MAX ||
        !indices_suit(c->reads[2], all, &r->all_labels) ||
        !numbers_suit(c->writes[1], tokens, &r->losses))
      return 0;
    return row_pass_operands<1>(in, &c->writes[0], tokens, vocab, o);
  }
  __device__ void begin(state *s, uint32_t row) const
  {
    s->e = no_exponentials();
    s->label = labels.of(row);
    s->logit = 0;
    s->owns = false;
    s->share = 1.0f / *counted;
  }
  template <int V> __device__ void look(state *s, int32_t column, float *x, const float *) const
  {
    take_exponentials<V>(&s->e, x);
    if (!picks<V>(s->label, column)) return;
    s->logit = picked<V>(s->label, column, x);
    s->owns = true;
  }
  __device__ void known(state *s, int32_t group) const
  {
    join_exponentials(&s->e, group);
    s->inverse = 1.0f / s->e.sum;
  }
  template <int V> __device__ void make(state *s, int32_t column, float *x, const float *) const
  {
#pragma unroll
    for (int j = 0; j < V; j++) {
      float gradient = __expf(x[j] - s->e.largest) * s->inverse;
      if (s->label == column + j) gradient -= 1.0f;
      x[j] = s->label < 0 ? 0 : gradient * s->share;
    }
  }
  __device__ void end(state *s, uint32_t row, int32_t lane, int32_t) const
  {
    if (lane < 0 || (s->label < 0 ? lane != 0 : !s->owns)) return;
    float loss = s->label < 0 ? 0 : (log_of_sum(s->e) - s->logit) * s->share;
    store_one(losses, place_of(losses, row), loss);
  }
};

KERNEL_SUITS(rows_cross_entropy)
{
  row_operands<1> o;
  some_losses r;
  return some_losses::of(c, &r, &o) != 0;
}

KERNEL_SCRATCH(rows_cross_entropy)
{
  (void)c;
  return sizeof(float);
}

KERNEL_LAUNCH(rows_cross_entropy)
{
  row_operands<1> o;
  some_losses r;
  int v = some_losses::of(c->of, &r, &o);
  count_kernel<<<1, COUNT_THREADS, 0, stream_of(c)>>>(r.all_labels, r.all, (float *)c->scratch);
  r.counted = (const float *)c->scratch;
  row_pass(c, v, o, r);
}
