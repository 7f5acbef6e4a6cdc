/*
 * torch.cuda.memory._dump_snapshot: a pickled dictionary (torch/csrc/cuda/memory_snapshot.cpp and
 * torch/cuda/memory.py, PyTorch 2.11). `segments` is what the allocator holds when it is written,
 * `device_traces` what it did before, a list for each GPU. Stacks are recorded with
 * _record_memory_history.
 */
#include <string.h>

#include "traces/import/pickle.h"
#include "traces/import/readers.h"

typedef struct snapshot_reader {
  real_run *run;
  input *in;
  struct {
    uint32_t *items;
    uint32_t count, capacity;
  } numbers; /* frames of a stack */
} snapshot_reader;

static bool wrong(snapshot_reader *s, const char *what)
{
  return input_wrong(s->in, input_offset(s->in), "the snapshot has %s", what);
}

/* ---- members of a dictionary ---- */

static bool whole(snapshot_reader *s, const pickle_value *of, const char *key, int64_t *value)
{
  const pickle_value *v = pickle_get(of, key);
  if (v == NULL || v->type != PICKLE_WHOLE)
    return input_wrong(s->in, input_offset(s->in), "the snapshot has no whole number \"%s\"", key);
  *value = v->whole;
  return true;
}

static const char *text(snapshot_reader *s, const pickle_value *of, const char *key)
{
  const pickle_value *v = pickle_get(of, key);
  return v != NULL && v->type == PICKLE_TEXT ? real_run_text(s->run, v->text, v->length) : "";
}

static const pickle_list *list(const pickle_value *of, const char *key)
{
  static const pickle_list nothing;
  const pickle_value *v = pickle_get(of, key);
  return v != NULL && v->type == PICKLE_LIST ? &v->list : &nothing;
}

/* ---- stacks ---- */

/* A frame is one value that all stacks share; its `mark` is its number + 1. */
static uint32_t frame_of(snapshot_reader *s, pickle_value *v)
{
  if (v->mark == 0) {
    const pickle_value *line = pickle_get(v, "line");
    real_frame f = { .function = text(s, v, "name"), .file = text(s, v, "filename") };
    if (line != NULL && line->type == PICKLE_WHOLE && line->whole > 0 && line->whole < INT32_MAX)
      f.line = (uint32_t)line->whole;
    v->mark = real_run_frame(s->run, &f) + 1;
  }
  return v->mark - 1;
}

static uint32_t stack_of(snapshot_reader *s, const pickle_value *of)
{
  const pickle_list *frames = list(of, "frames");
  s->numbers.count = 0;
  for (uint32_t i = 0; i < frames->count; i++)
    *ARRAY_PUSH(&s->numbers) = frame_of(s, frames->items[i]);
  return real_run_stack(s->run, s->numbers.items, s->numbers.count);
}

/* ---- what the allocator did ---- */

static real_memory_kind kind_of(const char *action)
{
  static const struct {
    const char *action;
    real_memory_kind kind;
  } kinds[] = {
    { "alloc", REAL_ALLOC },
    { "free_requested", REAL_FREE },
    { "free_completed", REAL_FREE_DONE },
    { "segment_alloc", REAL_SEGMENT },
    { "segment_map", REAL_SEGMENT },
    { "segment_free", REAL_SEGMENT_FREE },
    { "segment_unmap", REAL_SEGMENT_FREE },
    { "oom", REAL_OUT_OF_MEMORY },
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(action, kinds[i].action) == 0) return kinds[i].kind;
  return REAL_MEMORY_KINDS; /* "snapshot", "workspace_snapshot" */
}

static bool take_event(snapshot_reader *s, const pickle_value *v)
{
  int64_t address = 0, time_us = 0;
  real_memory_kind kind = kind_of(text(s, v, "action"));
  real_memory_event e = { .kind = (uint8_t)kind };
  if (kind == REAL_MEMORY_KINDS) return true;
  /* Of "oom" the address is the free memory, under another key. */
  if (kind != REAL_OUT_OF_MEMORY && !whole(s, v, "addr", &address)) return false;
  if (!whole(s, v, "size", &e.bytes) || !whole(s, v, "stream", &e.stream) ||
      !whole(s, v, "time_us", &time_us))
    return false;
  if (e.bytes < 0 || time_us < 0 || time_us > INT64_MAX / 1000)
    return wrong(s, "a size or time that is out of range");
  e.address = (uint64_t)address;
  e.time_ns = time_us * 1000;
  e.stack = stack_of(s, v);
  *ARRAY_PUSH(&s->run->events) = e;
  return true;
}

