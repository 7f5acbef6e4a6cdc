/*
 * What is said about keys and options of other programs' configurations. Private to sim/config.
 */
#ifndef OFFSIM_SIM_CONFIG_FOREIGN_MESSAGES_H
#define OFFSIM_SIM_CONFIG_FOREIGN_MESSAGES_H

#include <stdbool.h>

#include "sim/base/diag.h"

/* Nobody knows `name`, a `what` ("Axolotl key"): a note if that is to be skipped (then true), or an
 * error with `near`, the name that is probably meant, or NULL. */
bool foreign_unknown(diag *d, source_pos at, const char *what, const char *name, const char *near,
                     bool skip);

/* A note: `name` was given and asks for something, `text`, that is not modelled. */
void foreign_unmodelled(diag *d, source_pos at, const char *name, const char *text);

#endif
