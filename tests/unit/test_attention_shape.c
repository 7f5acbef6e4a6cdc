/* Where the rows of attention's operands are, in each layout, as whole tensors and as views. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <string.h>

#include "cuda/kernels/fast/attention_shape.h"

enum { BATCH = 2, HEADS = 6, KV_HEADS = 3, LENGTH = 24, QK = 32, V = 16 };

typedef struct small_call {
  _Alignas(16) uint16_t room[1 << 16];
  float sums[BATCH * HEADS * LENGTH];
  plan_call call;
  exec_rank rank;
  exec_tensor reads[3], writes[2];
  exec_call c;
} small_call;

/* Dimensions from outside; `gap` more elements after every row. */
static exec_tensor tensor(void *data, dtype type, const int64_t *shape, uint8_t rank, int64_t gap)
{
  exec_tensor t = { .data = data, .type = (uint8_t)type, .rank = rank };
  int64_t stride = 1;
  for (int d = rank; d-- > 0;) {
    t.shape[d] = shape[d];
    t.strides[d] = stride;
    stride = d == rank - 1 ? shape[d] + gap : stride * shape[d];
  }
  return t;
}

static exec_tensor operand(small_call *s, attention_layout layout, int64_t heads, int64_t columns,
                           int64_t gap)
{
  const int64_t shapes[][4] = { [ATTENTION_BHSD] = { BATCH, heads, LENGTH, columns },
                                [ATTENTION_SBHD] = { LENGTH, BATCH, heads, columns },
                                [ATTENTION_BSHD] = { BATCH, LENGTH, heads, columns } };
  return tensor(s->room, DTYPE_BF16, shapes[layout], 4, gap);
}

static void set_up(small_call *s, attention_layout layout, int64_t gap)
{
  const int64_t dims[] = { BATCH, HEADS, LENGTH, LENGTH, QK, V, 1 };
  const int64_t rows[] = { BATCH, HEADS, LENGTH };
  memset(s, 0, sizeof *s);
  memcpy(s->call.dims, dims, sizeof dims);
  s->call.scalars[0] = KV_HEADS;
  s->call.scalars[1] = 0.25;
  s->call.scalars[3] = layout;
  s->reads[0] = operand(s, layout, HEADS, QK, gap);
  s->reads[1] = operand(s, layout, KV_HEADS, QK, gap);
  s->reads[2] = operand(s, layout, KV_HEADS, V, gap);
  s->writes[0] = operand(s, layout, HEADS, V, 0);
  s->writes[1] = tensor(s->sums, DTYPE_FP32, rows, 3, 0);
  s->c = (exec_call){ .call = &s->call,
                      .reads = s->reads,
                      .writes = s->writes,
                      .read_count = 3,
                      .write_count = 2,
                      .rank = &s->rank };
}

/* The element of [batch, head, row, column], by the tensor's own order of dimensions. */
static int64_t place(const exec_tensor *t, attention_layout layout, int64_t batch, int64_t head,
                     int64_t row, int64_t column)
{
  const int64_t indices[][4] = { [ATTENTION_BHSD] = { batch, head, row, column },
                                 [ATTENTION_SBHD] = { row, batch, head, column },
                                 [ATTENTION_BSHD] = { batch, row, head, column } };
  int64_t at = 0;
  for (int d = 0; d < 4; d++)
    at += indices[layout][d] * t->strides[d];
  return at;
}

static void expect_places(const attention_operand *o, const exec_tensor *t, attention_layout layout,
                          int64_t heads, int64_t columns)
{
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t r = 0; r < LENGTH; r++)
        assert_int_equal(b * o->batch_stride + h * o->head_stride + r * o->row_stride + columns - 1,
                         place(t, layout, b, h, r, columns - 1));
}

static void test_rows_stand_where_the_tensor_has_them(void **state)
{
  static small_call s;
  attention_shape a;
  (void)state;
  for (int layout = ATTENTION_BHSD; layout <= ATTENTION_BSHD; layout++)
    for (int64_t gap = 0; gap <= 8; gap += 8) {
      set_up(&s, (attention_layout)layout, gap);
      assert_true(attention_forward_shape(&s.c, &a));
      expect_places(&a.operands[FORWARD_QUERY], &s.reads[0], (attention_layout)layout, HEADS, QK);
      expect_places(&a.operands[FORWARD_KEY], &s.reads[1], (attention_layout)layout, KV_HEADS, QK);
      expect_places(&a.operands[FORWARD_VALUE], &s.reads[2], (attention_layout)layout, KV_HEADS, V);
      expect_places(&a.operands[FORWARD_OUTPUT], &s.writes[0], (attention_layout)layout, HEADS, V);
    }
}

/* A projection's heads side by side in rows: [length, batch, heads * columns]. */
static void test_heads_inside_of_rows(void **state)
{
  static small_call s;
  attention_shape a;
  const int64_t joined[] = { LENGTH, BATCH, HEADS * QK };
  (void)state;
  set_up(&s, ATTENTION_SBHD, 0);
  s.reads[0] = tensor(s.room, DTYPE_BF16, joined, 3, 64);
  assert_true(attention_forward_shape(&s.c, &a));
  assert_int_equal(a.operands[FORWARD_QUERY].head_stride, QK);
  assert_int_equal(a.operands[FORWARD_QUERY].batch_stride, HEADS * QK + 64);
  assert_int_equal(a.operands[FORWARD_QUERY].row_stride, BATCH * (HEADS * QK + 64));
}

static void test_what_kernels_cannot_take(void **state)
{
  static small_call s;
  attention_shape a;
  (void)state;
  set_up(&s, ATTENTION_SBHD, 0);
  s.call.scalars[2] = 0.1; /* dropout */
  assert_false(attention_forward_shape(&s.c, &a));
  set_up(&s, ATTENTION_SBHD, 0);
  s.call.dims[7] = LENGTH / 2; /* window */
  assert_false(attention_forward_shape(&s.c, &a));
  set_up(&s, ATTENTION_SBHD, 0);
  s.reads[1].type = DTYPE_FP32;
  assert_false(attention_forward_shape(&s.c, &a));
  set_up(&s, ATTENTION_SBHD, 4); /* rows that begin at half of 16 bytes */
  assert_false(attention_forward_shape(&s.c, &a));
  set_up(&s, ATTENTION_SBHD, 0);
  s.reads[0].strides[3] = 2;
  assert_false(attention_forward_shape(&s.c, &a));
  set_up(&s, ATTENTION_SBHD, 0);
  s.rank.group[GROUP_CP].size = 2;
  assert_false(attention_forward_shape(&s.c, &a));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_rows_stand_where_the_tensor_has_them),
    cmocka_unit_test(test_heads_inside_of_rows),
    cmocka_unit_test(test_what_kernels_cannot_take),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
