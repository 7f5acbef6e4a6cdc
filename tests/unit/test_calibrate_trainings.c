/* Every training of calibrate compiles to a plan, for as many GPUs as its list is for. */
#include "sim/calibrate/trainings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sim/compile/compile.h"

static uint32_t count_of(const plan *p, op_kind kind)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->ranks[0].ops.count; i++)
    count += p->ranks[0].ops.items[i].kind == kind;
  return count;
}

/* Counts ops of both kinds in the first stage's plan; `gpus` of a training without a world_size. */
static uint32_t count_in(const calibration_model *of, int64_t gpus, op_kind first, op_kind second)
{
  arena a = { 0 };
  diag d = { 0 };
  settings s;
  compilation c;
  memset(&c, 0, sizeof c);
  settings_init(&s, &a);
  s.derived.compute_capability = 90;
  assert_true(calibration_read(&s, of, &a, &d));
  if (s.parallel.world_size == UNSET) s.parallel.world_size = gpus;
  assert_int_equal(s.parallel.world_size, gpus);
  assert_true(settings_resolve(&s, NULL, &a, &d));
  assert_true(compile(&c, &s, ITERATION_STEADY, &a, &d));
  assert_string_equal(d.message, "");
  uint32_t count = count_of(&c.plan, first) + count_of(&c.plan, second);
  assert_true(count_of(&c.plan, OP_KERNEL) > 0);
  compilation_release(&c);
  arena_release(&a);
  return count;
}

static void test_kernels_are_of_one_gpu(void **state)
{
  (void)state;
  for (const calibration_model *m = calibration_models; m->name != NULL; m++)
    assert_int_equal(count_in(m, 1, OP_COLLECTIVE, OP_SEND), 0);
}

static void test_exchanges_exchange(void **state)
{
  (void)state;
  uint32_t offload = 0;
  for (const calibration_model *m = calibration_exchanges; m->name != NULL; m++) {
    assert_true(count_in(m, 2, OP_COLLECTIVE, OP_SEND) > 0);
    offload += count_in(m, 2, OP_D2H, OP_H2D) > 0;
  }
  assert_int_equal(offload, 1); /* for what copies take while streams wait */
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_kernels_are_of_one_gpu),
    cmocka_unit_test(test_exchanges_exchange),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
