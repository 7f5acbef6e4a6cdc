/* ref/kernels/rope_apart.c for GPUs. */
#include "cuda/kernels/rope.cuh"

extern "C" int64_t EXACT(rope_product_scratch)(const exec_call *c)
{
  return angle_bytes(c);
}

/* Factors [positions, dim] as backward will read them: rounded. */
static void keep_factors(cuda_call *c, rope_call r, const float *values)
{
  int64_t half = r.dim / 2;
  tensor kept = write_of(c->of, 1);
  for_each(
      c, r.tokens / r.batch * half, KERNEL_LAMBDA(int64_t n) {
        rope_columns at = turned_alone(r, n % half);
        store(kept, n / half * r.dim + at.first, values[n]);
        store(kept, n / half * r.dim + at.second, values[n]);
      });
}

extern "C" void EXACT(rope_product)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  rope_call r = rope_of(c->of);
  angle_table t = make_angles(c, r, &room);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0), factors = write_of(c->of, 1);
  int64_t width = rope_width(&r, &x), half = r.dim / 2;
  keep_factors(c, r, scalar_of(c->of, 3) != 0 ? t.sine : t.cosine);
  for_each(
      c, r.tokens * r.heads * half, KERNEL_LAMBDA(int64_t n) {
        int64_t row = n / half, i = n % half, factor = row / r.heads / r.batch * r.dim;
        rope_columns at = before_turn(r, width, i), into = turned_alone(r, i);
        float a = load(x, row * width + at.first), b = load(x, row * width + at.second);
        store(y, row * r.dim + into.first, a * load(factors, factor + into.first));
        store(y, row * r.dim + into.second, b * load(factors, factor + into.second));
      });
}

/* Dims and the scalar of the rows that need no angles. */
static rope_call columns_of(const exec_call *c)
{
  rope_call r = { dim_of(c, 0), dim_of(c, 1), dim_of(c, 2), 0, 1, (rope_pairs)c->call->scalars[0] };
  return r;
}

extern "C" void EXACT(rope_negated_half)(cuda_call *c)
{
  rope_call r = columns_of(c->of);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  int64_t width = rope_width(&r, &x), half = r.dim / 2;
  for_each(
      c, r.tokens * r.heads * half, KERNEL_LAMBDA(int64_t n) {
        store(y, n, -load(x, n / half * width + before_turn(r, width, n % half).second));
      });
}

extern "C" void EXACT(rope_rotated_half)(cuda_call *c)
{
  rope_call r = columns_of(c->of);
  tensor x = read_of(c->of, 0), negated = read_of(c->of, 1), y = write_of(c->of, 0);
  int64_t width = rope_width(&r, &x), half = r.dim / 2;
  for_each(
      c, r.tokens * r.heads * half, KERNEL_LAMBDA(int64_t n) {
        int64_t row = n / half, i = n % half;
        rope_columns into = turned_alone(r, i);
        copy_element(negated, n, y, row * r.dim + into.first);
        copy_element(x, row * width + before_turn(r, width, i).first, y, row * r.dim + into.second);
      });
}

extern "C" void EXACT(rope_join)(cuda_call *c)
{
  rope_call r = columns_of(c->of);
  tensor rotated = read_of(c->of, 0), x = read_of(c->of, 1), y = write_of(c->of, 0);
  int64_t width = rope_width(&r, &x);
  int64_t offset = r.pairs == ROPE_PAIRS_LAST_NEIGHBOURS ? width - r.dim : 0;
  for_each(
      c, r.tokens * r.heads * width, KERNEL_LAMBDA(int64_t n) {
        int64_t row = n / width, i = n % width;
        if (i >= offset && i < offset + r.dim)
          copy_element(rotated, row * r.dim + i - offset, y, n);
        else
          copy_element(x, n, y, n);
      });
}
