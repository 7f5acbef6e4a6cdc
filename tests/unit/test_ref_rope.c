/*
 * Rotary embedding, and the keys and values of latent attention: angles, gradients against finite
 * differences, and that the separate kernels have the bits of the fused one.
 */
#include "tests/unit/sequence_parts.h"

/* ---- rotary embedding ------------------------------------------------------------------------ */

enum { POSITIONS = 3, SEQUENCES = 2, ROPE_HEADS = 2, ROPE_WIDTH = 6, ROPE_DIM = 4 };
enum {
  ROPE_TOKENS = POSITIONS * SEQUENCES,
  ROPE_ROWS = ROPE_TOKENS * ROPE_HEADS,
  ROPE_ELEMENTS = ROPE_ROWS * ROPE_WIDTH,
  ROTATED = ROPE_ROWS * ROPE_DIM
};

typedef struct rope_case {
  rope_pairs pairs;
  double x[ROPE_ELEMENTS], y[ROPE_ELEMENTS], gx[ROPE_ELEMENTS], gy[ROPE_ELEMENTS];
} rope_case;

static kernel_call rope_kernel(const rope_case *t, kernel_kind kind)
{
  return (kernel_call){ .kind = kind,
                        .dims = { ROPE_TOKENS, ROPE_HEADS, ROPE_DIM },
                        .scalars = { 100, SEQUENCES, t->pairs } };
}

static void rope_forward(void *state)
{
  rope_case *t = state;
  run_kernel(rope_kernel(t, KERNEL_ROPE_FORWARD),
             (exec_tensor[]){ flat(t->x, ROPE_ELEMENTS), { 0 } },
             (exec_tensor[]){ flat(t->y, ROPE_ELEMENTS), { 0 } });
}

static void rope_backward(void *state)
{
  rope_case *t = state;
  run_kernel(rope_kernel(t, KERNEL_ROPE_BACKWARD),
             (exec_tensor[]){ flat(t->gy, ROPE_ELEMENTS), { 0 } },
             (exec_tensor[]){ flat(t->gx, ROPE_ELEMENTS), { 0 } });
}

static rope_case new_rope(int pairs)
{
  rope_case t = { .pairs = (rope_pairs)pairs };
  fill_with_noise(t.x, ROPE_ELEMENTS, 1);
  fill_with_noise(t.gy, ROPE_ELEMENTS, 2);
  return t;
}

static void rope_gradients(void **state)
{
  (void)state;
  for (int pairs = 0; pairs < 3; pairs++) {
    rope_case t = new_rope(pairs);
    assert_gradients((gradient_check){ .forward = rope_forward,
                                       .backward = rope_backward,
                                       .state = &t,
                                       .outputs = { { t.y, t.gy, ROPE_ELEMENTS } },
                                       .inputs = { { t.x, t.gx, ROPE_ELEMENTS } } });
  }
}

/* Position 1, pair 0: an angle of 1; pair 1: 100^(-1/2). Columns of each before and after. */
static void rope_turns_pairs_by_their_angles(void **state)
{
  static const int before[3][4] = { { 0, 2, 1, 3 }, { 0, 1, 2, 3 }, { 2, 3, 4, 5 } };
  static const int after[3][4] = { { 0, 2, 1, 3 }, { 0, 1, 2, 3 }, { 2, 4, 3, 5 } };
  static const double cosine[] = { 0.54030230586813972, 0.99500416527802577 };
  static const double sine[] = { 0.84147098480789651, 0.09983341664682815 };
  (void)state;
  for (int pairs = 0; pairs < 3; pairs++) {
    rope_case t = new_rope(pairs);
    rope_forward(&t);
    const int token = SEQUENCES, row = token * ROPE_HEADS * ROPE_WIDTH;
    for (int i = 0; i < 2; i++) {
      double a = t.x[row + before[pairs][2 * i]], b = t.x[row + before[pairs][2 * i + 1]];
      assert_near(t.y[row + after[pairs][2 * i]], a * cosine[i] - b * sine[i]);
      assert_near(t.y[row + after[pairs][2 * i + 1]], b * cosine[i] + a * sine[i]);
    }
    int kept = pairs == ROPE_PAIRS_LAST_NEIGHBOURS ? 0 : ROPE_DIM;
    assert_true(t.y[row + kept] == t.x[row + kept] && t.y[row + kept + 1] == t.x[row + kept + 1]);
  }
}

