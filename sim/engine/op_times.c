#include "sim/engine/op_times.h"

#include <assert.h>
#include <string.h>

#include "sim/base/memory.h"

void op_times_release(op_times *t)
{
  memory_return(t->own);
  *t = (op_times){ 0 };
}

void op_times_reach(op_times *t, uint32_t end, uint32_t count)
{
  assert(end >= t->moved.begin + t->moved.count && end <= count);
  if (end - t->moved.count <= t->capacity) return;
  uint32_t all = count - t->moved.count;
  bool zeroed;
  op_time *rows = memory_taken(all * sizeof *rows, &zeroed);
  memcpy(rows, t->rows, t->capacity * sizeof *rows);
  memory_return(t->own);
  t->rows = t->own = rows;
  t->capacity = all;
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
