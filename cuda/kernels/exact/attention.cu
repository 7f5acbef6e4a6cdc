/*
 * ref/kernels/attention.c for GPUs: a thread for each query, which goes through its keys twice, for
 * the largest score and for the sums.
 */
#include "cuda/kernels/attention.cuh"

enum { READ_QUERY, READ_KEY, READ_VALUE, READ_ALL };
enum { WRITE_OUTPUT, WRITE_LOG_SUMS, WRITE_STATE };

typedef struct forward_panels {
  float *keys, *values, *queries, *outputs;
} forward_panels;

static forward_panels take_panels(cuda_call *c, const exec_call *of, const attention &a,
                                  scratch_arena *room)
{
  forward_panels p;
  key_operands from = a.local_queries ? keys_of_all(a, &of->reads[READ_ALL])
                                      : own_keys(of->reads[READ_KEY], of->reads[READ_VALUE]);
  p.keys = load_keys(c, a, from, false, room);
  p.values = load_keys(c, a, from, true, room);
  p.queries = load_queries(c, a, of->reads[READ_QUERY], a.qk, room);
  p.outputs = take<float>(room, query_count(a) * a.v);
  return p;
}

extern "C" int64_t EXACT(attention_forward_scratch)(const exec_call *c)
{
  scratch_arena room = arena_of_nothing();
  (void)take_panels(NULL, c, attention_of(c), &room);
  return room.used;
}

/* One query's. */
typedef struct query_panels {
  const float *query, *keys, *values;
  float *output;
  int64_t stride; /* of query and output */
  attention_span seen;
} query_panels;

DEVICE static inline int block_of(int64_t j, int64_t count)
{
  return count - j < ATTENTION_BLOCK ? (int)(count - j) : ATTENTION_BLOCK;
}

DEVICE static inline void scores_of(const attention &a, const query_panels &p, int64_t j,
                                    float scores[ATTENTION_BLOCK])
{
  products_of(p.query, p.stride, p.keys + (p.seen.first + j) * a.qk, a.qk, 1, a.qk,
              block_of(j, p.seen.count), scores);
  for (int b = 0; b < ATTENTION_BLOCK; b++)
    scores[b] *= a.scale;
}

DEVICE static inline float largest_score(const attention &a, const query_panels &p)
{
  float most = -(float)exact_infinity(), scores[ATTENTION_BLOCK];
  for (int64_t j = 0; j < p.seen.count; j += ATTENTION_BLOCK) {
    scores_of(a, p, j, scores);
    for (int b = 0; b < block_of(j, p.seen.count); b++)
      most = scores[b] > most ? scores[b] : most;
  }
  return most;
}

/* The logarithm of the sum of exponentials. */
DEVICE static inline float attend(const attention &a, const attention_dropout &d,
                                  const query_panels &p, const attention_place &at)
{
  int64_t position = position_of_query(a, at.row);
  float most = largest_score(a, p), sum = 0, weights[ATTENTION_BLOCK];
  bool counts[ATTENTION_BLOCK];
  for (int64_t i = 0; i < a.v; i++)
    p.output[i * p.stride] = 0;
  for (int64_t j = 0; j < p.seen.count; j += ATTENTION_BLOCK) {
    int size = block_of(j, p.seen.count);
    scores_of(a, p, j, weights);
    for (int b = 0; b < size; b++) {
      counts[b] = true;
      weights[b] = exact_expf(weights[b] - most);
      sum += weights[b];
      weights[b] *= dropout_factor(a, d, at, position, p.seen.first + j + b);
    }
    add_products(p.output, p.stride, p.values + (p.seen.first + j) * a.v, a.v, 1, a.v, size,
                 weights, counts);
  }
  for (int64_t i = 0; i < a.v; i++)
    p.output[i * p.stride] /= sum;
  return most + exact_logf(sum);
}

static void store_state(cuda_call *c)
{
  int64_t seed = (int64_t)c->of->step->seed;
  for (uint32_t k = WRITE_STATE; k < c->of->write_count; k++) {
    tensor state = write_of(c->of, k);
    for_each(
        c, elements_of(state), KERNEL_LAMBDA(int64_t i) { store_int(state, i, seed); });
  }
}

extern "C" void EXACT(attention_forward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  attention a = attention_of(c->of);
  attention_dropout d = attention_dropout_of(a);
  forward_panels p = take_panels(c, c->of, a, &room);
  tensor log_sums = write_of(c->of, WRITE_LOG_SUMS);
  int64_t count = query_count(a);
  for_each(
      c, count, KERNEL_LAMBDA(int64_t n) {
        attention_place at = place_of_query(a, n);
        int64_t first = first_key_of(a, at);
        query_panels own = { p.queries + n,
                             p.keys + first * a.qk,
                             p.values + first * a.v,
                             p.outputs + n,
                             count,
                             visible_keys(a, position_of_query(a, at.row)) };
        store(log_sums, n, attend(a, d, own, at));
      });
  store_queries(c, a, c->of->writes[WRITE_OUTPUT], a.v, p.outputs);
  store_state(c);
}
