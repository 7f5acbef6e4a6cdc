/* ref/kernels/delta_rule.c for GPUs: a thread for each chunk of each head, or for each head. */
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

#define DELTA_FUNCTION       DEVICE static inline
#define DELTA_LOAD(t, i)     load(*(t), i)
#define DELTA_STORE(t, i, x) store(*(t), i, x)
#define DELTA_EXP(x)         exact_expf(x)
#define delta_real           float
typedef tensor delta_tensor;
#include "ref/kernels/delta_rule.inc"

static delta_sizes sizes_of(const exec_call *c)
{
  delta_sizes s = { dim_of(c, 0), dim_of(c, 1), dim_of(c, 2), dim_of(c, 3),
                    dim_of(c, 4), dim_of(c, 5), dim_of(c, 6) };
  return s;
}

static int64_t heads_of(const delta_sizes &s)
{
  return s.batch * s.heads;
}

static int64_t chunks_of(const delta_sizes &s)
{
  return (s.tokens + s.chunk - 1) / s.chunk;
}

/* The numbers that a thread needs, `count` of them. */
typedef struct rooms {
  float *first;
  int64_t count;
} rooms;

static rooms take_rooms(scratch_arena *a, int64_t threads, int64_t count)
{
  rooms r = { take<float>(a, threads * count), count };
  return r;
}

static int64_t bytes_of(int64_t threads, int64_t count)
{
  scratch_arena a = arena_of_nothing();
  (void)take_rooms(&a, threads, count);
  return a.used;
}

static rooms rooms_of(const cuda_call *c, int64_t threads, int64_t count)
{
  scratch_arena a = arena_of(c);
  return take_rooms(&a, threads, count);
}

static int64_t of_inverse(const delta_sizes &s)
{
  return s.chunk * (s.chunk + 1);
}

static int64_t of_state(const delta_sizes &s)
{
  return s.key * s.value;
}

static int64_t of_scores(const delta_sizes &s)
{
  return 3 * s.chunk;
}

static int64_t of_updates_backward(const delta_sizes &s)
{
  return s.chunk * (2 * s.chunk + s.key + 2) + s.key + s.value;
}

