/* The digest of a view (cuda/kernels/digest.h), on the CPU in a GPU's place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/kernels/digest.h"
#include "ref/kernels/storage.h"

typedef struct digest {
  uint64_t low, high;
  double squares;
} digest;

static gpu_stream *stream;
static void *scratch;

static int open_stream(void **state)
{
  (void)state;
  scratch = malloc(DIGEST_SCRATCH_BYTES);
  return gpu_driver_host.stream_new(&stream) == NULL && scratch != NULL ? 0 : -1;
}

static int close_stream(void **state)
{
  (void)state;
  gpu_driver_host.stream_delete(stream);
  free(scratch);
  return 0;
}

static digest digest_of(const exec_tensor *t)
{
  digest found;
  exec_tensor to = { &found, DTYPE_FP64, 1, { 3 }, { 1 } };
  exec_call of = { .reads = t, .writes = &to, .read_count = 1, .write_count = 1 };
  cuda_call call = {
    .of = &of, .stream = stream, .scratch = scratch, .scratch_bytes = DIGEST_SCRATCH_BYTES
  };
  memset(scratch, 0xA5, DIGEST_SCRATCH_BYTES);
  host_exact_digest(&call);
  assert_null(gpu_driver_host.stream_synchronize(stream));
  return found;
}

static void assert_same(digest a, digest b)
{
  assert_memory_equal(&a, &b, sizeof a);
}

static void assert_other(digest a, digest b)
{
  assert_true(a.low != b.low && a.high != b.high);
}

enum { ROWS = 37, COLUMNS = 53, GAP = 5, COUNT = ROWS * COLUMNS };

static exec_tensor new_tensor(uint8_t type, int64_t rows, int64_t columns, int64_t stride)
{
  size_t bytes = (size_t)(rows * stride * dtype_bytes((dtype)type));
  exec_tensor t = { malloc(bytes + 8), type, 2, { rows, columns }, { stride, 1 } };
  memset(t.data, 0x5C, bytes + 8);
  return t;
}

static bool is_number(uint8_t type)
{
  return type == DTYPE_BF16 || type == DTYPE_FP16 || type == DTYPE_FP32 || type == DTYPE_FP64;
}

static void fill(const exec_tensor *t)
{
  for (int64_t i = 0; i < exec_elements(t); i++)
    if (is_number(t->type))
      ref_store(t, i, (real)(i % 61) - 30);
    else
      ref_store_int(t, i, i * 7 % 127);
}

/* Elements and their order count, not their layout. */
static void how_a_view_lies_changes_nothing(void **state)
{
  (void)state;
  for (uint8_t type = 0; type < DTYPES; type++) {
    exec_tensor dense = new_tensor(type, ROWS, COLUMNS, COLUMNS);
    exec_tensor gaps = new_tensor(type, ROWS, COLUMNS, COLUMNS + GAP), moved = gaps;
    fill(&dense);
    fill(&gaps);
    assert_same(digest_of(&dense), digest_of(&gaps));
    exec_tensor flat = { dense.data, type, 1, { COUNT }, { 1 } };
    assert_same(digest_of(&dense), digest_of(&flat));
    moved.data = (char *)gaps.data + dtype_bytes((dtype)type);
    fill(&moved);
    assert_same(digest_of(&dense), digest_of(&moved));
    free(dense.data);
    free(gaps.data);
  }
}

static void every_bit_counts(void **state)
{
  (void)state;
  for (uint8_t type = 0; type < DTYPES; type++) {
    exec_tensor t = new_tensor(type, 1, 11, 11);
    fill(&t);
    digest plain = digest_of(&t);
    for (int bit = 0; bit < 11 * 8 * (int)dtype_bytes((dtype)type); bit++) {
      ((unsigned char *)t.data)[bit / 8] ^= (unsigned char)(1 << bit % 8);
      assert_other(plain, digest_of(&t));
      ((unsigned char *)t.data)[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(t.data);
  }
}

static void order_and_length_count(void **state)
{
  (void)state;
  float x[5] = { 1, 2, 3, 0, 0 }, y[5] = { 2, 1, 3, 0, 0 }, z[5] = { 3, 0, 1, 2, 0 };
  exec_tensor t = { x, DTYPE_FP32, 1, { 5 }, { 1 } }, other = t, moved = t, shorter = t;
  other.data = y;
  moved.data = z; /* the same words, elsewhere */
  shorter.shape[0] = 4;
  assert_other(digest_of(&t), digest_of(&other));
  assert_other(digest_of(&t), digest_of(&moved));
  assert_other(digest_of(&t), digest_of(&shorter));
}

static void squares_are_added(void **state)
{
  (void)state;
  for (uint8_t type = 0; type < DTYPES; type++) {
    exec_tensor t = new_tensor(type, ROWS, COLUMNS, COLUMNS + GAP);
    double sum = 0;
    fill(&t);
    for (int64_t i = 0; is_number(type) && i < COUNT; i++)
      sum += (double)ref_load(&t, i) * (double)ref_load(&t, i);
    assert_true(digest_of(&t).squares == sum); /* of small whole numbers: exact in any order */
    free(t.data);
  }
}

static void many_lanes(void **state)
{
  (void)state;
  exec_tensor t = new_tensor(DTYPE_BF16, 1, 1200003, 1200003), gaps = t;
  fill(&t);
  digest plain = digest_of(&t);
  double sum = 0;
  for (int64_t i = 0; i < t.shape[1]; i++)
    sum += (double)ref_load(&t, i) * (double)ref_load(&t, i);
  assert_true(plain.squares == sum);
  gaps.shape[0] = 3;
  gaps.shape[1] = gaps.strides[0] = 400001;
  assert_same(plain, digest_of(&gaps));
  ((uint16_t *)t.data)[1200002] ^= 1;
  assert_other(plain, digest_of(&t));
  free(t.data);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(how_a_view_lies_changes_nothing),
    cmocka_unit_test(every_bit_counts),
    cmocka_unit_test(order_and_length_count),
    cmocka_unit_test(squares_are_added),
    cmocka_unit_test(many_lanes),
  };
  return cmocka_run_group_tests(tests, open_stream, close_stream);
}
