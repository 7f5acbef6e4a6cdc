#include "sim/plan/phrases.h"

#include <assert.h>
#include <string.h>

static const char *kernel_letters(kernel_kind kind)
{
#define X(name, text, cost, letters, ...) letters,
  static const char *const all[] = { PLAN_KERNELS(X) };
#undef X
  assert(kind < KERNEL_KINDS);
  return all[kind];
}

/* Each letter with its size; scalars follow a semicolon. */
static const char *kernel_shape(const plan_call *call, arena *a)
{
  const char *text = "";
  const char *letter = kernel_letters((kernel_kind)call->kind);
  for (int i = 0; i < PLAN_DIMS && *letter != '\0'; i++) {
    int length = (int)strcspn(letter, " ;");
    text = arena_printf(a, "%s%s%.*s %lld", text, i == 0 ? "" : " ", length, letter,
                        (long long)call->dims[i]);
    letter += length;
    if (*letter == ';') break;
    letter += strspn(letter, " ");
  }
  return text;
}

const char *call_shape(const plan_call *call, arena *a)
{
  assert(!call->is_collective || call->group_size > 0);
  if (call->is_collective)
    return arena_printf(a, "%s, %u ranks", group_name((comm_group)call->group), call->group_size);
  return arena_printf(a, "%s, %s", kernel_shape(call, a), dtype_name((dtype)call->dtype));
}

const char *phase_name(const plan_mark *m, arena *a)
{
  assert(m->kind < MARK_KINDS);
  if (m->kind == MARK_FORWARD || m->kind == MARK_BACKWARD)
    return arena_printf(a, "%s m%u c%u", mark_name((mark_kind)m->kind), m->microbatch, m->chunk);
  return mark_name((mark_kind)m->kind);
}
