/*
 * Attention backward: reads the output's gradient, query, key, value, output, log sums [, keys and
 * values of all ranks] [, the state of the generator]; writes the gradients of query, key and
 * value, or of query and of the keys and values of all ranks [, workspaces].
 *
 * For each query: delta, the sum of gradient times output over columns ascending; the probabilities
 * again, as exp(score - log sum); their gradients, sums over columns ascending [times dropout's
 * factors]; those of scores, p (dp - delta), times the scale. The query's gradient is a sum over
 * keys by ascending position; those of a key and its value, over the query heads of its group
 * ascending and then over queries in the order of rows.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ref/kernels/attention.h"
#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"
#include "ref/kernels/threads.h"

enum { READ_GRADIENT, READ_QUERY, READ_KEY, READ_VALUE, READ_OUTPUT, READ_LOG_SUMS, READ_REST };

/* Memory for one group of heads. */
typedef struct group_work {
  real *keys, *keys_transposed, *values, *values_transposed;
  real *key_gradients, *value_gradients;
  real *scores, *gradients, *factors;                      /* [keys] */
  real *query, *query_gradient, *output, *output_gradient; /* one row each */
} group_work;

static group_work new_work(const attention *a)
{
  int64_t columns = a->qk + a->v;
  group_work w;
  w.keys = ref_reals(a->keys * (3 * columns + 3) + 2 * columns);
  w.keys_transposed = w.keys + a->keys * a->qk;
  w.key_gradients = w.keys_transposed + a->keys * a->qk;
  w.values = w.key_gradients + a->keys * a->qk;
  w.values_transposed = w.values + a->keys * a->v;
  w.value_gradients = w.values_transposed + a->keys * a->v;
  w.scores = w.value_gradients + a->keys * a->v;
  w.gradients = w.scores + a->keys;
  w.factors = w.gradients + a->keys;
  w.query = w.factors + a->keys;
  w.query_gradient = w.query + a->qk;
  w.output = w.query_gradient + a->qk;
  w.output_gradient = w.output + a->v;
  memset(w.key_gradients, 0, (size_t)(a->keys * a->qk) * sizeof(real));
  memset(w.value_gradients, 0, (size_t)(a->keys * a->v) * sizeof(real));
  return w;
}

static void load_query(const attention *a, const group_work *w, int64_t batch, int64_t head,
                       int64_t row)
{
  const exec_tensor *reads = a->call->reads;
  attention_head g = attention_query(a, &reads[READ_GRADIENT], batch, head, a->v);
  attention_head q = attention_query(a, &reads[READ_QUERY], batch, head, a->qk);
  attention_head o = attention_query(a, &reads[READ_OUTPUT], batch, head, a->v);
  attention_load(&g, row, w->output_gradient);
  attention_load(&q, row, w->query);
  attention_load(&o, row, w->output);
}

/* Probabilities in `scores`, gradients of scaled scores in `gradients`. */
static void score_gradients(const attention *a, const group_work *w, attention_span seen,
                            real log_sum)
{
  const real *values = w->values_transposed + seen.first;
  real delta = 0;
  for (int64_t i = 0; i < a->v; i++)
    delta += w->output_gradient[i] * w->output[i];
  for (int64_t j = 0; j < seen.count; j++)
    w->gradients[j] = 0;
  for (int64_t i = 0; i < a->v; i++)
    for (int64_t j = 0; j < seen.count; j++)
      w->gradients[j] += w->output_gradient[i] * values[i * a->keys + j];
  for (int64_t j = 0; j < seen.count; j++) {
    w->scores[j] = real_exp(w->scores[j] - log_sum);
    w->gradients[j] = w->scores[j] * (w->gradients[j] * w->factors[j] - delta) * a->scale;
  }
}

static void add_products(const attention *a, const group_work *w, attention_span seen)
{
  for (int64_t i = 0; i < a->qk; i++)
    w->query_gradient[i] = 0;
  for (int64_t j = 0; j < seen.count; j++) {
    real gradient = w->gradients[j], weight = w->scores[j] * w->factors[j];
    int64_t key = seen.first + j;
    for (int64_t i = 0; i < a->qk; i++)
      w->query_gradient[i] += gradient * w->keys[key * a->qk + i];
    for (int64_t i = 0; i < a->qk; i++)
      w->key_gradients[key * a->qk + i] += gradient * w->query[i];
    for (int64_t i = 0; i < a->v; i++)
      w->value_gradients[key * a->v + i] += weight * w->output_gradient[i];
  }
}

static void one_query(const attention *a, const group_work *w, int64_t batch, int64_t head,
                      int64_t row)
{
  const exec_call *c = a->call;
  int64_t position = attention_query_position(a, row);
  attention_span seen = attention_visible(a, position);
  attention_head gq = attention_query(a, &c->writes[0], batch, head, a->qk);
  real log_sum = ref_load(&c->reads[READ_LOG_SUMS], (batch * a->heads + head) * a->queries + row);
  load_query(a, w, batch, head, row);
  attention_scores(a, w->query, w->keys_transposed, seen, w->scores);
  attention_dropout_factors(a, batch, head, position, seen, w->factors);
  score_gradients(a, w, seen, log_sum);
  add_products(a, w, seen);
  attention_store(&gq, row, w->query_gradient);
}

/* After the saved tensors there may be a generator state, of integers. */
static const exec_tensor *keys_of_all_ranks(const attention *a)
{
  const exec_call *c = a->call;
  for (uint32_t k = READ_REST; a->local_queries && k < c->read_count; k++)
    if (c->reads[k].type != DTYPE_INT64) return &c->reads[k];
  assert(!a->local_queries);
  return NULL;
}

static void one_group(void *context, uint32_t i)
{
  const attention *a = context;
  const exec_call *c = a->call;
  int64_t batch = i / a->kv_heads, kv_head = i % a->kv_heads, of_group = a->heads / a->kv_heads;
  const attention_keys keys = { .key = &c->reads[READ_KEY],
                                .value = &c->reads[READ_VALUE],
                                .all = keys_of_all_ranks(a) };
  const attention_keys gradients = { .key = &c->writes[1],
                                     .value = a->local_queries ? NULL : &c->writes[2],
                                     .all = a->local_queries ? &c->writes[1] : NULL };
  group_work w = new_work(a);
  attention_load_keys(a, &keys, batch, kv_head, w.keys, w.values);
  attention_transpose(w.keys, a->keys, a->qk, w.keys_transposed);
  attention_transpose(w.values, a->keys, a->v, w.values_transposed);
  for (int64_t head = kv_head * of_group; head < (kv_head + 1) * of_group; head++)
    for (int64_t row = 0; row < a->queries; row++)
      one_query(a, &w, batch, head, row);
  attention_store_keys(a, &gradients, batch, kv_head, w.key_gradients, w.value_gradients);
  free(w.keys);
}

void ref_attention_backward(const exec_call *c)
{
  attention a = attention_of(c);
  assert(c->read_count >= READ_REST && c->write_count >= (a.local_queries ? 2 : 3));
  ref_run_parts((uint32_t)(a.batch * a.kv_heads), one_group, &a);
}
