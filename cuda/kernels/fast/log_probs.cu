/* Losses of plain PyTorch models: ref/kernels/torch_loss.c. */
#include "cuda/kernels/fast/labels.cuh"

/* y = x - log(sum of exp(x)) */
struct log_softmax {
  enum { INPUTS = 1, LOOKS = 1, WRITES = 1 };
  struct state {
    exponentials e;
    float all;
  };
  static int of(const exec_call *c, log_softmax *, row_operands<1> *o)
  {
    const tensor *in[1] = { &c->reads[0] };
    return row_pass_operands<1>(in, &c->writes[0], c->call->dims[0], c->call->dims[1], o);
  }
  __device__ void begin(state *s, uint32_t) const
  {
    s->e = no_exponentials();
  }
  template <int V> __device__ void look(state *s, int32_t, float *x, const float *) const
  {
    take_exponentials<V>(&s->e, x);
  }
  __device__ void known(state *s, int32_t group) const
  {
    join_exponentials(&s->e, group);
    s->all = log_of_sum(s->e);
  }
  template <int V> __device__ void make(state *s, int32_t, float *x, const float *) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] -= s->all;
  }
  __device__ void end(state *, uint32_t, int32_t, int32_t) const
  {
  }
};
ROW_PASS_KERNEL(log_softmax_forward, log_softmax)

/* reads gy, y: gx = gy - exp(y) (sum of gy) */
struct log_softmax_gradient {
  enum { INPUTS = 2, LOOKS = 1, WRITES = 1 };
  struct state {
    float sum;
  };
  static int of(const exec_call *c, log_softmax_gradient *, row_operands<2> *o)
  {
    const tensor *in[2] = { &c->reads[0], &c->reads[1] };
    return row_pass_operands<2>(in, &c->writes[0], c->call->dims[0], c->call->dims[1], o);
  }
  __device__ void begin(state *s, uint32_t) const
  {
    s->sum = 0;
  }
  template <int V> __device__ void look(state *s, int32_t, float *gy, const float *) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      s->sum += gy[j];
  }
  __device__ void known(state *s, int32_t group) const
  {
    s->sum = group_reduce<add_numbers>(group, s->sum);
  }
  template <int V> __device__ void make(state *s, int32_t, float *gy, const float *y) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      gy[j] -= __expf(y[j]) * s->sum;
  }
  __device__ void end(state *, uint32_t, int32_t, int32_t) const
  {
  }
};
ROW_PASS_KERNEL(log_softmax_backward, log_softmax_gradient)

/* reads logits, labels; writes losses, log-sum-exp, its penalty (0). */
struct log_probs {
  enum { INPUTS = 1, LOOKS = 0, WRITES = 0 };
  struct state {
    exponentials e;
    float logit;
    int32_t label;
    bool owns; /* has the label's logit; without a label, no thread does */
  };
  own_labels labels;
  layout loss, all, penalty;
  static int of(const exec_call *c, log_probs *r, row_operands<1> *o)
  {
    const tensor *in[1] = { &c->reads[0] };
    int64_t tokens = c->call->dims[0];
    if (!all_labels_of(c, c->reads[1], &r->labels) ||
        !numbers_suit(c->writes[0], tokens, &r->loss) ||
        !numbers_suit(c->writes[1], tokens, &r->all) ||
        !numbers_suit(c->writes[2], tokens, &r->penalty))
      return 0;
    return row_pass_operands<1>(in, NULL, tokens, c->call->dims[1], o);
  }
  __device__ void begin(state *s, uint32_t row) const
  {
    s->e = no_exponentials();
    s->label = labels.of(row);
    s->logit = 0;
    s->owns = false;
  }
  template <int V> __device__ void look(state *, int32_t, float *, const float *) const
  {
  }
  __device__ void known(state *, int32_t) const
  {
  }
  template <int V> __device__ void make(state *s, int32_t column, float *x, const float *) const
  {
    take_exponentials<V>(&s->e, x);
    if (!picks<V>(s->label, column)) return;
    s->logit = picked<V>(s->label, column, x);
    s->owns = true;
  }
  __device__ void end(state *s, uint32_t row, int32_t lane, int32_t group) const
  {
    join_exponentials(&s->e, group);
    float sum = log_of_sum(s->e);
    if (lane >= 0 && (s->label < 0 ? lane == 0 : s->owns))
      store_one(loss, place_of(loss, row), s->label < 0 ? 0 : sum - s->logit);
    if (lane != 0) return;
    store_one(all, place_of(all, row), sum);
    store_one(penalty, place_of(penalty, row), 0);
  }
};
ROW_PASS_KERNEL(log_probs_forward, log_probs)

/* reads gy, logits, log-sum-exp, labels; writes gy (exp(x - log-sum-exp) - 1 at the label). */
struct log_probs_gradient {
  enum { INPUTS = 1, LOOKS = 0, WRITES = 1 };
  struct state {
    float gy, all;
    int32_t label;
  };
  own_labels labels;
  layout gy, all;
  static int of(const exec_call *c, log_probs_gradient *r, row_operands<1> *o)
  {
    const tensor *in[1] = { &c->reads[1] };
    int64_t tokens = c->call->dims[0];
    if (!all_labels_of(c, c->reads[3], &r->labels) || !numbers_suit(c->reads[0], tokens, &r->gy) ||
        !numbers_suit(c->reads[2], tokens, &r->all))
      return 0;
    return row_pass_operands<1>(in, &c->writes[0], tokens, c->call->dims[1], o);
  }
  __device__ void begin(state *s, uint32_t row) const
  {
    s->label = labels.of(row);
    s->gy = s->label < 0 ? 0 : number_at(gy, row);
    s->all = number_at(all, row);
  }
  template <int V> __device__ void look(state *, int32_t, float *, const float *) const
  {
  }
  __device__ void known(state *, int32_t) const
  {
  }
  template <int V> __device__ void make(state *s, int32_t column, float *x, const float *) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] = s->gy * (__expf(x[j] - s->all) - (s->label == column + j ? 1.0f : 0.0f));
  }
  __device__ void end(state *, uint32_t, int32_t, int32_t) const
  {
  }
};
ROW_PASS_KERNEL(log_probs_backward, log_probs_gradient)
