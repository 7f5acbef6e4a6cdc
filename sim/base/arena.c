#include "sim/base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/diag.h"
#include "sim/base/memory.h"

enum { ALIGNMENT = 16, BLOCK_BYTES = 1 << 20 };

struct arena_block {
  arena_block *next;
  size_t used_bytes;
  size_t capacity_bytes;
  size_t padding; /* keeps the bytes that follow aligned to ALIGNMENT */
};

static arena_block *new_block(size_t payload_bytes)
{
  arena_block *block = memory_zeroed(1, sizeof *block + payload_bytes);
  block->capacity_bytes = payload_bytes;
  return block;
}

void *arena_alloc(arena *a, size_t count, size_t item_bytes)
{
  if (item_bytes != 0 && count > (SIZE_MAX / 2) / item_bytes)
    die_refused("memory: requested %zu items of %zu bytes", count, item_bytes);
  size_t bytes = (count * item_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  arena_block *block = a->blocks;
  if (block == NULL || block->capacity_bytes - block->used_bytes < bytes) {
    block = new_block(bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES);
    block->next = a->blocks;
    a->blocks = block;
  }
  void *memory = (char *)(block + 1) + block->used_bytes;
  block->used_bytes += bytes;
  a->used_bytes += bytes;
  return memory;
}

char *arena_strndup(arena *a, const char *text, size_t length)
{
  char *copy = arena_alloc(a, length + 1, 1);
  memcpy(copy, text, length);
  return copy;
}

char *arena_strdup(arena *a, const char *text)
{
  return arena_strndup(a, text, strlen(text));
}

char *arena_printf(arena *a, const char *format, ...)
{
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  char *text = arena_alloc(a, (size_t)length + 1, 1);
  vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

void arena_take(arena *a, arena *from)
{
  arena_block **end = &a->blocks;
  while (*end != NULL)
    end = &(*end)->next;
  *end = from->blocks;
  a->used_bytes += from->used_bytes;
  *from = (arena){ 0 };
}

void arena_release(arena *a)
{
  for (arena_block *block = a->blocks; block != NULL;) {
    arena_block *next = block->next;
    free(block);
    block = next;
  }
  *a = (arena){ 0 };
}
