/*
 * Keys and values of latent attention. The projection has, for each head, the part of its key
 * without position and its value; the rotary part of the keys is one for all heads. A key is its
 * own part, then the rotated one, whose neighbouring columns are pairs before the rotation and its
 * halves after it.
 *
 * Backward rotates each head's gradient of the rotary part back and sums over heads, ascending.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/rope.h"
#include "ref/kernels/storage.h"

typedef struct key_value {
  rope_call rope;
  int64_t own, value; /* columns of a head's key without position, and of its value */
} key_value;

static key_value shape_of(const exec_call *c, const exec_tensor *keys, const exec_tensor *values)
{
  key_value s = { .rope = { .tokens = exec_dim(c, 0),
                            .heads = exec_dim(c, 1),
                            .dim = exec_dim(c, 2),
                            .theta = c->call->scalars[0],
                            .batch = (int64_t)c->call->scalars[1],
                            .pairs = ROPE_PAIRS_LAST_NEIGHBOURS } };
  int64_t rows = s.rope.tokens * s.rope.heads;
  s.own = rope_width(&s.rope, keys) - s.rope.dim;
  s.value = exec_elements(values) / rows;
  assert(s.value * rows == exec_elements(values));
  return s;
}

/* `row` is of own + dim columns. */
static void rotated_key(const key_value *s, const real *rotary, const real *cosine,
                        const real *sine, real *row)
{
  int64_t half = s->rope.dim / 2;
  for (int64_t i = 0; i < half; i++) {
    real a = rotary[2 * i], b = rotary[2 * i + 1];
    row[s->own + i] = a * cosine[i] - b * sine[i];
    row[s->own + half + i] = b * cosine[i] + a * sine[i];
  }
}

void ref_mla_key_value_forward(const exec_call *c)
{
  const exec_tensor *kv = &c->reads[0], *rotary = &c->reads[1];
  const exec_tensor *keys = &c->writes[0], *values = &c->writes[1];
  const key_value s = shape_of(c, keys, values);
  int64_t dim = s.rope.dim, width = s.own + s.value, key_width = s.own + dim;
  rope_table t = rope_angles(c, &s.rope);
  real *row = ref_reals(width + dim + key_width), *shared = row + width, *key = shared + dim;
  assert(REF_READS(c, s.rope.tokens * s.rope.heads * width, s.rope.tokens * dim));
  assert(c->write_count == 2);
  for (int64_t i = 0; i < s.rope.tokens * s.rope.heads; i++) {
    int64_t token = i / s.rope.heads, at = token / s.rope.batch * (dim / 2);
    ref_load_row(kv, i * width, width, row);
    ref_load_row(rotary, token * dim, dim, shared);
    memcpy(key, row, (size_t)s.own * sizeof *key);
    rotated_key(&s, shared, t.cosine + at, t.sine + at, key);
    ref_store_row(keys, i * key_width, key_width, key);
    ref_store_row(values, i * s.value, s.value, row + s.own);
  }
  free(row);
  free(t.cosine);
}

static void add_turned_back(const key_value *s, const real *gkey, const real *cosine,
                            const real *sine, real *sum)
{
  int64_t half = s->rope.dim / 2;
  for (int64_t i = 0; i < half; i++) {
    real a = gkey[s->own + i], b = gkey[s->own + half + i];
    sum[2 * i] += a * cosine[i] + b * sine[i];
    sum[2 * i + 1] += b * cosine[i] - a * sine[i];
  }
}

void ref_mla_key_value_backward(const exec_call *c)
{
  const exec_tensor *gkeys = &c->reads[0], *gvalues = &c->reads[1];
  const key_value s = shape_of(c, gkeys, gvalues);
  int64_t dim = s.rope.dim, width = s.own + s.value, key_width = s.own + dim;
  rope_table t = rope_angles(c, &s.rope);
  real *sum = ref_reals(dim + key_width + width), *gkey = sum + dim, *row = gkey + key_width;
  assert(c->read_count == 2);
  assert(REF_WRITES(c, s.rope.tokens * s.rope.heads * width, s.rope.tokens * dim));
  for (int64_t token = 0; token < s.rope.tokens; token++) {
    int64_t at = token / s.rope.batch * (dim / 2);
    for (int64_t k = 0; k < dim; k++)
      sum[k] = 0;
    for (int64_t head = 0; head < s.rope.heads; head++) {
      int64_t i = token * s.rope.heads + head;
      ref_load_row(gkeys, i * key_width, key_width, gkey);
      add_turned_back(&s, gkey, t.cosine + at, t.sine + at, sum);
      memcpy(row, gkey, (size_t)s.own * sizeof *row);
      ref_load_row(gvalues, i * s.value, s.value, row + s.own);
      ref_store_row(&c->writes[0], i * width, width, row);
    }
    ref_store_row(&c->writes[1], token * dim, dim, sum);
  }
  free(sum);
  free(t.cosine);
}
