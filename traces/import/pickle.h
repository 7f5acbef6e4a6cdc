/*
 * Plain data from a pickle of protocols 2 to 5: None, booleans, numbers, texts, lists, tuples,
 * dictionaries. Private to traces/import.
 *
 * A pickle is a program for a stack machine (Python's Lib/pickletools.py has its opcodes). This one
 * runs the opcodes that build such data, calls nothing, imports nothing, and refuses every other
 * opcode by name. Dictionaries keep their pairs in order. A list may contain itself: do not follow
 * data to any depth.
 */
#ifndef OFFSIM_TRACES_IMPORT_PICKLE_H
#define OFFSIM_TRACES_IMPORT_PICKLE_H

#include "sim/base/arena.h"
#include "traces/input.h"

typedef enum pickle_type {
  PICKLE_NONE,
  PICKLE_BOOL,
  PICKLE_WHOLE, /* beyond int64: PICKLE_REAL */
  PICKLE_REAL,
  PICKLE_TEXT, /* or bytes */
  PICKLE_LIST, /* or a tuple */
  PICKLE_DICT
} pickle_type;

typedef struct pickle_value pickle_value;

typedef struct pickle_list {
  pickle_value **items; /* of a dictionary: key, value, key, value */
  uint32_t count, capacity;
} pickle_list;

struct pickle_value {
  pickle_type type;
  uint32_t mark; /* the reader's; 0 at first */
  union {
    int64_t whole; /* or a boolean */
    double real;
    struct {
      const char *text; /* with a NUL after it */
      size_t length;
    };
    pickle_list list;
  };
};

/* All values are in the arena. NULL after a diag error. */
pickle_value *pickle_read(input *in, arena *a);

/* The value of a key; NULL: there is none, or it is no dictionary. */
pickle_value *pickle_get(const pickle_value *dict, const char *key);

#endif
