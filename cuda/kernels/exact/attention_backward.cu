/*
 * ref/kernels/attention_backward.c for GPUs: a thread for each query adds up its gradient, one for
 * each key those of the key and its value; both compute probabilities again.
 */
#include "cuda/kernels/attention.cuh"

enum { READ_GRADIENT, READ_QUERY, READ_KEY, READ_VALUE, READ_OUTPUT, READ_LOG_SUMS, READ_REST };

/* By query: query, output_gradient, query_gradient [columns][queries], delta, log_sum. By key: keys
 * and values [keys][columns], their gradients [columns][keys]. */
typedef struct backward_panels {
  float *query, *output_gradient, *query_gradient, *delta, *log_sum;
  float *keys, *values, *key_gradients, *value_gradients;
} backward_panels;

/* After the saved tensors there may be a generator state, of integers. */
static key_operands keys_of(const exec_call *c, const attention &a)
{
  if (!a.local_queries) return own_keys(c->reads[READ_KEY], c->reads[READ_VALUE]);
  uint32_t k = READ_REST;
  while (k + 1 < c->read_count && c->reads[k].type == DTYPE_INT64)
    k++;
  return keys_of_all(a, &c->reads[k]);
}

static backward_panels take_panels(cuda_call *c, const exec_call *of, const attention &a,
                                   scratch_arena *room)
{
  backward_panels p;
  key_operands from = keys_of(of, a);
  p.query = load_queries(c, a, of->reads[READ_QUERY], a.qk, room);
  p.output_gradient = load_queries(c, a, of->reads[READ_GRADIENT], a.v, room);
  p.query_gradient = take<float>(room, query_count(a) * a.qk);
  p.delta = take<float>(room, query_count(a));
  p.log_sum = take<float>(room, query_count(a));
  p.keys = load_keys(c, a, from, false, room);
  p.values = load_keys(c, a, from, true, room);
  p.key_gradients = take<float>(room, key_count(a) * a.qk);
  p.value_gradients = take<float>(room, key_count(a) * a.v);
  return p;
}

extern "C" int64_t EXACT(attention_backward_scratch)(const exec_call *c)
{
  scratch_arena room = arena_of_nothing();
  (void)take_panels(NULL, c, attention_of(c), &room);
  return room.used;
}

/* delta: the sum of gradient times output. */
static void prepare(cuda_call *c, attention a, backward_panels p)
{
  tensor output = read_of(c->of, READ_OUTPUT), log_sums = read_of(c->of, READ_LOG_SUMS);
  int64_t count = query_count(a);
  for_each(
      c, count, KERNEL_LAMBDA(int64_t n) {
        int64_t first = query_element(a, n, a.v);
        float delta = 0;
        for (int64_t i = 0; i < a.v; i++)
          delta += p.output_gradient[i * count + n] * load(output, first + i);
        p.delta[n] = delta;
        p.log_sum[n] = load(log_sums, n);
      });
}

/* A query and one of its keys. */
typedef struct pair {
  float weight;   /* probability times dropout's factor */
  float gradient; /* of the scaled score */
} pair;

/* `score`: the product of query and key; `value`: that of the output's gradient and the value. */
DEVICE static inline pair pair_of(const attention &a, const backward_panels &p, int64_t query,
                                  float score, float value, float factor)
{
  float probability = exact_expf(score * a.scale - p.log_sum[query]);
  pair of = { probability * factor, probability * (value * factor - p.delta[query]) * a.scale };
  return of;
}

DEVICE static inline int block_of(int64_t j, int64_t count)
{
  return count - j < ATTENTION_BLOCK ? (int)(count - j) : ATTENTION_BLOCK;
}

