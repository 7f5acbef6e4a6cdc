/* A setting as keys of the training file that was given. */
#ifndef OFFSIM_SIM_CLI_PASTE_H
#define OFFSIM_SIM_CLI_PASTE_H

#include "sim/config/training_lines.h"
#include "sim/load/load.h"
#include "sim/predict/candidates.h"

/* The program whose training file was given: Axolotl, verl; NULL: none. */
const training_program *paste_program(const load_options *o);

/* Lines that make the file say the candidate: with them the file sets all of its keys, and is predicted to
 * take the same time and memory. "": it says so without any. NULL: none do, or the
 * file cannot be read again. */
const char *paste_find(const load_options *o, const settings *given, const candidate *c,
                       const machine *m, arena *a);

#endif
