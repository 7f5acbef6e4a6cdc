/* What names there are: of shipped machines, offload systems, and modules that move or recompute. */
#ifndef OFFSIM_SIM_CLI_LISTS_H
#define OFFSIM_SIM_CLI_LISTS_H

#include <stdbool.h>

/* --list-machines, --list-systems, --list-modules, --list-defects: a line for each name. False: none of
 * these. */
bool print_list(const char *option);

#endif
