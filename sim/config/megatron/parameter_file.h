/*
 * Files of parameters: scripts that assign a list of options to a variable, for another script to source,
 * and start nothing themselves. Private to sim/config/megatron/.
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_PARAMETER_FILE_H
#define OFFSIM_SIM_CONFIG_MEGATRON_PARAMETER_FILE_H

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/shell/shell.h"

/* The list that has all the script's options that matter, as a command without a program; a note names
 * it. NULL: there are none, or after an error, for they are in several variables. */
const shell_command *parameter_file_options(const shell_script *s, arena *a, diag *d);

#endif
