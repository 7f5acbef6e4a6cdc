/*
 * When the ops of a rank begin and end.
 *
 * Turns that the engine leaves out (skip.h) are a turn before them, later, so they need no rows:
 *
 *     op     0                 begin                      begin + count
 *            |       | by ops  | by ops | by ops | by ops | ...
 *     rows   |<--------------->|                          |<------->|
 *
 * One stretch of ops at most has none; turns left out after it do have rows.
 */
#ifndef OFFSIM_SIM_ENGINE_OP_TIMES_H
#define OFFSIM_SIM_ENGINE_OP_TIMES_H

#include <stdint.h>

typedef struct op_time {
  int64_t start_ps, end_ps;
} op_time;

/* Ops [begin, begin + count), each `ps` later than the op `by` ops before it. */
typedef struct moved_ops {
  uint32_t begin, count;
  uint32_t by;
  int64_t ps;
} moved_ops;

/* Empty when zeroed. */
typedef struct op_times {
  op_time *rows; /* by op, but for those of `moved` */
  uint32_t capacity;
  moved_ops moved;
} op_times;

void op_times_release(op_times *t);

/* Makes room for that number of rows at least. May move them. */
void op_times_reserve(op_times *t, uint32_t rows);

/* Makes room for the rows of the ops before op `end`, of a rank of `count` ops. */
void op_times_reach(op_times *t, uint32_t end, uint32_t count);

/* The ops of `moved`, which have no rows yet, get none. Only once for a rank. */
void op_times_move(op_times *t, const moved_ops *moved);

/* All ops get rows again, whose room stays. */
void op_times_forget(op_times *t);

/* The row of an op; it is after those without rows, if there are such ops. */
static inline op_time *op_time_row(const op_times *t, uint32_t op)
{
  return &t->rows[op - t->moved.count];
}

/* Of any op that has its times. */
static inline op_time op_time_at(const op_times *t, uint32_t op)
{
  const moved_ops *m = &t->moved;
  if (op < m->begin) return t->rows[op];
  uint32_t inside = op - m->begin;
  if (inside >= m->count) return t->rows[op - m->count];
  uint32_t turns = inside / m->by + 1;
  op_time before = t->rows[op - turns * m->by];
  return (op_time){ before.start_ps + turns * m->ps, before.end_ps + turns * m->ps };
}

#endif
