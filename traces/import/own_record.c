/*
 * offsim's own record (traces/record.h) of one rank as a real run: what executors wrote, or a
 * prediction. Its ops have their phase, so passes are known.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/import/readers.h"
#include "traces/record.h"

static real_span_kind kind_of(const trace_op *o)
{
  if (strcmp(o->kind, "d2h") == 0) return REAL_D2H;
  if (strcmp(o->kind, "h2d") == 0) return REAL_H2D;
  /* Files are written and read by a thread of the host. */
  return begins_with(o->kind, "disk") ? REAL_ANNOTATION : REAL_KERNEL;
}

static void take_op(real_run *r, const trace_op *o)
{
  real_span_kind kind = kind_of(o);
  bool on_stream = real_span_is_on_stream(kind);
  real_span s = { .begin_ns = o->begin_ps / PS_PER_NS,
                  .end_ns = o->end_ps / PS_PER_NS,
                  .name = real_run_text(r, o->name, strlen(o->name)),
                  .bytes = -1,
                  .kind = (uint8_t)kind,
                  .pass = REAL_NONE };
  /* A copy's call is "67108864 bytes". */
  if (real_span_is_copy(kind)) s.bytes = strtoll(o->call, NULL, 10);
  uint32_t stream = intern(&r->texts, o->stream, strlen(o->stream));
  s.track = on_stream ? real_run_stream(r, 0, stream) : real_run_thread(r, 0, 0);
  if (on_stream) {
    r->streams.items[s.track].name = r->texts.keys[stream].bytes;
    s.pass = real_run_pass(r, o->phase, o->microbatch, o->chunk);
  }
  *ARRAY_PUSH(&r->spans) = s;
}

/* The first step that it has of this rank. */
static bool take_ops(real_run *r, input *in, const trace *t, uint32_t rank)
{
  if (rank >= t->header.ranks)
    return input_wrong(in, 0, "there is no rank %" PRIu32 "; the record has %" PRIu32, rank,
                       t->header.ranks);
  uint32_t first = 0;
  while (first < t->ops.count && t->ops.items[first].rank != rank)
    first++;
  if (first == t->ops.count)
    return input_wrong(in, 0, "the record has no op of rank %" PRIu32, rank);
  for (uint32_t i = first; i < t->ops.count; i++) {
    const trace_op *o = &t->ops.items[i];
    if (o->rank == rank && o->step == t->ops.items[first].step) take_op(r, o);
  }
  r->rank = rank;
  r->world_size = t->header.ranks;
  return true;
}

/* The reader of records wants a stream. */
static FILE *unpacked(input *in)
{
  FILE *to = tmpfile();
  if (to == NULL) die_refused("a temporary file: the system has none");
  const uint8_t *bytes;
  for (size_t count; (count = input_look(in, &bytes)) > 0; in->next = in->end)
    if (fwrite(bytes, 1, count, to) < count) die_refused("a temporary file: its disk is full");
  rewind(to);
  return to;
}

bool own_record_read(real_run *r, input *in, uint32_t rank)
{
  if (!takes_profile(r, in)) return false;
  FILE *stream = unpacked(in);
  intern_table texts = { .memory = r->memory };
  trace t;
  bool ok = !in->failed && trace_read_stream(&t, in->name, stream, &texts, in->d);
  if (!in->failed) {
    in->failed = !ok; /* the message has line and column */
    ok = ok && take_ops(r, in, &t, rank);
    trace_release(&t);
  }
  fclose(stream);
  if (ok) real_run_note_source(r, "record of offsim");
  r->has_profile |= ok;
  r->has_times |= ok;
  return ok;
}
