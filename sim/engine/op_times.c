#include "sim/engine/op_times.h"

#include <assert.h>

#include "sim/base/memory.h"

void op_times_release(op_times *t)
{
  memory_return(t->rows);
  *t = (op_times){ 0 };
}

void op_times_reserve(op_times *t, uint32_t rows)
{
  if (rows <= t->capacity) return;
  t->rows = memory_resized(t->rows, rows * sizeof *t->rows);
  t->capacity = rows;
}

void op_times_reach(op_times *t, uint32_t end, uint32_t count)
{
  assert(end >= t->moved.begin + t->moved.count && end <= count);
  if (end - t->moved.count > t->capacity) op_times_reserve(t, count - t->moved.count);
}

void op_times_move(op_times *t, const moved_ops *moved)
{
  assert(t->moved.count == 0 && moved->by > 0 && moved->begin >= moved->by);
  t->moved = *moved;
}

void op_times_forget(op_times *t)
{
  t->moved = (moved_ops){ 0 };
}
