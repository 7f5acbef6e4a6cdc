/* The gated delta rule, chunk by chunk: delta_rule.inc has the order of every sum. Heads and chunks
 * go by their numbers; none sees what another writes. */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

#define DELTA_FUNCTION       static
#define DELTA_LOAD(t, i)     ref_load(t, i)
#define DELTA_STORE(t, i, x) ref_store(t, i, x)
#define DELTA_EXP(x)         real_exp(x)
#define delta_real           real
typedef exec_tensor delta_tensor;
#include "ref/kernels/delta_rule.inc"

static delta_sizes sizes_of(const exec_call *c)
{
  delta_sizes s = { .batch = exec_dim(c, 0),
                    .tokens = exec_dim(c, 1),
                    .key_heads = exec_dim(c, 2),
                    .heads = exec_dim(c, 3),
                    .key = exec_dim(c, 4),
                    .value = exec_dim(c, 5),
                    .chunk = exec_dim(c, 6) };
  assert(s.heads % s.key_heads == 0 && s.tokens > 0);
  return s;
}

static real scale_of(const delta_sizes *s)
{
  return real_rsqrt((real)s->key);
}

/* Numbers of elements: keys by key head, keys and values by value head, one for each head, states. */
typedef struct delta_counts {
  int64_t keys, wide_keys, values, heads, states;
} delta_counts;

static delta_counts counts_of(const delta_sizes *s)
{
  int64_t positions = s->batch * s->tokens;
  return (delta_counts){ .keys = positions * s->key_heads * s->key,
                         .wide_keys = positions * s->heads * s->key,
                         .values = positions * s->heads * s->value,
                         .heads = positions * s->heads,
                         .states = s->batch * delta_chunks(s) * s->heads * s->key * s->value };
}

/* `what` for each chunk of each head, with the name p, or for each head. */
#define FOR_CHUNKS(s, what)                                                                        \
  for (int64_t head = 0; head < (s)->batch * (s)->heads; head++)                                   \
    for (int64_t chunk = 0; chunk < delta_chunks(s); chunk++) {                                    \
      delta_piece p = delta_piece_of(s, head, chunk);                                              \
      what;                                                                                        \
    }
#define FOR_HEADS(s, what)                                                                         \
  for (int64_t head = 0; head < (s)->batch * (s)->heads; head++) {                                 \
    what;                                                                                          \
  }

/* reads k, sums, beta */
void ref_delta_inverse(const exec_call *c)
{
  delta_sizes s = sizes_of(c);
  delta_counts n = counts_of(&s);
  assert(REF_READS(c, n.keys, n.heads, n.heads) && REF_WRITES(c, n.heads * s.chunk));
  real *room = ref_reals(s.chunk * (s.chunk + 1));
  FOR_CHUNKS(&s,
             delta_inverse(&s, &p, &c->reads[0], &c->reads[1], &c->reads[2], &c->writes[0], room))
  free(room);
}

/* reads k, v, beta, inverses, sums */
void ref_delta_updates(const exec_call *c)
{
  delta_sizes s = sizes_of(c);
  delta_counts n = counts_of(&s);
  const exec_tensor *r = c->reads, *w = c->writes;
  assert(REF_READS(c, n.keys, n.values, n.heads, n.heads * s.chunk, n.heads));
  assert(REF_WRITES(c, n.wide_keys, n.values));
  FOR_CHUNKS(&s, delta_updates(&s, &p, &r[0], &r[1], &r[2], &r[3], &r[4], &w[0], &w[1]))
}

/* reads k, what positions read and write, sums */
void ref_delta_states(const exec_call *c)
{
  delta_sizes s = sizes_of(c);
  delta_counts n = counts_of(&s);
  const exec_tensor *r = c->reads, *w = c->writes;
  assert(REF_READS(c, n.keys, n.wide_keys, n.values, n.heads) && REF_WRITES(c, n.states, n.values));
  real *room = ref_reals(s.key * s.value);
  FOR_HEADS(&s, delta_states(&s, head, &r[0], &r[1], &r[2], &r[3], &w[0], &w[1], room))
  free(room);
}

