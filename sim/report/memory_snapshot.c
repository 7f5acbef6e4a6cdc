#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/report/prediction.h"

/* ---- a pickle of protocol 2, which every Python 3 reads ---- */

static void put_byte(FILE *out, int byte)
{
  fputc(byte, out);
}

static void put_little_endian(FILE *out, uint64_t value, int bytes)
{
  for (int i = 0; i < bytes; i++)
    put_byte(out, (int)(value >> 8 * i & 0xff));
}

/* LONG1: eight bytes, two's complement. */
static void put_whole(FILE *out, int64_t value)
{
  put_byte(out, 0x8a);
  put_byte(out, 8);
  put_little_endian(out, (uint64_t)value, 8);
}

/* BINUNICODE */
static void put_text(FILE *out, const char *text)
{
  put_byte(out, 'X');
  put_little_endian(out, strlen(text), 4);
  fputs(text, out);
}

/* EMPTY_DICT MARK ... SETITEMS, EMPTY_LIST MARK ... APPENDS */
static void begin_dict(FILE *out)
{
  fputs("}(", out);
}

static void end_dict(FILE *out)
{
  put_byte(out, 'u');
}

static void begin_list(FILE *out)
{
  fputs("](", out);
}

static void end_list(FILE *out)
{
  put_byte(out, 'e');
}

static void whole_member(FILE *out, const char *key, int64_t value)
{
  put_text(out, key);
  put_whole(out, value);
}

static void text_member(FILE *out, const char *key, const char *value)
{
  put_text(out, key);
  put_text(out, value);
}

/* ---- the snapshot ---- */

enum { ROUNDING_BYTES = 512 };

/* Every block has an address of its own: which one a real allocator would reuse is no part of the
 * plan. */
static const int64_t FIRST_ADDRESS = INT64_C(1) << 46;

typedef struct snapshot {
  FILE *out;
  const plan *plan;
  const rank_plan *ops;
  const rank_timeline *times;
  int64_t *address; /* [buffers] */
  bool *lives;      /* [buffers] */
} snapshot;

static bool is_on_device(const plan_buffer *b)
{
  return buffer_is_allocated(b) && b->bytes > 0;
}

/* PyTorch's handle of the default stream is 0. */
static int64_t stream_of(const plan_buffer *b)
{
  return b->stream == STREAM_COMPUTE ? 0 : b->stream;
}

static void put_frame(FILE *out, const char *name, const char *file, int64_t line)
{
  begin_dict(out);
  text_member(out, "name", name);
  text_member(out, "filename", file);
  whole_member(out, "line", line);
  end_dict(out);
}

/* The tensor in its module, of which the line is the layer; then the pass that allocates it. */
static void put_frames(const snapshot *s, const plan_buffer *b)
{
  const plan_tensor *t = &s->plan->tensors.items[b->tensor];
  const plan_site *site = &s->plan->sites.items[t->site];
  const plan_mark *m = &s->ops->marks.items[b->mark];
  char pass[64];
  snprintf(pass, sizeof pass, "%s m%" PRIu32 " c%" PRIu32, mark_name((mark_kind)m->kind),
           m->microbatch, m->chunk);
  put_text(s->out, "frames");
  begin_list(s->out);
  put_frame(s->out, t->name, site->module[0] != '\0' ? site->module : "step",
            max_i64(0, site->layer));
  put_frame(s->out, pass, "step", 0);
  end_list(s->out);
}

static void put_event(const snapshot *s, const char *action, uint32_t buffer, int64_t at_ps)
{
  const plan_buffer *b = &s->ops->buffers.items[buffer];
  begin_dict(s->out);
  text_member(s->out, "action", action);
  whole_member(s->out, "addr", s->address[buffer]);
  whole_member(s->out, "size", b->bytes);
  whole_member(s->out, "stream", stream_of(b));
  whole_member(s->out, "time_us", at_ps / PS_PER_US);
  put_frames(s, b);
  end_dict(s->out);
}

static void put_history(snapshot *s)
{
  begin_list(s->out);
  for (uint32_t i = 0; i < s->ops->ops.count; i++) {
    const plan_op *o = &s->ops->ops.items[i];
    if (o->kind != OP_ALLOC && o->kind != OP_FREE) continue;
    if (!is_on_device(&s->ops->buffers.items[o->arg])) continue;
    s->lives[o->arg] = o->kind == OP_ALLOC;
    if (o->kind == OP_ALLOC) {
      put_event(s, "alloc", o->arg, op_start_ps(s->times, i));
    } else {
      put_event(s, "free_requested", o->arg, op_start_ps(s->times, i));
      put_event(s, "free_completed", o->arg, op_start_ps(s->times, i));
    }
  }
  end_list(s->out);
}

/* A segment of one block. */
static void put_segment(const snapshot *s, uint32_t buffer)
{
  static const char *const sizes[] = { "total_size", "allocated_size", "active_size" };
  const plan_buffer *b = &s->ops->buffers.items[buffer];
  int64_t bytes = round_up(b->bytes, ROUNDING_BYTES);
  begin_dict(s->out);
  whole_member(s->out, "device", 0);
  whole_member(s->out, "address", s->address[buffer]);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    whole_member(s->out, sizes[i], bytes);
  whole_member(s->out, "requested_size", b->bytes);
  whole_member(s->out, "stream", stream_of(b));
  text_member(s->out, "segment_type", "large");
  put_text(s->out, "frames");
  begin_list(s->out);
  end_list(s->out);
  put_text(s->out, "blocks");
  begin_list(s->out);
  begin_dict(s->out);
  whole_member(s->out, "address", s->address[buffer]);
  whole_member(s->out, "size", bytes);
  whole_member(s->out, "requested_size", b->bytes);
  text_member(s->out, "state", "active_allocated");
  put_frames(s, b);
  end_dict(s->out);
  end_list(s->out);
  end_dict(s->out);
}

static void give_addresses(snapshot *s, arena *a)
{
  uint32_t count = s->ops->buffers.count;
  int64_t next = FIRST_ADDRESS;
  s->address = ARENA_ARRAY(a, int64_t, (size_t)count + 1);
  s->lives = ARENA_ARRAY(a, bool, (size_t)count + 1);
  for (uint32_t i = 0; i < count; i++) {
    const plan_buffer *b = &s->ops->buffers.items[i];
    if (!is_on_device(b)) continue;
    s->address[i] = next;
    s->lives[i] = i < s->ops->residents;
    next += round_up(b->bytes, ROUNDING_BYTES);
  }
}

void prediction_snapshot(const prediction *p, uint32_t rank, FILE *out)
{
  assert(rank < p->rank_count);
  arena scratch = { 0 };
  snapshot s = { .out = out,
                 .plan = &p->steady.plan,
                 .ops = &p->steady.plan.ranks[rank],
                 .times = &p->steady_timeline.ranks[rank] };
  give_addresses(&s, &scratch);
  fputs("\x80\x02", out);
  begin_dict(out);
  put_text(out, "device_traces");
  begin_list(out);
  put_history(&s);
  end_list(out);
  put_text(out, "segments");
  begin_list(out);
  for (uint32_t i = 0; i < s.ops->buffers.count; i++)
    if (s.lives[i]) put_segment(&s, i);
  end_list(out);
  put_text(out, "allocator_settings");
  begin_dict(out);
  end_dict(out);
  put_text(out, "external_annotations");
  begin_list(out);
  end_list(out);
  end_dict(out);
  put_byte(out, '.');
  arena_release(&scratch);
}
