/* The ranks of a parallel configuration, numbered as Megatron-LM does (core/parallel_state.py):
 * within a pipeline stage tensor parallel ranks are neighbours, then context, then data parallel
 * ones; for experts the same ranks count as expert tensor, expert and expert data parallel ones. */
#ifndef OFFSIM_SIM_TRAIN_LAYOUT_H
#define OFFSIM_SIM_TRAIN_LAYOUT_H

#include "sim/config/settings.h"
#include "sim/exec/layout.h"

exec_layout layout_of_settings(const settings *s, arena *a);

/* Which data parallel replica of the model the rank is of, context parallel ranks being one. */
uint32_t layout_replica(const settings *s, const exec_rank *rank);

#endif
