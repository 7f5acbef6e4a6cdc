/* The ranks of a parallel configuration, numbered as Megatron-LM does (core/parallel_state.py):
 * within a pipeline stage tensor parallel ranks are consecutive, then context, then data parallel
 * ranks; for experts the same ranks are expert tensor, expert and expert data parallel ranks. */
#ifndef OFFSIM_SIM_TRAIN_LAYOUT_H
#define OFFSIM_SIM_TRAIN_LAYOUT_H

#include "sim/config/settings.h"
#include "sim/exec/layout.h"

exec_layout layout_of_settings(const settings *s, arena *a);

/* The rank's data parallel replica; the context parallel ranks of one replica share its number. */
uint32_t layout_replica(const settings *s, const exec_rank *rank);

#endif
