/* Descriptors of offload systems: complete, and described as docs/05-offload-systems.md has it. */
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

/* ---- docs/05-offload-systems.md ---- */

/* The line that starts as `line` does up to its second bar; NULL if there is none. */
static char *row_like(char *const *rows, const char *line)
{
  size_t length = (size_t)(strchr(line + 1, '|') - line);
  for (; *rows != NULL; rows++)
    if (strncmp(*rows, line, length) == 0) return *rows;
  return NULL;
}

/* The table in the order that it has, with what the descriptors say; new systems come at its
 * end. */
static void write_table(FILE *out, const char *table, char **rows)
{
  bool written[OFFLOAD_SYSTEM_COUNT] = { false };
  for (const char *line = table; *line == '|'; line = strchr(line, '\n') + 1) {
    char *row = row_like(rows, line);
    if (line[2] != '`') fprintf(out, "%.*s\n", (int)strcspn(line, "\n"), line);
    for (size_t k = 0; rows[k] != NULL; k++)
      if (rows[k] == row) {
        fprintf(out, "%s\n", row);
        written[k] = true;
      }
  }
  for (size_t k = 0; rows[k] != NULL; k++)
    if (!written[k]) fprintf(out, "%s\n", rows[k]);
}

static char **rows_of_descriptors(arena *a)
{
  char *text, **rows = ARENA_ARRAY(a, char *, OFFLOAD_SYSTEM_COUNT);
  size_t length, count = 0;
  FILE *memory = open_memstream(&text, &length);
  offload_document(memory);
  fclose(memory);
  for (char *row = strtok(text, "\n"); row != NULL; row = strtok(NULL, "\n"))
    rows[count++] = arena_strdup(a, row);
  assert_int_equal(count, OFFLOAD_SYSTEM_COUNT - 1);
  free(text);
  return rows;
}

static void rows_are_the_documented_ones(void **state)
{
  (void)state;
  static const char path[] = "docs/05-offload-systems.md";
  arena a = { 0 };
  diag d = { 0 };
  size_t length, expected_length;
  char *expected;
  const char *page = file_read(&a, path, FILE_TEXT_LIMIT_BYTES, &length, &d);
  assert_non_null(page);
  const char *table = strstr(page, "| system | leaves |");
  assert_non_null(table);
  const char *end = strstr(table, "\n\n");
  assert_non_null(end);
  FILE *memory = open_memstream(&expected, &expected_length);
  fprintf(memory, "%.*s", (int)(table - page), page);
  write_table(memory, table, rows_of_descriptors(&a));
  fputs(end + 1, memory);
  fclose(memory);
  if (getenv("BLESS") != NULL) {
    FILE *out = fopen(path, "w"); /* file_open refuses to replace what was read */
    assert_non_null(out);
    fputs(expected, out);
    assert_int_equal(fclose(out), 0);
  } else {
    assert_string_equal(page, expected);
  }
  free(expected);
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
