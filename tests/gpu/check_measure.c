/* Times by op on a real GPU: kernels of a given duration, copies, and a graph of
 * them. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda/measure/measure.h"
#include "tests/gpu/check_kernels.h"
#include "tests/unit/gpu_checks.h"

static const gpu_driver *const g = &gpu_driver_cuda;

static double now_us(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

enum { BYTES = 64 << 20 };

typedef struct scene {
  measure *m;
  gpu_stream *compute, *d2h, *h2d;
  gpu_event *event;
  gpu_graph *graph;
  unsigned char *device, *pinned;
} scene;

enum op {
  TWO_KERNELS,
  COPY_OUT,
  COPY_IN,
  COPY_WITHIN,
  ROWS,
  FILL,
  NOTHING,
  WAITED,
  GRAPH_FIRST,
  GRAPH_EVENT,
  GRAPH_FILL,
  GRAPH_TWO,
  GRAPH_END,
  LAST,
  BY_DRIVER,
  OPS
};

static const char *const names[OPS] = {
  "two kernels, 200 us",
  "64 MiB out",
  "64 MiB in",
  "64 MiB within",
  "rows within",
  "fill of 64 MiB",
  "record",
  "50 us, waited",
  "graph: 100 us",
  "graph: record",
  "graph: fill 1 MiB",
  "graph: 2 x 150 us",
  "graph's launch",
  "20 us",
  "30 us by the driver",
};

static const char *issue(scene *s, enum op op)
{
  switch ((int)op) {
  case TWO_KERNELS:
    launch_spin(0, 100000, s->compute);
    launch_spin(1, 100000, s->compute);
    break;
  case COPY_OUT: return g->copy(s->pinned, s->device, BYTES, GPU_D2H, s->d2h);
  case COPY_IN: return g->copy(s->device + BYTES, s->pinned + BYTES, BYTES, GPU_H2D, s->h2d);
  case COPY_WITHIN: return g->copy(s->device + 2 * BYTES, s->device, BYTES, GPU_D2D, s->compute);
  case ROWS:
    return g->copy_rows(s->device + 2 * BYTES, 8192, s->device, 4096, 2048, 1024, GPU_D2D,
                        s->compute);
  case FILL: return g->fill(s->device + 2 * BYTES, 3, BYTES, s->compute);
  case NOTHING: return g->event_record(s->event, s->d2h);
  case WAITED:
    GPU_TRY(g->stream_wait(s->compute, s->event));
    launch_spin(2, 50000, s->compute);
    break;
  case GRAPH_FIRST: launch_spin(0, 100000, s->compute); break;
  case GRAPH_EVENT: return g->event_record(s->event, s->compute);
  case GRAPH_FILL: return g->fill(s->device, 3, 1 << 20, s->compute);
  case GRAPH_TWO:
    launch_spin(0, 150000, s->compute);
    launch_spin(1, 150000, s->compute);
    break;
  case GRAPH_END: return g->capture_launch(s->compute, &s->graph);
  case BY_DRIVER: return launch_spin_by_driver(30000, s->compute);
  case LAST: launch_spin(2, 20000, s->compute); break;
  }
  return g->last_error();
}

static const char *iteration(scene *s)
{
  static const uint32_t op_counts[] = { OPS };
  diag d = { 0 };
  int64_t issued_ns[OPS];
  measure_begin(s->m, 1, op_counts, &(diag){ 0 });
  for (enum op op = 0; op < OPS; op++) {
    if (op == GRAPH_FIRST) GPU_TRY(g->capture_begin(s->compute));
    if (op == GRAPH_END)
      measure_graph_begin(s->m, 0, GRAPH_FIRST, GRAPH_END);
    else
      measure_op_begin(s->m, 0, op);
    const char *failure = issue(s, op);
    measure_op_end(s->m);
    GPU_TRY(failure);
    issued_ns[op] = measure_now_ns(s->m);
  }
  launch_spin(2, 0, s->compute); /* of no op */
  GPU_TRY(g->stream_synchronize(s->d2h));
  GPU_TRY(g->stream_synchronize(s->h2d));
  GPU_TRY(g->stream_synchronize(s->compute));
  int64_t over = measure_now_ns(s->m);
  double begin = now_us();
  if (!measure_collect(s->m, &d)) return "measure_collect";
  double took = now_us() - begin;
  const measure_span *spans = measure_spans(s->m, 0);
  measure_tally t = measure_count(s->m);
  printf("over at %.1f us, collected in %.1f; records %lld foreign %lld dropped %lld\n",
         (double)over * 1e-3, took, (long long)t.records, (long long)t.foreign,
         (long long)t.dropped);
  for (int i = 0; i < OPS; i++)
    printf("  %-20s issued %8.1f, ran %8.1f .. %8.1f, %7.1f us, launches %u device %u\n", names[i],
           (double)issued_ns[i] * 1e-3, (double)spans[i].begin_ns * 1e-3,
           (double)spans[i].end_ns * 1e-3, (double)(spans[i].end_ns - spans[i].begin_ns) * 1e-3,
           spans[i].launches, spans[i].device);
  GPU_EXPECT(t.records == 14 && t.foreign == 1 && t.dropped == 0);
  GPU_EXPECT(spans[TWO_KERNELS].launches == 2 && spans[NOTHING].launches == 0);
  GPU_EXPECT(spans[GRAPH_TWO].launches == 2 && spans[GRAPH_FILL].launches == 1);
  GPU_EXPECT(spans[GRAPH_TWO].end_ns - spans[GRAPH_TWO].begin_ns >= 300000);
  GPU_EXPECT(spans[WAITED].begin_ns >= spans[COPY_OUT].end_ns);
  GPU_EXPECT(spans[BY_DRIVER].end_ns <= over && spans[BY_DRIVER].launches == 1 &&
             spans[TWO_KERNELS].begin_ns > 0);
  return NULL;
}

