/*
 * A real run as text: one JSON object on each line, a header first (docs/reference/real-runs.md).
 * Every other line has one member, whose value is a list; the row's table says what is in it.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/text/json_text.h"
#include "traces/import/json_pull.h"
#include "traces/import/readers.h"

/* ---- writing ---- */

static void put_text(FILE *out, const char *text)
{
  json_string(out, text);
}

static void put_header(const real_run *r, FILE *out)
{
  fprintf(out, "{\"real_run_version\":%d,\"sources\":", REAL_RUN_VERSION);
  put_text(out, r->sources);
  fprintf(
      out,
      ",\"rank\":%" PRId64 ",\"world_size\":%" PRId64
      ",\"waits_resolved\":%d,\"profile\":%d,\"times\":%d,\"memory\":%d,\"segments_bytes\":%" PRId64
      "}\n",
      r->rank, r->world_size, r->waits_are_resolved, r->has_profile, r->has_times, r->has_memory,
      r->segments_bytes);
}

static void put_tracks(const real_track_array *tracks, const char *key, FILE *out)
{
  for (uint32_t i = 0; i < tracks->count; i++) {
    const real_track *t = &tracks->items[i];
    fprintf(out, "{\"%s\":[%" PRId64 ",%" PRId64 ",", key, t->process, t->id);
    put_text(out, t->name);
    fprintf(out, ",%d]}\n", t->kind);
  }
}

static void put_spans(const real_run *r, FILE *out)
{
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *s = &r->spans.items[i];
    fprintf(out, "{\"span\":[\"%s\",", real_span_name((real_span_kind)s->kind));
    put_text(out, s->name);
    fprintf(out, ",%" PRId64 ",%" PRId64 ",%" PRIu32 ",%" PRIu32 ",%" PRId64 ",%" PRId64 ",%d]}\n",
            s->begin_ns, s->end_ns, s->track, s->correlation,
            s->pass == REAL_NONE ? (int64_t)-1 : (int64_t)s->pass, s->bytes, s->pageable);
  }
}

static void put_meetings(const real_run *r, FILE *out)
{
  for (uint32_t i = 0; i < r->meetings.count; i++) {
    const real_meeting *m = &r->meetings.items[i];
    fprintf(out, "{\"meeting\":[%" PRId64 ",%" PRId64 ",", m->begin_ns, m->end_ns);
    put_text(out, m->group);
    fputc(',', out);
    put_text(out, m->name);
    fprintf(out, ",%" PRId64 ",%" PRId64 ",%d]}\n", m->from, m->to, m->is_sender);
  }
}

static void put_passes(const real_run *r, FILE *out)
{
  for (uint32_t i = 0; i < r->passes.count; i++) {
    const real_pass *p = &r->passes.items[i];
    fprintf(out,
            "{\"pass\":[\"%s\",%" PRIu32 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]}\n",
            real_pass_name(p->kind), p->number, p->begin_ns, p->end_ns, p->issued_from_ns,
            p->issued_to_ns);
  }
}

static void put_stacks(const real_run *r, FILE *out)
{
  for (uint32_t i = 0; i < r->frames.count; i++) {
    fputs("{\"frame\":[", out);
    put_text(out, r->frames.items[i].function);
    fputc(',', out);
    put_text(out, r->frames.items[i].file);
    fprintf(out, ",%" PRIu32 "]}\n", r->frames.items[i].line);
  }
  for (uint32_t i = 1; i < r->stacks.count; i++) { /* 0 is empty */
    const real_stack *s = &r->stacks.items[i];
    fputs("{\"stack\":[", out);
    for (uint32_t j = 0; j < s->count; j++)
      fprintf(out, "%s%" PRIu32, j > 0 ? "," : "", r->frame_numbers.items[s->first + j]);
    fputs("]}\n", out);
  }
}

static void put_memory(const real_run *r, FILE *out)
{
  for (uint32_t i = 0; i < r->events.count; i++) {
    const real_memory_event *e = &r->events.items[i];
    fprintf(out,
            "{\"allocator\":[\"%s\",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRIu32
            "]}\n",
            real_memory_name((real_memory_kind)e->kind), e->time_ns, (int64_t)e->address, e->bytes,
            e->stream, e->stack);
  }
  for (uint32_t i = 0; i < r->blocks.count; i++) {
    const real_block *b = &r->blocks.items[i];
    fprintf(out, "{\"block\":[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRIu32 ",%d]}\n",
            (int64_t)b->address, b->bytes, b->requested_bytes, b->stream, b->stack, b->pending);
  }
}

