/*
 * Keys of other programs' configurations as a table, with the effect of each. Private to sim/config.
 */
#ifndef OFFSIM_SIM_CONFIG_FOREIGN_KEYS_H
#define OFFSIM_SIM_CONFIG_FOREIGN_KEYS_H

#include "sim/config/settings.h"

/* The effect of a key that is given. */
typedef enum foreign_effect {
  FOREIGN_SETS,       /* scenario key := the value */
  FOREIGN_READ,       /* a step of the reader reads it */
  FOREIGN_IGNORED,    /* cannot change memory or time */
  FOREIGN_UNMODELLED, /* text: what is not modelled, unless the value is `harmless` or false */
  FOREIGN_REFUSED,    /* text: why offsim cannot predict such a run */
} foreign_effect;

typedef struct foreign_key {
  const char *name;
  foreign_effect effect;
  setting_key key; /* KEY_COUNT: none */
  const char *harmless, *text;
} foreign_key;

/* The columns after the name. */
#define SETS(section, key)         FOREIGN_SETS, KEY_##section##_##key, "", ""
#define READ                       FOREIGN_READ, KEY_COUNT, "", ""
#define IGNORED                    FOREIGN_IGNORED, KEY_COUNT, "", ""
#define UNMODELLED(harmless, what) FOREIGN_UNMODELLED, KEY_COUNT, harmless, what
#define REFUSED(what)              FOREIGN_REFUSED, KEY_COUNT, "", what

#endif
