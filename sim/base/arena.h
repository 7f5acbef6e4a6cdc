/*
 * An arena: memory that is allocated piece by piece and released all at once.
 *
 * Everything that lives as long as one compilation or one simulation comes from one arena, so
 * ownership needs no rules: a function that takes an `arena *` allocates from it, other functions
 * do not allocate. Memory is zeroed, unless the caller asks for it unset. If the system refuses a
 * request, the program prints it and exits with status 3; so no call returns NULL.
 */
#ifndef OFFSIM_SIM_BASE_ARENA_H
#define OFFSIM_SIM_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct arena_block arena_block;

typedef struct arena {
  arena_block *blocks; /* newest first */
  size_t used_bytes;   /* allocated so far, including padding */
} arena;

/* An empty arena is `arena a = {0}`. */

/* `count` zeroed items of `item_bytes` each, aligned to 16 bytes. */
void *arena_alloc(arena *a, size_t count, size_t item_bytes);

/* The same, but not zeroed: the caller writes each item before anything reads it. */
void *arena_alloc_unset(arena *a, size_t count, size_t item_bytes);

/* A NUL-terminated copy of `length` bytes of `text`. */
char *arena_strndup(arena *a, const char *text, size_t length);
char *arena_strdup(arena *a, const char *text);

/* printf into the arena. */
char *arena_printf(arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What `from` has allocated belongs to `a` from now on; `from` is empty. */
void arena_take(arena *a, arena *from);

void arena_release(arena *a);

#define ARENA_NEW(a, type)                ((type *)arena_alloc((a), 1, sizeof(type)))
#define ARENA_ARRAY(a, type, count)       ((type *)arena_alloc((a), (count), sizeof(type)))
#define ARENA_UNSET_ARRAY(a, type, count) ((type *)arena_alloc_unset((a), (count), sizeof(type)))

#endif
