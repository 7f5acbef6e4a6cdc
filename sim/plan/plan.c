#include "sim/plan/plan.h"

#include <assert.h>
#include <string.h>

/* The text name of each row, from the tables of plan.h. */
#define NAME_OF(function, type, ROWS, limit)                                                       \
  const char *function(type which)                                                                 \
  {                                                                                                \
    static const char *const names[] = { ROWS(X) };                                                \
    assert((unsigned)which < limit);                                                               \
    return names[which];                                                                           \
  }

#define X(id, name, ...) name,
NAME_OF(op_name, op_kind, PLAN_OPS, OP_KINDS)
NAME_OF(stream_name, plan_stream, PLAN_STREAMS, STREAMS)
NAME_OF(class_name, buffer_class, PLAN_CLASSES, BUFFER_CLASSES)
NAME_OF(dtype_name, dtype, PLAN_DTYPES, DTYPES)
NAME_OF(group_name, comm_group, PLAN_GROUPS, COMM_GROUPS)
NAME_OF(mark_name, mark_kind, PLAN_MARKS, MARK_KINDS)
NAME_OF(kernel_name, kernel_kind, PLAN_KERNELS, KERNEL_KINDS)
NAME_OF(collective_name, collective_kind, PLAN_COLLECTIVES, COLLECTIVE_KINDS)
#undef X

const char *call_name(const plan_call *call)
{
  return call->is_collective ? collective_name((collective_kind)call->kind)
                             : kernel_name((kernel_kind)call->kind);
}

const char *plan_op_name(const plan *p, const plan_op *o)
{
  assert(!op_is_call((op_kind)o->kind) || o->arg < p->calls.count);
  return op_is_call((op_kind)o->kind) ? call_name(&p->calls.items[o->arg])
                                      : op_name((op_kind)o->kind);
}

buffer_side class_side(buffer_class class)
{
#define X(id, name, meaning, side) side,
  static const buffer_side sides[] = { PLAN_CLASSES(X) };
#undef X
  assert((unsigned)class < BUFFER_CLASSES);
  return sides[class];
}

int64_t dtype_bytes(dtype type)
{
#define X(id, name, bytes) bytes,
  static const int64_t sizes[] = { PLAN_DTYPES(X) };
#undef X
  assert((unsigned)type < DTYPES);
  return sizes[type];
}

const char *plan_stream_name(const plan *p, plan_stream stream)
{
  assert(stream < STREAMS);
  return p->own_streams[stream] != NULL ? p->own_streams[stream] : stream_name(stream);
}

plan plan_new(uint32_t rank_count, arena *a)
{
  assert(rank_count > 0);
  plan p = { .rank_count = rank_count, .global_ranks = rank_count, .names = a };
  p.call_rows.memory = p.view_lists.memory = a;
  *ARRAY_PUSH(&p.views) = (plan_view){ .whole = 1 };
  p.ranks = ARENA_ARRAY(a, rank_plan, rank_count);
  *ARRAY_PUSH(&p.sites) = (plan_site){ .module = "", .layer = -1 };
  for (uint32_t r = 0; r < rank_count; r++)
    *ARRAY_PUSH(&p.ranks[r].marks) = (plan_mark){ 0 };
  return p;
}

static void rank_release(rank_plan *r)
{
  ARRAY_FREE(&r->ops);
  ARRAY_FREE(&r->operands);
  ARRAY_FREE(&r->buffers);
  ARRAY_FREE(&r->marks);
  ARRAY_FREE(&r->lines);
  ARRAY_FREE(&r->repeat.earlier_buffers);
  ARRAY_FREE(&r->repeat.earlier_events);
}

/* ---- comparing ---- */

/* Items without padding. */
#define SAME_BYTES(a, b)                                                                           \
  ((a)->count == (b)->count &&                                                                     \
   ((a)->count == 0 || memcmp((a)->items, (b)->items, (a)->count * sizeof *(a)->items) == 0))

