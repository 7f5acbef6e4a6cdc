#include "sim/offload/turn_state.h"

#include <assert.h>
#include <string.h>

static void save(turn_state *t, turn_kind kind, const void *values, size_t bytes)
{
  uint32_t words = (uint32_t)((bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t));
  *ARRAY_PUSH(&t->sections) = (turn_section){ kind, t->words.count, words };
  if (words == 0) return;
  uint32_t *to = ARRAY_EXTEND(&t->words, words);
  to[words - 1] = 0; /* the last one may be filled in part */
  memcpy(to, values, bytes);
}

/* Returns the words of the section. */
static uint32_t *visit(turn_state *t, turn_kind kind, void *values, size_t bytes)
{
  if (!t->puts_back) save(t, kind, values, bytes);
  uint32_t at = t->puts_back ? t->next++ : t->sections.count - 1;
  assert(at < t->sections.count && t->sections.items[at].kind == kind && "always in one order");
  uint32_t *words = t->words.items + t->sections.items[at].first;
  if (t->puts_back && bytes > 0) memcpy(values, words, bytes);
  return words;
}

void turn_plain(turn_state *t, void *values, size_t bytes)
{
  visit(t, TURN_PLAIN, values, bytes);
}

void turn_shifted(turn_state *t, uint32_t *number)
{
  uint32_t *word = visit(t, TURN_SHIFTED, number, sizeof *number);
  if (t->puts_back)
    *number += t->first;
  else
    *word -= t->first;
}

void turn_buffers(turn_state *t, uint32_t *buffers, uint32_t count)
{
  visit(t, TURN_BUFFER, buffers, count * sizeof *buffers);
}

void turn_events(turn_state *t, uint32_t *events, uint32_t count)
{
  visit(t, TURN_EVENT, events, count * sizeof *events);
}

void turn_tallies(turn_state *t, int64_t *tallies, uint32_t count)
{
  visit(t, TURN_TALLY, tallies, count * sizeof *tallies);
}

void turn_state_clear(turn_state *t)
{
  t->sections.count = t->words.count = t->next = 0;
  t->puts_back = false;
}

void turn_state_release(turn_state *t)
{
  ARRAY_FREE(&t->sections);
  ARRAY_FREE(&t->words);
}
