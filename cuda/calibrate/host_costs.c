#include "cuda/calibrate/host_costs.h"

#include "cuda/device/clock.h"

/* Few enough that no queue of the driver is full. */
enum { TIMES = 200, ROUNDS = 5 };
#define SMALL_BYTES   (4 * KIB)
#define SEGMENT_BYTES (20 * MIB)
#define LOCKED_BYTES  (256 * MIB)

typedef struct workshop {
  const gpu_driver *g;
  gpu_stream *stream, *other;
  gpu_event *event;
  void *device, *host;
} workshop;

static const char *launch(const workshop *w)
{
  return w->g->fill(w->device, 0, SMALL_BYTES, w->stream);
}

static const char *record_and_wait(const workshop *w)
{
  const char *wrong = w->g->event_record(w->event, w->stream);
  return wrong != NULL ? wrong : w->g->stream_wait(w->other, w->event);
}

static const char *copy(const workshop *w)
{
  return w->g->copy(w->host, w->device, SMALL_BYTES, GPU_D2H, w->stream);
}

/* The minimum of some rounds: other activity of the host disturbs the others. */
static const char *cost_of(const workshop *w, const char *(*what)(const workshop *w), int64_t *ps)
{
  const char *wrong = NULL;
  *ps = INT64_MAX;
  for (int round = 0; round < ROUNDS && wrong == NULL; round++) {
    int64_t begin = clock_now_ps();
    for (int i = 0; i < TIMES && wrong == NULL; i++)
      wrong = what(w);
    *ps = min_i64(*ps, (clock_now_ps() - begin) / TIMES);
    if (wrong == NULL) wrong = w->g->stream_synchronize(w->stream);
    if (wrong == NULL) wrong = w->g->stream_synchronize(w->other);
  }
  return wrong;
}

static const char *open_workshop(workshop *w)
{
  const gpu_driver *g = w->g;
  const char *wrong = g->use(0);
  if (wrong == NULL) wrong = g->stream_new(&w->stream);
  if (wrong == NULL) wrong = g->stream_new(&w->other);
  if (wrong == NULL) wrong = g->event_new(&w->event);
  if (wrong == NULL) wrong = g->allocate(&w->device, SMALL_BYTES);
  if (wrong == NULL) wrong = g->allocate_pinned(&w->host, SMALL_BYTES);
  return wrong;
}

static void close_workshop(workshop *w)
{
  const gpu_driver *g = w->g;
  if (w->host != NULL) g->release_pinned(w->host);
  if (w->device != NULL) g->release(w->device);
  if (w->event != NULL) g->event_delete(w->event);
  if (w->other != NULL) g->stream_delete(w->other);
  if (w->stream != NULL) g->stream_delete(w->stream);
}

static const char *time_calls(const workshop *w, host_costs *costs)
{
  const char *wrong = cost_of(w, launch, &costs->launch_ps);
  if (wrong == NULL) wrong = cost_of(w, record_and_wait, &costs->event_ps);
  if (wrong == NULL) wrong = cost_of(w, copy, &costs->copy_ps);
  costs->event_ps /= 2;
  return wrong;
}

static const char *time_mapping(const gpu_driver *g, int64_t *ps)
{
  gpu_space space;
  const char *wrong = g->space_new(0, 64 * SEGMENT_BYTES, &space);
  if (wrong != NULL) return wrong;
  int64_t begin = clock_now_ps();
  for (int i = 0; i < ROUNDS && wrong == NULL; i++)
    wrong = g->space_map(&space, i * SEGMENT_BYTES, SEGMENT_BYTES);
  *ps = (clock_now_ps() - begin) / ROUNDS;
  for (int i = 0; i < ROUNDS && wrong == NULL; i++)
    wrong = g->space_unmap(&space, i * SEGMENT_BYTES, SEGMENT_BYTES);
  g->space_delete(&space);
  return wrong;
}

static const char *time_locking(const gpu_driver *g, int64_t *ps_of_gib)
{
  void *memory;
  int64_t begin = clock_now_ps();
  const char *wrong = g->allocate_pinned(&memory, LOCKED_BYTES);
  *ps_of_gib = (clock_now_ps() - begin) * (GIB / LOCKED_BYTES);
  return wrong != NULL ? wrong : g->release_pinned(memory);
}

bool measure_host_costs(const gpu_driver *g, host_costs *costs, diag *d)
{
  workshop w = { .g = g };
  const char *wrong = open_workshop(&w);
  if (wrong == NULL) wrong = time_calls(&w, costs);
  close_workshop(&w);
  if (wrong == NULL) wrong = time_mapping(g, &costs->map_ps);
  if (wrong == NULL) wrong = time_locking(g, &costs->pinned_gib_ps);
  return wrong == NULL || diag_refused(d, "host time of driver calls: %s", wrong);
}
