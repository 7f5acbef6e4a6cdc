/* Pages that blocks share: what is returned joins, and serves the next request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <string.h>

#include "sim/base/pages.h"
#include "sim/base/parallel.h"

enum { UNIT = 5 * PAGE_GRANULE_BYTES, HUGE_BYTES = 2 << 20 };

/* Three blocks that follow one another, when nothing as large is free. */
static void take_neighbours(char *blocks[3])
{
  while (pages_reused(UNIT) != NULL)
    ;
  char *all = pages_zeroed(3 * UNIT);
  assert_non_null(all);
  for (int i = 0; i < 3; i++)
    blocks[i] = all + i * UNIT;
}

static bool holds(const char *at, size_t bytes, char value)
{
  for (size_t i = 0; i < bytes; i++)
    if (at[i] != value) return false;
  return true;
}

static void what_nothing_has_touched_is_zero(void **state)
{
  (void)state;
  char *small = pages_zeroed(UNIT), *large = pages_zeroed(40 << 20);
  assert_true(holds(small, UNIT, 0) && holds(large, 40 << 20, 0));
  pages_return(small, UNIT);
  pages_return(large, 40 << 20);
  pages_drop();
}

static void neighbours_join_in_any_order(void **state)
{
  (void)state;
  static const int orders[][3] = { { 0, 1, 2 }, { 2, 1, 0 }, { 0, 2, 1 } };
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    char *blocks[3];
    take_neighbours(blocks);
    for (int k = 0; k < 3; k++) {
      assert_null(pages_reused(3 * UNIT));
      pages_return(blocks[orders[i][k]], UNIT);
    }
    assert_ptr_equal(pages_reused(3 * UNIT), blocks[0]);
  }
}

static void the_smallest_piece_that_fits_is_taken(void **state)
{
  (void)state;
  char *large[3], *small[3];
  take_neighbours(large);
  take_neighbours(small);
  pages_return(large[0], 2 * UNIT);
  pages_return(small[1], UNIT);
  assert_ptr_equal(pages_reused(UNIT), small[1]);
  assert_ptr_equal(pages_reused(UNIT), large[0]);
  assert_ptr_equal(pages_reused(UNIT), large[1]);
  assert_null(pages_reused(UNIT));
}

static void a_block_grows_into_what_is_free_after_it(void **state)
{
  (void)state;
  char *blocks[3];
  take_neighbours(blocks);
  memset(blocks[0], 7, UNIT);
  assert_false(pages_extend(blocks[0] + UNIT, UNIT));
  pages_return(blocks[1], UNIT);
  assert_false(pages_extend(blocks[0] + UNIT, 2 * UNIT));
  assert_true(pages_extend(blocks[0] + UNIT, UNIT));
  assert_null(pages_reused(UNIT));
  assert_true(holds(blocks[0], UNIT, 7));
  assert_true(pages_extend(blocks[2] + UNIT, UNIT)); /* the last that was mapped */
  char *next = pages_zeroed(UNIT);
  assert_true(next >= blocks[2] + 2 * UNIT || next + UNIT <= blocks[0]);
}

static void dropped_pages_are_gone(void **state)
{
  (void)state;
  char *block = pages_zeroed(4 * HUGE_BYTES);
  pages_return(block, 4 * HUGE_BYTES);
  pages_drop();
  assert_null(pages_reused(HUGE_BYTES));
}

/* ---- several threads ---- */

enum { THREADS = 4, ROUNDS = 2000, BLOCKS = 16 };

typedef struct held {
  char *at;
  size_t bytes;
} held;

static void take_one(held *h, size_t bytes)
{
  h->bytes = bytes;
  h->at = pages_reused(bytes);
  if (h->at == NULL) h->at = pages_zeroed(bytes);
}

/* Takes, extends and returns blocks, of which each holds its own value throughout. */
static void work_on_blocks(void *context, uint32_t thread)
{
  bool *kept = context;
  held blocks[BLOCKS] = { 0 };
  uint32_t seed = thread + 1;
  kept[thread] = true;
  for (int i = 0; i < ROUNDS; i++) {
    seed = seed * 1664525 + 1013904223;
    uint32_t k = seed >> 28;
    size_t bytes = (1 + (seed >> 20) % 16) * PAGE_GRANULE_BYTES;
    char value = (char)(1 + thread * BLOCKS + k);
    held *h = &blocks[k];
    if (h->at == NULL) {
      take_one(h, bytes);
    } else if (pages_extend(h->at + h->bytes, bytes)) {
      kept[thread] &= holds(h->at, h->bytes, value);
      h->bytes += bytes;
    } else {
      kept[thread] &= holds(h->at, h->bytes, value);
      pages_return(h->at, h->bytes);
      h->at = NULL;
    }
    if (h->at != NULL) memset(h->at, value, h->bytes);
  }
  for (int k = 0; k < BLOCKS; k++)
    if (blocks[k].at != NULL) pages_return(blocks[k].at, blocks[k].bytes);
}

static void no_two_blocks_overlap(void **state)
{
  (void)state;
  bool kept[THREADS];
  parallel_for(THREADS, THREADS, work_on_blocks, kept);
  for (int i = 0; i < THREADS; i++)
    assert_true(kept[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_nothing_has_touched_is_zero),
    cmocka_unit_test(neighbours_join_in_any_order),
    cmocka_unit_test(the_smallest_piece_that_fits_is_taken),
    cmocka_unit_test(a_block_grows_into_what_is_free_after_it),
    cmocka_unit_test(dropped_pages_are_gone),
    cmocka_unit_test(no_two_blocks_overlap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
