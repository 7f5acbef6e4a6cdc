/*
 * A growing array: `struct { T *items; uint32_t count, capacity; }`, empty when zeroed.
 *
 *     typedef struct op_array { op *items; uint32_t count, capacity; } op_array;
 *     op_array ops = {0};
 *     *ARRAY_PUSH(&ops) = (op){...};
 *     ARRAY_FREE(&ops);
 *
 * Handles are indexes, not pointers: a push may move the items. Growth doubles. If the system
 * refuses memory, or at more than 2^31 - 1 items, the program exits with status 3.
 */
#ifndef OFFSIM_SIM_BASE_ARRAY_H
#define OFFSIM_SIM_BASE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

/* Reallocates the items for at least `needed` of them, stores the new capacity and returns the
 * items. */
void *array_grow(void *items, uint32_t *capacity, uint32_t needed, size_t item_bytes);

/* Pointer to a new, uninitialised last item. */
#define ARRAY_PUSH(a)                                                                              \
  ((void)((a)->count < (a)->capacity ||                                                            \
          ((a)->items =                                                                            \
               array_grow((a)->items, &(a)->capacity, (a)->count + 1, sizeof *(a)->items),         \
           1)),                                                                                    \
   &(a)->items[(a)->count++])

/* Makes room for `needed` items in all, so that pushes up to there move nothing. */
#define ARRAY_RESERVE(a, needed)                                                                   \
  ((void)((needed) <= (a)->capacity ||                                                             \
          ((a)->items = array_grow((a)->items, &(a)->capacity, (needed), sizeof *(a)->items), 1)))

/* Adds `extra` uninitialised items and returns the first of them. */
#define ARRAY_EXTEND(a, extra)                                                                     \
  ((void)((a)->capacity - (a)->count >= (extra) ||                                                 \
          ((a)->items =                                                                            \
               array_grow((a)->items, &(a)->capacity, (a)->count + (extra), sizeof *(a)->items),   \
           1)),                                                                                    \
   (a)->count += (extra), (a)->items + ((a)->count - (extra)))

/* Gives back what is reserved beyond the items. */
#define ARRAY_TRIM(a)                                                                              \
  ((void)((a)->items = array_trim((a)->items, &(a)->capacity, (a)->count, sizeof *(a)->items)))

#define ARRAY_FREE(a) (array_release((a)->items), (a)->items = NULL, (a)->count = (a)->capacity = 0)

/* Puts a copy of the items of `from` into `to`, whose items are not released. */
#define ARRAY_COPY(to, from)                                                                       \
  ((to)->items = array_copy((from)->items, (from)->count, sizeof *(from)->items),                  \
   (to)->count = (to)->capacity = (from)->count)

void *array_trim(void *items, uint32_t *capacity, uint32_t count, size_t item_bytes);

void *array_copy(const void *items, uint32_t count, size_t item_bytes);

void array_release(void *items);

/* How many of the items, which `order` has sorted, come before the key. */
uint32_t array_count_before(const void *items, uint32_t count, size_t item_bytes, const void *key,
                            int (*order)(const void *item, const void *key));

#endif
