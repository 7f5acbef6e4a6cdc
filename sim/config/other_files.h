/* YAML and JSON files of other programs, known by a key at their top level. */
#ifndef OFFSIM_SIM_CONFIG_OTHER_FILES_H
#define OFFSIM_SIM_CONFIG_OTHER_FILES_H

#include "sim/base/diag.h"
#include "sim/text/yaml_text.h"

/* `option` reads the mapping `top`: "--verl", or "" for a scenario. False after an error: another option
 * reads it, or none does, and the message says what to give. */
bool other_files_check(const text_node *top, const char *option, diag *d);

#endif
