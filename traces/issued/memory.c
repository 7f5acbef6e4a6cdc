#include "traces/issued/memory.h"

#include <assert.h>
#include <string.h>

void memory_init(memory *m)
{
  *m = (memory){ .free_generation = MEMORY_NONE,
                 .free_touch = MEMORY_NONE,
                 .free_spot = MEMORY_NONE,
                 .free_passage = MEMORY_NONE };
}

void memory_release(memory *m)
{
  ARRAY_FREE(&m->pieces);
  ARRAY_FREE(&m->generations);
  ARRAY_FREE(&m->touches);
  ARRAY_FREE(&m->spots);
  ARRAY_FREE(&m->passages);
}

/* ---- lists ---- */

#define ADD(function, type, array, free_list)                                                      \
  type *function(memory *m, uint32_t *list)                                                        \
  {                                                                                                \
    uint32_t at = m->free_list;                                                                    \
    if (at == MEMORY_NONE) {                                                                       \
      at = m->array.count;                                                                         \
      (void)ARRAY_PUSH(&m->array);                                                                 \
    } else {                                                                                       \
      m->free_list = m->array.items[at].next;                                                      \
    }                                                                                              \
    m->array.items[at] = (type){ .next = *list };                                                  \
    *list = at;                                                                                    \
    return &m->array.items[at];                                                                    \
  }
#define GIVE_BACK(function, array, free_list)                                                      \
  static void function(memory *m, uint32_t *list)                                                  \
  {                                                                                                \
    while (*list != MEMORY_NONE) {                                                                 \
      uint32_t at = *list;                                                                         \
      *list = m->array.items[at].next;                                                             \
      m->array.items[at].next = m->free_list;                                                      \
      m->free_list = at;                                                                           \
    }                                                                                              \
  }
ADD(memory_add_touch, touch, touches, free_touch)
ADD(memory_add_spot, spot, spots, free_spot)
ADD(memory_add_passage, passage, passages, free_passage)
GIVE_BACK(give_back_touches, touches, free_touch)
GIVE_BACK(give_back_spots, spots, free_spot)
GIVE_BACK(give_back_passages, passages, free_passage)

void memory_drop_passage(memory *m, uint32_t *link)
{
  uint32_t at = *link;
  *link = m->passages.items[at].next;
  m->passages.items[at].next = m->free_passage;
  m->free_passage = at;
}

/* ---- generations ---- */

static void release_generation(memory *m, uint32_t number)
{
  generation *g = memory_at(m, number);
  give_back_touches(m, &g->touches);
  give_back_touches(m, &g->past);
  give_back_spots(m, &g->spots);
  give_back_passages(m, &g->passages);
  g->pieces = 0;
  g->past = m->free_generation; /* the list of free slots goes through `past` */
  m->free_generation = number;
}

static uint32_t new_generation(memory *m)
{
  uint32_t number = m->free_generation;
  if (number == MEMORY_NONE) {
    number = m->generations.count;
    (void)ARRAY_PUSH(&m->generations);
  } else {
    m->free_generation = memory_at(m, number)->past;
  }
  return number;
}

static void drop_piece(memory *m, uint32_t number)
{
  assert(memory_at(m, number)->pieces > 0);
  if (--memory_at(m, number)->pieces == 0) release_generation(m, number);
}

/* Of each stream the last one. */
static void add_past(memory *m, uint32_t to, const touch *t, uint32_t stack)
{
  for (uint32_t i = memory_at(m, to)->past; i != MEMORY_NONE; i = m->touches.items[i].next) {
    touch *had = &m->touches.items[i];
    if (had->by.stream != t->by.stream) continue;
    if (had->by.number < t->by.number) {
      had->by = t->by;
      had->stack = stack;
    }
    return;
  }
  const touch copied = *t;
  touch *added = memory_add_touch(m, &memory_at(m, to)->past);
  added->by = copied.by;
  added->stack = stack;
}

