/*
 * Which reader a file is for, and what holds once all files are read.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/import/readers.h"
#include "traces/input.h"
#include "traces/issued/issued.h"

static bool looks_like(const uint8_t *bytes, size_t count, const char *text)
{
  size_t length = strlen(text);
  return count >= length && memcmp(bytes, text, length) == 0;
}

static bool read_any(real_run *r, input *in, uint32_t rank)
{
  const uint8_t *bytes;
  size_t count = input_look(in, &bytes);
  if (count == 0) return input_wrong(in, 0, "the file is empty");
  if (bytes[0] == 0x80) return snapshot_read(r, in);
  if (issued_looks_like(bytes, count)) return issued_run_read(r, in);
  if (looks_like(bytes, count, "{\"real_run_version\"")) return run_file_read(r, in);
  if (looks_like(bytes, count, "{\"format_version\"")) return own_record_read(r, in, rank);
  if (looks_like(bytes, count, "SQLite format 3")) return nsight_read(r, in, rank);
  size_t first = 0;
  while (first < count && strchr(" \n\r\t", bytes[first]) != NULL && bytes[first] != '\0')
    first++;
  if (first < count && bytes[first] == '{') return kineto_read(r, in);
  return input_wrong(in, (int64_t)first,
                     "no format that is known; expected a profiler's trace (JSON), a memory "
                     "snapshot (pickle), an export of Nsight Systems (SQLite) or a record of "
                     "offsim");
}

bool real_run_read(real_run *r, const char *path, uint32_t rank, diag *d)
{
  input in;
  if (!input_open(&in, path, d)) return false;
  bool ok = read_any(r, &in, rank);
  assert(ok == !in.failed);
  input_close(&in);
  return ok;
}

bool real_run_read_bytes(real_run *r, const char *name, const uint8_t *bytes, size_t count, diag *d)
{
  input in;
  input_of_bytes(&in, name, bytes, count, d);
  return read_any(r, &in, 0);
}

static bool has_text(const uint8_t *bytes, size_t count, const char *text)
{
  for (size_t i = 0; i < count; i++)
    if (looks_like(bytes + i, count - i, text)) return true;
  return false;
}

real_file real_run_file_kind(const char *path)
{
  input in;
  const uint8_t *bytes;
  diag ignored = { .quiet = true };
  if (strcmp(path, "-") == 0 || !input_open(&in, path, &ignored)) return REAL_FILE_OTHER;
  size_t count = input_look(&in, &bytes);
  bool own = looks_like(bytes, count, "{\"format_version\"");
  bool run =
      count > 0 &&
      (bytes[0] == 0x80 || looks_like(bytes, count, "SQLite format 3") ||
       issued_looks_like(bytes, count) || looks_like(bytes, count, "{\"real_run_version\"") ||
       has_text(bytes, count, "\"traceEvents\"") || has_text(bytes, count, "\"schemaVersion\""));
  input_close(&in);
  return own ? REAL_FILE_OWN_RECORD : run ? REAL_FILE_RUN : REAL_FILE_OTHER;
}

/* ---- finishing ---- */

static int by_begin(const void *left, const void *right)
{
  const real_span *a = left, *b = right;
  if (a->begin_ns != b->begin_ns) return a->begin_ns < b->begin_ns ? -1 : 1;
  if (a->end_ns != b->end_ns) return a->end_ns > b->end_ns ? -1 : 1; /* the outer one first */
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->track != b->track) return a->track < b->track ? -1 : 1;
  return a->correlation < b->correlation ? -1 : a->correlation > b->correlation;
}

/* A process with one GPU, as frameworks start them. */
static bool check_devices(const real_run *r, diag *d)
{
  for (uint32_t i = 1; i < r->streams.count; i++)
    if (r->streams.items[i].process != r->streams.items[0].process)
      return diag_error(d, (source_pos){ 0 },
                        "the trace has work of GPUs %lld and %lld; a trace of one GPU is read",
                        (long long)r->streams.items[0].process,
                        (long long)r->streams.items[i].process);
  return true;
}

/* Both have the host's clock, so they overlap. */
static bool check_clocks(const real_run *r, diag *d)
{
  if (r->spans.count == 0 || r->events.count == 0) return true;
  int64_t begin_ns = r->spans.items[0].begin_ns, end_ns = begin_ns;
  for (uint32_t i = 0; i < r->spans.count; i++)
    if (r->spans.items[i].end_ns > end_ns) end_ns = r->spans.items[i].end_ns;
  if (r->events.items[0].time_ns <= end_ns &&
      r->events.items[r->events.count - 1].time_ns >= begin_ns)
    return true;
  return diag_error(d, (source_pos){ 0 },
                    "trace and memory snapshot are not of the same time: the snapshot's history "
                    "begins %lld ms after the trace does",
                    (long long)((r->events.items[0].time_ns - begin_ns) / 1000000));
}

/* So that no sum of times or bytes overflows. */
static bool check_sums(const real_run *r, diag *d)
{
  int64_t bytes = r->segments_bytes, time_ns = 0;
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *s = &r->spans.items[i];
    time_ns = min_i64(CAP, time_ns + min_i64(CAP, s->end_ns - s->begin_ns));
    if (real_span_is_work((real_span_kind)s->kind))
      bytes = min_i64(CAP, bytes + min_i64(CAP, max_i64(0, s->bytes)));
  }
  for (uint32_t i = 0; i < r->events.count; i++)
    bytes = min_i64(CAP, bytes + min_i64(CAP, r->events.items[i].bytes));
  for (uint32_t i = 0; i < r->blocks.count; i++)
    bytes = min_i64(CAP, bytes + min_i64(CAP, r->blocks.items[i].bytes));
  if (bytes < CAP && time_ns < CAP) return true;
  return diag_error(d, (source_pos){ 0 },
                    "the files' times or sizes add up to more than 64 bits hold; they are damaged");
}

/* Of passes that the file names; work counts as issued when it begins. */
static void time_named_passes(real_run *r)
{
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *s = &r->spans.items[i];
    if (s->pass == REAL_NONE) continue;
    real_pass *p = &r->passes.items[s->pass];
    p->issued_from_ns = min_i64(p->issued_from_ns, s->begin_ns);
    p->issued_to_ns = max_i64(p->issued_to_ns, s->begin_ns);
    if (real_span_is_copy((real_span_kind)s->kind)) continue;
    p->begin_ns = min_i64(p->begin_ns, s->begin_ns);
    p->end_ns = max_i64(p->end_ns, s->end_ns);
  }
}

bool real_run_finish(real_run *r, diag *d)
{
  assert(!r->is_finished);
  if (r->spans.count > 0) qsort(r->spans.items, r->spans.count, sizeof *r->spans.items, by_begin);
  if (!check_sums(r, d) || !check_devices(r, d) || !check_clocks(r, d)) return false;
  if (r->passes.count == 0)
    find_passes(r);
  else if (!r->passes_are_timed)
    time_named_passes(r);
  r->is_finished = true;
  return true;
}
