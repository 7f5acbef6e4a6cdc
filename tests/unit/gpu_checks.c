#include "tests/unit/gpu_checks.h"

#include <pthread.h>
#include <string.h>

enum { PIECE = 2 << 20, SMALL = 4096 };

static void number_bytes(unsigned char *bytes, int64_t count, unsigned first)
{
  for (int64_t i = 0; i < count; i++)
    bytes[i] = (unsigned char)(first + (unsigned)i * 7u);
}

/* ---- memory and copies ---- */

static const char *check_copies(const gpu_driver *g)
{
  gpu_stream *s;
  void *a, *b;
  unsigned char *in, *out;
  GPU_TRY(g->stream_new(&s));
  GPU_TRY(g->allocate(&a, SMALL));
  GPU_TRY(g->allocate(&b, SMALL));
  GPU_TRY(g->allocate_pinned((void **)&in, SMALL));
  GPU_TRY(g->allocate_pinned((void **)&out, SMALL));
  number_bytes(in, SMALL, 3);
  memset(out, 0, SMALL);
  GPU_TRY(g->copy(a, in, SMALL, GPU_H2D, s));
  GPU_TRY(g->copy(b, a, SMALL, GPU_D2D, s));
  GPU_TRY(g->fill(a, 0, SMALL, s));
  GPU_TRY(g->copy(out, b, SMALL, GPU_D2H, s));
  GPU_TRY(g->stream_synchronize(s));
  GPU_EXPECT(memcmp(in, out, SMALL) == 0);

  /* 16 runs of 64 bytes, 256 apart, become 100 apart, and the host gets them without gaps */
  GPU_TRY(g->copy_rows(a, 100, b, 256, 64, 16, GPU_D2D, s));
  GPU_TRY(g->copy_rows(out, 64, a, 100, 64, 16, GPU_D2H, s));
  GPU_TRY(g->stream_synchronize(s));
  for (int row = 0; row < 16; row++)
    GPU_EXPECT(memcmp(out + row * 64, in + row * 256, 64) == 0);
  GPU_TRY(g->fill(b, 0x5C, SMALL, s));
  GPU_TRY(g->copy(out, b, SMALL, GPU_D2H, s));
  GPU_TRY(g->stream_synchronize(s));
  GPU_EXPECT(out[0] == 0x5C && out[SMALL - 1] == 0x5C);
  GPU_TRY(g->release(a));
  GPU_TRY(g->release(b));
  GPU_TRY(g->release_pinned(in));
  GPU_TRY(g->release_pinned(out));
  g->stream_delete(s);
  return NULL;
}

static const char *check_space(const gpu_driver *g)
{
  gpu_space space;
  gpu_stream *s;
  unsigned char *in, *out;
  int64_t before, mapped, total, after;
  GPU_TRY(g->stream_new(&s));
  GPU_TRY(g->allocate_pinned((void **)&in, 2 * PIECE));
  GPU_TRY(g->allocate_pinned((void **)&out, 2 * PIECE));
  number_bytes(in, 2 * PIECE, 1);
  GPU_TRY(g->space_new(0, (int64_t)64 << 30, &space));
  GPU_EXPECT((uintptr_t)space.base % PIECE == 0 || g == &gpu_driver_host);
  GPU_TRY(g->memory(0, &before, &total));
  int64_t far = (int64_t)40 << 30;
  GPU_TRY(g->space_map(&space, far, PIECE));
  GPU_TRY(g->space_map(&space, far + PIECE, 3 * PIECE));
  GPU_TRY(g->memory(0, &mapped, &total));
  GPU_EXPECT(before - mapped == 4 * (int64_t)PIECE);
  unsigned char *middle = (unsigned char *)space.base + far + PIECE / 2;
  GPU_TRY(g->copy(middle, in, 2 * PIECE, GPU_H2D, s));
  GPU_TRY(g->copy(out, middle, 2 * PIECE, GPU_D2H, s));
  GPU_TRY(g->stream_synchronize(s));
  GPU_EXPECT(memcmp(in, out, 2 * PIECE) == 0);
  GPU_TRY(g->space_unmap(&space, far, PIECE));
  GPU_TRY(g->memory(0, &after, &total));
  GPU_EXPECT(after - mapped == PIECE);
  GPU_TRY(g->space_map(&space, far, PIECE));
  GPU_TRY(g->copy(out, middle + PIECE / 2, PIECE, GPU_D2H, s));
  GPU_TRY(g->stream_synchronize(s));
  GPU_EXPECT(memcmp(in + PIECE / 2, out, PIECE) == 0);
  g->space_delete(&space);
  GPU_TRY(g->release_pinned(in));
  GPU_TRY(g->release_pinned(out));
  g->stream_delete(s);
  return NULL;
}

