#include "sim/base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/diag.h"
#include "sim/base/memory.h"

enum { ALIGNMENT = 16, FIRST_BYTES = 1 << 16, MOST_BYTES = 1 << 20 };

struct arena_block {
  _Alignas(ALIGNMENT) arena_block *next;
  size_t used_bytes;
  size_t capacity_bytes;
  bool zeroed; /* what is not used yet */
};

/* An arena that grows gets larger blocks. */
static arena_block *new_block(const arena *a, size_t least_bytes)
{
  size_t bytes = a->used_bytes < FIRST_BYTES  ? FIRST_BYTES
                 : a->used_bytes < MOST_BYTES ? a->used_bytes
                                              : MOST_BYTES;
  if (bytes < least_bytes) bytes = least_bytes;
  bool zeroed;
  arena_block *block = memory_taken(sizeof *block + bytes, &zeroed);
  *block = (arena_block){ .next = a->blocks, .capacity_bytes = bytes, .zeroed = zeroed };
  return block;
}

/* `zeroed`: whether it is. */
static void *take(arena *a, size_t bytes, bool *zeroed)
{
  arena_block *block = a->blocks;
  if (block == NULL || block->capacity_bytes - block->used_bytes < bytes)
    block = a->blocks = new_block(a, bytes);
  void *memory = (char *)(block + 1) + block->used_bytes;
  block->used_bytes += bytes;
  a->used_bytes += bytes;
  *zeroed = block->zeroed;
  return memory;
}

static size_t bytes_of(size_t count, size_t item_bytes)
{
  if (item_bytes != 0 && count > (SIZE_MAX / 2) / item_bytes)
    die_refused("memory: requested %zu items of %zu bytes", count, item_bytes);
  return (count * item_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *arena_alloc(arena *a, size_t count, size_t item_bytes)
{
  bool zeroed;
  size_t bytes = bytes_of(count, item_bytes);
  void *memory = take(a, bytes, &zeroed);
  if (!zeroed) memset(memory, 0, bytes);
  return memory;
}

void *arena_alloc_unset(arena *a, size_t count, size_t item_bytes)
{
  bool zeroed;
  return take(a, bytes_of(count, item_bytes), &zeroed);
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
    memory_return(block);
    block = next;
  }
  *a = (arena){ 0 };
}
