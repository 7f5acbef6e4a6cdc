/*
 * keys.def as data, for settings.c, which sets, prints and documents keys, and for code that works on
 * any key.
 */
#ifndef OFFSIM_SIM_CONFIG_KEY_TABLE_H
#define OFFSIM_SIM_CONFIG_KEY_TABLE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/config/settings.h"

typedef enum key_type {
  KEY_TYPE_INT,
  KEY_TYPE_REAL,
  KEY_TYPE_FLAG,
  KEY_TYPE_TEXT,
  KEY_TYPE_LIST,
  KEY_TYPE_CHOICE,
  KEY_TYPE_CHOICES,
} key_type;

typedef struct key_row {
  const char *section;
  const char *name;
  key_type type;
  const char *fallback;     /* the default as text; "" of an INT: UNSET */
  int64_t least, most;      /* INT, REAL */
  const char *const *words; /* CHOICE, CHOICES: by constant, ends with NULL */
  size_t offset;            /* of the member in `settings` */
  const char *meaning;
} key_row;

extern const key_row key_rows[KEY_COUNT];

/* "section.key", or a key's name alone; KEY_COUNT if there is none. */
setting_key key_find(const char *name);
/* A key of one section; KEY_COUNT if the section has none of that name. */
setting_key key_find_in(const char *section, const char *name);

/* Whether a released framework knows the word of a list. A search for a setting that people can use
 * leaves out what-ifs. */
bool key_word_is_released(setting_key key, uint32_t word);

/* The sections, in the order of the table. */
enum { SECTION_COUNT = 8 };
extern const char *const section_names[SECTION_COUNT];

/* The known name nearest to a mistyped one: a key's (of `section` alone, or of any if NULL); NULL if
 * none. */
const char *key_suggest(const char *section, const char *name, arena *a);

static inline void *key_member(settings *s, setting_key key)
{
  assert(key < KEY_COUNT);
  return (char *)s + key_rows[key].offset;
}

static inline const void *key_member_const(const settings *s, setting_key key)
{
  assert(key < KEY_COUNT);
  return (const char *)s + key_rows[key].offset;
}

/* An INT that has neither a default nor a rule that derives it. */
bool key_is_required(setting_key key);

/* "a, b or c" of a key's words, in the arena. */
const char *choice_sentence(arena *a, setting_key key);

#endif
