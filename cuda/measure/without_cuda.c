/* Built without CUDA: nothing can be measured, and ranges do nothing. */
#include <stddef.h>

#include "cuda/measure/measure.h"
#include "cuda/measure/ranges.h"

#ifndef OFFSIM_WITH_CUDA

measure *measure_open(diag *d)
{
  diag_refused(d, "times of ops need CUPTI: this offsim was built without CUDA");
  return NULL;
}

void measure_close(measure *m)
{
  (void)m;
}

bool measure_begin(measure *m, uint32_t rank_count, const uint32_t *op_counts, diag *d)
{
  (void)m;
  (void)rank_count;
  (void)op_counts;
  (void)d;
  return false;
}

void measure_op_begin(measure *m, uint32_t rank, uint32_t op)
{
  (void)m;
  (void)rank;
  (void)op;
}

void measure_op_end(measure *m)
{
  (void)m;
}

void measure_graph_begin(measure *m, uint32_t rank, uint32_t first, uint32_t end)
{
  (void)m;
  (void)rank;
  (void)first;
  (void)end;
}

bool measure_collect(measure *m, diag *d)
{
  (void)m;
  return d->exit_status == 0;
}

const measure_span *measure_spans(const measure *m, uint32_t rank)
{
  (void)m;
  (void)rank;
  return NULL;
}

measure_tally measure_count(const measure *m)
{
  (void)m;
  return (measure_tally){ 0 };
}

int64_t measure_now_ns(const measure *m)
{
  (void)m;
  return 0;
}

void range_begin(const char *name)
{
  (void)name;
}

void range_end(void)
{
}

void range_name_thread(const char *name)
{
  (void)name;
}

#endif
