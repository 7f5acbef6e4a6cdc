/*
 * ref/kernels/linear_cross_entropy.c for GPUs: some tokens' logits at a time, in scratch memory.
 */
#include "cuda/kernels/cross_entropy.cuh"
#include "cuda/kernels/product_operands.cuh"

/* dims: tokens, vocabulary, width of a token. */
enum { MOST_LOGITS = 1 << 26, LEAST_TOKENS = 16 };

typedef struct token_logits {
  int64_t tokens, vocab, width, at_once;
  matrices x, weight;
  float *block; /* [at_once, vocab] */
} token_logits;

static token_logits begin(cuda_call *c, const exec_call *of, scratch_arena *room)
{
  token_logits l;
  l.tokens = dim_of(of, 0);
  l.vocab = dim_of(of, 1);
  l.width = dim_of(of, 2);
  l.at_once = MOST_LOGITS / l.vocab;
  if (l.at_once < LEAST_TOKENS) l.at_once = LEAST_TOKENS;
  l.at_once = least(l.at_once, l.tokens);
  l.x = read_matrices(c, room, of->reads[0], 1, l.tokens, l.width);
  l.weight = read_matrices(c, room, of->reads[1], 1, l.vocab, l.width);
  l.block = take<float>(room, l.at_once * l.vocab);
  return l;
}

extern "C" int64_t EXACT(linear_cross_entropy_scratch)(const exec_call *c)
{
  scratch_arena room = arena_of_nothing();
  (void)begin(NULL, c, &room);
  return room.used;
}

/* Of `count` tokens from `first` on. */
static tensor make_logits(cuda_call *c, const token_logits &l, int64_t first, int64_t count)
{
  matrix block = { l.block, DTYPE_FP32, l.vocab, 1 };
  product p = { count,
                l.vocab,
                l.width,
                matrix_at(l.x.first, first * l.x.first.row_stride),
                matrix_transposed(l.weight.first),
                no_matrices().first,
                block,
                false,
                1 };
  multiply(
      c, 1, count, l.vocab, KERNEL_LAMBDA(int64_t) { return p; });
  return floats_of(l.block, count * l.vocab);
}

/* reads x, weight, labels, writes losses, maxima, sums of exponentials. */
extern "C" void EXACT(linear_cross_entropy_forward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  token_logits l = begin(c, c->of, &room);
  tensor labels = read_of(c->of, 2);
  tensor losses = write_of(c->of, 0), maxima = write_of(c->of, 1), sums = write_of(c->of, 2);
  int64_t vocab = l.vocab;
  for (int64_t first = 0; first < l.tokens; first += l.at_once) {
    int64_t count = least(l.at_once, l.tokens - first);
    tensor logits = make_logits(c, l, first, count);
    for_each(
        c, count, KERNEL_LAMBDA(int64_t t) {
          float maximum = larger_of(-(float)exact_infinity(), logits, t * vocab, vocab);
          float sum = sum_of_exponentials(logits, t * vocab, vocab, maximum);
          float own = load(logits, t * vocab + load_int(labels, first + t));
          store(losses, first + t, exact_logf(sum) - (own - maximum));
          store(maxima, first + t, maximum);
          store(sums, first + t, sum);
        });
  }
}

/* reads x, weight, gy, labels, maxima, sums, writes the gradient of the logits. */
extern "C" void EXACT(linear_cross_entropy_backward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  token_logits l = begin(c, c->of, &room);
  tensor gy = read_of(c->of, 2), labels = read_of(c->of, 3), maxima = read_of(c->of, 4),
         sums = read_of(c->of, 5), gx = write_of(c->of, 0);
  int64_t vocab = l.vocab;
  for (int64_t first = 0; first < l.tokens; first += l.at_once) {
    int64_t count = least(l.at_once, l.tokens - first);
    tensor logits = make_logits(c, l, first, count);
    for_each(
        c, count * vocab, KERNEL_LAMBDA(int64_t i) {
          int64_t t = first + i / vocab;
          float value = exact_expf(load(logits, i) - load(maxima, t)) / load(sums, t);
          if (load_int(labels, t) == i % vocab) value -= 1;
          store(gx, first * vocab + i, value * load(gy, t));
        });
  }
}
