#include "sim/text/suggest.h"

#include <stdbool.h>
#include <string.h>

/* No name is near a longer one, so the rows of the table fit on the stack. */
enum { LONGEST = 96 };

static char folded(char ch)
{
  if (ch == '_') return '-';
  return ch >= 'A' && ch <= 'Z' ? (char)(ch - 'A' + 'a') : ch;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
  return a < b ? a : b;
}

/* Row i of the table: row[j] is the distance of a's first i from b's first j characters. */
static void fill_row(uint32_t *row, const uint32_t *above, const uint32_t *above2, const char *a,
                     size_t i, const char *b, size_t b_length)
{
  row[0] = (uint32_t)i;
  for (size_t j = 1; j <= b_length; j++) {
    uint32_t differs = folded(a[i - 1]) != folded(b[j - 1]);
    row[j] = min_u32(above[j - 1] + differs, min_u32(above[j], row[j - 1]) + 1);
    if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
        folded(a[i - 2]) == folded(b[j - 1])) {
      row[j] = min_u32(row[j], above2[j - 2] + 1);
    }
  }
}

uint32_t suggest_distance(const char *a, const char *b)
{
  size_t a_length = strlen(a), b_length = strlen(b);
  if (a_length > LONGEST || b_length > LONGEST) return UINT32_MAX;

  uint32_t rows[3][LONGEST + 1];
  for (size_t j = 0; j <= b_length; j++) {
    rows[0][j] = (uint32_t)j;
  }
  for (size_t i = 1; i <= a_length; i++) {
    fill_row(rows[i % 3], rows[(i + 2) % 3], rows[(i + 1) % 3], a, i, b, b_length);
  }
  return rows[a_length % 3][b_length];
}

/* A first letter is seldom mistyped, though it may be swapped with the next. */
static bool begins_alike(const char *word, const char *name)
{
  word += strspn(word, "-");
  name += strspn(name, "-");
  return folded(*word) == folded(*name) || (*name != '\0' && folded(*word) == folded(name[1]));
}

const char *suggest_nearest(const char *word, const char *const *names, size_t count)
{
  uint32_t length = (uint32_t)strlen(word);
  uint32_t limit = min_u32(length / 3, length > 10 ? length / 5 : 2) + 1;
  const char *nearest = NULL;
  for (size_t i = 0; i < count; i++) {
    if (!begins_alike(word, names[i])) continue;
    uint32_t distance = suggest_distance(word, names[i]);
    if (distance < limit) {
      limit = distance;
      nearest = names[i];
    }
  }
  return nearest;
}
