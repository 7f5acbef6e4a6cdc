/* sim/world/deal.h in one process: the pieces that are worked on, and when a thread goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "sim/world/deal.h"

enum { PIECES = 300, THREADS = 4 };

typedef struct dealt {
  pthread_mutex_t lock;
  uint32_t worked[PIECES], taken, settled, fails_after;
  uint32_t early, wrong, at_once; /* what must not happen */
  bool settling;
} dealt;

/* Of this thread: how many had been taken when it had its last piece taken. */
static _Thread_local uint32_t own_taken;

static const void *work(void *of, uint32_t piece, size_t *bytes, arena *a)
{
  dealt *x = of;
  uint32_t *result = ARENA_ARRAY(a, uint32_t, 1);
  pthread_mutex_lock(&x->lock);
  x->early += own_taken > x->settled;
  x->worked[piece]++;
  pthread_mutex_unlock(&x->lock);
  *result = piece * piece;
  *bytes = sizeof *result;
  return result;
}

static bool take(void *of, uint32_t piece, const void *result, size_t bytes)
{
  dealt *x = of;
  uint32_t value;
  memcpy(&value, result, sizeof value);
  pthread_mutex_lock(&x->lock);
  x->wrong += bytes != sizeof value || value != piece * piece;
  own_taken = ++x->taken;
  pthread_mutex_unlock(&x->lock);
  return true;
}

/* As long as a disk takes, so that other threads come meanwhile. */
static bool settle(void *of)
{
  dealt *x = of;
  pthread_mutex_lock(&x->lock);
  x->at_once += x->settling;
  x->settling = true;
  uint32_t before = x->taken;
  pthread_mutex_unlock(&x->lock);
  nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
  pthread_mutex_lock(&x->lock);
  x->settling = false;
  x->settled = before;
  pthread_mutex_unlock(&x->lock);
  return before < x->fails_after;
}

static bool run(dealt *x, const bool *done)
{
  const deal of = { .count = PIECES,
                    .done = done,
                    .threads = THREADS,
                    .context = x,
                    .work = work,
                    .take = take,
                    .settle = settle };
  own_taken = 0;
  pthread_mutex_init(&x->lock, NULL);
  bool ok = deal_run(&of);
  pthread_mutex_destroy(&x->lock);
  assert_int_equal(x->early, 0);
  assert_int_equal(x->wrong, 0);
  assert_int_equal(x->at_once, 0);
  return ok;
}

static void test_every_piece_is_settled_before_its_thread_goes_on(void **state)
{
  (void)state;
  bool done[PIECES] = { [0] = true, [7] = true, [8] = true, [PIECES - 1] = true };
  dealt x = { .fails_after = UINT32_MAX };
  assert_true(run(&x, done));
  for (uint32_t i = 0; i < PIECES; i++)
    assert_int_equal(x.worked[i], !done[i]);
  assert_int_equal(x.taken, PIECES - 4);
  assert_int_equal(x.settled, x.taken);
}

/* A full disk. Each thread has at most the piece that it was working on. */
static void test_a_failed_settle_ends_the_deal(void **state)
{
  (void)state;
  dealt x = { .fails_after = 20 };
  assert_false(run(&x, NULL));
  assert_in_range(x.taken, 20, 20 + 2 * THREADS);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_piece_is_settled_before_its_thread_goes_on),
    cmocka_unit_test(test_a_failed_settle_ends_the_deal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