typedef struct rope_parts {
  double scaled[ROTATED], negated[ROTATED / 2], rotated[ROTATED], turned[ROTATED], sum[ROTATED];
  double cosine[POSITIONS * ROPE_DIM], sine[POSITIONS * ROPE_DIM], y[ROPE_ELEMENTS];
  double gx[ROPE_ELEMENTS];
} rope_parts;

static void product(rope_case *t, rope_pairs pairs, bool sine, exec_tensor x, double *y,
                    double *factors)
{
  kernel_call k = rope_kernel(t, KERNEL_ROPE_PRODUCT);
  k.scalars[2] = pairs;
  k.scalars[3] = sine;
  run_kernel(k, (exec_tensor[]){ x, { 0 } },
             (exec_tensor[]){ flat(y, ROTATED), flat(factors, POSITIONS * ROPE_DIM), { 0 } });
}

static void run_parts(rope_case *t, rope_parts *p)
{
  exec_tensor x = flat(t->x, ROPE_ELEMENTS);
  kernel_call k = rope_kernel(t, KERNEL_ROPE_NEGATED_HALF);
  k.scalars[0] = t->pairs;
  product(t, t->pairs, false, x, p->scaled, p->cosine);
  run_kernel(k, (exec_tensor[]){ x, { 0 } },
             (exec_tensor[]){ flat(p->negated, ROTATED / 2), { 0 } });
  k.kind = KERNEL_ROPE_ROTATED_HALF;
  run_kernel(k, (exec_tensor[]){ x, flat(p->negated, ROTATED / 2), { 0 } },
             (exec_tensor[]){ flat(p->rotated, ROTATED), { 0 } });
  rope_pairs alone = t->pairs == ROPE_PAIRS_NEIGHBOURS ? ROPE_PAIRS_NEIGHBOURS : ROPE_PAIRS_HALVES;
  product(t, alone, true, flat(p->rotated, ROTATED), p->turned, p->sine);
  for (int i = 0; i < ROTATED; i++)
    p->sum[i] = p->scaled[i] + p->turned[i];
  k.kind = KERNEL_ROPE_JOIN;
  run_kernel(k, (exec_tensor[]){ flat(p->sum, ROTATED), x, { 0 } },
             (exec_tensor[]){ flat(p->y, ROPE_ELEMENTS), { 0 } });
  run_kernel(rope_kernel(t, KERNEL_ROPE_BACKWARD),
             (exec_tensor[]){ flat(t->gy, ROPE_ELEMENTS),
                              flat(p->cosine, POSITIONS * ROPE_DIM),
                              flat(p->sine, POSITIONS * ROPE_DIM),
                              { 0 } },
             (exec_tensor[]){ flat(p->gx, ROPE_ELEMENTS), { 0 } });
}

static void rope_in_parts_is_the_same(void **state)
{
  (void)state;
  for (int pairs = 0; pairs < 3; pairs++) {
    rope_case t = new_rope(pairs);
    rope_parts p;
    rope_forward(&t);
    rope_backward(&t);
    run_parts(&t, &p);
    assert_memory_equal(p.y, t.y, sizeof t.y);
    assert_memory_equal(p.gx, t.gx, sizeof t.gx);
  }
}

