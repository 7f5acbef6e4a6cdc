/* Where a prediction's ranks are, and the machine as its model's framework sees it. */
#ifndef OFFSIM_SIM_PREDICT_PLACES_H
#define OFFSIM_SIM_PREDICT_PLACES_H

#include "sim/config/settings.h"
#include "sim/engine/links.h"
#include "sim/machine/machine.h"

/* By pipeline rank: ranks of one host share its links (Megatron's rank order). */
const rank_place *places_of_ranks(const settings *s, const machine *m, arena *a);

/* The host's work for a kernel is that of the modules that issue it. */
const machine *machine_of(const settings *s, const machine *m, arena *a);

#endif
