/* Transformer Engine's two kernels of a cross entropy whose vocabulary is split over TP:
 * ref/kernels/cross_entropy.c. */
#include "cuda/kernels/fast/labels.cuh"

enum { ROW_MAXIMUM, ROW_SUM, ROW_LABEL, ROW_NUMBERS };

/* reads logits, labels; writes the largest, the sum of exponentials and the label's logit. */
struct online {
  ONE_PASS
  enum { WRITES = 0 };
  struct state {
    exponentials e;
    float logit;
    int32_t label;
    bool owns;
  };
  own_labels labels;
  layout numbers; /* units of ROW_NUMBERS */
  static int of(const exec_call *c, online *r, row_operands<1> *o)
  {
    int64_t tokens = c->call->dims[0], vocab = c->call->dims[1];
    const tensor *in[1] = { &c->reads[0] }, &to = c->writes[0];
    if (!own_labels_of(c, c->reads[1], &r->labels) || !is_number(to) ||
        elements_of(to) != tokens * ROW_NUMBERS || !layout_of(to, ROW_NUMBERS, 1, &r->numbers))
      return 0;
    return row_pass_operands<1>(in, NULL, tokens, vocab, o);
  }
  __device__ void begin(state *s, uint32_t row) const
  {
    s->e = no_exponentials();
    s->label = labels.of(row);
    s->logit = -INFINITY;
    s->owns = false;
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
    int64_t to = place_of(numbers, row);
    if (lane >= 0 && (s->label < 0 ? lane == 0 : s->owns))
      store_one(numbers, to + ROW_LABEL, s->logit);
    if (lane != 0) return;
    store_one(numbers, to + ROW_MAXIMUM, s->e.largest);
    store_one(numbers, to + ROW_SUM, s->e.sum);
  }
};
ROW_PASS_KERNEL(online_softmax, online)

/* reads logits, labels, the numbers of all parts; writes losses, gradient. */
struct fused {
  ONE_PASS
  enum { WRITES = 1 };
  struct state {
    exponentials e;
    float inverse, logit;
    int32_t label;
  };
  own_labels labels;
  layout numbers, losses;
  int32_t parts;
  uint32_t tokens;
  static int of(const exec_call *c, fused *r, row_operands<1> *o)
  {
    int64_t tokens = c->call->dims[0], vocab = c->call->dims[1];
    const tensor *in[1] = { &c->reads[0] }, &numbers = c->reads[2];
    int64_t each = tokens * ROW_NUMBERS;
    if (!own_labels_of(c, c->reads[1], &r->labels) || !is_number(numbers) || each == 0 ||
        elements_of(numbers) % each != 0 || !layout_of(numbers, ROW_NUMBERS, 1, &r->numbers) ||
        !numbers_suit(c->writes[0], tokens, &r->losses))
      return 0;
    r->parts = (int32_t)(elements_of(numbers) / each);
    r->tokens = (uint32_t)tokens;
    return row_pass_operands<1>(in, &c->writes[1], tokens, vocab, o);
  }
  __device__ void begin(state *s, uint32_t row) const
  {
    s->label = labels.of(row);
    s->e = no_exponentials();
    s->logit = -INFINITY;
    for (int32_t p = 0; p < parts; p++) {
      int64_t at = place_of(numbers, (uint32_t)p * tokens + row);
      s->e.largest = fmaxf(s->e.largest, load_one(numbers, at + ROW_MAXIMUM));
      s->logit = fmaxf(s->logit, load_one(numbers, at + ROW_LABEL));
    }
    for (int32_t p = 0; p < parts; p++) {
      int64_t at = place_of(numbers, (uint32_t)p * tokens + row);
      s->e.sum += load_one(numbers, at + ROW_SUM) *
                  __expf(load_one(numbers, at + ROW_MAXIMUM) - s->e.largest);
    }
    s->inverse = 1.0f / s->e.sum;
  }
  template <int V> __device__ void make(state *s, int32_t column, float *x, const float *) const
  {
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] = __expf(x[j] - s->e.largest) * s->inverse - (s->label == column + j ? 1.0f : 0.0f);
  }
  __device__ void end(state *s, uint32_t row, int32_t lane, int32_t) const
  {
    if (lane == 0)
      store_one(losses, place_of(losses, row), logf(s->e.sum) - (s->logit - s->e.largest));
  }
};
ROW_PASS_KERNEL(fused_cross_entropy, fused)
