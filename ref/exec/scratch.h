/*
 * Memory that lasts while one op runs, allocated and freed like a stack. It is not zeroed, and it
 * does not move.
 *
 *     scratch_mark before = scratch_here(&s);
 *     job *j = SCRATCH_ARRAY(&s, job, count);
 *     ...
 *     scratch_back(&s, before);
 */
#ifndef OFFSIM_REF_EXEC_SCRATCH_H
#define OFFSIM_REF_EXEC_SCRATCH_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

typedef struct scratch_block {
  unsigned char *memory;
  size_t bytes;
} scratch_block;

typedef struct scratch_mark {
  uint32_t block;
  size_t used; /* of that block */
} scratch_mark;

typedef struct scratch_stack {
  struct {
    scratch_block *items;
    uint32_t count, capacity;
  } blocks;
  scratch_mark at;
} scratch_stack;

static inline scratch_mark scratch_here(const scratch_stack *s)
{
  return s->at;
}

static inline void scratch_back(scratch_stack *s, scratch_mark before)
{
  assert(before.block < s->at.block || (before.block == s->at.block && before.used <= s->at.used));
  s->at = before;
}

void *scratch_take(scratch_stack *s, size_t count, size_t item_bytes);
void scratch_release(scratch_stack *s);

#define SCRATCH_ARRAY(s, type, count) ((type *)scratch_take((s), (count), sizeof(type)))

#endif
