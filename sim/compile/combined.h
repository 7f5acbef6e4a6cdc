/*
 * Runs chunks in parts: a forward and a backward in turns, on two streams (Megatron-LM's combined
 * 1F1B: models/common/model_chunk_schedule_plan.py, run of a chunk and of a layer;
 * pipeline_parallel/utils.py, ScheduleNode).
 *
 * The parts of one instance run one after the other, on any stream: each waits for the event that
 * the previous part recorded. Only their streams order the parts of two instances.
 */
#ifndef OFFSIM_SIM_COMPILE_COMBINED_H
#define OFFSIM_SIM_COMPILE_COMBINED_H

#include "sim/compile/walk.h"

/* Runs an instance's whole forward or backward, unpaired. */
void combined_run(walk *w, instance_id i, mark_kind direction);

/* The pair's four phases; see sim/schedule/schedule.h. The caller emits its hooks and marks. */
void combined_begin_forward(walk *w, instance_id i);
void combined_begin_backward(walk *w, instance_id i);
void combined_layers(walk *w);
void combined_finish(walk *w);

#endif
