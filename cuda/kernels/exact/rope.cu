/* ref/kernels/rope.c for GPUs: a thread for each pair, and for each column that is not rotated. */
#include "cuda/kernels/rope.cuh"

/* If pairs move to other columns, y may overwrite x: then x is a copy of the old elements. */
static bool moves_pairs(const rope_call &r)
{
  return r.pairs == ROPE_PAIRS_LAST_NEIGHBOURS;
}

extern "C" int64_t EXACT(rope_scratch)(const exec_call *c)
{
  rope_call r = rope_of(c);
  scratch_arena a = arena_of_nothing();
  (void)take_angles(&a, r.tokens / r.batch, r.dim);
  if (moves_pairs(r)) (void)take<float>(&a, elements_of(c->reads[0]));
  return a.used;
}

static tensor copy_of(cuda_call *c, tensor x, scratch_arena *room)
{
  int64_t count = elements_of(x);
  float *to = take<float>(room, count);
  tensor copy = { to, DTYPE_FP32, 1, { count }, { 1 } };
  for_each(
      c, count, KERNEL_LAMBDA(int64_t i) { to[i] = load(x, i); });
  return copy;
}

/* Cosines and sines that forward has kept, [positions, dim], in the type of the activations. */
static angle_table kept_angles(cuda_call *c, rope_call r, scratch_arena *room)
{
  int64_t positions = r.tokens / r.batch, half = r.dim / 2;
  angle_table t = take_angles(room, positions, r.dim);
  tensor cosine = read_of(c->of, 1), sine = read_of(c->of, 2);
  for_each(
      c, positions * half, KERNEL_LAMBDA(int64_t n) {
        int64_t column = n / half * r.dim + turned_alone(r, n % half).first;
        t.cosine[n] = load(cosine, column);
        t.sine[n] = load(sine, column);
      });
  return t;
}

/* A pair (a, b) becomes (a cos - b sin, b cos + a sin); backward: by the negated angle, and from
 * its place after the rotation to its old place. */
static void turn(cuda_call *c, rope_call r, angle_table t, bool back, scratch_arena *room)
{
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  int64_t width = rope_width(&r, &x), half = r.dim / 2, of_row = width - half;
  int64_t alone = r.pairs == ROPE_PAIRS_LAST_NEIGHBOURS ? 0 : r.dim;
  if (moves_pairs(r)) x = copy_of(c, x, room);
  for_each(
      c, r.tokens * r.heads * of_row, KERNEL_LAMBDA(int64_t n) {
        int64_t row = n / of_row, i = n % of_row, first = row * width;
        if (i >= half) {
          int64_t column = first + alone + i - half;
          store(y, column, load(x, column));
          return;
        }
        rope_columns at = back ? after_turn(r, width, i) : before_turn(r, width, i);
        rope_columns into = back ? before_turn(r, width, i) : after_turn(r, width, i);
        float a = load(x, first + at.first), b = load(x, first + at.second);
        float cosine = t.cosine[angle_of(r, row, i)], sine = t.sine[angle_of(r, row, i)];
        if (back) sine = -sine;
        store(y, first + into.first, a * cosine - b * sine);
        store(y, first + into.second, b * cosine + a * sine);
      });
}

extern "C" void EXACT(rope_forward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  rope_call r = rope_of(c->of);
  turn(c, r, make_angles(c, r, &room), false, &room);
}

extern "C" void EXACT(rope_backward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  rope_call r = rope_of(c->of);
  bool kept = c->of->read_count > 1;
  turn(c, r, kept ? kept_angles(c, r, &room) : make_angles(c, r, &room), true, &room);
}
