#include "sim/world/deal.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/world/world.h"

/* Pieces [first, first + count), none of them done. */
typedef struct range {
  uint32_t first, count;
} range;

typedef struct dealer {
  const deal *of;
  uint32_t threads;        /* of all processes */
  uint32_t next;           /* piece that no thread has */
  bool over;               /* ended before its time */
  uint64_t taken, settled; /* calls of `take`, and those of them before a `settle` that has ended */
  bool settling;
  pthread_cond_t settle_ended;
  pthread_mutex_t lock; /* of all these, and of the calls of `take` */
} dealer;

enum {
  MOST_PIECES = 64,     /* of a range */
  RANGES_PER_THREAD = 8 /* of what is left, so that all threads end at about the same time */
};

static bool is_done(const deal *of, uint32_t piece)
{
  return of->done != NULL && of->done[piece];
}

/* An empty range: there are no more. */
static range next_range(dealer *x)
{
  const deal *of = x->of;
  uint32_t most = (of->count - x->next) / (RANGES_PER_THREAD * x->threads);
  most = most < 1 ? 1 : most > MOST_PIECES ? MOST_PIECES : most;
  while (x->next < of->count && is_done(of, x->next))
    x->next++;
  range r = { x->next, 0 };
  while (!x->over && r.count < most && x->next < of->count && !is_done(of, x->next))
    x->next++, r.count++;
  return r;
}

static range next_pieces(dealer *x)
{
  pthread_mutex_lock(&x->lock);
  range r = next_range(x);
  pthread_mutex_unlock(&x->lock);
  return r;
}

static void init_locks(dealer *x)
{
  pthread_mutex_init(&x->lock, NULL);
  pthread_cond_init(&x->settle_ended, NULL);
}

static void destroy_locks(dealer *x)
{
  pthread_cond_destroy(&x->settle_ended);
  pthread_mutex_destroy(&x->lock);
}

/* Called with the lock, which others may take meanwhile: afterwards what was taken before is settled. One
 * call of `settle`, which may wait for a disk, serves all threads that came during the call before. */
static void settle(dealer *x)
{
  const deal *of = x->of;
  const uint64_t own = x->taken;
  while (of->settle != NULL && x->settled < own) {
    if (x->settling) {
      pthread_cond_wait(&x->settle_ended, &x->lock);
      continue;
    }
    const uint64_t before = x->taken;
    x->settling = true;
    pthread_mutex_unlock(&x->lock);
    bool ok = of->settle(of->context);
    pthread_mutex_lock(&x->lock);
    x->settling = false;
    x->settled = before;
    x->over = x->over || !ok;
    pthread_cond_broadcast(&x->settle_ended);
  }
}

/* With the lock. */
static void take(dealer *x, uint32_t piece, const void *result, size_t bytes)
{
  const deal *of = x->of;
  if (x->over) return;
  x->over = !of->take(of->context, piece, result, bytes);
  x->taken++;
}

/* ---- threads of process 0 ---- */

static void end(dealer *x)
{
  pthread_mutex_lock(&x->lock);
  x->over = true;
  pthread_mutex_unlock(&x->lock);
}

/* False: the deal has ended. */
static bool take_own(dealer *x, uint32_t piece, const void *result, size_t bytes)
{
  pthread_mutex_lock(&x->lock);
  take(x, piece, result, bytes);
  settle(x);
  bool goes_on = !x->over;
  pthread_mutex_unlock(&x->lock);
  return goes_on;
}

static bool work_on(dealer *x, uint32_t piece)
{
  arena a = { 0 };
  size_t bytes;
  const void *result = x->of->work(x->of->context, piece, &bytes, &a);
  if (result == NULL) end(x);
  bool goes_on = result != NULL && take_own(x, piece, result, bytes);
  arena_release(&a);
  return goes_on;
}

static void *work_here(void *of)
{
  dealer *x = of;
  for (range r; (r = next_pieces(x)).count > 0;)
    for (uint32_t i = r.first; i < r.first + r.count && work_on(x, i); i++)
      continue;
  return NULL;
}

/* Starts up to `count` threads; the system may refuse some. */
static uint32_t start(pthread_t *threads, uint32_t count, void *(*run)(void *), void *of)
{
  uint32_t started = 0;
  while (started < count && pthread_create(&threads[started], NULL, run, of) == 0)
    started++;
  return started;
}

