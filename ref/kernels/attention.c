/*
 * Attention forward: reads query, key, value [, keys and values of all ranks], writes the output
 * and, for each query, the logarithm of the sum of its exponentials (fp32) [, the state of the
 * generator of dropout].
 *
 * For each query: scores of its visible keys, by ascending position, each a sum over ascending
 * columns that is then scaled; their maximum; the exponentials of score - maximum; their sum,
 * ascending; the sum of the values times those [times dropout's factors], ascending; divided once.
 * Heads and sequences are independent.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/attention.h"
#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"
#include "ref/kernels/threads.h"

enum { READ_QUERY, READ_KEY, READ_VALUE, READ_ALL };
enum { WRITE_OUTPUT, WRITE_LOG_SUMS, WRITE_STATE };

/* Memory for one group of heads. */
typedef struct group_work {
  real *keys, *values, *keys_transposed; /* [keys, qk], [keys, v], [qk, keys] */
  real *query, *weights, *factors, *output;
} group_work;

static group_work new_work(const attention *a)
{
  group_work w;
  w.keys = ref_reals(a->keys * (2 * a->qk + a->v + 2) + a->qk + a->v);
  w.values = w.keys + a->keys * a->qk;
  w.keys_transposed = w.values + a->keys * a->v;
  w.weights = w.keys_transposed + a->keys * a->qk;
  w.factors = w.weights + a->keys;
  w.query = w.factors + a->keys;
  w.output = w.query + a->qk;
  return w;
}

/* Exponentials in place of scores; returns their sum. */
static real exponentials(real *x, int64_t count, real *most)
{
  real sum = 0;
  *most = -real_infinity();
  for (int64_t j = 0; j < count; j++)
    *most = x[j] > *most ? x[j] : *most;
  for (int64_t j = 0; j < count; j++) {
    x[j] = real_exp(x[j] - *most);
    sum += x[j];
  }
  return sum;
}

static void one_query(const attention *a, const group_work *w, int64_t batch, int64_t head,
                      int64_t row)
{
  const exec_call *c = a->call;
  attention_head q = attention_query(a, &c->reads[READ_QUERY], batch, head, a->qk);
  attention_head o = attention_query(a, &c->writes[WRITE_OUTPUT], batch, head, a->v);
  int64_t position = attention_query_position(a, row);
  attention_span seen = attention_visible(a, position);
  const real *values = w->values + seen.first * a->v;
  real most;
  attention_load(&q, row, w->query);
  attention_scores(a, w->query, w->keys_transposed, seen, w->weights);
  real sum = exponentials(w->weights, seen.count, &most);
  attention_dropout_factors(a, batch, head, position, seen, w->factors);
  for (int64_t i = 0; i < a->v; i++)
    w->output[i] = 0;
  for (int64_t j = 0; j < seen.count; j++) {
    real weight = w->weights[j] * w->factors[j];
    for (int64_t i = 0; i < a->v; i++)
      w->output[i] += weight * values[j * a->v + i];
  }
  for (int64_t i = 0; i < a->v; i++)
    w->output[i] /= sum;
  attention_store(&o, row, w->output);
  ref_store(&c->writes[WRITE_LOG_SUMS], (batch * a->heads + head) * a->queries + row,
            most + real_log(sum));
}

static void one_group(void *context, uint32_t i)
{
  const attention *a = context;
  const exec_call *c = a->call;
  int64_t batch = i / a->kv_heads, kv_head = i % a->kv_heads, of_group = a->heads / a->kv_heads;
  const attention_keys keys = { .key = &c->reads[READ_KEY],
                                .value = &c->reads[READ_VALUE],
                                .all = a->local_queries ? &c->reads[READ_ALL] : NULL };
  group_work w = new_work(a);
  attention_load_keys(a, &keys, batch, kv_head, w.keys, w.values);
  attention_transpose(w.keys, a->keys, a->qk, w.keys_transposed);
  for (int64_t head = kv_head * of_group; head < (kv_head + 1) * of_group; head++)
    for (int64_t row = 0; row < a->queries; row++)
      one_query(a, &w, batch, head, row);
  free(w.keys);
}

void ref_attention_forward(const exec_call *c)
{
  attention a = attention_of(c);
  assert(!a.local_queries || c->read_count > READ_ALL);
  assert(exec_elements(&c->writes[WRITE_LOG_SUMS]) == a.batch * a.heads * a.queries);
  ref_run_parts((uint32_t)(a.batch * a.kv_heads), one_group, &a);
  for (uint32_t k = WRITE_STATE; k < c->write_count; k++)
    for (int64_t i = 0; i < exec_elements(&c->writes[k]); i++)
      ref_store_int(&c->writes[k], i, (int64_t)c->step->seed);
}
