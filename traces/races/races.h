/*
 * Races in a real run, from what it gave to its GPUs (traces/issued): two operations of different
 * streams on the same bytes, of which neither waits for the other.
 *
 * What a kernel does with a pointer is unknown: whether it reads or writes, and how far. So a kernel
 * conflicts with a copy (or a set) if it points into the bytes of the copy, or with any use of
 * another generation of its memory, and never with a kernel of the same generation. A copy out may
 * overlap kernels that read its source; only the first kernel that used the source, which makes it,
 * has to be over. docs/reference/issued.md lists what follows from this, and what it cannot see.
 */
#ifndef OFFSIM_TRACES_RACES_RACES_H
#define OFFSIM_TRACES_RACES_RACES_H

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "traces/import/real_run.h"
#include "traces/issued/memory.h"

/*  kind             in JSON        the earlier operation, and what is wrong */
#define RACES(X)                                                                                   \
  X(RACE_REUSED, "reused", "may still use the memory that another tensor now has")                 \
  X(RACE_NOT_ARRIVED, "not_arrived", "may still write the bytes that a kernel points to")          \
  X(RACE_NOT_MADE, "not_made", "may not have made the bytes that a copy reads")                    \
  X(RACE_OVERWRITTEN, "overwritten", "may still use the bytes that a copy writes")                 \
  X(RACE_COPIES, "copies", "may still copy bytes that another copy reads or writes")

typedef enum race_kind {
#define X(id, name, meaning) id,
  RACES(X)
#undef X
      RACE_KINDS
} race_kind;

const char *race_kind_name(race_kind kind);
const char *race_kind_meaning(race_kind kind);

/* Races of the same operations on memory of the same line of code. */
typedef struct race {
  race_kind kind;
  use earlier, later; /* the first pair */
  uint64_t address;
  issued_space space;
  uint32_t stack, earlier_stack; /* who allocated the memory, and who had it before (if reused) */
  uint64_t count;
} race;

enum { RACES_KEPT = 1000 };

typedef struct races {
  real_run run; /* of the snapshot: stacks */
  race *items;  /* the first RACES_KEPT different ones, by the row of the later operation */
  uint32_t count;
  uint64_t found;     /* all */
  const char **names; /* of kernels, by number */
  uint32_t name_count;
  uint64_t rows, kernels, copies, sets, graphs, waits, blocks, streams;
  uint64_t captured;     /* into graphs: not looked at */
  uint64_t unseen;       /* kernels with arguments that could not be read */
  uint64_t without_size; /* blocks that the snapshot does not have */
  bool ended;            /* in order; else the process was killed */
  bool has_snapshot;
} races;

/* False after a diag error. Everything is in the arena but `run`; release it in either case. */
bool races_find(races *r, const char *path, arena *a, diag *d);
/* The same of bytes in memory. */
bool races_find_bytes(races *r, const uint8_t *bytes, size_t count, arena *a, diag *d);
void races_release(races *r);

/* Whether a file begins as a record of offsim record does; without a message. */
bool races_is_record(const char *path);

const char *use_kind_name(use_kind kind);

#endif
