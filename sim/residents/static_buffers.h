/*
 * A rank's memory other than activations: every resident allocation of a training process, in the
 * order of requests, with the transient ones between them that decide where blocks are placed.
 *
 *     static_allocation_list list = static_allocations(s, 90, pp_rank, a);
 *     for each list.events: a transient or resident allocation begins, or a transient one ends
 *
 * After a replay in order through the caching allocator, static memory remains: allocated bytes
 * after the optimizer step. Bytes are as requested, not rounded.
 */
#ifndef OFFSIM_SIM_RESIDENTS_STATIC_BUFFERS_H
#define OFFSIM_SIM_RESIDENTS_STATIC_BUFFERS_H

#include "sim/residents/rank_parameters.h"

/* When the process requests it. Phases ascend in a list. */
typedef enum static_phase {
  STATIC_BUILD,    /* model, gradient buffers, optimizer */
  STATIC_FORWARD,  /* first forward */
  STATIC_BACKWARD, /* first backward */
  STATIC_STEP,     /* first optimizer step */
  STATIC_RETAINED  /* activations that every step leaves referenced: the last micro-batch's */
} static_phase;

typedef struct static_allocation {
  const char *name;
  uint8_t purpose; /* buffer_class: weight, gradient, optimizer, workspace, retained; transient:
                    freed again; driver: beside the allocator; pinned_host and pageable_host: on the
                    host */
  uint8_t phase;   /* static_phase */
  uint8_t type;    /* dtype */
  int64_t bytes;
  uint32_t parameter; /* index into `parameters` (hf: the model's) of the tensor it belongs to, or
                         NO_PARAMETER */
  uint32_t buffer;    /* Megatron's own buffers: the buffer of rank.buffers that it is, or whose
                         parameters it holds; else NO_PARAMETER */
  bool each_pass; /* no event: every iteration's first forward allocates it, and it is freed before
                     the optimizer step */
  bool each_step; /* every optimizer step allocates it, the start of the next iteration frees it */
  bool of_batch;  /* a micro-batch that the data iterator keeps: sim/compile/frames.h */
  bool in_step;   /* no event: every optimizer step allocates it and frees it at its end */
} static_allocation;

#define NO_PARAMETER UINT32_MAX

typedef struct static_event {
  uint32_t allocation;
  bool is_free;
} static_event;

typedef struct static_allocation_list {
  static_allocation *items;
  uint32_t count;
  static_event *events; /* program order */
  uint32_t event_count;
  parameter_list parameters;
  rank_parameters rank; /* Megatron's, without FSDP: the same parameters, and their places */
} static_allocation_list;

/* `compute_capability` is ten times the GPU's (80, 90, 100). Settings must be resolved. */
static_allocation_list static_allocations(const settings *s, int compute_capability,
                                          uint32_t pp_rank, arena *a);

/* Whether allocation `i` has weights of the model, on the device or on the host. */
bool static_has_weights(const static_allocation_list *list, uint32_t i);

/* Sum of the resident requests rounded to 512 bytes: static memory without unsplit tails. */
int64_t static_requested_bytes(const static_allocation_list *list);

#endif
