/*
 * The record of offsim record (traces/issued) as a real run: what a process gave to its GPU, in the order
 * in which its calls returned. The GPU's own times are not in it: work begins and ends when it was
 * issued. Each row is at least a nanosecond after the one before, so that these times are an order.
 */
#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/import/readers.h"
#include "traces/issued/issued.h"
#include "traces/issued/memory.h"

_Static_assert((int)REAL_STREAM_BLOCKING == (int)ISSUED_BLOCKING &&
                   (int)REAL_STREAM_LEGACY == (int)ISSUED_LEGACY,
               "streams wait for each other in the same ways");

typedef struct taker {
  real_run *run;
  input *in;
  uint32_t row; /* from 0 */
  int64_t now_ns;
  memory spaces; /* what the driver allocated */
  struct {
    const char **items;
    uint32_t count, capacity;
  } names; /* of kernels */
  intern_table handles;
  struct {
    int64_t *items;
    uint32_t count, capacity;
  } events; /* by handle: the number of the event that has it now; -1: it was destroyed */
  int64_t event_count;
  issued_bytes snapshot;
} taker;

static bool wrong_row(taker *t, const issued_row *row, const char *what)
{
  return input_wrong(t->in, input_offset(t->in), "a row \"%s\" %s", issued_kind_name(row->kind),
                     what);
}

/* ---- spans ---- */

static const char *text_of(taker *t, const char *text)
{
  return real_run_text(t->run, text, strlen(text));
}

static void put(taker *t, const issued_row *row, real_span_kind kind, const char *name,
                int64_t bytes)
{
  bool on_stream = real_span_is_on_stream(kind);
  *ARRAY_PUSH(&t->run->spans) = (real_span){
    .begin_ns = t->now_ns,
    .end_ns = t->now_ns,
    .name = text_of(t, name),
    .bytes = bytes,
    .track = on_stream ? (uint32_t)row->word[0] : real_run_thread(t->run, 0, row->thread),
    .correlation = on_stream || kind == REAL_CALL ? t->row + 1 : 0,
    .pass = REAL_NONE,
    .kind = (uint8_t)kind,
  };
}

/* Work, and the host's call that issued it. */
static real_span *put_work(taker *t, const issued_row *row, real_span_kind kind, const char *name,
                           int64_t bytes)
{
  put(t, row, REAL_CALL, issued_kind_name(row->kind), -1);
  put(t, row, kind, name, bytes);
  return &t->run->spans.items[t->run->spans.count - 1];
}

static bool take_kernel(taker *t, const issued_row *row)
{
  if (row->word[1] >= t->names.count)
    return wrong_row(t, row, "whose kernel has no name before it");
  put_work(t, row, REAL_KERNEL, t->names.items[row->word[1]], -1);
  return true;
}

/* Memory that the driver has not allocated is the host's, and pageable. */
typedef enum place { PLACE_DEVICE, PLACE_PINNED, PLACE_PAGEABLE } place;

static place place_of(taker *t, uint64_t address)
{
  uint32_t number = memory_find(&t->spaces, address);
  if (number == MEMORY_NONE) return PLACE_PAGEABLE;
  return memory_at(&t->spaces, number)->space == ISSUED_HOST ? PLACE_PINNED : PLACE_DEVICE;
}

/* False: too many. */
static bool bytes_of(uint64_t width, uint64_t lines, int64_t *bytes)
{
  if (lines > 0 && width > (uint64_t)CAP / lines) return false;
  *bytes = (int64_t)(width * lines);
  return true;
}

static bool take_copy(taker *t, const issued_row *row)
{
  int64_t bytes;
  place to = place_of(t, row->word[1]), from = place_of(t, row->word[2]);
  bool out = from == PLACE_DEVICE && to != PLACE_DEVICE;
  bool back = from != PLACE_DEVICE && to == PLACE_DEVICE;
  if (!bytes_of(row->word[3], row->word[4], &bytes))
    return wrong_row(t, row, "of more bytes than 64 bits hold");
  real_span *s = put_work(t, row, out ? REAL_D2H : back ? REAL_H2D : REAL_D2D, "copy", bytes);
  s->pageable = (out || back) && (to == PLACE_PAGEABLE || from == PLACE_PAGEABLE);
  if ((row->flags & ISSUED_WAITED) != 0) put(t, row, REAL_STREAM_DONE, "", -1);
  return true;
}

static bool take_set(taker *t, const issued_row *row)
{
  int64_t bytes;
  if (!bytes_of(row->word[2], row->word[3], &bytes))
    return wrong_row(t, row, "of more bytes than 64 bits hold");
  put_work(t, row, REAL_MEMSET, "set", bytes);
  if ((row->flags & ISSUED_WAITED) != 0) put(t, row, REAL_STREAM_DONE, "", -1);
  return true;
}

/* ---- events: handles are used again ---- */

static int64_t *slot_of(taker *t, uint64_t handle)
{
  uint32_t slot = intern(&t->handles, &handle, sizeof handle);
  if (slot == t->events.count) *ARRAY_PUSH(&t->events) = -1;
  return &t->events.items[slot];
}

static int64_t event_of(taker *t, uint64_t handle)
{
  int64_t *number = slot_of(t, handle);
  if (*number < 0) *number = t->event_count++;
  return *number;
}

/* ---- memory ---- */

static bool take_alloc(taker *t, const issued_row *row)
{
  uint64_t begin = row->word[0], bytes = row->word[1];
  if (bytes == 0) return true;
  if (begin > UINT64_MAX - bytes || row->word[2] > ISSUED_MANAGED)
    return wrong_row(t, row, "that no address space holds");
  const generation g = { .begin = begin,
                         .end = begin + bytes,
                         .space = (issued_space)row->word[2] };
  memory_put(&t->spaces, &g, NULL, NULL);
  return true;
}