/* Ranks 0 and 1 of 2 have chunks 0, 3 and 1, 2 of the sequence. */
static void rope_knows_its_positions(void **state)
{
  enum { LENGTH = 8, WIDTH = 2 };
  static const int chunks[2][2] = { { 0, 3 }, { 1, 2 } };
  double x[LENGTH * WIDTH], whole[LENGTH * WIDTH], part[LENGTH], y[LENGTH];
  kernel_call k = { .kind = KERNEL_ROPE_FORWARD,
                    .dims = { LENGTH, 1, WIDTH },
                    .scalars = { 9, 1 } };
  (void)state;
  fill_with_noise(x, LENGTH * WIDTH, 3);
  run_kernel(k, (exec_tensor[]){ flat(x, LENGTH * WIDTH), { 0 } },
             (exec_tensor[]){ flat(whole, LENGTH * WIDTH), { 0 } });
  k.dims[0] = LENGTH / 2;
  for (uint32_t rank = 0; rank < 2; rank++) {
    for (int c = 0; c < 2; c++)
      memcpy(part + c * 4, x + chunks[rank][c] * 4, 4 * sizeof *x);
    run_as(k, (exec_position){ rank, 2 }, (exec_tensor[]){ flat(part, LENGTH), { 0 } },
           (exec_tensor[]){ flat(y, LENGTH), { 0 } });
    for (int c = 0; c < 2; c++)
      assert_memory_equal(y + c * 4, whole + chunks[rank][c] * 4, 4 * sizeof *y);
  }
}

/* ---- keys and values of latent attention ----------------------------------------------------- */

enum { MLA_HEADS = 2, MLA_OWN = 3, MLA_VALUE = 5, MLA_DIM = 4 };
enum {
  MLA_ROWS = ROPE_TOKENS * MLA_HEADS,
  MLA_KV = MLA_ROWS * (MLA_OWN + MLA_VALUE),
  MLA_SHARED = ROPE_TOKENS * MLA_DIM,
  MLA_KEYS = MLA_ROWS * (MLA_OWN + MLA_DIM),
  MLA_VALUES = MLA_ROWS * MLA_VALUE
};

typedef struct mla_case {
  double kv[MLA_KV], shared[MLA_SHARED], keys[MLA_KEYS], values[MLA_VALUES];
  double gkv[MLA_KV], gshared[MLA_SHARED], gkeys[MLA_KEYS], gvalues[MLA_VALUES];
} mla_case;

static void run_mla(kernel_kind kind, exec_tensor a, exec_tensor b, exec_tensor y, exec_tensor z)
{
  run_kernel((kernel_call){ .kind = kind,
                            .dims = { ROPE_TOKENS, MLA_HEADS, MLA_DIM },
                            .scalars = { 50, SEQUENCES } },
             (exec_tensor[]){ a, b, { 0 } }, (exec_tensor[]){ y, z, { 0 } });
}

static void mla_forward(void *state)
{
  mla_case *t = state;
  run_mla(KERNEL_MLA_KEY_VALUE_FORWARD, flat(t->kv, MLA_KV), flat(t->shared, MLA_SHARED),
          flat(t->keys, MLA_KEYS), flat(t->values, MLA_VALUES));
}

static void mla_backward(void *state)
{
  mla_case *t = state;
  run_mla(KERNEL_MLA_KEY_VALUE_BACKWARD, flat(t->gkeys, MLA_KEYS), flat(t->gvalues, MLA_VALUES),
          flat(t->gkv, MLA_KV), flat(t->gshared, MLA_SHARED));
}

static void mla_gradients(void **state)
{
  mla_case t;
  (void)state;
  fill_with_noise(t.kv, MLA_KV, 1);
  fill_with_noise(t.shared, MLA_SHARED, 2);
  fill_with_noise(t.gkeys, MLA_KEYS, 3);
  fill_with_noise(t.gvalues, MLA_VALUES, 4);
  assert_gradients((gradient_check){
      .forward = mla_forward,
      .backward = mla_backward,
      .state = &t,
      .outputs = { { t.keys, t.gkeys, MLA_KEYS }, { t.values, t.gvalues, MLA_VALUES } },
      .inputs = { { t.kv, t.gkv, MLA_KV }, { t.shared, t.gshared, MLA_SHARED } } });
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(rope_gradients),
    cmocka_unit_test(rope_turns_pairs_by_their_angles),
    cmocka_unit_test(rope_in_parts_is_the_same),
    cmocka_unit_test(rope_knows_its_positions),
    cmocka_unit_test(mla_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