static pthread_t *room_for_threads(uint32_t count)
{
  pthread_t *threads = calloc(count, sizeof *threads);
  if (threads == NULL) die_refused("no memory for %u threads", count);
  return threads;
}

static void join(pthread_t *threads, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++)
    pthread_join(threads[i], NULL);
  free(threads);
}

static bool deal_alone(const deal *of)
{
  dealer x = { .of = of, .threads = of->threads };
  uint32_t others = (of->threads < of->count ? of->threads : of->count);
  pthread_t *threads = room_for_threads(of->threads);
  init_locks(&x);
  uint32_t started = others > 1 ? start(threads, others - 1, work_here, &x) : 0;
  work_here(&x);
  join(threads, started);
  destroy_locks(&x);
  return !x.over;
}

#ifdef OFFSIM_WITH_MPI

#include <mpi.h>

/* A message to process 0: whether its thread wants more, then results, each with its head. The
 * answer is a range. The tag of both is the thread's number. */
typedef struct result_head {
  uint32_t piece;
  uint32_t bytes;
} result_head;

typedef struct message {
  char *items;
  uint32_t count, capacity;
} message;

/* Results are sent at the latest after this time, so that what an end by force loses is what was
 * under way. */
#define SEND_AFTER_NS NS_PER_S

enum {
  IDLE_NS = 100000, /* between two looks for messages */
  MOST_MESSAGE_BYTES = 1 << 28
};

static int64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

static void begin_message(message *m, uint32_t wants)
{
  m->count = 0;
  memcpy(ARRAY_EXTEND(m, (uint32_t)sizeof wants), &wants, sizeof wants);
}

static void add_result(message *m, uint32_t piece, const void *result, size_t bytes)
{
  assert(bytes < MOST_MESSAGE_BYTES);
  const result_head head = { piece, (uint32_t)bytes };
  memcpy(ARRAY_EXTEND(m, (uint32_t)sizeof head), &head, sizeof head);
  memcpy(ARRAY_EXTEND(m, head.bytes), result, bytes);
}

static void send_to_first(message *m, bool wants, int tag)
{
  const uint32_t word = wants;
  memcpy(m->items, &word, sizeof word);
  MPI_Send(m->items, (int)m->count, MPI_BYTE, 0, tag, MPI_COMM_WORLD);
  begin_message(m, false);
}

/* ---- threads of the other processes ---- */

typedef struct remote {
  dealer *dealer;
  int tag;
} remote;

static bool was_ended(dealer *x)
{
  pthread_mutex_lock(&x->lock);
  bool over = x->over;
  pthread_mutex_unlock(&x->lock);
  return over;
}

/* False after `work` has ended the deal. */
static bool work_on_range(dealer *x, range r, message *m, int tag)
{
  int64_t sent_ns = now_ns();
  for (uint32_t i = r.first; i < r.first + r.count; i++) {
    arena a = { 0 };
    size_t bytes;
    const void *result = was_ended(x) ? NULL : x->of->work(x->of->context, i, &bytes, &a);
    if (result == NULL)
      end(x);
    else
      add_result(m, i, result, bytes);
    arena_release(&a);
    if (result == NULL) return false;
    if (now_ns() - sent_ns < SEND_AFTER_NS && m->count < MOST_MESSAGE_BYTES) continue;
    send_to_first(m, false, tag);
    sent_ns = now_ns();
  }
  return true;
}