#define SCRATCH_OF(name, threads, count)                                                           \
  extern "C" int64_t EXACT(name##_scratch)(const exec_call *c)                                     \
  {                                                                                                \
    delta_sizes s = sizes_of(c);                                                                   \
    return bytes_of(threads, count(s));                                                            \
  }
SCRATCH_OF(delta_inverse, heads_of(s) * chunks_of(s), of_inverse)
SCRATCH_OF(delta_states, heads_of(s), of_state)
SCRATCH_OF(delta_scores, heads_of(s) * chunks_of(s), of_scores)
SCRATCH_OF(delta_updates_backward, heads_of(s) * chunks_of(s), of_updates_backward)

static float scale_of(const delta_sizes &s)
{
  return exact_rsqrtf((float)s.key);
}

extern "C" void EXACT(delta_inverse)(cuda_call *c)
{
  delta_sizes s = sizes_of(c->of);
  int64_t chunks = chunks_of(s), threads = heads_of(s) * chunks;
  rooms room = rooms_of(c, threads, of_inverse(s));
  tensor k = read_of(c->of, 0), sums = read_of(c->of, 1), beta = read_of(c->of, 2);
  tensor inverses = write_of(c->of, 0);
  for_each(
      c, threads, KERNEL_LAMBDA(int64_t i) {
        delta_piece p = delta_piece_of(&s, i / chunks, i % chunks);
        delta_inverse(&s, &p, &k, &sums, &beta, &inverses, room.first + i * room.count);
      });
}

extern "C" void EXACT(delta_updates)(cuda_call *c)
{
  delta_sizes s = sizes_of(c->of);
  int64_t chunks = chunks_of(s);
  tensor k = read_of(c->of, 0), v = read_of(c->of, 1), beta = read_of(c->of, 2);
  tensor inverses = read_of(c->of, 3), sums = read_of(c->of, 4);
  tensor read = write_of(c->of, 0), write = write_of(c->of, 1);
  for_each(
      c, heads_of(s) * chunks, KERNEL_LAMBDA(int64_t i) {
        delta_piece p = delta_piece_of(&s, i / chunks, i % chunks);
        delta_updates(&s, &p, &k, &v, &beta, &inverses, &sums, &read, &write);
      });
}

extern "C" void EXACT(delta_states)(cuda_call *c)
{
  delta_sizes s = sizes_of(c->of);
  rooms room = rooms_of(c, heads_of(s), of_state(s));
  tensor k = read_of(c->of, 0), read = read_of(c->of, 1), write = read_of(c->of, 2);
  tensor sums = read_of(c->of, 3), states = write_of(c->of, 0), values = write_of(c->of, 1);
  for_each(
      c, heads_of(s), KERNEL_LAMBDA(int64_t i) {
        delta_states(&s, i, &k, &read, &write, &sums, &states, &values,
                     room.first + i * room.count);
      });
}

extern "C" void EXACT(delta_output)(cuda_call *c)
{
  delta_sizes s = sizes_of(c->of);
  int64_t chunks = chunks_of(s), threads = heads_of(s) * chunks;
  rooms room = rooms_of(c, threads, of_scores(s));
  float scale = scale_of(s);
  tensor q = read_of(c->of, 0), k = read_of(c->of, 1), values = read_of(c->of, 2);
  tensor states = read_of(c->of, 3), sums = read_of(c->of, 4), o = write_of(c->of, 0);
  for_each(
      c, threads, KERNEL_LAMBDA(int64_t i) {
        delta_piece p = delta_piece_of(&s, i / chunks, i % chunks);
        delta_output(&s, &p, scale, &q, &k, &values, &states, &sums, &o,
                     room.first + i * room.count);
      });
}

extern "C" void EXACT(delta_value_gradient)(cuda_call *c)
{
  delta_sizes s = sizes_of(c->of);
  int64_t chunks = chunks_of(s), threads = heads_of(s) * chunks;
  rooms room = rooms_of(c, threads, of_scores(s));
  float scale = scale_of(s);
  tensor q = read_of(c->of, 0), k = read_of(c->of, 1), sums = read_of(c->of, 2);
  tensor go = read_of(c->of, 3), local = write_of(c->of, 0);
  for_each(
      c, threads, KERNEL_LAMBDA(int64_t i) {
        delta_piece p = delta_piece_of(&s, i / chunks, i % chunks);
        delta_value_gradient(&s, &p, scale, &q, &k, &sums, &go, &local,
                             room.first + i * room.count);
      });
}

extern "C" void EXACT(delta_states_backward)(cuda_call *c)
{
  delta_sizes s = sizes_of(c->of);
  rooms room = rooms_of(c, heads_of(s), of_state(s));
  float scale = scale_of(s);
  tensor q = read_of(c->of, 0), k = read_of(c->of, 1), read = read_of(c->of, 2);
  tensor sums = read_of(c->of, 3), go = read_of(c->of, 4), local = read_of(c->of, 5);
  tensor of_states = write_of(c->of, 0), of_values = write_of(c->of, 1);
  for_each(
      c, heads_of(s), KERNEL_LAMBDA(int64_t i) {
        delta_states_backward(&s, i, scale, &q, &k, &read, &sums, &go, &local, &of_states,
                              &of_values, room.first + i * room.count);
      });
}

extern "C" void EXACT(delta_output_backward)(cuda_call *c)
{
  delta_sizes s = sizes_of(c->of);
  int64_t chunks = chunks_of(s), threads = heads_of(s) * chunks;
  rooms room = rooms_of(c, threads, of_scores(s));
  float scale = scale_of(s);
  tensor q = read_of(c->of, 0), k = read_of(c->of, 1), values = read_of(c->of, 2);
  tensor sums = read_of(c->of, 3), states = read_of(c->of, 4), of_values = read_of(c->of, 5);
  tensor go = read_of(c->of, 6), of_states = read_of(c->of, 7);
  tensor gq = write_of(c->of, 0), gk = write_of(c->of, 1), of_sums = write_of(c->of, 2);
  tensor of_read = write_of(c->of, 3);
  int64_t parts = elements_of(of_sums) / (s.batch * s.tokens * s.heads);
  int64_t part = (s.key + parts - 1) / parts;
  for_each(
      c, threads, KERNEL_LAMBDA(int64_t i) {
        delta_piece p = delta_piece_of(&s, i / chunks, i % chunks);
        delta_output_backward(&s, &p, scale, part, &q, &k, &values, &sums, &states, &of_values, &go,
                              &of_states, &gq, &gk, &of_sums, &of_read,
                              room.first + i * room.count);
      });
}

extern "C" void EXACT(delta_updates_backward)(cuda_call *c)
{
  delta_sizes s = sizes_of(c->of);
  int64_t chunks = chunks_of(s), threads = heads_of(s) * chunks;
  rooms room = rooms_of(c, threads, of_updates_backward(s));
  tensor k = read_of(c->of, 0), v = read_of(c->of, 1), beta = read_of(c->of, 2);
  tensor sums = read_of(c->of, 3), inverses = read_of(c->of, 4), gr = read_of(c->of, 5);
  tensor gw = read_of(c->of, 6), gk = write_of(c->of, 0), gv = write_of(c->of, 1);
  tensor gbeta = write_of(c->of, 2), of_sums = write_of(c->of, 3);
  for_each(
      c, threads, KERNEL_LAMBDA(int64_t i) {
        delta_piece p = delta_piece_of(&s, i / chunks, i % chunks);
        delta_updates_backward(&s, &p, &k, &v, &beta, &sums, &inverses, &gr, &gw, &gk, &gv, &gbeta,
                               &of_sums, room.first + i * room.count);
      });
}