/* reads q, k, new values, states, sums */
void ref_delta_output(const exec_call *c)
{
  delta_sizes s = sizes_of(c);
  delta_counts n = counts_of(&s);
  const exec_tensor *r = c->reads;
  assert(REF_READS(c, n.keys, n.keys, n.values, n.states, n.heads) && REF_WRITES(c, n.values));
  real *room = ref_reals(s.chunk);
  FOR_CHUNKS(&s, delta_output(&s, &p, scale_of(&s), &r[0], &r[1], &r[2], &r[3], &r[4],
                              &c->writes[0], room))
  free(room);
}

/* reads q, k, sums, go */
void ref_delta_value_gradient(const exec_call *c)
{
  delta_sizes s = sizes_of(c);
  delta_counts n = counts_of(&s);
  const exec_tensor *r = c->reads;
  assert(REF_READS(c, n.keys, n.keys, n.heads, n.values) && REF_WRITES(c, n.values));
  real *room = ref_reals(s.chunk);
  FOR_CHUNKS(&s, delta_value_gradient(&s, &p, scale_of(&s), &r[0], &r[1], &r[2], &r[3],
                                      &c->writes[0], room))
  free(room);
}

/* reads q, k, what positions read, sums, go, the values' gradient from their chunk */
void ref_delta_states_backward(const exec_call *c)
{
  delta_sizes s = sizes_of(c);
  delta_counts n = counts_of(&s);
  const exec_tensor *r = c->reads, *w = c->writes;
  assert(REF_READS(c, n.keys, n.keys, n.wide_keys, n.heads, n.values, n.values));
  assert(REF_WRITES(c, n.states, n.values));
  real *room = ref_reals(s.key * s.value);
  FOR_HEADS(&s, delta_states_backward(&s, head, scale_of(&s), &r[0], &r[1], &r[2], &r[3], &r[4],
                                      &r[5], &w[0], &w[1], room))
  free(room);
}

/* reads q, k, new values, sums, states, the gradients of new values, of the result, of states */
void ref_delta_output_backward(const exec_call *c)
{
  delta_sizes s = sizes_of(c);
  delta_counts n = counts_of(&s);
  const exec_tensor *r = c->reads, *w = c->writes;
  assert(REF_READS(c, n.keys, n.keys, n.values, n.heads, n.states, n.values, n.values, n.states));
  int64_t parts = exec_elements(&w[2]) / n.heads, part = (s.key + parts - 1) / parts;
  assert(REF_WRITES(c, n.wide_keys, n.wide_keys, n.heads * parts, n.wide_keys));
  real *room = ref_reals(3 * s.chunk);
  FOR_CHUNKS(&s,
             delta_output_backward(&s, &p, scale_of(&s), part, &r[0], &r[1], &r[2], &r[3], &r[4],
                                   &r[5], &r[6], &r[7], &w[0], &w[1], &w[2], &w[3], room))
  free(room);
}

/* reads k, v, beta, sums, inverses, gradients of what positions read and write */
void ref_delta_updates_backward(const exec_call *c)
{
  delta_sizes s = sizes_of(c);
  delta_counts n = counts_of(&s);
  const exec_tensor *r = c->reads, *w = c->writes;
  assert(
      REF_READS(c, n.keys, n.values, n.heads, n.heads, n.heads * s.chunk, n.wide_keys, n.values));
  assert(REF_WRITES(c, n.wide_keys, n.values, n.heads, n.heads));
  real *room = ref_reals(s.chunk * (2 * s.chunk + s.key + 2) + s.key + s.value);
  FOR_CHUNKS(&s, delta_updates_backward(&s, &p, &r[0], &r[1], &r[2], &r[3], &r[4], &r[5], &r[6],
                                        &w[0], &w[1], &w[2], &w[3], room))
  free(room);
}
