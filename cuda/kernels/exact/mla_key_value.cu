/* ref/kernels/mla_key_value.c for GPUs. */
#include "cuda/kernels/rope.cuh"

typedef struct key_value {
  rope_call rope;
  int64_t own, value; /* columns of a head's key without position, and of its value */
} key_value;

static key_value shape_of(const exec_call *c, const tensor &keys, const tensor &values)
{
  key_value s = { { dim_of(c, 0), dim_of(c, 1), dim_of(c, 2), c->call->scalars[0],
                    (int64_t)c->call->scalars[1], ROPE_PAIRS_LAST_NEIGHBOURS },
                  0,
                  0 };
  s.own = rope_width(&s.rope, &keys) - s.rope.dim;
  s.value = elements_of(values) / (s.rope.tokens * s.rope.heads);
  return s;
}

extern "C" int64_t EXACT(mla_key_value_scratch)(const exec_call *c)
{
  return angle_bytes(c);
}

/* Columns of a key: its own, then the first and the second halves of the shared pairs. */
DEVICE static inline float key_at(const key_value &s, const tensor &kv, const tensor &rotary,
                                  const angle_table &t, int64_t row, int64_t column)
{
  int64_t half = s.rope.dim / 2, i = (column - s.own) % half;
  if (column < s.own) return load(kv, row * (s.own + s.value) + column);
  int64_t pair = row / s.rope.heads * s.rope.dim + 2 * i, angle = angle_of(s.rope, row, i);
  float a = load(rotary, pair), b = load(rotary, pair + 1);
  float cosine = t.cosine[angle], sine = t.sine[angle];
  return column - s.own < half ? a * cosine - b * sine : b * cosine + a * sine;
}

extern "C" void EXACT(mla_key_value_forward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  tensor kv = read_of(c->of, 0), rotary = read_of(c->of, 1);
  tensor keys = write_of(c->of, 0), values = write_of(c->of, 1);
  key_value s = shape_of(c->of, keys, values);
  angle_table t = make_angles(c, s.rope, &room);
  int64_t key_width = s.own + s.rope.dim;
  for_each(
      c, elements_of(keys), KERNEL_LAMBDA(int64_t n) {
        store(keys, n, key_at(s, kv, rotary, t, n / key_width, n % key_width));
      });
  for_each(
      c, elements_of(values), KERNEL_LAMBDA(int64_t n) {
        store(values, n, load(kv, n / s.value * (s.own + s.value) + s.own + n % s.value));
      });
}

/* A pair of the shared part: each head's gradient turned back, the sum over heads, ascending. */
static void add_shared(cuda_call *c, key_value s, tensor gkeys, angle_table t)
{
  int64_t half = s.rope.dim / 2, key_width = s.own + s.rope.dim;
  tensor shared = write_of(c->of, 1);
  for_each(
      c, s.rope.tokens * half, KERNEL_LAMBDA(int64_t n) {
        int64_t token = n / half, i = n % half, angle = angle_of(s.rope, token * s.rope.heads, i);
        float cosine = t.cosine[angle], sine = t.sine[angle], first = 0, second = 0;
        for (int64_t head = 0; head < s.rope.heads; head++) {
          int64_t at = (token * s.rope.heads + head) * key_width + s.own + i;
          float a = load(gkeys, at), b = load(gkeys, at + half);
          first += a * cosine + b * sine;
          second += b * cosine - a * sine;
        }
        store(shared, token * s.rope.dim + 2 * i, first);
        store(shared, token * s.rope.dim + 2 * i + 1, second);
      });
}

extern "C" void EXACT(mla_key_value_backward)(cuda_call *c)
{
  assert(c->of->read_count == 2 && c->of->write_count == 2);
  scratch_arena room = arena_of(c);
  tensor gkeys = read_of(c->of, 0), gvalues = read_of(c->of, 1), gkv = write_of(c->of, 0);
  key_value s = shape_of(c->of, gkeys, gvalues);
  int64_t width = s.own + s.value, key_width = s.own + s.rope.dim;
  add_shared(c, s, gkeys, make_angles(c, s.rope, &room));
  for_each(
      c, elements_of(gkv), KERNEL_LAMBDA(int64_t n) {
        int64_t row = n / width, i = n % width;
        store(gkv, n,
              i < s.own ? load(gkeys, row * key_width + i)
                        : load(gvalues, row * s.value + i - s.own));
      });
}
