/* Requests that the system cannot meet, and blocks that it gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <string.h>

#include "sim/base/memory.h"

static void available_memory_is_read(void **state)
{
  (void)state;
  assert_int_equal(
      memory_available("MemTotal:  100 kB\nMemFree: 7 kB\nMemAvailable:    9 kB\nBuffers: 1 kB\n"),
      9 * 1024);
}

static void a_system_that_does_not_say_refuses_nothing(void **state)
{
  (void)state;
  assert_true(memory_available("MemTotal:  100 kB\nMemFree: 7 kB\n") == SIZE_MAX);
  assert_true(memory_available("MemAvailable: ? kB\n") == SIZE_MAX);
  assert_true(memory_available("") == SIZE_MAX);
}

/* Pages of files are taken back before the group is out of memory. */
static void a_container_limits_it(void **state)
{
  (void)state;
  assert_int_equal(memory_left_of_group("1000\n", "700\n", "anon 1\ninactive_file 100\nx 2\n"),
                   400);
  assert_int_equal(memory_left_of_group("1000\n", "700\n",
                                        "cache 9\ninactive_file 100\ntotal_inactive_file 200\n"),
                   500);
  assert_int_equal(memory_left_of_group("1000\n", "1200\n", ""), 0);
  assert_int_equal(memory_left_of_group("1000\n", "50\n", "anon 1\ninactive_file 60\n"), 1000);
}

static void a_group_without_limit_refuses_nothing(void **state)
{
  (void)state;
  assert_true(memory_left_of_group("max\n", "700\n", "") == SIZE_MAX);
  assert_true(memory_left_of_group("", "", "") == SIZE_MAX);
}

/* ---- blocks ---- */

enum { LARGE_BYTES = 5 << 20, LARGER_BYTES = 9 << 20 };

static bool holds(const unsigned char *bytes, size_t count, int value)
{
  for (size_t i = 0; i < count; i++)
    if (bytes[i] != value) return false;
  return true;
}

/* A large block is given out again as it was left; who asks for zeros gets them. */
static void a_block_that_comes_back_is_zero_where_asked(void **state)
{
  (void)state;
  for (int i = 0; i < 3; i++) {
    unsigned char *asked = memory_zeroed(LARGE_BYTES, 1);
    assert_true(holds(asked, LARGE_BYTES, 0));
    memset(asked, 7, LARGE_BYTES);
    memory_return(asked);
    bool zeroed;
    unsigned char *taken = memory_taken(LARGE_BYTES, &zeroed);
    assert_int_equal((uintptr_t)taken % 16, 0);
    if (zeroed) assert_true(holds(taken, LARGE_BYTES, 0));
    memset(taken, 9, LARGE_BYTES);
    memory_return(taken);
  }
}

/* From a small block to a large one and to a larger one, all that was there comes along. */
static void a_block_that_grows_keeps_what_it_holds(void **state)
{
  (void)state;
  static const size_t sizes[] = { 100, 1000, LARGE_BYTES, LARGER_BYTES };
  unsigned char *block = NULL;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    block = memory_resized(block, sizes[i]);
    for (size_t k = 0; k < i; k++)
      assert_int_equal(block[sizes[k] - 1], k + 1);
    block[sizes[i] - 1] = (unsigned char)(i + 1);
  }
  memory_return(block);
  memory_return(NULL);
}

/* What it gives back belongs to the next block, and it grows again. */
static void a_block_that_shrinks_keeps_the_rest(void **state)
{
  (void)state;
  unsigned char *block = memory_resized(NULL, LARGER_BYTES);
  memset(block, 3, LARGER_BYTES);
  block = memory_resized(block, LARGE_BYTES);
  bool zeroed;
  unsigned char *next = memory_taken(LARGER_BYTES - LARGE_BYTES, &zeroed);
  memset(next, 4, LARGER_BYTES - LARGE_BYTES);
  assert_true(holds(block, LARGE_BYTES, 3));
  block = memory_resized(block, LARGER_BYTES);
  memset(block + LARGE_BYTES, 5, LARGER_BYTES - LARGE_BYTES);
  assert_true(holds(block, LARGE_BYTES, 3));
  assert_true(holds(next, LARGER_BYTES - LARGE_BYTES, 4));
  memory_return(block);
  memory_return(next);
}

/* The kernel clears a page once: blocks of other sizes get those that came back. */
static void pages_come_back_in_blocks_of_other_sizes(void **state)
{
  (void)state;
  enum { BLOCKS = 3, PARTS = 6, PART_BYTES = 2000 << 10 };
  unsigned char *blocks[BLOCKS], *parts[PARTS];
  bool zeroed;
  for (int i = 0; i < BLOCKS; i++)
    memset(blocks[i] = memory_zeroed(LARGE_BYTES, 1), 7, LARGE_BYTES);
  for (int i = 0; i < BLOCKS; i++)
    memory_return(blocks[i]);
  for (int i = 0; i < 3; i++) {
    unsigned char *gathered = memory_taken(BLOCKS * LARGE_BYTES, &zeroed);
    assert_false(zeroed);
    memset(gathered, 8, BLOCKS * LARGE_BYTES);
    memory_return(gathered);
    for (int k = 0; k < PARTS; k++) {
      parts[k] = memory_taken(PART_BYTES, &zeroed);
      assert_false(zeroed);
      memset(parts[k], k, PART_BYTES);
    }
    for (int k = 0; k < PARTS; k++) {
      assert_true(holds(parts[k], PART_BYTES, k));
      memory_return(parts[k]);
    }
  }
  unsigned char *more = memory_zeroed(2 * BLOCKS * LARGE_BYTES, 1);
  assert_true(holds(more, 2 * BLOCKS * LARGE_BYTES, 0));
  memory_return(more);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(available_memory_is_read),
    cmocka_unit_test(a_system_that_does_not_say_refuses_nothing),
    cmocka_unit_test(a_container_limits_it),
    cmocka_unit_test(a_group_without_limit_refuses_nothing),
    cmocka_unit_test(a_block_that_comes_back_is_zero_where_asked),
    cmocka_unit_test(a_block_that_grows_keeps_what_it_holds),
    cmocka_unit_test(a_block_that_shrinks_keeps_the_rest),
    cmocka_unit_test(pages_come_back_in_blocks_of_other_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
