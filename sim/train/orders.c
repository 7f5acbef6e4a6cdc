#include "sim/train/orders.h"

#include <assert.h>

static bool same_print(const exec_fingerprint *a, const exec_fingerprint *b)
{
  return a->low == b->low && a->high == b->high;
}

/* False: *step is the first step with different bits. */
static bool same_prints(const train_result *a, const train_result *b, uint32_t *step)
{
  for (*step = 0; *step < a->done && *step < b->done; ++*step) {
    const train_step *x = &a->steps[*step], *y = &b->steps[*step];
    if (!same_print(&x->losses, &y->losses) || !same_print(&x->gradients, &y->gradients) ||
        !same_print(&x->parameters, &y->parameters))
      return false;
  }
  return a->done == b->done;
}

bool train_try_orders(const train_input *in, const train_options *options,
                      const train_result *result, uint64_t count, train_orders *found, arena *a,
                      diag *d)
{
  assert(result->outcome == EXEC_DONE);
  *found = (train_orders){ .finding = NULL };
  for (uint64_t seed = 1; seed <= count && found->finding == NULL; seed++) {
    arena scratch = { 0 };
    train_options other = *options;
    train_result end;
    uint32_t step = 0;
    other.order = (exec_order){ true, seed };
    other.step_done = NULL;
    other.trace = NULL;
    train_run(in, &other, &end, &scratch, d);
    if (end.outcome == EXEC_WRONG)
      found->finding = arena_strdup(a, end.finding);
    else if (end.outcome == EXEC_DONE && !same_prints(result, &end, &step))
      found->finding =
          arena_printf(a, "step %u has different bits than in program order", step + 1);
    found->seed = seed;
    found->run++;
    arena_release(&scratch);
    if (end.outcome == EXEC_REFUSED) return false;
  }
  return true;
}