static bool are_same_buffers(const buffer_array *a, const buffer_array *b)
{
  for (uint32_t i = 0; i < a->count && a->count == b->count; i++) {
    const plan_buffer *x = &a->items[i], *y = &b->items[i];
    if (x->bytes != y->bytes || x->tensor != y->tensor || x->mark != y->mark ||
        x->purpose != y->purpose || x->stream != y->stream || x->filled != y->filled ||
        x->host_key != y->host_key)
      return false;
  }
  return a->count == b->count;
}

static bool are_same_marks(const mark_array *a, const mark_array *b)
{
  for (uint32_t i = 0; i < a->count && a->count == b->count; i++) {
    const plan_mark *x = &a->items[i], *y = &b->items[i];
    if (x->kind != y->kind || x->microbatch != y->microbatch || x->chunk != y->chunk) return false;
  }
  return a->count == b->count;
}

static bool are_same_tensors(const tensor_array *a, const tensor_array *b)
{
  for (uint32_t i = 0; i < a->count && a->count == b->count; i++) {
    const plan_tensor *x = &a->items[i], *y = &b->items[i];
    if (x->site != y->site || x->dtype != y->dtype || x->rank != y->rank ||
        memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) != 0 ||
        strcmp(x->name, y->name) != 0)
      return false;
  }
  return a->count == b->count;
}

static bool are_same_sites(const site_array *a, const site_array *b)
{
  for (uint32_t i = 0; i < a->count && a->count == b->count; i++)
    if (a->items[i].layer != b->items[i].layer ||
        strcmp(a->items[i].module, b->items[i].module) != 0)
      return false;
  return a->count == b->count;
}

static bool are_same_ranks(const rank_plan *a, const rank_plan *b)
{
  return a->residents == b->residents && a->events == b->events && SAME_BYTES(&a->ops, &b->ops) &&
         SAME_BYTES(&a->operands, &b->operands) && are_same_buffers(&a->buffers, &b->buffers) &&
         are_same_marks(&a->marks, &b->marks);
}

bool plan_is_same(const plan *a, const plan *b)
{
  if (a->rank_count != b->rank_count || a->global_ranks != b->global_ranks) return false;
  for (uint32_t i = 0; i < a->rank_count; i++)
    if (!are_same_ranks(&a->ranks[i], &b->ranks[i])) return false;
  return SAME_BYTES(&a->calls, &b->calls) && SAME_BYTES(&a->views, &b->views) &&
         SAME_BYTES(&a->messages, &b->messages) && are_same_tensors(&a->tensors, &b->tensors) &&
         are_same_sites(&a->sites, &b->sites);
}

void plan_release_tables(plan *p)
{
  ARRAY_FREE(&p->calls);
  ARRAY_FREE(&p->views);
  ARRAY_FREE(&p->view_list_first);
  ARRAY_FREE(&p->sites);
  ARRAY_FREE(&p->tensors);
  ARRAY_FREE(&p->messages);
}

void plan_release(plan *p)
{
  for (uint32_t r = 0; r < p->rank_count; r++)
    rank_release(&p->ranks[r]);
  plan_release_tables(p);
}

uint32_t plan_call_row(plan *p, const plan_call *call)
{
  assert(call->bytes >= 0 && call->view_count <= 2 * UINT8_MAX);
  uint32_t row = intern(&p->call_rows, call, sizeof *call);
  assert(row <= p->calls.count && "one row for each distinct call");
  if (row == p->calls.count) *ARRAY_PUSH(&p->calls) = *call;
  return row;
}

static bool all_whole(const plan_view *views, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++)
    if (!views[i].whole) return false;
  return true;
}

uint32_t plan_view_list_row(plan *p, const plan_view *views, uint32_t count)
{
  size_t length = count * sizeof *views;
  uint32_t lists = p->view_lists.count;
  assert(count > 0 && lists == p->view_list_first.count);
  uint32_t list = intern(&p->view_lists, views, length);
  if (list == lists) {
    *ARRAY_PUSH(&p->view_list_first) = p->views.count;
    memcpy(ARRAY_EXTEND(&p->views, count), views, length);
  }
  return p->view_list_first.items[list];
}

