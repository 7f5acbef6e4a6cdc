/* The allocator beside the real one: random requests that PyTorch served on a GPU, with what it reported
 * after each. With expandable segments every figure agrees. By default the order of segments, which the
 * driver chooses, begins to matter at some point; the recording ends before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "sim/memory/caching_allocator.h"

enum { BLOCKS = 4096, LINE = 256 };

typedef struct recorded {
  char kind; /* a: allocation, f: free */
  unsigned id, stream;
  long long bytes, allocated, reserved;
} recorded;

static void serve(caching_allocator *a, const recorded *r, uint32_t *blocks)
{
  assert_true(r->id < BLOCKS);
  if (r->kind == 'f')
    caching_allocator_free(a, blocks[r->id]);
  else
    assert_int_equal(caching_allocator_alloc(a, r->stream, r->bytes, &blocks[r->id]), ALLOCATOR_OK);
}

static void replay(const char *path, bool expandable_segments, int least)
{
  static uint32_t blocks[BLOCKS];
  caching_allocator *a =
      caching_allocator_new(&(allocator_options){ .capacity_bytes = ALLOCATOR_UNLIMITED_BYTES,
                                                  .expandable_segments = expandable_segments,
                                                  .return_at_once = true });
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  char line[LINE];
  int count = 0;
  while (fgets(line, LINE, file) != NULL) {
    recorded r;
    if (sscanf(line, " %c %u %lld %u %lld %lld", &r.kind, &r.id, &r.bytes, &r.stream, &r.allocated,
               &r.reserved) != 6)
      continue;
    serve(a, &r, blocks);
    assert_int_equal(caching_allocator_stats(a)->allocated.current_bytes, r.allocated);
    assert_int_equal(caching_allocator_stats(a)->reserved.current_bytes, r.reserved);
    count++;
  }
  assert_true(count >= least);
  fclose(file);
  caching_allocator_delete(a);
}

static void test_expandable_segments(void **state)
{
  (void)state;
  replay("tests/data/allocator/expandable.txt", true, 4000);
}

static void test_default_segments(void **state)
{
  (void)state;
  replay("tests/data/allocator/default.txt", false, 2400);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_expandable_segments),
    cmocka_unit_test(test_default_segments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