bool real_run_write(const real_run *r, const char *path, diag *d)
{
  file_writer w;
  assert(r->is_finished);
  if (!file_open(&w, path, d)) return false;
  put_header(r, w.stream);
  put_tracks(&r->streams, "stream", w.stream);
  put_tracks(&r->threads, "thread", w.stream);
  put_passes(r, w.stream);
  put_spans(r, w.stream);
  put_meetings(r, w.stream);
  put_stacks(r, w.stream);
  put_memory(r, w.stream);
  return file_close(&w, d);
}

/* ---- reading ---- */

typedef struct run_reader {
  real_run *run;
  json_pull json;
  bool first; /* of a list */
} run_reader;

static bool next_item(run_reader *f)
{
  bool more = f->first ? json_enter(&f->json, '[') : json_more(&f->json, ']');
  f->first = false;
  return more || input_expected(f->json.in, "another value in the list");
}

static bool end_list(run_reader *f)
{
  if (f->json.in->failed) return false;
  int64_t at = input_offset(f->json.in);
  return !json_more(&f->json, ']') ? !f->json.in->failed
                                   : input_wrong(f->json.in, at, "too many values in the list");
}

static bool take_text(run_reader *f, const char **text)
{
  if (!next_item(f) || !json_text(&f->json)) return false;
  *text = real_run_text(f->run, f->json.text, f->json.length);
  return true;
}

static bool take_number(run_reader *f, int64_t least, int64_t most, int64_t *value)
{
  if (!next_item(f)) return false;
  int64_t at = input_offset(f->json.in);
  if (!json_scaled(&f->json, 0, value)) return false;
  return (*value >= least && *value <= most) ||
         input_wrong(f->json.in, at, "found %" PRId64 "; expected %" PRId64 " to %" PRId64, *value,
                     least, most);
}

/* One of the names that `name_of` has for 0 to count - 1. */
static bool take_word(run_reader *f, const char *(*name_of)(int), int count, int *word)
{
  const char *text;
  if (!take_text(f, &text)) return false;
  for (*word = 0; *word < count; ++*word)
    if (strcmp(text, name_of(*word)) == 0) return true;
  return input_wrong(f->json.in, input_offset(f->json.in), "\"%s\" is no kind of this line", text);
}

static const char *span_word(int kind)
{
  return real_span_name((real_span_kind)kind);
}

static const char *pass_word(int kind)
{
  return real_pass_name((real_pass_kind)kind);
}

static const char *memory_word(int kind)
{
  return real_memory_name((real_memory_kind)kind);
}

static const int64_t TIME_LIMIT_NS = INT64_MAX / 2;

static bool read_track(run_reader *f, real_track_array *to)
{
  real_track t;
  int64_t stream_kind;
  if (!take_number(f, INT64_MIN, INT64_MAX, &t.process) ||
      !take_number(f, INT64_MIN, INT64_MAX, &t.id) || !take_text(f, &t.name) ||
      !take_number(f, 0, REAL_STREAM_KINDS - 1, &stream_kind))
    return false;
  t.kind = (uint8_t)stream_kind;
  *ARRAY_PUSH(to) = t;
  return true;
}

static bool read_span(run_reader *f)
{
  real_span s = { .bytes = -1 };
  int kind;
  int64_t track, correlation, pass, pageable;
  if (!take_word(f, span_word, REAL_SPAN_KINDS, &kind) || !take_text(f, &s.name) ||
      !take_number(f, 0, TIME_LIMIT_NS, &s.begin_ns) ||
      !take_number(f, s.begin_ns, TIME_LIMIT_NS, &s.end_ns))
    return false;
  bool on_stream = real_span_is_on_stream((real_span_kind)kind);
  uint32_t tracks = on_stream ? f->run->streams.count : f->run->threads.count;
  bool copy = real_span_is_copy((real_span_kind)kind);
  if (!take_number(f, 0, (int64_t)tracks - 1, &track) ||
      !take_number(f, 0, UINT32_MAX, &correlation) ||
      !take_number(f, -1, (int64_t)f->run->passes.count - 1, &pass) ||
      !take_number(f, copy ? 0 : -1, INT64_MAX, &s.bytes) || !take_number(f, 0, 1, &pageable))
    return false;
  s.kind = (uint8_t)kind;
  s.track = (uint32_t)track;
  s.correlation = (uint32_t)correlation;
  s.pass = pass < 0 ? REAL_NONE : (uint32_t)pass;
  s.pageable = pageable != 0;
  *ARRAY_PUSH(&f->run->spans) = s;
  return true;
}

