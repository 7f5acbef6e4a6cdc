#include <stdio.h>
#include <stdlib.h>

#include "sim/base/array.h"
#include "tests/unit/exchange_bench.h"

enum { ELEMENTS = 48, EVENTS = 40, LONGEST_EXCHANGE = 3, OP_BYTES = 160, OPERAND_BYTES = 16 };
enum { COMPUTE, COMM, NEXT, USED_STREAMS };

static const char *const stream_names[USED_STREAMS] = { "compute", "comm", "next" };

/* Buffers of a stream; no other touches them. Wide and narrow ones are for groups of `width` ranks,
 * and of all; each message of an exchange is received in one of its own. */
enum { X, Y, WIDE_TP, WIDE_WORLD, NARROW_TP, NARROW_WORLD, RECEIVED };
enum { BUFFERS = RECEIVED + LONGEST_EXCHANGE };

typedef struct drawn_op {
  uint32_t stream;
  bool is_message;
  char text[OP_BYTES];
} drawn_op;

typedef struct stage_ops {
  struct {
    drawn_op *items;
    uint32_t count, capacity;
  } ops;
  uint32_t messages_behind[USED_STREAMS]; /* since the last op that is none */
} stage_ops;

typedef struct drawing {
  uint64_t state;
  uint32_t stages, width, messages;
  stage_ops of[BENCH_STAGES];
} drawing;

/* splitmix64. */
static uint32_t draw(drawing *d, uint32_t below)
{
  uint64_t z = d->state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (uint32_t)((z ^ z >> 31) % below);
}