uint32_t plan_view_list_length(const plan *p, uint32_t list)
{
  assert(list < p->view_lists.count);
  return (uint32_t)(p->view_lists.keys[list].length / sizeof(plan_view));
}

uint32_t plan_view_row(plan *p, const plan_view *view)
{
  return view->whole ? 0 : plan_view_list_row(p, view, 1);
}

uint32_t plan_copy_views(plan *p, const plan_view *source, const plan_view *target)
{
  plan_view views[] = { *source, *target };
  assert(source->rank <= PLAN_VIEW_DIMS && target->rank <= PLAN_VIEW_DIMS);
  return all_whole(views, 2) ? 0 : plan_view_list_row(p, views, 2);
}

void plan_call_views(plan *p, plan_call *call, const plan_view *views, uint32_t count)
{
  bool whole = all_whole(views, count);
  call->views = whole ? 0 : plan_view_list_row(p, views, count);
  call->view_count = whole ? 0 : count;
  assert(call->views <= p->views.count && call->view_count <= p->views.count - call->views);
}

uint32_t plan_op_view_row(const plan *p, const plan_op *o, uint32_t i)
{
  uint32_t row = 0;
  if (copy_may_be_part((op_kind)o->kind) && o->arg != 0) row = o->arg + i;
  if (op_is_call((op_kind)o->kind)) {
    const plan_call *call = &p->calls.items[o->arg];
    assert(call->views == 0 || i < call->view_count);
    assert(call->is_collective == (o->kind == OP_COLLECTIVE));
    row = call->views == 0 ? 0 : call->views + i;
  }
  assert(row < p->views.count && i < (uint32_t)o->reads + o->writes);
  return row;
}

plan_view plan_op_view(const plan *p, const plan_op *o, uint32_t i)
{
  return p->views.items[plan_op_view_row(p, o, i)];
}

int64_t bytes_of_view(const plan_view *v)
{
  assert(v->dtype < DTYPES);
  return view_elements(v) * dtype_bytes((dtype)v->dtype);
}

int64_t view_elements(const plan_view *v)
{
  int64_t elements = 1;
  assert(!v->whole && v->rank <= PLAN_VIEW_DIMS);
  for (int i = 0; i < v->rank; i++) {
    assert(v->shape[i] >= 0);
    elements *= v->shape[i];
  }
  return elements;
}

bool plan_view_bytes(const plan_view *v, byte_range *bytes)
{
  int64_t first = v->offset, last = v->offset, size = dtype_bytes((dtype)v->dtype);
  assert(!v->whole && v->rank <= PLAN_VIEW_DIMS);
  *bytes = (byte_range){ 0, 0 };
  for (int i = 0; i < v->rank; i++) {
    int64_t step;
    if (v->shape[i] == 0) return true;
    if (__builtin_mul_overflow(v->shape[i] - 1, v->strides[i], &step)) return false;
    int64_t *end = step < 0 ? &first : &last;
    if (__builtin_add_overflow(*end, step, end)) return false;
  }
  return first >= 0 && !__builtin_add_overflow(last, 1, &last) &&
         !__builtin_mul_overflow(first, size, &bytes->begin) &&
         !__builtin_mul_overflow(last, size, &bytes->end);
}

bool view_can_turn(const plan_view *v)
{
  int64_t part = v->turned > 1 && view_is_contiguous(v) ? view_elements(v) : 0;
  return part > 0 && v->offset % part == 0 && v->offset / part < v->turned;
}

plan_view view_of_index(const plan_view *v, uint32_t index)
{
  plan_view own = *v;
  if (v->turned == 0) return own;
  assert(view_can_turn(v) && index < v->turned);
  int64_t part = view_elements(v);
  own.offset = (v->offset / part + index) % v->turned * part;
  own.turned = 0;
  return own;
}

bool view_is_contiguous(const plan_view *v)
{
  int64_t next = 1;
  assert(!v->whole && v->rank <= PLAN_VIEW_DIMS);
  for (int i = v->rank; i-- > 0; next *= v->shape[i])
    if (v->shape[i] != 1 && v->strides[i] != next) return false;
  return true;
}