static bool read_meeting(run_reader *f)
{
  real_meeting m;
  int64_t sends;
  if (!take_number(f, 0, TIME_LIMIT_NS, &m.begin_ns) ||
      !take_number(f, m.begin_ns, TIME_LIMIT_NS, &m.end_ns) || !take_text(f, &m.group) ||
      !take_text(f, &m.name) || !take_number(f, -1, INT32_MAX, &m.from) ||
      !take_number(f, -1, INT32_MAX, &m.to) || !take_number(f, 0, 1, &sends))
    return false;
  m.is_sender = sends != 0;
  *ARRAY_PUSH(&f->run->meetings) = m;
  return true;
}

static bool read_pass(run_reader *f)
{
  real_pass p;
  int kind;
  int64_t number;
  if (!take_word(f, pass_word, REAL_PASS_KINDS, &kind) || !take_number(f, 0, UINT32_MAX, &number) ||
      !take_number(f, 0, INT64_MAX, &p.begin_ns) || !take_number(f, 0, INT64_MAX, &p.end_ns) ||
      !take_number(f, 0, INT64_MAX, &p.issued_from_ns) ||
      !take_number(f, 0, INT64_MAX, &p.issued_to_ns))
    return false;
  p.key = 0;
  p.kind = (real_pass_kind)kind;
  p.number = (uint32_t)number;
  *ARRAY_PUSH(&f->run->passes) = p;
  f->run->passes_are_timed = true;
  return true;
}

static bool read_frame(run_reader *f)
{
  real_frame frame;
  int64_t line;
  if (!take_text(f, &frame.function) || !take_text(f, &frame.file) ||
      !take_number(f, 0, INT32_MAX, &line))
    return false;
  frame.line = (uint32_t)line;
  real_run_frame(f->run, &frame);
  return true;
}

static bool read_stack(run_reader *f)
{
  real_number_array frames = { 0 };
  bool ok = true;
  for (bool more = json_enter(&f->json, '['); ok && more; more = ok && json_more(&f->json, ']')) {
    int64_t frame, at = input_offset(f->json.in);
    ok = json_scaled(&f->json, 0, &frame);
    if (ok && (frame < 0 || frame >= f->run->frames.count))
      ok = input_wrong(f->json.in, at, "there is no frame %" PRId64, frame);
    if (ok) *ARRAY_PUSH(&frames) = (uint32_t)frame;
  }
  ok = ok && !f->json.in->failed;
  if (ok) real_run_stack(f->run, frames.items, frames.count);
  ARRAY_FREE(&frames);
  return ok;
}

static bool take_stack(run_reader *f, uint32_t *stack)
{
  int64_t number;
  if (!take_number(f, 0, (int64_t)f->run->stacks.count - 1, &number)) return false;
  *stack = (uint32_t)number;
  return true;
}

static bool read_memory(run_reader *f)
{
  real_memory_event e;
  int kind;
  int64_t address;
  if (!take_word(f, memory_word, REAL_MEMORY_KINDS, &kind) ||
      !take_number(f, 0, TIME_LIMIT_NS, &e.time_ns) ||
      !take_number(f, INT64_MIN, INT64_MAX, &address) ||
      !take_number(f, 0, INT64_MAX / 4, &e.bytes) ||
      !take_number(f, INT64_MIN, INT64_MAX, &e.stream) || !take_stack(f, &e.stack))
    return false;
  e.kind = (uint8_t)kind;
  e.address = (uint64_t)address;
  *ARRAY_PUSH(&f->run->events) = e;
  return true;
}

