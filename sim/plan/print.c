#include "sim/plan/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "sim/plan/words.h"

typedef struct printer {
  FILE *out;
  const plan *plan;
  const rank_plan *rank;
  uint32_t rank_index;
  uint32_t next_buffer, next_event; /* the text numbers them */
} printer;

/* Whether a name can be a word: names are separated by blanks. */
static bool is_word(const char *text)
{
  for (const char *c = text; *c != '\0'; c++)
    if (*c <= ' ' || *c > '~') return false;
  return *text != '\0';
}

static void print_site(const printer *p, uint32_t site)
{
  assert(site < p->plan->sites.count);
  const plan_site *s = &p->plan->sites.items[site];
  if (s->layer < 0 && *s->module == '\0') return;
  fputs(" @", p->out);
  if (s->layer >= 0) fprintf(p->out, " layer %" PRId32, s->layer);
  if (*s->module != '\0') {
    assert(is_word(s->module));
    fprintf(p->out, " %s", s->module);
  }
}

static void print_tensor(const printer *p, const plan_tensor *t)
{
  assert(is_word(t->name) && t->rank <= PLAN_TENSOR_DIMS);
  fprintf(p->out, "%s %s[", t->name, dtype_name((dtype)t->dtype));
  for (int i = 0; i < t->rank; i++)
    fprintf(p->out, "%s%" PRId64, i > 0 ? "," : "", t->shape[i]);
  fputc(']', p->out);
}

static void print_buffer(printer *p, uint32_t id)
{
  assert(id == p->next_buffer && "buffers are numbered in the order of their allocation");
  assert(id < p->rank->buffers.count);
  p->next_buffer++;
  const plan_buffer *b = &p->rank->buffers.items[id];
  assert(b->tensor < p->plan->tensors.count);
  const plan_tensor *t = &p->plan->tensors.items[b->tensor];
  fprintf(p->out, " %%%" PRIu32 " ", id);
  print_tensor(p, t);
  fprintf(p->out, " %" PRId64 " bytes %s", b->bytes, class_name((buffer_class)b->purpose));
  if (b->host_key != 0) fprintf(p->out, " key %" PRIu32, b->host_key);
  if (b->filled) fputs(" filled", p->out);
  print_site(p, t->site);
}

static void print_sizes(const printer *p, char before, const int64_t *sizes, int count)
{
  for (int i = 0; i < count; i++)
    fprintf(p->out, "%c%" PRId64, i == 0 ? before : 'x', sizes[i]);
}

/* "{fp32+1024:4096x8/3072x1}": strides are omitted if the elements are contiguous. "{bf16+8:2x4@4}" turns. */
static void print_view(const printer *p, const plan_view *v)
{
  if (v->whole) return;
  fprintf(p->out, "{%s+%" PRId64, dtype_name((dtype)v->dtype), v->offset);
  print_sizes(p, ':', v->shape, v->rank);
  if (!view_is_contiguous(v)) print_sizes(p, '/', v->strides, v->rank);
  if (v->turned != 0) fprintf(p->out, "@%d", v->turned);
  fputc('}', p->out);
}

static void print_operands(const printer *p, const plan_op *o)
{
  const uint32_t *operands = p->rank->operands.items + o->operands;
  assert(o->operands + o->reads + o->writes <= p->rank->operands.count);
  for (int i = 0; i < o->reads + o->writes; i++) {
    plan_view view = plan_op_view(p->plan, o, (uint32_t)i);
    fprintf(p->out, "%s %%%" PRIu32, i == o->reads ? " ->" : "", operands[i]);
    print_view(p, &view);
  }
}

/* The shortest text that reads back as the same number. */
static void print_scalar(const printer *p, double value)
{
  char text[40];
  assert(value != 0 && value == value);
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  assert(strtod(text, NULL) == value && "17 digits are enough for a double");
  fputs(text, p->out);
}