static const char *check_pool(const gpu_driver *g)
{
  gpu_stream *s;
  void *a, *b;
  int64_t start, now, high;
  GPU_TRY(g->stream_new(&s));
  GPU_TRY(g->pool_reset_high(0));
  GPU_TRY(g->pool_used(0, &start, &high));
  GPU_TRY(g->allocate_async(&a, PIECE, s));
  GPU_TRY(g->fill(a, 1, PIECE, s));
  GPU_TRY(g->allocate_async(&b, 2 * PIECE, s));
  GPU_TRY(g->fill(b, 1, 2 * PIECE, s));
  GPU_TRY(g->pool_used(0, &now, &high));
  GPU_EXPECT(now == start + 3 * (int64_t)PIECE);
  GPU_TRY(g->release_async(a, s));
  GPU_TRY(g->release_async(b, s));
  GPU_TRY(g->stream_synchronize(s));
  GPU_TRY(g->pool_used(0, &now, &high));
  GPU_EXPECT(now == start && high == start + 3 * (int64_t)PIECE);
  GPU_TRY(g->pool_reset_high(0));
  GPU_TRY(g->pool_used(0, &now, &high));
  GPU_EXPECT(high == start);
  g->stream_delete(s);
  return NULL;
}

static const char *check_refusals(const gpu_driver *g)
{
  void *memory;
  uint32_t devices;
  const char *failure = g->allocate(&memory, (int64_t)1 << 50);
  GPU_EXPECT(failure != NULL && strstr(failure, "1125899906842624 bytes: ") != NULL);
  failure = g->allocate_pinned(&memory, (int64_t)1 << 50);
  GPU_EXPECT(failure != NULL && strstr(failure, "1125899906842624 bytes: ") != NULL);
  GPU_EXPECT(g->last_error() == NULL);
  GPU_TRY(g->count(&devices));
  GPU_EXPECT(devices > 0 && g->use(devices) != NULL);
  GPU_EXPECT(g->last_error() == NULL);
  return g->use(0);
}

/* ---- order ---- */

typedef struct writing {
  int *log, *count, value;
} writing;

static void write_log(void *context)
{
  writing *w = context;
  w->log[(*w->count)++] = w->value;
}

static const char *check_fifo(const gpu_driver *g)
{
  gpu_stream *s;
  int log[100], count = 0;
  writing w[100];
  GPU_TRY(g->stream_new(&s));
  for (int i = 0; i < 100; i++) {
    w[i] = (writing){ log, &count, i };
    GPU_TRY(g->call(write_log, &w[i], s));
  }
  GPU_TRY(g->stream_synchronize(s));
  GPU_EXPECT(count == 100);
  for (int i = 0; i < 100; i++)
    GPU_EXPECT(log[i] == i);
  g->stream_delete(s);
  return NULL;
}

/* A stream that is held by a gate, and one that is free. */
typedef struct pair {
  gpu_stream *held, *other;
  uint32_t *gate;
} pair;

static const char *pair_new(const gpu_driver *g, pair *p)
{
  GPU_TRY(g->stream_new(&p->held));
  GPU_TRY(g->stream_new(&p->other));
  GPU_TRY(g->gate_new(&p->gate));
  return g->gate_wait(p->held, p->gate, 1);
}

static void pair_delete(const gpu_driver *g, pair *p)
{
  g->stream_delete(p->held);
  g->stream_delete(p->other);
  g->gate_delete(p->gate);
}