/* A list for each GPU, of which a process of one GPU fills one. */
static bool take_traces(snapshot_reader *s, const pickle_value *top)
{
  const pickle_list *devices = list(top, "device_traces");
  uint32_t filled = 0;
  for (uint32_t i = 0; i < devices->count; i++) {
    const pickle_value *of = devices->items[i];
    if (of->type != PICKLE_LIST) return wrong(s, "a member of \"device_traces\" that is no list");
    filled += of->list.count > 0;
    if (filled > 1)
      return wrong(s, "the history of several GPUs; one process for each GPU is read");
    for (uint32_t j = 0; j < of->list.count; j++)
      if (!take_event(s, of->list.items[j])) return false;
  }
  return true;
}

/* ---- what it holds at the end ---- */

static bool take_block(snapshot_reader *s, const pickle_value *v, int64_t *address, int64_t stream)
{
  const char *state = text(s, v, "state");
  real_block b = { .address = (uint64_t)*address, .stream = stream };
  if (!whole(s, v, "size", &b.bytes)) return false;
  if (b.bytes < 0 || b.bytes > INT64_MAX / 4) return wrong(s, "a block of a negative size");
  *address = (int64_t)((uint64_t)*address + (uint64_t)b.bytes);
  if (strcmp(state, "inactive") == 0) return true;
  /* Snapshots before PyTorch 2.1 have it in the history only. */
  const pickle_value *requested = pickle_get(v, "requested_size");
  b.requested_bytes =
      requested != NULL && requested->type == PICKLE_WHOLE ? requested->whole : b.bytes;
  b.pending = strcmp(state, "active_pending_free") == 0;
  b.stack = stack_of(s, v);
  *ARRAY_PUSH(&s->run->blocks) = b;
  return true;
}

static bool take_segment(snapshot_reader *s, const pickle_value *v)
{
  int64_t address = 0, bytes = 0, stream = 0;
  if (!whole(s, v, "address", &address) || !whole(s, v, "total_size", &bytes) ||
      !whole(s, v, "stream", &stream))
    return false;
  if (bytes < 0 || bytes > INT64_MAX / 4 - s->run->segments_bytes)
    return wrong(s, "a segment whose size is out of range");
  s->run->segments_bytes += bytes;
  const pickle_list *blocks = list(v, "blocks");
  for (uint32_t i = 0; i < blocks->count; i++)
    if (!take_block(s, blocks->items[i], &address, stream)) return false;
  return true;
}

static bool take_segments(snapshot_reader *s, const pickle_value *top)
{
  const pickle_value *v = pickle_get(top, "segments");
  if (v == NULL || v->type != PICKLE_LIST)
    return wrong(s, "no list \"segments\": torch.cuda.memory._dump_snapshot writes one");
  for (uint32_t i = 0; i < v->list.count; i++)
    if (!take_segment(s, v->list.items[i])) return false;
  return true;
}

static bool take_snapshot(snapshot_reader *s, const pickle_value *top)
{
  return take_segments(s, top) && take_traces(s, top);
}

bool snapshot_read(real_run *r, input *in)
{
  if (r->has_memory)
    return input_wrong(in, 0, "this is a second memory snapshot; one of each rank is read");
  arena plain = { 0 };
  snapshot_reader s = { .run = r, .in = in };
  const pickle_value *top = pickle_read(in, &plain);
  bool ok = top != NULL && take_snapshot(&s, top);
  ARRAY_FREE(&s.numbers);
  arena_release(&plain);
  if (ok) real_run_note_source(r, "memory snapshot");
  r->has_memory |= ok;
  return ok;
}