static char *append(drawing *d, uint32_t at, uint32_t stream, bool is_message)
{
  stage_ops *s = &d->of[at];
  drawn_op *op = ARRAY_PUSH(&s->ops);
  op->stream = stream;
  op->is_message = is_message;
  s->messages_behind[stream] = is_message ? s->messages_behind[stream] + 1 : 0;
  return op->text;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static const char *type_of(uint32_t stream)
{
  return stream == COMPUTE ? "bf16" : "fp32";
}

/* What reads what; of TP, or of the world. `beside`: what a second pair of operands is, 0: there is
 * none. */
typedef struct form {
  const char *kind;
  uint32_t reads[2], writes[2];
  uint32_t beside[2];
} form;

static const form forms[] = {
  { "all_reduce", { X, X }, { Y, Y }, { 0 } },
  { "all_reduce", { Y, Y }, { Y, Y }, { 0 } },
  { "all_reduce_max", { Y, Y }, { X, X }, { 0 } },
  { "all_gather", { X, X }, { WIDE_TP, WIDE_WORLD }, { 0 } },
  { "all_gather", { NARROW_TP, NARROW_WORLD }, { Y, Y }, { 0 } },
  { "reduce_scatter", { Y, Y }, { NARROW_TP, NARROW_WORLD }, { 0 } },
  { "reduce_scatter", { WIDE_TP, WIDE_WORLD }, { X, X }, { 0 } },
  { "all_to_all", { Y, Y }, { X, X }, { 0 } },
  { "all_to_all", { X, X }, { Y, Y }, { RECEIVED, RECEIVED + 1 } },
  { "all_reduce", { X, X }, { Y, Y }, { RECEIVED, RECEIVED + 2 } },
  { "all_to_all", { RECEIVED, RECEIVED + 1 }, { X, Y }, { 0 } },
  { "all_reduce", { RECEIVED + 2, RECEIVED }, { X, Y }, { 0 } },
};

static void write_collective(drawing *d, char *text, uint32_t stream, const form *f, bool world)
{
  uint32_t first = stream * BUFFERS, size = world ? d->stages * d->width : d->width;
  char beside[2][OPERAND_BYTES] = { "", "" };
  for (int i = 0; i < 2 && f->beside[0] > 0; i++)
    (void)snprintf(beside[i], OPERAND_BYTES, " %%%u", first + f->beside[i]);
  (void)snprintf(text, OP_BYTES,
                 "  collective %s %s %s %s of %u stride 1 96 bytes %%%u%s -> %%%u%s\n",
                 stream_names[stream], f->kind, type_of(stream), world ? "world" : "tp", size,
                 first + f->reads[world], beside[0], first + f->writes[world], beside[1]);
}

static void add_collective(drawing *d, uint32_t at, uint32_t stream)
{
  const form *f = &forms[draw(d, sizeof forms / sizeof forms[0])];
  bool world = at == d->stages;
  for (uint32_t i = world ? 0 : at; i < (world ? d->stages : at + 1); i++)
    write_collective(d, append(d, i, stream, false), stream, f, world);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* All that one stage sends another goes on one stream of each, so that both sides issue it in the
 * same order. */
static uint32_t stream_of_pair(uint32_t from, uint32_t to, bool sends)
{
  return (from + to * 2 + sends) % 2 == 0 ? COMM : NEXT;
}

static void add_side(drawing *d, uint32_t from, uint32_t to, bool sends)
{
  uint32_t at = sends ? from : to, stream = stream_of_pair(from, to, sends);
  if (d->of[at].messages_behind[stream] == LONGEST_EXCHANGE) add_collective(d, at, stream);
  uint32_t buffer = sends ? X : RECEIVED + d->of[at].messages_behind[stream];
  char *text = append(d, at, stream, true);
  (void)snprintf(text, OP_BYTES, "  %s %s msg %u %s rank %u %zu bytes %s%%%u\n",
                 sends ? "send" : "recv", stream_names[stream], d->messages, sends ? "to" : "from",
                 sends ? to : from, ELEMENTS * sizeof(float), sends ? "" : "-> ",
                 stream * BUFFERS + buffer);
}

static void add_message(drawing *d)
{
  uint32_t from = draw(d, d->stages), to = draw(d, d->stages - 1);
  if (to >= from) to++;
  add_side(d, from, to, true);
  add_side(d, from, to, false);
  d->messages++;
}

/* ---- the text -------------------------------------------------------------------------------- */

static void print_residents(const drawing *d, FILE *out)
{
  uint32_t ranks = d->stages * d->width;
  const uint32_t elements[RECEIVED] = {
    ELEMENTS, ELEMENTS, ELEMENTS * d->width, ELEMENTS * ranks, ELEMENTS / d->width, ELEMENTS / ranks
  };
  for (uint32_t i = 0; i < USED_STREAMS * BUFFERS; i++) {
    uint32_t stream = i / BUFFERS, kind = i % BUFFERS;
    uint32_t count = kind < RECEIVED ? elements[kind] : ELEMENTS;
    fprintf(out, "  resident compute %%%u x%u %s[%u] %u bytes weight\n", i, i, type_of(stream),
            count, count * (stream == COMPUTE ? 2 : 4));
  }
}

/* In the order in which they were drawn, with streams that wait for each other. */
static void print_joined(drawing *d, const stage_ops *s, FILE *out)
{
  uint32_t events = 0;
  for (uint32_t i = 0; i < s->ops.count; i++) {
    /* Between two messages it would take their exchange apart. */
    bool inside = i > 0 && (s->ops.items[i - 1].is_message || s->ops.items[i].is_message);
    uint32_t on = draw(d, USED_STREAMS), waiting = draw(d, USED_STREAMS);
    if (!inside && on != waiting && draw(d, 3) == 0) {
      fprintf(out, "  record %s e%u\n  wait %s e%u\n", stream_names[on], events,
              stream_names[waiting], events);
      events++;
    }
    fputs(s->ops.items[i].text, out);
  }
}

/* Streams as they come, in any order among themselves. */
static void print_shuffled(drawing *d, const stage_ops *s, FILE *out)
{
  uint32_t next[USED_STREAMS] = { 0 };
  for (uint32_t printed = 0; printed < s->ops.count;) {
    uint32_t stream = draw(d, USED_STREAMS), i = next[stream];
    while (i < s->ops.count && s->ops.items[i].stream != stream)
      i++;
    next[stream] = i + 1;
    if (i >= s->ops.count) continue;
    fputs(s->ops.items[i].text, out);
    printed++;
  }
}

const char *random_exchanges(uint64_t seed, uint32_t stages, uint32_t width, arena *a)
{
  drawing d = { .state = seed, .stages = stages, .width = width };
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  bool shuffled = draw(&d, 2) == 0;
  for (uint32_t i = 0; i < EVENTS; i++)
    if (stages > 1 && draw(&d, 2) == 0)
      add_message(&d);
    else
      add_collective(&d, draw(&d, stages + 1), draw(&d, USED_STREAMS));
  fprintf(out, "offsim-plan 1\nranks %u\n", stages);
  for (uint32_t i = 0; i < stages; i++) {
    fprintf(out, "rank %u\n", i);
    print_residents(&d, out);
    (shuffled ? print_shuffled : print_joined)(&d, &d.of[i], out);
    ARRAY_FREE(&d.of[i].ops);
  }
  fclose(out);
  const char *kept = arena_strdup(a, text);
  free(text);
  return kept;
}
