/*
 * Cross entropy of logits whose vocabulary is split over TP: ref/kernels/cross_entropy.c. One pass
 * over the rows each.
 */
#include "cuda/kernels/fast/labels.cuh"

/* reads logits, writes them in another type, and the largest of each row. */
struct maxima {
  ONE_PASS
  enum { WRITES = 1 };
  struct state {
    float largest;
  };
  layout largest;
  static int of(const exec_call *c, maxima *r, row_operands<1> *o)
  {
    int64_t tokens = c->call->dims[0], vocab = c->call->dims[1];
    const tensor *in[1] = { &c->reads[0] };
    if (!numbers_suit(c->writes[1], tokens, &r->largest)) return 0;
    return row_pass_operands<1>(in, &c->writes[0], tokens, vocab, o);
  }
  __device__ void begin(state *s, uint32_t) const
  {
    s->largest = -FLT_MAX;
  }
  template <int V> __device__ void make(state *s, int32_t, float *x, const float *) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      s->largest = fmaxf(s->largest, x[j]);
  }
  __device__ void end(state *s, uint32_t row, int32_t lane, int32_t group) const
  {
    float most = group_reduce<larger_number>(group, s->largest);
    if (lane == 0) store_one(largest, place_of(largest, row), most);
  }
};
ROW_PASS_KERNEL(cross_entropy_maxima, maxima)

/* reads logits, labels, maxima; writes exp(logit - maximum), mask of labels that are elsewhere,
 * labels as columns, logit - maximum of the label, sum of the exponentials. */
struct sums {
  ONE_PASS
  enum { WRITES = 1 };
  struct state {
    float largest, sum, logit;
    int32_t label;
    bool owns; /* has the label's logit; without a label, no thread does */
  };
  own_labels labels;
  layout largest, mask, columns, predicted, sum;
  static int of(const exec_call *c, sums *r, row_operands<1> *o)
  {
    int64_t tokens = c->call->dims[0], vocab = c->call->dims[1];
    const tensor *in[1] = { &c->reads[0] };
    if (!own_labels_of(c, c->reads[1], &r->labels) ||
        !numbers_suit(c->reads[2], tokens, &r->largest) ||
        !indices_suit(c->writes[1], tokens, &r->mask) ||
        !indices_suit(c->writes[2], tokens, &r->columns) ||
        !numbers_suit(c->writes[3], tokens, &r->predicted) ||
        !numbers_suit(c->writes[4], tokens, &r->sum))
      return 0;
    return row_pass_operands<1>(in, &c->writes[0], tokens, vocab, o);
  }
  __device__ void begin(state *s, uint32_t row) const
  {
    s->largest = number_at(largest, row);
    s->label = labels.of(row);
    s->sum = s->logit = 0;
    s->owns = false;
  }
  template <int V> __device__ void make(state *s, int32_t column, float *x, const float *) const
  {
    if (picks<V>(s->label, column)) {
      s->logit = picked<V>(s->label, column, x) - s->largest;
      s->owns = true;
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
      x[j] = __expf(x[j] - s->largest);
      s->sum += x[j];
    }
  }
  __device__ void end(state *s, uint32_t row, int32_t lane, int32_t group) const
  {
    float total = group_reduce<add_numbers>(group, s->sum);
    if (lane >= 0 && (s->label < 0 ? lane == 0 : s->owns))
      store_one(predicted, place_of(predicted, row), s->logit);
    if (lane != 0) return;
    store_one(sum, place_of(sum, row), total);
    store_index(mask, row, s->label < 0);
    store_index(columns, row, s->label < 0 ? 0 : s->label);
  }
};
ROW_PASS_KERNEL(cross_entropy_sums, sums)

/* reads exponentials, sums, predicted; writes losses, softmax. */
struct loss {
  ONE_PASS
  enum { WRITES = 1 };
  struct state {
    float sum, inverse;
  };
  layout sum, predicted, losses;
  static int of(const exec_call *c, loss *r, row_operands<1> *o)
  {
    int64_t tokens = c->call->dims[0], vocab = c->call->dims[1];
    const tensor *in[1] = { &c->reads[0] };
    if (!numbers_suit(c->reads[1], tokens, &r->sum) ||
        !numbers_suit(c->reads[2], tokens, &r->predicted) ||
        !numbers_suit(c->writes[0], tokens, &r->losses))
      return 0;
    return row_pass_operands<1>(in, &c->writes[1], tokens, vocab, o);
  }
  __device__ void begin(state *s, uint32_t row) const
  {
    s->sum = number_at(sum, row);
    s->inverse = 1.0f / s->sum;
  }
  template <int V> __device__ void make(state *s, int32_t, float *x, const float *) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] *= s->inverse;
  }
  __device__ void end(state *s, uint32_t row, int32_t lane, int32_t) const
  {
    if (lane == 0)
      store_one(losses, place_of(losses, row), logf(s->sum) - number_at(predicted, row));
  }
};
ROW_PASS_KERNEL(cross_entropy_loss, loss)

/* reads gy, softmax, mask, labels as columns; writes (softmax - [label]) gy. */
struct gradient {
  ONE_PASS
  enum { WRITES = 1 };
  struct state {
    float gy;
    int32_t label;
  };
  layout gy, mask, labels;
  static int of(const exec_call *c, gradient *r, row_operands<1> *o)
  {
    int64_t tokens = c->call->dims[0], vocab = c->call->dims[1];
    const tensor *in[1] = { &c->reads[1] };
    if (!numbers_suit(c->reads[0], tokens, &r->gy) ||
        !indices_suit(c->reads[2], tokens, &r->mask) ||
        !indices_suit(c->reads[3], tokens, &r->labels))
      return 0;
    return row_pass_operands<1>(in, &c->writes[0], tokens, vocab, o);
  }
  __device__ void begin(state *s, uint32_t row) const
  {
    s->gy = number_at(gy, row);
    s->label = index_at(mask, row) == 0 ? (int32_t)index_at(labels, row) : -1;
  }
  template <int V> __device__ void make(state *s, int32_t column, float *x, const float *) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] = (x[j] - (s->label == column + j ? 1.0f : 0.0f)) * s->gy;
  }
  __device__ void end(state *, uint32_t, int32_t, int32_t) const
  {
  }
};
ROW_PASS_KERNEL(cross_entropy_backward, gradient)

/* reads a number for each row, rows; writes rows. */
struct scaled_rows {
  ONE_PASS
  enum { WRITES = 1 };
  struct state {
    float factor;
  };
  layout factors;
  static int of(const exec_call *c, scaled_rows *r, row_operands<1> *o)
  {
    const tensor *in[1] = { &c->reads[1] };
    if (!numbers_suit(c->reads[0], c->call->dims[0], &r->factors)) return 0;
    return row_pass_operands<1>(in, &c->writes[0], c->call->dims[0], c->call->dims[1], o);
  }
  __device__ void begin(state *s, uint32_t row) const
  {
    s->factor = number_at(factors, row);
  }
  template <int V> __device__ void make(state *s, int32_t, float *x, const float *) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] *= s->factor;
  }
  __device__ void end(state *, uint32_t, int32_t, int32_t) const
  {
  }
};
ROW_PASS_KERNEL(scale_rows, scaled_rows)
