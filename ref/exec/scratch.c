#include "ref/exec/scratch.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/base/array.h"
#include "sim/base/diag.h"

enum { BLOCK_BYTES = 1 << 16, ALIGNMENT = 16 };

static void add_block(scratch_stack *s, size_t bytes)
{
  assert(bytes >= BLOCK_BYTES && s->at.used == 0 && "a block begins empty");
  unsigned char *memory = malloc(bytes);
  if (memory == NULL) die_refused("ref: no memory for the operands of an op (%zu bytes)", bytes);
  *ARRAY_PUSH(&s->blocks) = (scratch_block){ memory, bytes };
}

/* Skips blocks that are too small. */
void *scratch_take(scratch_stack *s, size_t count, size_t item_bytes)
{
  assert(s->at.block <= s->blocks.count);
  size_t bytes = (count * item_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  while (s->at.block < s->blocks.count && s->blocks.items[s->at.block].bytes - s->at.used < bytes)
    s->at = (scratch_mark){ .block = s->at.block + 1 };
  if (s->at.block == s->blocks.count) add_block(s, bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES);
  void *taken = s->blocks.items[s->at.block].memory + s->at.used;
  s->at.used += bytes;
  assert(s->at.used <= s->blocks.items[s->at.block].bytes);
  return taken;
}

void scratch_release(scratch_stack *s)
{
  assert(s->at.block == 0 && s->at.used == 0 && "every op has given its memory back");
  for (uint32_t i = 0; i < s->blocks.count; i++)
    free(s->blocks.items[i].memory);
  ARRAY_FREE(&s->blocks);
}