static void query_gradients(cuda_call *c, attention a, attention_dropout d, backward_panels p)
{
  int64_t count = query_count(a);
  for_each(
      c, count, KERNEL_LAMBDA(int64_t n) {
        attention_place at = place_of_query(a, n);
        int64_t position = position_of_query(a, at.row);
        attention_span seen = visible_keys(a, position);
        float scores[ATTENTION_BLOCK], values[ATTENTION_BLOCK];
        bool counts[ATTENTION_BLOCK];
        for (int64_t i = 0; i < a.qk; i++)
          p.query_gradient[i * count + n] = 0;
        int64_t first = first_key_of(a, at) + seen.first;
        for (int64_t j = 0; j < seen.count; j += ATTENTION_BLOCK) {
          const float *keys = p.keys + (first + j) * a.qk;
          int size = block_of(j, seen.count);
          products_of(p.query + n, count, keys, a.qk, 1, a.qk, size, scores);
          products_of(p.output_gradient + n, count, p.values + (first + j) * a.v, a.v, 1, a.v, size,
                      values);
          for (int b = 0; b < size; b++) {
            float factor = dropout_factor(a, d, at, position, seen.first + j + b);
            scores[b] = pair_of(a, p, n, scores[b], values[b], factor).gradient;
            counts[b] = true;
          }
          add_products(p.query_gradient + n, count, keys, a.qk, 1, a.qk, size, scores, counts);
        }
      });
}

/* Adds the parts of ATTENTION_BLOCK queries, from number `n` on, of which `size` exist, to key
 * `k`. */
DEVICE static inline void add_queries(const attention &a, const attention_dropout &d,
                                      const backward_panels &p, int64_t queries, int64_t keys,
                                      int64_t n, int size, int64_t k)
{
  float gradients[ATTENTION_BLOCK], weights[ATTENTION_BLOCK];
  bool counts[ATTENTION_BLOCK];
  products_of(p.keys + k * a.qk, 1, p.query + n, 1, queries, a.qk, size, gradients);
  products_of(p.values + k * a.v, 1, p.output_gradient + n, 1, queries, a.v, size, weights);
  for (int b = 0; b < size; b++) {
    attention_place at = place_of_query(a, n + b);
    int64_t position = position_of_query(a, at.row), j = k % a.keys;
    attention_span seen = visible_keys(a, position);
    counts[b] = j >= seen.first && j < seen.first + seen.count;
    if (!counts[b]) continue;
    float factor = dropout_factor(a, d, at, position, j);
    pair of = pair_of(a, p, n + b, gradients[b], weights[b], factor);
    gradients[b] = of.gradient;
    weights[b] = of.weight;
  }
  add_products(p.key_gradients + k, keys, p.query + n, 1, queries, a.qk, size, gradients, counts);
  add_products(p.value_gradients + k, keys, p.output_gradient + n, 1, queries, a.v, size, weights,
               counts);
}

static void key_gradients(cuda_call *c, attention a, attention_dropout d, backward_panels p)
{
  int64_t queries = query_count(a), keys = key_count(a), of_group = a.heads / a.kv_heads;
  for_each(
      c, keys, KERNEL_LAMBDA(int64_t k) {
        int64_t group = k / a.keys, of_key = of_group * a.queries;
        for (int64_t i = 0; i < a.qk; i++)
          p.key_gradients[i * keys + k] = 0;
        for (int64_t i = 0; i < a.v; i++)
          p.value_gradients[i * keys + k] = 0;
        for (int64_t n = 0; n < of_key; n += ATTENTION_BLOCK)
          add_queries(a, d, p, queries, keys, group * of_key + n, block_of(n, of_key), k);
      });
}

extern "C" void EXACT(attention_backward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  attention a = attention_of(c->of);
  attention_dropout d = attention_dropout_of(a);
  backward_panels p = take_panels(c, c->of, a, &room);
  const tensor *writes = c->of->writes;
  assert(c->of->read_count >= READ_REST && c->of->write_count >= (a.local_queries ? 2u : 3u));
  prepare(c, a, p);
  query_gradients(c, a, d, p);
  key_gradients(c, a, d, p);
  key_operands to = a.local_queries ? keys_of_all(a, &writes[1]) : own_keys(writes[1], writes[2]);
  store_queries(c, a, writes[0], a.qk, p.query_gradient);
  store_keys(c, a, to, false, p.key_gradients);
  store_keys(c, a, to, true, p.value_gradients);
}
