/* Biases of experts (ref/kernels/moe_experts.c) for GPUs. */
#include "cuda/kernels/exact/moe_experts.cuh"

enum { BIAS_ROWS, BIAS_WIDTH, BIAS_EXPERTS };

extern "C" int64_t EXACT(expert_bias_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_spans(&a, dim_of(c, BIAS_ROWS), dim_of(c, BIAS_EXPERTS));
  return a.used;
}

static row_span *find_expert_rows(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  expert_spans s = take_spans(&room, dim_of(c->of, BIAS_ROWS), dim_of(c->of, BIAS_EXPERTS));
  find_spans(c, index_of(c->of), s, dim_of(c->of, BIAS_EXPERTS));
  return s.of;
}

/* The bias of expert `e` begins at element `first` of `t`; biases begin at operand `operand`. */
typedef struct expert_bias {
  tensor t;
  int64_t first;
} expert_bias;

static expert_bias bias_of(const exec_call *c, uint32_t operand, uint32_t parts, int64_t e)
{
  expert_bias all = { read_of(c, operand), e * dim_of(c, BIAS_WIDTH) };
  expert_bias own = { read_of(c, operand + (uint32_t)(parts == 1 ? 0 : e)), 0 };
  return parts == 1 ? all : own;
}

extern "C" void EXACT(expert_bias_forward)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, BIAS_ROWS), width = dim_of(c->of, BIAS_WIDTH),
          experts = dim_of(c->of, BIAS_EXPERTS);
  uint32_t parts = parts_of(c->of, 2, 1, experts);
  tensor x = read_of(c->of, 0), probs = read_of(c->of, 1), to = write_from_end(c->of, 1);
  const row_span *spans = find_expert_rows(c);
  for (int64_t e = 0; e < experts; e++) {
    expert_bias bias = bias_of(c->of, 2, parts, e);
    for_each(
        c, rows * width, KERNEL_LAMBDA(int64_t n) {
          int64_t i = n / width - spans[e].first;
          if (i < 0 || i >= spans[e].count) return;
          store(to, n, load(x, n) + load(bias.t, bias.first + n % width) * load(probs, n / width));
        });
  }
  for_each(
      c, rows * width, KERNEL_LAMBDA(int64_t n) {
        if (n / width >= rows_of_experts(spans, experts)) copy_element(x, n, to, n);
      });
}

/* The writes besides the biases' gradients, or NULL. */
typedef struct bias_gradients {
  const tensor *x, *probs;
} bias_gradients;

static bias_gradients gradients_of(const exec_call *c)
{
  bias_gradients g = { NULL, NULL };
  for (uint32_t i = 0; i + 1 < c->write_count; i++) {
    const tensor *t = &c->writes[i];
    if (t->type == DTYPE_BYTE) continue;
    if (elements_of(*t) == dim_of(c, BIAS_ROWS))
      g.probs = t;
    else
      g.x = t;
  }
  return g;
}

/* Sums of g p, or of g alone without probabilities, down the rows of each expert. */
static void sum_rows(cuda_call *c, const tensor *probs, const row_span *spans)
{
  int64_t width = dim_of(c->of, BIAS_WIDTH);
  bool weighted = probs != NULL;
  tensor g = read_of(c->of, 0), to = write_from_end(c->of, 1), p = weighted ? merged(*probs) : g;
  for_each(
      c, dim_of(c->of, BIAS_EXPERTS) * width, KERNEL_LAMBDA(int64_t n) {
        row_span s = spans[n / width];
        float sum = 0;
        for (int64_t i = s.first; i < s.first + s.count; i++) {
          float x = load(g, i * width + n % width);
          sum += weighted ? x * load(p, i) : x;
        }
        store(to, n, sum);
      });
}

/* Gradients of the probabilities: sums of g b along the rows, 0 for rows without a token. */
static void sum_columns(cuda_call *c, uint32_t parts, const row_span *spans, tensor to)
{
  int64_t rows = dim_of(c->of, BIAS_ROWS), width = dim_of(c->of, BIAS_WIDTH),
          experts = dim_of(c->of, BIAS_EXPERTS);
  tensor g = read_of(c->of, 0);
  for (int64_t e = 0; e < experts; e++) {
    expert_bias bias = bias_of(c->of, 1, parts, e);
    for_each(
        c, rows, KERNEL_LAMBDA(int64_t i) {
          float dot = 0;
          if (i < spans[e].first || i >= spans[e].first + spans[e].count) return;
          for (int64_t j = 0; j < width; j++)
            dot += load(g, i * width + j) * load(bias.t, bias.first + j);
          store(to, i, dot);
        });
  }
  for_each(
      c, rows, KERNEL_LAMBDA(int64_t i) {
        if (i >= rows_of_experts(spans, experts)) store(to, i, 0);
      });
}

extern "C" void EXACT(expert_bias_backward)(cuda_call *c)
{
  uint32_t parts = parts_of(c->of, 2, 1, dim_of(c->of, BIAS_EXPERTS));
  bias_gradients to = gradients_of(c->of);
  const row_span *spans = find_expert_rows(c);
  sum_rows(c, &c->of->reads[1 + parts], spans);
  if (to.probs != NULL) sum_columns(c, parts, spans, merged(*to.probs));
  if (to.x == NULL) return;
  tensor g = read_of(c->of, 0), gx = merged(*to.x);
  for_each(
      c, elements_of(g), KERNEL_LAMBDA(int64_t i) { copy_element(g, i, gx, i); });
}

extern "C" void EXACT(expert_bias_grad)(cuda_call *c)
{
  sum_rows(c, NULL, find_expert_rows(c));
}
