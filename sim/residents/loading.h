/*
 * A checkpoint that is loaded before the first step (training.resumes). The optimizer has its states from
 * then on, and memory may peak while they are loaded:
 *
 *   made      To have something to load into, the optimizer makes its states (the distributed one twice: its
 *             first are copied by load_state_dict at once).
 *   exchanged With ckpt_fully_parallel_load the data parallel ranks that need the same tensor read a part of
 *             them each, and broadcast it. A rank allocates new tensors for what it needs and other ranks
 *             have read, and, because all ranks join every broadcast, for what only other ranks need. These
 *             are dropped at once, but live until NCCL's watchdog, ten times a second, finds the broadcast
 *             done: here to the end of the exchange.
 *   copied    FusedAdam.load_state_dict copies every state into a new tensor. The old ones live until the
 *             checkpoint's dictionary is dropped.
 *
 * Each tensor is read by one of the ranks that need it: tensors that fewer ranks need first, and larger ones
 * first, by the rank that has the fewest bytes to read so far. Tensors of other sets are taken to have the
 * sizes of the last rank's.
 *
 * What stays referenced until Python collects garbage is not counted.
 *
 * Sources: Megatron-LM training/checkpointing.py (load_checkpoint), core/optimizer/distrib_optimizer.py
 * (load_state_dict), core/dist_checkpointing/exchange_utils.py (distribute_shards_to_ranks,
 * exchange_loaded_tensors_broadcast), strategies/fully_parallel.py at 4e85d74a; Transformer Engine
 * optimizers/fused_adam.py; PyTorch ProcessGroupNCCL.cpp (the watchdog unstashes tensors).
 */
#ifndef OFFSIM_SIM_RESIDENTS_LOADING_H
#define OFFSIM_SIM_RESIDENTS_LOADING_H

#include "sim/residents/static_writer.h"

/* Once the model and the optimizer are built. */
void write_loading(static_writer *w, const optimizer_shard_list *shards);

#endif