static bool read_block(run_reader *f)
{
  real_block b;
  int64_t address, pending;
  if (!take_number(f, INT64_MIN, INT64_MAX, &address) ||
      !take_number(f, 0, INT64_MAX / 4, &b.bytes) ||
      !take_number(f, 0, INT64_MAX / 4, &b.requested_bytes) ||
      !take_number(f, INT64_MIN, INT64_MAX, &b.stream) || !take_stack(f, &b.stack) ||
      !take_number(f, 0, 1, &pending))
    return false;
  b.address = (uint64_t)address;
  b.pending = pending != 0;
  *ARRAY_PUSH(&f->run->blocks) = b;
  return true;
}

static bool read_row(run_reader *f)
{
  const char *key = f->json.text;
  f->first = true;
  if (strcmp(key, "stack") == 0) return read_stack(f);
  bool ok = strcmp(key, "span") == 0        ? read_span(f)
            : strcmp(key, "allocator") == 0 ? read_memory(f)
            : strcmp(key, "block") == 0     ? read_block(f)
            : strcmp(key, "frame") == 0     ? read_frame(f)
            : strcmp(key, "pass") == 0      ? read_pass(f)
            : strcmp(key, "meeting") == 0   ? read_meeting(f)
            : strcmp(key, "stream") == 0    ? read_track(f, &f->run->streams)
            : strcmp(key, "thread") == 0    ? read_track(f, &f->run->threads)
                                            : input_wrong(f->json.in, input_offset(f->json.in),
                                                          "\"%s\" is no line of a record", key);
  return ok && end_list(f);
}

static bool read_line(run_reader *f)
{
  if (!json_enter(&f->json, '{')) return input_expected(f->json.in, "a line of a record");
  return json_key(&f->json) && read_row(f) && !json_more(&f->json, '}') && !f->json.in->failed;
}

static bool member(run_reader *f, const char *key, int64_t least, int64_t most, int64_t *value)
{
  if (!json_more(&f->json, '}') || !json_key(&f->json) || strcmp(f->json.text, key) != 0)
    return input_wrong(f->json.in, input_offset(f->json.in), "expected the key \"%s\"", key);
  int64_t at = input_offset(f->json.in);
  if (!json_scaled(&f->json, 0, value)) return false;
  return (*value >= least && *value <= most) ||
         input_wrong(f->json.in, at, "\"%s\" is %" PRId64 "; expected %" PRId64 " to %" PRId64, key,
                     *value, least, most);
}

static bool read_header(run_reader *f)
{
  real_run *r = f->run;
  int64_t version, resolved, profile, times, memory;
  if (!json_enter(&f->json, '{') || !json_key(&f->json) || !json_scaled(&f->json, 0, &version))
    return input_expected(f->json.in, "the header of a record");
  if (version != REAL_RUN_VERSION)
    return input_wrong(f->json.in, 0, "version %" PRId64 " of a record; this reads %d", version,
                       REAL_RUN_VERSION);
  if (!json_more(&f->json, '}') || !json_key(&f->json) || strcmp(f->json.text, "sources") != 0)
    return input_wrong(f->json.in, input_offset(f->json.in), "expected the key \"sources\"");
  if (!json_text(&f->json)) return false;
  real_run_note_source(r, real_run_text(r, f->json.text, f->json.length));
  if (!member(f, "rank", -1, INT32_MAX, &r->rank) ||
      !member(f, "world_size", -1, INT32_MAX, &r->world_size) ||
      !member(f, "waits_resolved", 0, 1, &resolved) || !member(f, "profile", 0, 1, &profile) ||
      !member(f, "times", 0, 1, &times) || !member(f, "memory", 0, 1, &memory) ||
      !member(f, "segments_bytes", 0, INT64_MAX / 4, &r->segments_bytes))
    return false;
  r->waits_are_resolved = resolved != 0;
  r->has_profile = profile != 0;
  r->has_times = times != 0;
  r->has_memory = memory != 0;
  return !json_more(&f->json, '}') && !f->json.in->failed;
}

static bool read_lines(run_reader *f)
{
  if (!read_header(f)) return input_expected(f->json.in, "the end of the header");
  while (json_peek(&f->json) != INPUT_END)
    if (!read_line(f)) return input_expected(f->json.in, "the end of the line");
  return !f->json.in->failed;
}

bool run_file_read(real_run *r, input *in)
{
  if (r->has_profile || r->has_memory)
    return input_wrong(in, 0, "a record of offsim import is read alone");
  run_reader f = { .run = r, .json = { .in = in } };
  bool ok = read_lines(&f);
  json_release(&f.json);
  return ok;
}