static void inherit(memory *m, uint32_t to, uint32_t from, memory_is_over *is_over,
                    const void *context)
{
  for (uint32_t i = memory_at(m, from)->touches; i != MEMORY_NONE; i = m->touches.items[i].next)
    if (!is_over(context, &m->touches.items[i].by))
      add_past(m, to, &m->touches.items[i], memory_at(m, from)->stack);
  for (uint32_t i = memory_at(m, from)->past; i != MEMORY_NONE; i = m->touches.items[i].next)
    if (!is_over(context, &m->touches.items[i].by))
      add_past(m, to, &m->touches.items[i], m->touches.items[i].stack);
}

/* ---- the map ---- */

/* The first piece that ends after the address. */
static uint32_t place_of(const memory *m, uint64_t address)
{
  uint32_t from = 0, to = m->pieces.count;
  while (from < to) {
    uint32_t middle = from + (to - from) / 2;
    if (m->pieces.items[middle].end <= address)
      from = middle + 1;
    else
      to = middle;
  }
  return from;
}

/* Puts `count` pieces in the place of pieces [from, to). */
static void replace(memory *m, uint32_t from, uint32_t to, const memory_piece *with, uint32_t count)
{
  uint32_t tail = m->pieces.count - to;
  if (count > to - from) (void)ARRAY_EXTEND(&m->pieces, count - (to - from));
  if (tail > 0)
    memmove(m->pieces.items + from + count, m->pieces.items + to, tail * sizeof *m->pieces.items);
  if (count > 0) memcpy(m->pieces.items + from, with, count * sizeof *with);
  m->pieces.count = from + count + tail;
}

/* Cuts [begin, end) out of the pieces, and puts a generation there unless it is MEMORY_NONE. */
static void cut_out(memory *m, uint64_t begin, uint64_t end, uint32_t number)
{
  memory_piece with[3];
  uint32_t from = place_of(m, begin), to = from, count = 0;
  while (to < m->pieces.count && m->pieces.items[to].begin < end)
    to++;
  if (from < to && m->pieces.items[from].begin < begin) {
    with[count] = m->pieces.items[from];
    with[count++].end = begin;
  }
  if (number != MEMORY_NONE) with[count++] = (memory_piece){ begin, end, number };
  if (from < to && m->pieces.items[to - 1].end > end) {
    with[count] = m->pieces.items[to - 1];
    with[count++].begin = end;
  }
  for (uint32_t i = 0; i < count; i++)
    memory_at(m, with[i].generation)->pieces++;
  for (uint32_t i = from; i < to; i++)
    drop_piece(m, m->pieces.items[i].generation);
  replace(m, from, to, with, count);
}

uint32_t memory_put(memory *m, const generation *g, memory_is_over *is_over, const void *context)
{
  assert(g->begin < g->end);
  uint32_t number = new_generation(m);
  *memory_at(m, number) = *g;
  generation *made = memory_at(m, number);
  made->touches = made->spots = made->passages = made->past = made->first_set = MEMORY_NONE;
  made->pieces = 0;
  for (uint32_t i = place_of(m, g->begin);
       is_over != NULL && i < m->pieces.count && m->pieces.items[i].begin < g->end; i++)
    inherit(m, number, m->pieces.items[i].generation, is_over, context);
  cut_out(m, g->begin, g->end, number);
  return number;
}

void memory_remove(memory *m, uint64_t begin, uint64_t end)
{
  cut_out(m, begin, end, MEMORY_NONE);
}

static bool contains(const memory *m, uint32_t piece, uint64_t address)
{
  return piece < m->pieces.count && m->pieces.items[piece].begin <= address &&
         address < m->pieces.items[piece].end;
}

uint32_t memory_find(memory *m, uint64_t address)
{
  uint32_t *hint = &m->hints[(address >> 9) * 0x9e3779b1U % MEMORY_HINTS];
  if (!contains(m, *hint, address)) {
    uint32_t at = place_of(m, address);
    if (!contains(m, at, address)) return MEMORY_NONE;
    *hint = at;
  }
  return m->pieces.items[*hint].generation;
}