static const char *check_events(const gpu_driver *g)
{
  pair p;
  gpu_event *never, *e;
  bool done;
  int log[4], count = 0;
  writing first = { log, &count, 1 }, second = { log, &count, 2 };
  GPU_TRY(g->event_new(&never));
  GPU_TRY(g->event_new(&e));
  GPU_TRY(pair_new(g, &p));
  GPU_TRY(g->stream_wait(p.other, never));
  GPU_TRY(g->event_synchronize(never));
  GPU_TRY(g->event_done(never, &done));
  GPU_EXPECT(done);
  GPU_TRY(g->stream_synchronize(p.other));
  GPU_TRY(g->call(write_log, &first, p.held));
  GPU_TRY(g->event_record(e, p.held));
  GPU_TRY(g->stream_wait(p.other, e));
  GPU_TRY(g->call(write_log, &second, p.other));
  GPU_TRY(g->event_done(e, &done));
  GPU_EXPECT(!done && g->last_error() == NULL);
  GPU_TRY(g->gate_open(NULL, p.gate, 1));
  GPU_TRY(g->event_synchronize(e));
  GPU_TRY(g->event_done(e, &done));
  GPU_EXPECT(done);
  GPU_TRY(g->stream_synchronize(p.other));
  GPU_EXPECT(count == 2 && log[0] == 1 && log[1] == 2);
  pair_delete(g, &p);
  g->event_delete(never);
  g->event_delete(e);
  return NULL;
}

/* A wait is for what had been recorded when it was issued. */
static const char *check_recording_again(const gpu_driver *g)
{
  pair p;
  gpu_event *e;
  bool done;
  GPU_TRY(g->event_new(&e));
  GPU_TRY(pair_new(g, &p));
  GPU_TRY(g->event_record(e, p.other));
  GPU_TRY(g->stream_wait(p.other, e));
  GPU_TRY(g->event_record(e, p.held)); /* not reached before the gate opens */
  GPU_TRY(g->stream_synchronize(p.other));
  GPU_TRY(g->event_done(e, &done));
  GPU_EXPECT(!done);
  GPU_TRY(g->stream_wait(p.other, e));
  g->event_delete(e); /* what waits for it still does */
  GPU_TRY(g->event_new(&e));
  GPU_TRY(g->event_record(e, p.other));
  GPU_TRY(g->event_done(e, &done));
  GPU_EXPECT(!done);
  GPU_TRY(g->gate_open(NULL, p.gate, 1));
  GPU_TRY(g->event_synchronize(e));
  pair_delete(g, &p);
  g->event_delete(e);
  return NULL;
}

static const char *check_gates(const gpu_driver *g)
{
  pair p;
  uint32_t *second;
  gpu_event *e;
  bool done;
  GPU_TRY(g->event_new(&e));
  GPU_TRY(pair_new(g, &p));
  GPU_TRY(g->gate_new(&second));
  GPU_TRY(g->gate_wait(p.held, second, 2));
  GPU_TRY(g->event_record(e, p.held));
  GPU_TRY(g->gate_open(p.other, p.gate, 7)); /* at least 1 */
  GPU_TRY(g->gate_open(p.other, second, 1)); /* less than 2 */
  GPU_TRY(g->stream_synchronize(p.other));
  GPU_TRY(g->event_done(e, &done));
  GPU_EXPECT(!done);
  GPU_TRY(g->gate_open(p.other, second, 2));
  GPU_TRY(g->event_synchronize(e));
  GPU_TRY(g->gate_wait(p.other, second, 1)); /* open already */
  GPU_TRY(g->stream_synchronize(p.other));
  pair_delete(g, &p);
  g->gate_delete(second);
  g->event_delete(e);
  return NULL;
}

/* Streams at gates block no other stream. */
static const char *check_held_streams(const gpu_driver *g)
{
  enum { HELD = 24 };
  gpu_stream *held[HELD], *other;
  uint32_t *gate;
  int log[1], count = 0;
  writing w = { log, &count, 5 };
  GPU_TRY(g->gate_new(&gate));
  for (int i = 0; i < HELD; i++) {
    GPU_TRY(g->stream_new(&held[i]));
    GPU_TRY(g->gate_wait(held[i], gate, 1));
  }
  GPU_TRY(g->stream_new(&other));
  GPU_TRY(g->call(write_log, &w, other));
  GPU_TRY(g->stream_synchronize(other));
  GPU_EXPECT(count == 1);
  GPU_TRY(g->gate_open(other, gate, 1));
  for (int i = 0; i < HELD; i++)
    g->stream_delete(held[i]);
  g->stream_delete(other);
  g->gate_delete(gate);
  return NULL;
}

/* ---- graphs ---- */

typedef struct graphs {
  pair p;
  gpu_graph *graph;
  gpu_event *inside, *outside;
  unsigned char *device, *host;
} graphs;

