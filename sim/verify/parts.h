/*
 * Which ops have touched which part of some memory. A part is a range of bytes that every op so far
 * has touched as a whole or not at all: an op that sees a part of a buffer cuts it out (plan_view_bytes).
 * So two ops are in conflict only if the ranges that they see meet. The elements of a strided view
 * are counted as the range that they lie in.
 */
#ifndef OFFSIM_SIM_VERIFY_PARTS_H
#define OFFSIM_SIM_VERIFY_PARTS_H

#include "sim/verify/order.h"

/* Ops are numbered from 1 here; 0: none. */
typedef struct part {
  byte_range bytes;
  uint32_t next;                 /* the part that begins where this one ends, NO_PART: none */
  uint32_t last[DEVICE_STREAMS]; /* by stream: the last op that touched it */
  uint32_t users;                /* streams that have one, a bit each */
  uint32_t write;                /* the last op that wrote it */
  uint8_t write_stream;          /* ... on this stream */
  uint16_t touched; /* bit mask of the streams that have touched it in this step, ... */
  bool written;     /* ... and whether it has been written since its allocation */
} part;

#define NO_PART UINT32_MAX

typedef struct part_array {
  part *items;
  uint32_t count, capacity;
} part_array;

/* The last ops of each stream on the parts of a range. */
typedef struct uses {
  uint32_t last[DEVICE_STREAMS];   /* that touched one of them */
  uint32_t writes[DEVICE_STREAMS]; /* that wrote one of them last */
} uses;

/* Everything, whatever the size of the memory is. */
static const byte_range whole_memory = { 0, INT64_MAX };

/* Whether a view of the plan turns. */
bool views_turn(const plan *p);

/*
 * By row of plan.views: what an op sees of its operand. Parts of a buffer of class driver that turn do so
 * alike, and no other part cuts them (sim/plan/validate.h), so two parts that meet on one rank meet on all:
 * each counts as what the rank of index 0 sees. In any other buffer a part that turns counts as all of them.
 */
const byte_range *bytes_of_views(const plan *p, bool of_driver, arena *a);

/* The only part of memory that nothing has touched. */
uint32_t part_new(part_array *parts);

uint32_t parts_cut_out(part_array *parts, uint32_t first, byte_range bytes);

static inline bool is_whole(byte_range bytes)
{
  return bytes.begin == 0 && bytes.end == INT64_MAX;
}

/* The first of the parts that make up the range, NO_PART: it is empty. The parts of the memory begin
 * with `first`. */
static inline uint32_t parts_in(part_array *parts, uint32_t first, byte_range bytes)
{
  return is_whole(bytes) ? first : parts_cut_out(parts, first, bytes);
}

/* The part after `at` that belongs to the range, NO_PART: none. */
static inline uint32_t next_part(const part_array *parts, uint32_t at, byte_range bytes)
{
  return parts->items[at].bytes.end == bytes.end ? NO_PART : parts->items[at].next;
}

uses parts_uses(part_array *parts, uint32_t first, byte_range bytes, const rank_plan *p);

#endif
