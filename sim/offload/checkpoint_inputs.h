/*
 * Which tensors Axolotl's engines take of a checkpoint. The one of hidden states: the first of
 * those it keeps to run its region again, which is the input of the layer. The one of selective
 * checkpoints: what these keep besides.
 */
#ifndef OFFSIM_SIM_OFFLOAD_CHECKPOINT_INPUTS_H
#define OFFSIM_SIM_OFFLOAD_CHECKPOINT_INPUTS_H

#include "sim/offload/policy.h"

/* Bytes below which the non-reentrant engine leaves it where it is (axolotl's min_offload_size). */
#define HIDDEN_STATES_MIN_BYTES 1024

/* Bytes below which a kept output stays where it is (SacOffloadEngine's min_offload_bytes). */
#define CACHED_OUTPUT_MIN_BYTES (INT64_C(1) << 20)

/* Tensors that wait for their file or are being written: twice axolotl's save_workers. */
enum { DISK_OUTSTANDING = 8 };

/* Inputs of one checkpoint follow each other, and every layer is a group of its own. A
 * non-reentrant one saves an empty tensor first, so that it has something to save. */
static inline bool is_hidden_states(const chunk_shape *c, uint32_t entry)
{
  const saved_entry *e = &c->entries[entry], *before = e - 1;
  bool follows = before->checkpoint_input && before->group == e->group && before->bytes > 0;

  return e->checkpoint_input && e->group != 0 && e->bytes > 0 && !follows;
}

static inline bool hidden_states_leave(const chunk_shape *c, uint32_t entry)
{
  return is_hidden_states(c, entry) && c->entries[entry].bytes >= HIDDEN_STATES_MIN_BYTES;
}

static inline bool cached_output_leaves(const chunk_shape *c, uint32_t entry)
{
  const saved_entry *e = &c->entries[entry];

  return e->cached && e->group != 0 && e->bytes >= CACHED_OUTPUT_MIN_BYTES;
}

#endif