/* Omits letters whose dimension is 0, and a type of plain bytes. */
static void print_kernel(const printer *p, const plan_call *c)
{
  assert(!c->is_collective && c->bytes >= 0);
  fprintf(p->out, " %s", kernel_name((kernel_kind)c->kind));
  if (c->dtype != DTYPE_BYTE) fprintf(p->out, " %s", dtype_name((dtype)c->dtype));
  shape_letters letters = kernel_letters((kernel_kind)c->kind);
  for (uint32_t i = 0; i < PLAN_DIMS; i++) {
    assert((i < letters.dims || c->dims[i] == 0) && "a dimension without a letter");
    if (c->dims[i] != 0)
      fprintf(p->out, " %.*s=%" PRId64, (int)letters.length[i], letters.text[i], c->dims[i]);
  }
  for (uint32_t i = 0; i < PLAN_SCALARS; i++) {
    uint32_t at = letters.dims + i;
    assert((at < letters.count || c->scalars[i] == 0) && "a scalar without a letter");
    if (c->scalars[i] == 0) continue;
    fprintf(p->out, " %.*s=", (int)letters.length[at], letters.text[at]);
    print_scalar(p, c->scalars[i]);
  }
  fprintf(p->out, " %" PRId64 " bytes", c->bytes);
}

static void print_collective(const printer *p, const plan_call *c)
{
  assert(c->is_collective && c->bytes >= 0);
  fprintf(p->out, " %s", collective_name((collective_kind)c->kind));
  if (c->dtype != DTYPE_BYTE) fprintf(p->out, " %s", dtype_name((dtype)c->dtype));
  fprintf(p->out, " %s of %" PRIu32 " stride %" PRIu32, group_name((comm_group)c->group),
          c->group_size, c->group_stride);
  int64_t detail = c->dims[COLLECTIVE_DETAIL];
  if (detail > 0)
    fprintf(p->out, " %s %" PRId64, collective_detail((collective_kind)c->kind), detail);
  fprintf(p->out, " %" PRId64 " bytes", c->bytes);
}

void plan_print_call(FILE *out, const plan_call *c)
{
  printer p = { .out = out };
  if (c->is_collective)
    print_collective(&p, c);
  else
    print_kernel(&p, c);
}

static void print_message(const printer *p, uint32_t id)
{
  assert(id < p->plan->messages.count);
  const plan_message *m = &p->plan->messages.items[id];
  assert(m->from_rank == p->rank_index || m->to_rank == p->rank_index);
  bool sends = m->from_rank == p->rank_index;
  fprintf(p->out, " msg %" PRIu32 " %s rank %" PRIu32 " %" PRId64 " bytes", id,
          sends ? "to" : "from", sends ? m->to_rank : m->from_rank, m->bytes);
}

static void print_free(const printer *p, const plan_op *o)
{
  assert(o->arg < p->rank->buffers.count && o->operands >> STREAM_HOST == 0);
  fprintf(p->out, " %%%" PRIu32, o->arg);
  for (uint32_t s = 0; s < STREAMS; s++)
    if (o->operands >> s & 1)
      fprintf(p->out, "%s %s", (o->operands & ((1u << s) - 1)) == 0 ? " after" : "",
              plan_stream_name(p->plan, (plan_stream)s));
}

static void print_mark(const printer *p, const plan_op *o)
{
  assert(o->arg < p->rank->marks.count && o->arg > 0 && "marks[0] is before the iteration");
  const plan_mark *m = &p->rank->marks.items[o->arg];
  fputs(mark_name((mark_kind)m->kind), p->out);
  if (mark_is_of_microbatch((mark_kind)m->kind))
    fprintf(p->out, " m%" PRIu32 " c%" PRIu32, m->microbatch, m->chunk);
  else
    assert(m->microbatch == 0 && m->chunk == 0);
  fputc('\n', p->out);
}

