/* Descriptors of offload systems: complete, and described as docs/02-streams.md has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/file.h"
#include "sim/config/key_table.h"
#include "sim/offload/systems.h"

static void every_system_is_complete(void **state)
{
  (void)state;
  for (uint32_t k = SYSTEM_EMPTY + 1; k < OFFLOAD_SYSTEM_COUNT; k++) {
    const offload_descriptor *o = offload_system_of((system_choice)k); /* asserts its theory */
    bool moves = o->policy.begin != NULL;
    assert_int_equal(moves, k != SYSTEM_none);
    assert_int_equal(moves, *o->streams.comes_back != '\0');
    assert_true(*o->streams.leaves != '\0');
    assert_true(o->compared.variant_count <= OFFLOAD_MOST_VARIANTS);
    for (uint32_t v = 0; v < o->compared.variant_count; v++)
      assert_int_equal(key_rows[o->compared.variants[v].flag].type, KEY_TYPE_FLAG);
  }
}

/* The page has them in an order of its own. */
static void rows_are_the_documented_ones(void **state)
{
  (void)state;
  arena a = { 0 };
  diag d = { 0 };
  char *rows;
  size_t length, found_length;
  FILE *memory = open_memstream(&rows, &length);
  offload_document(memory);
  fclose(memory);
  const char *page = file_read(&a, "docs/02-streams.md", FILE_TEXT_LIMIT_BYTES, &found_length, &d);
  assert_non_null(page);
  for (char *row = strtok(rows, "\n"); row != NULL; row = strtok(NULL, "\n"))
    if (strstr(page, row) == NULL) fail_msg("docs/02-streams.md lacks this row:\n%s", row);
  free(rows);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_system_is_complete),
    cmocka_unit_test(rows_are_the_documented_ones),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
