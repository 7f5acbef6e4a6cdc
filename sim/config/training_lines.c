#include "sim/config/training_lines.h"

#include <assert.h>
#include <string.h>

#include "sim/config/key_table.h"

static training_row *add_row(training_lines *to)
{
  assert(to->count < TRAINING_ROWS);
  training_row *row = &to->rows[to->count++];
  row->count = 0;
  return row;
}

void training_need(training_lines *to, const char *line)
{
  training_row *row = add_row(to);
  row->choices[row->count++] = line;
}

void training_offer(training_lines *to, const char *line)
{
  training_row *row = add_row(to);
  row->choices[row->count++] = "";
  row->choices[row->count++] = line;
}

setting_key training_key(const char *set, const char **value, arena *a)
{
  size_t length = strcspn(set, "=");
  assert(set[length] == '=');
  *value = set + length + 1;
  return key_find(arena_strndup(a, set, length));
}
