/* FSDP: the ops of a gather and of a reduction. */
#include <assert.h>

#include "sim/compile/collectives.h"
#include "sim/compile/fsdp_parts.h"
#include "sim/compile/kernel_calls.h"

uint32_t fsdp_tensor_row(walk *w, const char *name, dtype type, int64_t elements)
{
  assert(type < DTYPES && elements > 0);
  *ARRAY_PUSH(&w->plan->tensors) = (plan_tensor){
    .name = name, .site = w->fsdp->site, .dtype = (uint8_t)type, .rank = 1, .shape = { elements }
  };
  return w->plan->tensors.count - 1;
}

uint32_t fsdp_alloc(walk *w, const char *name, dtype type, int64_t elements, buffer_class class,
                    plan_stream pool)
{
  assert(pool < STREAM_HOST);
  return walk_alloc(w, elements * dtype_bytes(type), fsdp_tensor_row(w, name, type, elements),
                    class, pool);
}

static dtype type_of_buffer(const walk *w, uint32_t buffer)
{
  return (dtype)w->plan->tensors.items[w->rank->buffers.items[buffer].tensor].dtype;
}

static void emit_kernel_of(walk *w, kernel_kind kind, double scalar, plan_stream stream,
                           const uint32_t *reads, uint32_t read_count, uint32_t write)
{
  const plan_buffer *buffers = w->rank->buffers.items;
  int64_t written = buffers[write].bytes, bytes = written;
  dtype type = type_of_buffer(w, write);
  for (uint32_t i = 0; i < read_count; i++)
    bytes += buffers[reads[i]].bytes;
  plan_call call = kernel_call(kind, type, bytes);
  call.dims[0] = written / dtype_bytes(type);
  call.scalars[0] = scalar;
  walk_call(w, stream, &call, reads, read_count, &write, 1)->site = w->fsdp->site;
}

void fsdp_kernel(walk *w, kernel_kind kind, plan_stream stream, const uint32_t *reads,
                 uint32_t read_count, uint32_t write)
{
  assert(kind < KERNEL_KINDS && stream < STREAM_HOST);
  emit_kernel_of(w, kind, 0, stream, reads, read_count, write);
}

plan_view fsdp_bytes(int64_t offset, int64_t rows, int64_t row_bytes, int64_t stride)
{
  assert(offset >= 0 && rows > 0 && row_bytes > 0 && (rows == 1 || stride >= row_bytes));
  return (plan_view){ .dtype = DTYPE_BYTE,
                      .rank = 2,
                      .offset = offset,
                      .shape = { rows, row_bytes },
                      .strides = { stride, 1 } };
}

/* Operands under construction. */
typedef struct copy_list {
  uint32_t buffers[2 * UINT8_MAX];
  plan_view views[2 * UINT8_MAX];
  uint32_t count;
} copy_list;

static int64_t view_bytes(const walk *w, const fsdp_operand *of)
{
  int64_t bytes = dtype_bytes((dtype)of->view.dtype);
  if (of->view.whole) return w->rank->buffers.items[of->buffer].bytes;
  for (uint8_t i = 0; i < of->view.rank; i++)
    bytes *= of->view.shape[i];
  return bytes;
}

/* Returns the total bytes of the operands: of their buffers, or where a kernel has some of the copies
 * alone, of their views. */
static int64_t add_operands(const walk *w, copy_list *l, const fsdp_operand *operands,
                            uint32_t count, bool some)
{
  int64_t bytes = 0;
  assert(count <= UINT8_MAX);
  for (uint32_t i = 0; i < count; i++) {
    bool again = i > 0 && operands[i].buffer == operands[i - 1].buffer;
    int64_t whole = again ? 0 : w->rank->buffers.items[operands[i].buffer].bytes;
    l->buffers[l->count] = operands[i].buffer;
    l->views[l->count++] = operands[i].view;
    bytes += some ? view_bytes(w, &operands[i]) : whole;
  }
  return bytes;
}

static void copy_together(walk *w, plan_stream stream, const fsdp_operand *reads,
                          uint32_t read_count, const fsdp_operand *writes, uint32_t write_count,
                          bool some)
{
  copy_list list = { .count = 0 };
  assert(write_count > 0);
  int64_t read = add_operands(w, &list, reads, read_count, some);
  int64_t written = add_operands(w, &list, writes, write_count, some);
  dtype type = type_of_buffer(w, writes[0].buffer);
  plan_call call = kernel_call(KERNEL_COPY, type, read + written);
  call.dims[0] = written / dtype_bytes(type);
  plan_call_views(w->plan, &call, list.views, list.count);
  walk_call(w, stream, &call, list.buffers, read_count, list.buffers + read_count, write_count)
      ->site = w->fsdp->site;
}

/* One kernel has at most UINT8_MAX operands on a side, as multi_tensor_apply's have a limit. */
void fsdp_copy(walk *w, plan_stream stream, const fsdp_operand *reads, uint32_t read_count,
               const fsdp_operand *writes, uint32_t write_count)
{
  if (read_count <= UINT8_MAX && write_count <= UINT8_MAX) {
    copy_together(w, stream, reads, read_count, writes, write_count, false);
    return;
  }
  assert(read_count == write_count);
  for (uint32_t i = 0; i < read_count; i += UINT8_MAX) {
    uint32_t count = read_count - i < UINT8_MAX ? read_count - i : UINT8_MAX;
    copy_together(w, stream, reads + i, count, writes + i, count, true);
  }
}

void fsdp_divide(walk *w, plan_stream stream, uint32_t buffer, int64_t divisor)
{
  assert(divisor > 0);
  emit_kernel_of(w, KERNEL_DIVIDE, (double)divisor, stream, &buffer, 1, buffer);
}

/* Ranks of a sharding group are consecutive; ranks of a replica group are a sharding group's size
 * apart. */
void fsdp_collective(walk *w, collective_kind kind, int64_t ranks, int64_t bytes, uint32_t read,
                     uint32_t written)
{
  assert(ranks >= 1 && ranks <= UINT32_MAX && bytes >= 0);
  if (ranks == 1) return;
  plan_call call = collective_call(w->settings, kind, GROUP_DP, bytes);
  call.group_size = (uint32_t)ranks;
  if (kind == COLLECTIVE_ALL_REDUCE) call.group_stride = (uint32_t)w->fsdp->ranks;
  if (kind == COLLECTIVE_ALL_GATHER && read == written) {
    const plan_view views[] = { fsdp_bytes(0, 1, bytes, bytes), { .whole = 1 } };
    plan_call_views(w->plan, &call, views, 2);
  }
  walk_call(w, STREAM_COMM, &call, &read, 1, &written, 1)->site = w->fsdp->site;
}
