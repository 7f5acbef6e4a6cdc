#include "sim/base/parallel.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct shared {
  atomic_uint next;
  uint32_t count;
  parallel_work *work;
  void *context;
} shared;

static void *take_part(void *of)
{
  shared *s = of;
  for (uint32_t i; (i = atomic_fetch_add(&s->next, 1)) < s->count;)
    s->work(s->context, i);
  return NULL;
}

void parallel_for(uint32_t count, uint32_t threads, parallel_work *work, void *context)
{
  assert(threads >= 1 && count <= UINT32_MAX / 2 && threads <= UINT32_MAX / 2);
  shared s = { .count = count, .work = work, .context = context };
  uint32_t wanted = (threads < count ? threads : count), started = 0;
  pthread_t *others = wanted > 1 ? calloc(wanted - 1, sizeof *others) : NULL;
  while (others != NULL && started + 1 < wanted &&
         pthread_create(&others[started], NULL, take_part, &s) == 0)
    started++;
  take_part(&s);
  for (uint32_t i = 0; i < started; i++)
    pthread_join(others[i], NULL);
  free(others);
}