/* Prints the rest of a line, after op and stream. */
static void print_body(printer *p, const plan_op *o)
{
  switch ((op_kind)o->kind) {
  case OP_ALLOC:
  case OP_HOST_ALLOC:
    assert(o->site == 0 && "an allocation has its tensor's site");
    print_buffer(p, o->arg);
    return;
  case OP_FREE: print_free(p, o); break;
  case OP_HOST_FREE: fprintf(p->out, " %%%" PRIu32, o->arg); break;
  case OP_KERNEL:
    print_kernel(p, &p->plan->calls.items[o->arg]);
    print_operands(p, o);
    break;
  case OP_COLLECTIVE:
    print_collective(p, &p->plan->calls.items[o->arg]);
    print_operands(p, o);
    break;
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ: print_operands(p, o); break;
  case OP_RECORD:
    assert(o->arg == p->next_event &&
           "events are numbered in the order in which they are recorded");
    p->next_event++;
    fprintf(p->out, " e%" PRIu32, o->arg);
    break;
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_HOST_READ: fprintf(p->out, " e%" PRIu32, o->arg); break;
  case OP_HOST_WORK: fprintf(p->out, " %" PRIu32, o->arg); break;
  case OP_SEND:
  case OP_RECV:
    print_message(p, o->arg);
    print_operands(p, o);
    break;
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END: break;
  case OP_MARK:
  case OP_KINDS: assert(0 && "a mark has a line of its own"); break;
  }
  print_site(p, o->site);
}

static void print_op(printer *p, const plan_op *o)
{
  if (o->kind == OP_MARK) {
    print_mark(p, o);
    return;
  }
  bool alone =
      o->kind == OP_GRAPH_BEGIN || o->kind == OP_GRAPH_END; /* nothing follows the stream */
  fprintf(p->out, "  %-10s %-*s", op_name((op_kind)o->kind), alone ? 0 : 8,
          plan_stream_name(p->plan, (plan_stream)o->stream));
  print_body(p, o);
  fputc('\n', p->out);
}

static void print_rank(printer *p)
{
  const rank_plan *r = p->rank;
  fprintf(p->out, "\nrank %" PRIu32 "\n", p->rank_index);
  for (uint32_t i = 0; i < r->residents; i++) {
    fprintf(p->out, "  %-10s %-8s", "resident",
            plan_stream_name(p->plan, (plan_stream)r->buffers.items[i].stream));
    print_buffer(p, i);
    fputc('\n', p->out);
  }
  for (uint32_t i = 0; i < r->ops.count; i++)
    print_op(p, &r->ops.items[i]);
  assert(p->next_buffer == r->buffers.count && p->next_event == r->events);
}

static void print_own_streams(FILE *out, const plan *p)
{
  bool any = false;
  for (int s = 0; s < STREAMS; s++)
    if (p->own_streams[s] != NULL) {
      fprintf(out, "%s %s", any ? "" : "streams", p->own_streams[s]);
      any = true;
    }
  if (any) fputc('\n', out);
}

void plan_print(FILE *out, const plan *p, const bool *ranks)
{
  fprintf(out, "offsim-plan %d\nranks %" PRIu32, PLAN_FORMAT_VERSION, p->rank_count);
  if (p->global_ranks != p->rank_count) fprintf(out, " of %" PRIu32, p->global_ranks);
  fputc('\n', out);
  print_own_streams(out, p);
  for (uint32_t r = 0; r < p->rank_count; r++) {
    const rank_plan *rank = &p->ranks[r];
    if ((ranks != NULL && !ranks[r]) || (rank->buffers.count == 0 && rank->ops.count == 0))
      continue;
    printer one = { .out = out, .plan = p, .rank = rank, .rank_index = r };
    print_rank(&one);
  }
}

void plan_print_op(FILE *out, const plan *p, uint32_t rank, uint32_t op)
{
  assert(rank < p->rank_count && op < p->ranks[rank].ops.count);
  const plan_op *o = &p->ranks[rank].ops.items[op];
  printer one = { .out = out, .plan = p, .rank = &p->ranks[rank], .rank_index = rank };
  if (o->kind == OP_RECORD) one.next_event = o->arg;
  if (o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC) one.next_buffer = o->arg;
  print_op(&one, o);
}

void plan_print_buffer(FILE *out, const plan *p, uint32_t rank, uint32_t buffer)
{
  assert(rank < p->rank_count && buffer < p->ranks[rank].buffers.count);
  printer one = {
    .out = out, .plan = p, .rank = &p->ranks[rank], .rank_index = rank, .next_buffer = buffer
  };
  print_buffer(&one, buffer);
}
