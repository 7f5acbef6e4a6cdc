/*
 * Messages about keys and options of other programs' configurations. Private to sim/config.
 */
#ifndef OFFSIM_SIM_CONFIG_FOREIGN_MESSAGES_H
#define OFFSIM_SIM_CONFIG_FOREIGN_MESSAGES_H

#include <stdbool.h>

#include "sim/base/diag.h"

/* `name`, a `what` ("Axolotl key"), is unknown. Prints a note and returns true if unknown names are
 * skipped; else an error that suggests `near`, the nearest known name, unless it is NULL. */
bool foreign_unknown(diag *d, source_pos at, const char *what, const char *name, const char *near,
                     bool skip);

/* A diag error, so false: `option` was given beside the mapping `path`. */
bool foreign_for_script(diag *d, const char *option, const char *path);

/* A note: `name` was given and has an effect, `text`, that is not modelled. */
void foreign_unmodelled(diag *d, source_pos at, const char *name, const char *text);

#endif