/* Fills `fills` times 256 bytes, and tells the other stream, which brings them to the host. */
static const char *run_graph(const gpu_driver *g, graphs *t, int fills, uint8_t byte)
{
  gpu_stream *s = t->p.held;
  GPU_TRY(g->event_record(t->outside, t->p.other));
  GPU_TRY(g->capture_begin(s));
  GPU_TRY(g->stream_wait(s, t->outside));
  for (int i = 0; i < fills; i++)
    GPU_TRY(g->fill(t->device + i * 256, (uint8_t)(byte + i), 256, s));
  GPU_TRY(g->event_record(t->inside, s));
  GPU_TRY(g->stream_wait(s, t->inside));
  GPU_TRY(g->capture_launch(s, &t->graph));
  GPU_TRY(g->stream_wait(t->p.other, t->inside));
  return g->copy(t->host, t->device, SMALL, GPU_D2H, t->p.other);
}

static const char *expect_filled(const unsigned char *host, int fills, uint8_t byte)
{
  for (int i = 0; i < fills; i++)
    GPU_EXPECT(host[i * 256] == (uint8_t)(byte + i) && host[i * 256 + 255] == (uint8_t)(byte + i));
  GPU_EXPECT(host[fills * 256] == 0);
  return NULL;
}

static const char *check_graphs(const gpu_driver *g)
{
  static const struct {
    int fills;
    uint8_t byte;
  } runs[] = { { 2, 10 }, { 2, 30 }, { 4, 50 } }; /* made, updated, made anew */
  graphs t = { 0 };
  bool done;
  GPU_TRY(pair_new(g, &t.p));
  GPU_TRY(g->event_new(&t.inside));
  GPU_TRY(g->event_new(&t.outside));
  GPU_TRY(g->allocate((void **)&t.device, SMALL));
  GPU_TRY(g->allocate_pinned((void **)&t.host, SMALL));
  GPU_TRY(g->fill(t.device, 0, SMALL, t.p.other));
  GPU_TRY(run_graph(g, &t, 1, 200)); /* after the gate */
  GPU_TRY(g->event_done(t.inside, &done));
  GPU_EXPECT(!done);
  GPU_TRY(g->gate_open(NULL, t.p.gate, 1));
  GPU_TRY(g->stream_synchronize(t.p.other));
  GPU_TRY(expect_filled(t.host, 1, 200));
  for (int i = 0; i < 3; i++) {
    GPU_TRY(run_graph(g, &t, runs[i].fills, runs[i].byte));
    GPU_TRY(g->stream_synchronize(t.p.other));
    GPU_TRY(expect_filled(t.host, runs[i].fills, runs[i].byte));
  }
  g->graph_delete(t.graph);
  GPU_TRY(g->release(t.device));
  GPU_TRY(g->release_pinned(t.host));
  g->event_delete(t.inside);
  g->event_delete(t.outside);
  pair_delete(g, &t.p);
  return NULL;
}

/* ---- host threads ---- */

enum { THREADS = 4, ROUNDS = 50 };

typedef struct rank {
  const gpu_driver *g;
  uint32_t *before, *after; /* gates of the rank before and of this one */
  const char *failure;
} rank;

/* Three streams pass bytes on, and each rank continues after the previous one. */
static const char *run_rank(rank *r)
{
  const gpu_driver *g = r->g;
  gpu_stream *in, *work, *out;
  gpu_event *arrived, *worked;
  unsigned char *a, *b, *host;
  GPU_TRY(g->use(0));
  GPU_TRY(g->stream_new(&in));
  GPU_TRY(g->stream_new(&work));
  GPU_TRY(g->stream_new(&out));
  GPU_TRY(g->event_new(&arrived));
  GPU_TRY(g->event_new(&worked));
  GPU_TRY(g->allocate((void **)&a, SMALL));
  GPU_TRY(g->allocate((void **)&b, SMALL));
  GPU_TRY(g->allocate_pinned((void **)&host, 2 * ROUNDS * 64));
  number_bytes(host, ROUNDS * 64, 9);
  for (uint32_t i = 0; i < ROUNDS; i++) {
    GPU_TRY(g->stream_wait(in, worked)); /* of the round before: it has read `a` */
    GPU_TRY(g->copy(a, host + i * 64, 64, GPU_H2D, in));
    GPU_TRY(g->event_record(arrived, in));
    GPU_TRY(g->stream_wait(work, arrived));
    if (r->before != NULL) GPU_TRY(g->gate_wait(work, r->before, i + 1));
    GPU_TRY(g->copy(b + i % 8 * 64, a, 64, GPU_D2D, work));
    GPU_TRY(g->gate_open(work, r->after, i + 1));
    GPU_TRY(g->event_record(worked, work));
    GPU_TRY(g->stream_wait(out, worked));
    GPU_TRY(g->copy(host + (ROUNDS + i) * 64, b + i % 8 * 64, 64, GPU_D2H, out));
    if (i % 8 == 7) GPU_TRY(g->stream_synchronize(out)); /* `b` has eight places */
  }
  GPU_TRY(g->stream_synchronize(out));
  GPU_EXPECT(memcmp(host, host + ROUNDS * 64, ROUNDS * 64) == 0);
  g->stream_delete(in);
  g->stream_delete(work);
  g->stream_delete(out);
  g->event_delete(arrived);
  g->event_delete(worked);
  GPU_TRY(g->release(a));
  GPU_TRY(g->release(b));
  return g->release_pinned(host);
}