static void take_free(taker *t, const issued_row *row)
{
  uint64_t begin = row->word[0], bytes = row->word[1];
  if (bytes > 0 && bytes <= UINT64_MAX - begin) memory_remove(&t->spaces, begin, begin + bytes);
  if (row->word[2] != 0) put(t, row, REAL_ALL_DONE, "", -1);
}

/* ---- rows ---- */

static bool take_stream(taker *t, const issued_row *row)
{
  if (row->word[0] != t->run->streams.count || row->word[2] > ISSUED_LEGACY)
    return wrong_row(t, row, "out of order; they are numbered from 0");
  uint32_t track =
      real_run_stream(t->run, (int64_t)(row->word[1] & INT64_MAX), (int64_t)row->word[0]);
  t->run->streams.items[track].kind = (uint8_t)row->word[2];
  return true;
}

static bool take_name(taker *t, const issued_row *row)
{
  size_t length;
  const char *text = issued_name(row, &length);
  if (row->word[0] != t->names.count)
    return wrong_row(t, row, "out of order; they are numbered from 0");
  *ARRAY_PUSH(&t->names) = real_run_text(t->run, text, length);
  return true;
}

/* What the host learned by asking (a query) depends on the moment; what it waited for does not. */
static void take_host_wait(taker *t, const issued_row *row, real_span_kind kind)
{
  if ((row->flags & ISSUED_WAITED) == 0) return;
  put(t, row, kind, "", kind == REAL_EVENT_DONE ? event_of(t, row->word[0]) : -1);
}

/* What is captured into a graph does not run now. */
static bool take_row(taker *t, const issued_row *row)
{
  if (issued_is_on_stream(row->kind)) {
    if (row->word[0] >= t->run->streams.count)
      return wrong_row(t, row, "of a stream that is not known before");
    if ((row->flags & ISSUED_CAPTURED) != 0) return true;
  }
  switch (row->kind) {
  case ISSUED_STREAM: return take_stream(t, row);
  case ISSUED_NAME: return take_name(t, row);
  case ISSUED_KERNEL: return take_kernel(t, row);
  case ISSUED_COPY: return take_copy(t, row);
  case ISSUED_SET: return take_set(t, row);
  case ISSUED_ALLOC: return take_alloc(t, row);
  case ISSUED_SNAPSHOT: return issued_take_snapshot(row, &t->snapshot, t->in);
  case ISSUED_FREE: take_free(t, row); break;
  case ISSUED_GRAPH: put_work(t, row, REAL_KERNEL, "CUDA graph", -1); break;
  case ISSUED_EVENT_RECORD: put(t, row, REAL_RECORD, "", event_of(t, row->word[1])); break;
  case ISSUED_EVENT_WAIT: put(t, row, REAL_WAIT, "", event_of(t, row->word[1])); break;
  case ISSUED_EVENT_GONE: *slot_of(t, row->word[0]) = -1; break;
  case ISSUED_EVENT_DONE: take_host_wait(t, row, REAL_EVENT_DONE); break;
  case ISSUED_STREAM_DONE: take_host_wait(t, row, REAL_STREAM_DONE); break;
  case ISSUED_CONTEXT_DONE: put(t, row, REAL_ALL_DONE, "", -1); break;
  case ISSUED_HOST_CALL:
  case ISSUED_BLOCK:
  case ISSUED_BLOCK_FREE: break;
  case ISSUED_NOTHING:
  case ISSUED_FILLER:
  case ISSUED_END:
  case ISSUED_KINDS: assert(0 && "the reader leaves these out"); break;
  }
  return true;
}

static bool take_rows(taker *t, issued_reader *reader)
{
  issued_row row;
  if (!issued_open(reader, t->in)) return false;
  for (; issued_next(reader, &row); t->row++) {
    if (t->row == UINT32_MAX - 1) return wrong_row(t, &row, "after too many others");
    if (row.time_ns > (uint64_t)INT64_MAX / 4)
      return wrong_row(t, &row, "at a time that is out of range");
    t->now_ns = max_i64(t->now_ns + 1, (int64_t)row.time_ns);
    if (!take_row(t, &row)) return false;
  }
  if (t->in->failed) return false;
  return t->row > 0 || input_wrong(t->in, ISSUED_MAGIC_BYTES,
                                   "the record has no rows: the program was stopped before it used "
                                   "CUDA");
}

/* PyTorch's history of its allocator, which the recorder stored at the end. */
static bool read_snapshot(taker *t)
{
  input in;
  if (t->snapshot.count == 0) return true;
  input_of_bytes(&in, t->in->name, t->snapshot.items, t->snapshot.count, t->in->d);
  bool ok = snapshot_read(t->run, &in);
  t->in->failed |= !ok;
  return ok;
}

bool issued_run_read(real_run *r, input *in)
{
  if (!takes_profile(r, in)) return false;
  taker t = { .run = r, .in = in, .handles = { .memory = r->memory } };
  issued_reader *reader = ARENA_NEW(r->memory, issued_reader);
  memory_init(&t.spaces);
  bool ok = take_rows(&t, reader);
  if (ok)
    real_run_note_source(r, reader->ended ? "record of offsim record"
                                          : "record of offsim record, whose process was killed");
  ok = ok && read_snapshot(&t);
  r->has_profile |= ok;
  r->waits_are_resolved |= ok;
  memory_release(&t.spaces);
  ARRAY_FREE(&t.names);
  ARRAY_FREE(&t.events);
  ARRAY_FREE(&t.snapshot);
  return ok;
}