static void *work_for_first(void *of)
{
  const remote *r = of;
  message m = { 0 };
  range given = { 0 };
  begin_message(&m, true);
  do {
    send_to_first(&m, true, r->tag);
    MPI_Recv(&given, sizeof given, MPI_BYTE, 0, r->tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } while (given.count > 0 && work_on_range(r->dealer, given, &m, r->tag));
  ARRAY_FREE(&m);
  return NULL;
}

static void work_in_process(dealer *x)
{
  uint32_t count = x->of->threads;
  pthread_t *threads = room_for_threads(count);
  remote *remotes = calloc(count, sizeof *remotes);
  if (remotes == NULL) die_refused("no memory for %u threads", count);
  for (uint32_t i = 0; i < count; i++)
    remotes[i] = (remote){ x, (int)i };
  for (uint32_t i = 1; i < count; i++)
    if (start(&threads[i - 1], 1, work_for_first, &remotes[i]) == 0)
      die_refused("the system has no thread %u of %u; give fewer with --threads", i + 1, count);
  work_for_first(&remotes[0]);
  join(threads, count - 1);
  free(remotes);
}

/* ---- process 0 beside others ---- */

static void take_results(dealer *x, const char *at, const char *end)
{
  while (at < end) {
    result_head head;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    assert(head.piece < x->of->count && (size_t)(end - at) >= head.bytes);
    take(x, head.piece, at, head.bytes);
    at += head.bytes;
  }
  settle(x);
}

/* Returns whether the thread that sent it has gone. */
static bool answer(dealer *x, const message *m, int source, int tag)
{
  uint32_t wants;
  assert(m->count >= sizeof wants);
  memcpy(&wants, m->items, sizeof wants);
  pthread_mutex_lock(&x->lock);
  take_results(x, m->items + sizeof wants, m->items + m->count);
  range r = wants ? next_range(x) : (range){ 0 };
  pthread_mutex_unlock(&x->lock);
  if (wants) MPI_Send(&r, sizeof r, MPI_BYTE, source, tag, MPI_COMM_WORLD);
  return wants && r.count == 0;
}

/* Until all threads of the others have gone, or the deal has ended. */
static void answer_all(dealer *x)
{
  message m = { 0 };
  for (uint32_t left = x->threads - x->of->threads; left > 0 && !was_ended(x);) {
    MPI_Status about;
    int there = 0, bytes;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &about);
    if (!there) {
      nanosleep(&(struct timespec){ .tv_nsec = IDLE_NS }, NULL);
      continue;
    }
    MPI_Get_count(&about, MPI_BYTE, &bytes);
    m.count = 0;
    MPI_Recv(ARRAY_EXTEND(&m, (uint32_t)bytes), bytes, MPI_BYTE, about.MPI_SOURCE, about.MPI_TAG,
             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    left -= answer(x, &m, about.MPI_SOURCE, about.MPI_TAG);
  }
  ARRAY_FREE(&m);
}

static void work_and_answer(dealer *x)
{
  pthread_t *own = room_for_threads(x->of->threads);
  uint32_t started = start(own, x->of->threads, work_here, x);
  answer_all(x);
  if (started == 0) work_here(x);
  join(own, started);
}

static bool deal_to_all(const deal *of)
{
  dealer x = { .of = of };
  int64_t threads = of->threads;
  world_add(&threads, 1);
  x.threads = (uint32_t)threads;
  init_locks(&x);
  if (world_of().number == 0)
    work_and_answer(&x);
  else
    work_in_process(&x);
  destroy_locks(&x);
  return !x.over;
}

#else

static bool deal_to_all(const deal *of)
{
  return deal_alone(of);
}

#endif

bool deal_run(const deal *of)
{
  assert(of->threads >= 1 && of->work != NULL && of->take != NULL);
  return world_of().processes > 1 ? deal_to_all(of) : deal_alone(of);
}

/* ---- items ---- */

typedef struct items {
  char *items;
  size_t item_bytes;
  deal_fill *work;
  void *context;
} items;

static const void *fill(void *of, uint32_t index, size_t *bytes, arena *a)
{
  const items *x = of;
  (void)a;
  *bytes = x->item_bytes;
  return x->work(x->context, index) ? x->items + index * x->item_bytes : NULL;
}

static bool keep(void *of, uint32_t index, const void *result, size_t bytes)
{
  const items *x = of;
  char *to = x->items + index * x->item_bytes;
  assert(bytes == x->item_bytes);
  if (to != result) memcpy(to, result, bytes);
  return true;
}

bool deal_items(void *into, uint32_t count, size_t item_bytes, uint32_t threads, deal_fill *work,
                void *context)
{
  items x = { into, item_bytes, work, context };
  const deal of = { .count = count, .threads = threads, .context = &x, .work = fill, .take = keep };
  bool ok = deal_run(&of);
  if (ok) world_broadcast(into, (int64_t)(count * item_bytes), 0);
  return ok;
}