static void *rank_thread(void *argument)
{
  rank *r = argument;
  r->failure = run_rank(r);
  return NULL;
}

static const char *check_threads(const gpu_driver *g)
{
  pthread_t threads[THREADS];
  rank ranks[THREADS];
  const char *failure = NULL;
  for (int i = 0; i < THREADS; i++) {
    ranks[i] = (rank){ .g = g, .before = i == 0 ? NULL : ranks[i - 1].after };
    GPU_TRY(g->gate_new(&ranks[i].after));
  }
  for (int i = 0; i < THREADS; i++)
    GPU_EXPECT(pthread_create(&threads[i], NULL, rank_thread, &ranks[i]) == 0);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    if (ranks[i].failure != NULL) failure = "a thread failed";
  }
  for (int i = 0; i < THREADS; i++)
    g->gate_delete(ranks[i].after);
  return failure;
}

/* ---- several devices ---- */

static const char *check_devices(const gpu_driver *g)
{
  static const uint32_t both[] = { 0, 1 };
  uint32_t devices;
  gpu_space spaces[2];
  gpu_stream *s;
  unsigned char *host;
  int64_t free_bytes[2], after, total;
  GPU_TRY(g->count(&devices));
  if (devices < 2) return NULL;
  GPU_TRY(g->connect(both, 2));
  for (uint32_t d = 0; d < 2; d++) {
    GPU_TRY(g->memory(d, &free_bytes[d], &total));
    GPU_TRY(g->space_new(d, (int64_t)1 << 30, &spaces[d]));
    GPU_TRY(g->space_map(&spaces[d], 0, PIECE));
  }
  GPU_TRY(g->memory(1, &after, &total));
  GPU_EXPECT(free_bytes[1] - after == PIECE);
  GPU_TRY(g->allocate_pinned((void **)&host, SMALL));
  number_bytes(host, SMALL / 2, 77);
  GPU_TRY(g->use(1));
  GPU_TRY(g->stream_new(&s));
  GPU_TRY(g->copy(spaces[0].base, host, SMALL / 2, GPU_H2D, s));
  GPU_TRY(g->copy(spaces[1].base, spaces[0].base, SMALL / 2, GPU_D2D, s));
  GPU_TRY(g->copy(host + SMALL / 2, spaces[1].base, SMALL / 2, GPU_D2H, s));
  GPU_TRY(g->stream_synchronize(s));
  GPU_EXPECT(memcmp(host, host + SMALL / 2, SMALL / 2) == 0);
  g->stream_delete(s);
  GPU_TRY(g->release_pinned(host));
  for (uint32_t d = 0; d < 2; d++)
    g->space_delete(&spaces[d]);
  return g->use(0);
}

const gpu_check gpu_checks[] = {
  { "copies", check_copies },
  { "space", check_space },
  { "pool", check_pool },
  { "refusals", check_refusals },
  { "fifo", check_fifo },
  { "events", check_events },
  { "recording again", check_recording_again },
  { "gates", check_gates },
  { "held streams", check_held_streams },
  { "graphs", check_graphs },
  { "threads", check_threads },
  { "devices", check_devices },
};
const uint32_t gpu_check_count = sizeof gpu_checks / sizeof gpu_checks[0];
