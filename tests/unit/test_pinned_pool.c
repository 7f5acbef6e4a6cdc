/* Page-locked host memory: powers of two, reuse after events, and Megatron's keyed pool. */
#include "sim/memory/pinned_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sim/base/units.h"

static bool done_up_to(void *context, uint32_t event)
{
  return event < *(const uint32_t *)context;
}

static void test_rounds_to_powers_of_two(void **state)
{
  static const struct {
    int64_t bytes, locked;
  } cases[] = { { 1, 1 }, { 3, 4 }, { 4096, 4096 }, { 4097, 8192 }, { 160 * MIB, 256 * MIB } };
  pinned_pool *p = pinned_pool_new(NULL, NULL);
  int64_t exact = 0, pow2 = 0;
  (void)state;

  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_int_equal(pinned_alloc(p, cases[i].bytes).locked_bytes, cases[i].locked);
    assert_int_equal(pinned_pool_stats(p)->exact_bytes, exact += cases[i].bytes);
    assert_int_equal(pinned_pool_stats(p)->pow2_bytes, pow2 += cases[i].locked);
  }
  pinned_pool_delete(p);
}

static void test_newest_free_block_of_the_power_is_reused(void **state)
{
  pinned_pool *p = pinned_pool_new(NULL, NULL);
  uint32_t first = pinned_alloc(p, 5000).handle, second = pinned_alloc(p, 6000).handle;
  (void)state;

  pinned_free(p, first);
  pinned_free(p, second);
  pinned_buffer again = pinned_alloc(p, 8192);
  assert_int_equal(again.handle, second);
  assert_int_equal(again.locked_bytes, 0);
  assert_int_equal(pinned_alloc(p, 4096).locked_bytes, 4096);
  assert_int_equal(pinned_pool_stats(p)->exact_bytes, 8192 + 4096);
  assert_int_equal(pinned_pool_stats(p)->exact_peak_bytes, 8192 + 4096);
  assert_int_equal(pinned_pool_stats(p)->pow2_bytes, 8192 + 8192 + 4096);
  pinned_pool_delete(p);
}

static void test_reuse_waits_for_events_in_order(void **state)
{
  uint32_t done = 0;
  pinned_pool *p = pinned_pool_new(done_up_to, &done);
  uint32_t a = pinned_alloc(p, 4096).handle, b = pinned_alloc(p, 4096).handle;
  (void)state;

  pinned_free_after(p, a, 7);
  pinned_free_after(p, b, 3);
  done = 5; /* event 3 is done, but event 7 comes before it */
  assert_int_equal(pinned_alloc(p, 4096).locked_bytes, 4096);
  done = 8;
  assert_int_equal(pinned_alloc(p, 4096).handle, b);
  assert_int_equal(pinned_alloc(p, 4096).handle, a);
  assert_int_equal(pinned_pool_stats(p)->pow2_peak_bytes, 3 * 4096);
  pinned_pool_delete(p);
}

enum { KEY_A, KEY_B };

static void test_keyed_pool_is_first_in_first_out(void **state)
{
  pinned_pool *p = pinned_pool_new(NULL, NULL);
  uint32_t a0 = pinned_pool_take(p, KEY_A, 3000).handle;
  uint32_t a1 = pinned_pool_take(p, KEY_A, 3000).handle;
  (void)state;

  pinned_pool_give(p, a1);
  pinned_pool_give(p, a0);
  /* The same bytes under another key are another buffer. */
  assert_int_equal(pinned_pool_take(p, KEY_B, 3000).locked_bytes, 4096);
  assert_int_equal(pinned_pool_take(p, KEY_A, 3000).handle, a1);
  assert_int_equal(pinned_pool_take(p, KEY_A, 3000).handle, a0);
  assert_int_equal(pinned_pool_stats(p)->exact_bytes, 9000);
  pinned_pool_delete(p);
}

static void test_iteration_end_frees_all_and_keeps_all(void **state)
{
  pinned_pool *p = pinned_pool_new(NULL, NULL);
  uint32_t handles[3];
  (void)state;

  for (int i = 0; i < 3; i++)
    handles[i] = pinned_pool_take(p, KEY_A, 4096).handle;
  pinned_pool_give(p, handles[2]);
  pinned_pool_reset(p);
  for (int i = 0; i < 3; i++)
    assert_int_equal(pinned_pool_take(p, KEY_A, 4096).handle, handles[i]);
  assert_int_equal(pinned_pool_stats(p)->exact_bytes, 3 * 4096);
  assert_int_equal(pinned_pool_stats(p)->pow2_bytes, 3 * 4096);
  pinned_pool_delete(p);
}

static void test_long_use_needs_no_more_room(void **state)
{
  pinned_pool *p = pinned_pool_new(NULL, NULL);
  (void)state;

  for (int i = 0; i < 1000; i++) {
    uint32_t a = pinned_pool_take(p, KEY_A, 100).handle, b = pinned_pool_take(p, KEY_A, 100).handle;
    assert_int_not_equal(a, b);
    pinned_pool_give(p, a);
    pinned_pool_give(p, b);
  }
  assert_int_equal(pinned_pool_stats(p)->exact_bytes, 200);
  pinned_pool_delete(p);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_rounds_to_powers_of_two),
    cmocka_unit_test(test_newest_free_block_of_the_power_is_reused),
    cmocka_unit_test(test_reuse_waits_for_events_in_order),
    cmocka_unit_test(test_keyed_pool_is_first_in_first_out),
    cmocka_unit_test(test_iteration_end_frees_all_and_keeps_all),
    cmocka_unit_test(test_long_use_needs_no_more_room),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
