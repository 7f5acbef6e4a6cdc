/*
 * Keys of other programs' configurations as a table: what giving one does. Private to sim/config.
 */
#ifndef OFFSIM_SIM_CONFIG_FOREIGN_KEYS_H
#define OFFSIM_SIM_CONFIG_FOREIGN_KEYS_H

#include "sim/config/settings.h"

/* What giving a key does. */
typedef enum foreign_effect {
  FOREIGN_SETS,       /* scenario key := the value */
  FOREIGN_READ,       /* a step of the reader asks for it */
  FOREIGN_IGNORED,    /* cannot change memory or time */
  FOREIGN_UNMODELLED, /* text: what is not modelled, unless the value is `harmless` or says no */
  FOREIGN_REFUSED,    /* text: why nothing can be predicted with it */
} foreign_effect;

typedef struct foreign_key {
  const char *name;
  foreign_effect effect;
  setting_key key; /* KEY_COUNT: none */
  const char *harmless, *text;
} foreign_key;

/* The columns behind the name. */
#define SETS(section, key)         FOREIGN_SETS, KEY_##section##_##key, "", ""
#define READ                       FOREIGN_READ, KEY_COUNT, "", ""
#define IGNORED                    FOREIGN_IGNORED, KEY_COUNT, "", ""
#define UNMODELLED(harmless, what) FOREIGN_UNMODELLED, KEY_COUNT, harmless, what
#define REFUSED(what)              FOREIGN_REFUSED, KEY_COUNT, "", what

#endif
