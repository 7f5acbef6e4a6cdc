/*
 * A verb in several processes, which mpirun started with the same arguments: process 0 prints.
 *
 *     bool ready = processes_join(&d) && read the input;
 *     if (processes_agree(&d) && ready) work;
 *     return processes_finish(&d);
 */
#ifndef OFFSIM_SIM_CLI_PROCESSES_H
#define OFFSIM_SIM_CLI_PROCESSES_H

#include "sim/base/diag.h"

/* Call it first. False after a diag refusal. */
bool processes_join(diag *d);

/* All call it once they have read the input. False if it is wrong for one of them: if for process 0,
 * that one reports it alone. */
bool processes_agree(diag *d);

/* Reports the errors and returns the exit status. An error of one process ends all of them, unless
 * processes_agree has reported it to the others: then each ends by itself. */
int processes_finish(const diag *d);

#endif
