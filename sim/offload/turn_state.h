/*
 * The state that the hooks of a turn may read when the turn begins, value by value. A turn is a part of the
 * schedule that repeats the steps of the part before with later micro-batches (sim/compile/turns.h).
 *
 * One function visits the state, always in the same order. The same visit saves the values and, with
 * `puts_back`, replaces them by the saved ones, which the walk has meanwhile moved some turns on. Values of a
 * chunk are visited for the chunks in flight: no hook of the turn reads those of finished ones, and those of
 * later ones are as `begin` has made them.
 */
#ifndef OFFSIM_SIM_OFFLOAD_TURN_STATE_H
#define OFFSIM_SIM_OFFLOAD_TURN_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/offload/shape.h"
#include "sim/plan/plan.h"

/*
 *   kind     two turns begin alike if            put back, some turns on
 *   -------  ----------------------------------  ----------------------------------------
 *   PLAIN    they are equal                      as it was
 *   SHIFTED  they are equal, less `first`        as far from the new `first`
 *   BUFFER   they are renamed one to one         the buffer in that place by then, or none
 *   EVENT    they are renamed one to one         the event in that place by then
 *   TALLY    always                              grown by as much in each turn
 */
typedef enum turn_kind { TURN_PLAIN, TURN_SHIFTED, TURN_BUFFER, TURN_EVENT, TURN_TALLY } turn_kind;

typedef struct turn_section {
  turn_kind kind;
  uint32_t first, count; /* in words */
} turn_section;
typedef struct turn_section_array {
  turn_section *items;
  uint32_t count, capacity;
} turn_section_array;

typedef struct turn_state {
  instance_id first;            /* the turn begins with its forward */
  const instance_id *in_flight; /* chunks in flight, in ascending order */
  uint32_t in_flight_count;
  bool puts_back;
  uint32_t next; /* the section that is put back next */
  turn_section_array sections;
  id_array words;
} turn_state;

void turn_plain(turn_state *t, void *values, size_t bytes);
/* An instance, or a position in the order of forwards. */
void turn_shifted(turn_state *t, uint32_t *number);
/* UINT32_MAX: no buffer. */
void turn_buffers(turn_state *t, uint32_t *buffers, uint32_t count);
void turn_events(turn_state *t, uint32_t *events, uint32_t count);
void turn_tallies(turn_state *t, int64_t *tallies, uint32_t count);

/* Empty, but with its memory. */
void turn_state_clear(turn_state *t);
void turn_state_release(turn_state *t);

#endif
