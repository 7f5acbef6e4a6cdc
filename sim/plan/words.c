#include "sim/plan/words.h"

#include <assert.h>
#include <string.h>

shape_letters kernel_letters(kernel_kind kind)
{
#define X(id, name, cost, letters, ...) letters,
  static const char *const all[] = { PLAN_KERNELS(X) };
#undef X
  assert((unsigned)kind < KERNEL_KINDS);
  shape_letters l = { .count = 0 };
  bool scalars = false;
  for (const char *next = all[kind]; *next != '\0'; next += strspn(next, " ")) {
    if (*next == ';') {
      scalars = true;
      next++;
      continue;
    }
    assert(l.count < CALL_LETTERS);
    l.text[l.count] = next;
    l.length[l.count] = (uint32_t)strcspn(next, " ;");
    next += l.length[l.count++];
    l.dims += !scalars;
  }
  assert(l.dims <= PLAN_DIMS && l.count - l.dims <= PLAN_SCALARS);
  return l;
}

bool mark_is_of_microbatch(mark_kind kind)
{
  return kind == MARK_FORWARD || kind == MARK_BACKWARD;
}

const char *collective_detail(collective_kind kind)
{
  assert(kind < COLLECTIVE_KINDS);
  return kind == COLLECTIVE_SHIFT ? "by" : "once";
}