/* What a measured issue costs beside one that is not. */
static const char *cost(scene *s)
{
  enum { ROUNDS = 5000 };
  static const uint32_t op_counts[] = { ROUNDS };
  diag d = { 0 };
  measure_begin(s->m, 1, op_counts, &(diag){ 0 });
  double begin = now_us();
  for (uint32_t i = 0; i < ROUNDS; i++) {
    measure_op_begin(s->m, 0, i);
    launch_spin(2, 0, s->compute);
    measure_op_end(s->m);
  }
  double issued = now_us();
  GPU_TRY(g->stream_synchronize(s->compute));
  double over = now_us();
  if (!measure_collect(s->m, &d)) return "measure_collect";
  double collected = now_us();
  measure_tally t = measure_count(s->m);
  const measure_span *spans = measure_spans(s->m, 0);
  printf("%d launches: %.2f us each to issue, %.2f to run, collected in %.0f us; first to last "
         "%.0f us; records %lld dropped %lld\n",
         ROUNDS, (issued - begin) / ROUNDS, (over - begin) / ROUNDS, collected - over,
         (double)(spans[ROUNDS - 1].end_ns - spans[0].begin_ns) * 1e-3, (long long)t.records,
         (long long)t.dropped);
  return NULL;
}

static const char *run(void)
{
  scene s = { 0 };
  uint32_t devices;
  diag d = { 0 };
  GPU_TRY(g->count(&devices));
  if (devices == 0) return "no device";
  s.m = measure_open(&d);
  if (s.m == NULL) {
    puts(d.message);
    return "measure_open";
  }
  GPU_TRY(g->use(0));
  GPU_TRY(g->stream_new(&s.compute));
  GPU_TRY(g->stream_new(&s.d2h));
  GPU_TRY(g->stream_new(&s.h2d));
  GPU_TRY(g->event_new(&s.event));
  GPU_TRY(g->allocate((void **)&s.device, 3 * (int64_t)BYTES));
  GPU_TRY(g->allocate_pinned((void **)&s.pinned, 2 * (int64_t)BYTES));
  for (int i = 0; i < 3; i++) {
    const char *wrong = iteration(&s);
    if (wrong != NULL) printf("WRONG %s\n", wrong);
  }
  GPU_TRY(cost(&s));
  GPU_TRY(cost(&s));
  measure_close(s.m);
  return NULL;
}

int main(void)
{
  const char *wrong = run();
  printf("check_measure %s\n", wrong == NULL ? "done" : wrong);
  return wrong == NULL ? 0 : 1;
}
