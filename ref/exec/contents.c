#include "ref/exec/contents.h"

#include <assert.h>

#include "sim/base/array.h"

/* The finaliser of MurmurHash3 (Appleby). */
uint64_t contents_mixed(uint64_t x)
{
  x = (x ^ x >> 33) * UINT64_C(0xFF51AFD7ED558CCD);
  x = (x ^ x >> 33) * UINT64_C(0xC4CEB9FE1A85EC53);
  return x ^ x >> 33;
}

void contents_fill(contents *c, int64_t bytes, uint64_t token)
{
  assert(bytes >= 0);
  c->count = 0;
  *ARRAY_PUSH(c) = (contents_run){ .end = bytes > 0 ? bytes : 1, .token = token };
}

void contents_release(contents *c)
{
  ARRAY_FREE(c);
}

byte_range contents_all(const contents *c)
{
  return (byte_range){ 0, c->count == 0 ? 0 : c->items[c->count - 1].end };
}

/* Continues the contents with a token up to `end`. */
static void append(contents *c, int64_t end, uint64_t token)
{
  int64_t begin = contents_all(c).end;
  assert(begin <= end);
  if (begin == end) return;
  if (c->count > 0 && c->items[c->count - 1].token == token)
    c->items[c->count - 1].end = end;
  else
    *ARRAY_PUSH(c) = (contents_run){ .end = end, .token = token };
}

static int64_t clamped(int64_t value, int64_t least, int64_t most)
{
  assert(least <= most);
  return value < least ? least : value > most ? most : value;
}

void contents_write(contents *c, byte_range range, uint64_t token, bool dense)
{
  contents before = *c;
  assert(range.begin >= 0 && range.begin <= range.end && range.end <= contents_all(c).end);
  *c = (contents){ 0 };
  int64_t begin = 0;
  for (uint32_t i = 0; i < before.count; i++) {
    const contents_run *run = &before.items[i];
    append(c, clamped(range.begin, begin, run->end), run->token);
    append(c, clamped(range.end, begin, run->end),
           dense ? token : token ^ contents_mixed(run->token));
    append(c, run->end, run->token);
    begin = run->end;
  }
  assert(contents_all(c).end == contents_all(&before).end);
  contents_release(&before);
}

uint64_t contents_hash(const contents *c, byte_range range)
{
  assert(range.begin >= 0 && range.begin <= range.end && range.end <= contents_all(c).end);
  uint64_t hash = 0;
  int64_t begin = 0;
  for (uint32_t i = 0; i < c->count && begin < range.end; begin = c->items[i++].end) {
    int64_t end = clamped(c->items[i].end, range.begin, range.end);
    if (end == range.begin) continue;
    hash = contents_mixed(hash ^ (uint64_t)end);
    hash = contents_mixed(hash ^ c->items[i].token);
  }
  return hash;
}

uint64_t contents_hash_all(const contents *c)
{
  return contents_hash(c, contents_all(c));
}
