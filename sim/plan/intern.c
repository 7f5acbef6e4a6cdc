#include "sim/plan/intern.h"

#include <assert.h>
#include <string.h>

enum { FIRST_SLOTS = 64, LANES = 4 };

static uint64_t mixed(uint64_t h, uint64_t word)
{
  h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
  return h ^ h >> 32;
}

/* Four words at a time, none of which waits for another's product: a call has 400 bytes. The hash only finds
 * a key; its number does not depend on the hash. */
static uint64_t hash(const char *bytes, size_t length)
{
  uint64_t lanes[LANES] = { length }, words[LANES] = { 0 };
  for (; length >= sizeof words; bytes += sizeof words, length -= sizeof words) {
    memcpy(words, bytes, sizeof words);
    for (int i = 0; i < LANES; i++)
      lanes[i] = mixed(lanes[i], words[i]);
  }
  memset(words, 0, sizeof words);
  memcpy(words, bytes, length);
  for (int i = 0; i < LANES; i++)
    lanes[i] = mixed(lanes[i], words[i]);
  return mixed(mixed(lanes[0], lanes[1]), mixed(lanes[2], lanes[3]));
}

/* The slot of this key, or the free slot for it. */
static uint32_t *find_slot(const intern_table *t, const char *bytes, size_t length)
{
  uint32_t mask = t->slot_count - 1;
  assert((t->slot_count & mask) == 0 && t->count <= t->slot_count / 2 &&
         "a power of two, half full at most");
  for (uint32_t i = (uint32_t)hash(bytes, length) & mask;; i = (i + 1) & mask) {
    if (t->slots[i] == 0) return &t->slots[i];
    const intern_key *key = &t->keys[t->slots[i] - 1];
    if (key->length == length && memcmp(key->bytes, bytes, length) == 0) return &t->slots[i];
  }
}

/* At most half full. Outgrown tables stay in the arena; together they are no larger than the
 * current one. */
static void grow(intern_table *t)
{
  t->slot_count = t->slot_count ? 2 * t->slot_count : FIRST_SLOTS;
  t->slots = ARENA_ARRAY(t->memory, uint32_t, t->slot_count);
  intern_key *keys = ARENA_ARRAY(t->memory, intern_key, t->slot_count / 2);
  if (t->count > 0) memcpy(keys, t->keys, t->count * sizeof *keys);
  t->keys = keys;
  for (uint32_t i = 0; i < t->count; i++) {
    uint32_t *slot = find_slot(t, keys[i].bytes, keys[i].length);
    assert(*slot == 0 && "a key has one number");
    *slot = i + 1;
  }
}

uint32_t intern(intern_table *t, const void *bytes, size_t length)
{
  assert(t->memory != NULL && t->count <= t->slot_count / 2);
  if (t->count == t->slot_count / 2) grow(t);
  uint32_t *slot = find_slot(t, bytes, length);
  if (*slot == 0) {
    t->keys[t->count++] = (intern_key){ arena_strndup(t->memory, bytes, length), length };
    *slot = t->count;
  }
  assert(*slot <= t->count && t->keys[*slot - 1].length == length);
  return *slot - 1;
}
