#include "sim/compile/host_experts.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/compile/collectives.h"
#include "sim/compile/kernel_calls.h"

static const plan_view whole = { .whole = 1 };

/* param_and_grad_buffer.py, _CPU_PARAM_GATHER_STAGING_BYTES. */
#define STAGING_BYTES (512 * MIB)

/* ---- main parameters to weights -------------------------------------------------------------- */

static bool is_main_of_expert(const static_allocation_list *list, uint32_t i)
{
  const static_allocation *a = &list->items[i];
  assert(i < list->count);
  return a->purpose == CLASS_OPTIMIZER && strcmp(a->name, "main_param") == 0 &&
         list->parameters.items[a->parameter].is_expert;
}

static void write_back(walk *w, const optimizer_buffers *b, uint32_t allocation)
{
  const static_allocation *main = &b->list->items[allocation];
  const rank_parameters *r = &b->list->rank;
  dtype type = (dtype)r->list.items[main->parameter].type;
  int64_t elements = main->bytes / dtype_bytes(DTYPE_FP32);
  uint32_t from = b->of_allocation[allocation], tensor = w->rank->buffers.items[from].tensor;
  plan_view part = r->buffered ? optimizer_shard_view(r, main->parameter, elements, type) : whole;
  uint32_t copy = walk_host_alloc(w, main->bytes, tensor, 0);
  w->rank->buffers.items[copy].purpose = CLASS_PAGEABLE_HOST;
  walk_copy(w, OP_D2H, STREAM_COMPUTE, from, copy, tensor);
  walk_host_sync(w, STREAM_COMPUTE);
  walk_copy_kernel(
      w, STREAM_CPU, (walk_operand_view){ copy, 0 },
      (walk_operand_view){ b->of_weight[main->parameter], plan_view_row(w->plan, &part) }, tensor,
      elements, elements * (dtype_bytes(DTYPE_FP32) + dtype_bytes(type)));
  walk_host_sync(w, STREAM_CPU);
  walk_drop_reference(w, copy);
}

/* ---- shards of weights ----------------------------------------------------------------------- */

/* A bucket's shards pass through two buffers on the device. */
typedef struct passing {
  uint32_t host, send, receive, tensor;
  dtype type;
  int64_t start, shard, ranks;
} passing;

static void copy_part(walk *w, op_kind kind, const passing *p, uint32_t device, int64_t on_device,
                      int64_t on_host, int64_t count)
{
  plan_view seen = elements_from(p->type, on_device, count),
            part = elements_from(p->type, p->start + on_host, count);
  bool out = kind == OP_D2H;
  walk_copy(w, kind, STREAM_COMPUTE, out ? device : p->host, out ? p->host : device, p->tensor);
  walk_copy_parts(w, out ? &seen : &part, out ? &part : &seen);
  walk_host_sync(w, STREAM_COMPUTE);
}

/* NCCL copies where there is one rank. */
static void all_gather(walk *w, const passing *p, int64_t count)
{
  const plan_view sent = elements_from(p->type, 0, count),
                  received = elements_from(p->type, 0, count * p->ranks);
  int64_t bytes = count * dtype_bytes(p->type);
  if (p->ranks == 1) {
    walk_copy_kernel(w, STREAM_COMPUTE,
                     (walk_operand_view){ p->send, plan_view_row(w->plan, &sent) },
                     (walk_operand_view){ p->receive, plan_view_row(w->plan, &received) },
                     p->tensor, count, 2 * bytes);
    return;
  }
  plan_call call = collective_call(w->settings, COLLECTIVE_ALL_GATHER, GROUP_EDP, bytes);
  plan_call_views(w->plan, &call, (plan_view[]){ sent, received }, 2);
  walk_call(w, STREAM_COMPUTE, &call, &p->send, 1, &p->receive, 1)->site =
      w->plan->tensors.items[p->tensor].site;
}

/* The plan's rank is the last one. */
static void gather_bucket(walk *w, passing *p)
{
  int64_t size = dtype_bytes(p->type), most = STAGING_BYTES / (size * (p->ranks + 1));
  int64_t step = min_i64(p->shard, max_i64(1, most));
  assert(p->shard > 0 && p->ranks >= 1);
  p->send = walk_alloc(w, step * size, p->tensor, CLASS_TRANSIENT, STREAM_COMPUTE);
  p->receive = walk_alloc(w, step * p->ranks * size, p->tensor, CLASS_TRANSIENT, STREAM_COMPUTE);
  for (int64_t at = 0; at < p->shard; at += step) {
    int64_t count = min_i64(step, p->shard - at);
    copy_part(w, OP_H2D, p, p->send, 0, (p->ranks - 1) * p->shard + at, count);
    all_gather(w, p, count);
    for (int64_t rank = 0; rank < p->ranks; rank++)
      copy_part(w, OP_D2H, p, p->receive, rank * count, rank * p->shard + at, count);
  }
  walk_drop_reference(w, p->send);
  walk_drop_reference(w, p->receive);
}

static void gather_buffer(walk *w, const static_allocation *a, const gradient_buffer *b,
                          uint32_t host)
{
  assert(a->purpose == CLASS_PINNED_HOST && b->is_expert);
  for (uint32_t i = 0; i < b->bucket_count; i++) {
    int64_t elements = b->buckets[i].end - b->buckets[i].start;
    assert(elements % b->ranks == 0);
    gather_bucket(w, &(passing){ .host = host,
                                 .tensor = w->rank->buffers.items[host].tensor,
                                 .type = (dtype)a->type,
                                 .start = b->buckets[i].start,
                                 .shard = elements / b->ranks,
                                 .ranks = b->ranks });
  }
}

void host_experts_step(walk *w, const optimizer_buffers *b)
{
  const static_allocation_list *list = b->list;
  assert(keeps_experts_on_host(w->settings) && w->backward_seen);
  for (uint32_t i = 0; i < list->count; i++)
    if (is_main_of_expert(list, i)) write_back(w, b, i);
  for (uint32_t i = 0; i < list->count; i++) {
    const static_allocation *a = &list->items[i];
    if (a->purpose == CLASS_PINNED_HOST && a->buffer != NO_PARAMETER)
      gather_buffer(w, a, &list->rank.buffers.items[a->buffer], b->of_allocation[i]);
  }
}
