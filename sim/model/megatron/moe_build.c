/* Helpers of router, dispatcher and experts. */
#include "sim/model/megatron/moe.h"

#include <assert.h>

#include "sim/graph/node.h"
#include "sim/graph/parts.h"
#include "sim/operators/moe.h"
#include "sim/operators/operators.h"

void moe_hold(moe_frame *f, tensor_id t)
{
  if (t == 0) return;
  assert(f->count < FRAME_TENSORS);
  f->held[f->count++] = t;
}

void moe_release(graph *g, moe_frame *f)
{
  for (uint32_t i = 0; i < f->count; i++)
    graph_keep(g, f->held[i]);
  f->count = 0;
}

graph_node *moe_step(graph *g, kernel_kind forward, kernel_kind backward, tensor_id a, tensor_id b,
                     tensor_id output)
{
  assert(forward < KERNEL_KINDS && backward <= KERNEL_KINDS && output != 0);
  graph_node *n = graph_add(g, &operator_step);
  n->dims[MOE_STEP_FORWARD] = forward;
  n->dims[MOE_STEP_BACKWARD] = backward;
  n->dims[MOE_STEP_D0] = tensor_elements(g, output);
  node_input(n, a);
  node_input(n, b);
  node_output(n, output);
  return n;
}

void moe_reads_rows(graph *g, tensor_id rows_of)
{
  assert(g->nodes.items[g->nodes.count - 1].kind == &operator_step);
  g->nodes.items[g->nodes.count - 1].dims[MOE_STEP_ROWS] = rows_of;
}

tensor_id moe_cast(graph *g, const char *name, tensor_id t, dtype type)
{
  graph_tensor from = g->tensors.items[t];
  if (from.dtype == (uint8_t)type) return t;
  tensor_id to = graph_tensor_like(g, name, type, t);
  g->tensors.items[to].requires_grad = from.requires_grad;
  moe_step(g, KERNEL_COPY, KERNEL_COPY, t, 0, to);
  return to;
}

static collective_kind transpose_of(collective_kind kind)
{
  switch (kind) {
  case COLLECTIVE_ALL_GATHER: return COLLECTIVE_REDUCE_SCATTER;
  case COLLECTIVE_REDUCE_SCATTER: return COLLECTIVE_ALL_GATHER;
  case COLLECTIVE_ALL_TO_ALL: return COLLECTIVE_ALL_TO_ALL;
  case COLLECTIVE_ALL_REDUCE:
  case COLLECTIVE_ALL_REDUCE_MAX:
  case COLLECTIVE_SHIFT:
  case COLLECTIVE_KINDS: break;
  }
  return kind;
}

tensor_id moe_exchange(graph *g, const char *name, tensor_id t, collective_kind kind,
                       comm_group group, int64_t rows)
{
  assert(kind != COLLECTIVE_ALL_REDUCE && kind != COLLECTIVE_KINDS);
  assert(group < COMM_GROUPS && rows > 0);
  graph_tensor from = g->tensors.items[t];
  tensor_id y = graph_tensor_new(g, name, (dtype)from.dtype, rows, from.shape[1], from.shape[2], 0);
  g->tensors.items[y].requires_grad = from.requires_grad;
  graph_node *n = graph_add(g, &operator_exchange);
  n->dims[EXCHANGE_FORWARD] = kind;
  n->dims[EXCHANGE_BACKWARD] = transpose_of(kind);
  n->dims[EXCHANGE_GROUP] = group;
  node_input(n, t);
  node_output(n, y);
  return y;
}

void moe_finds_experts(graph *g, const moe_sizes *m, tensor_id restore, bool back)
{
  graph_node *n = &g->nodes.items[g->nodes.count - 1];
  assert(n->kind == &operator_exchange && n->dims[EXCHANGE_RESTORE] == 0);
  n->dims[EXCHANGE_RESTORE] = restore;
  n->dims[EXCHANGE_RANKS] = m->ep;
  n->dims[EXCHANGE_EXPERTS] = m->local_experts;
  n->dims[EXCHANGE_BACK] = back;
}

void moe_uses_computed_rows(graph *g, const moe_sizes *m, tensor_id first)
{
  for (tensor_id t = first; m->is_static && t < g->tensors.count; t++) {
    const graph_tensor *of = &g->tensors.items[t];
    bool index = of->dtype == DTYPE_INT32 || of->dtype == DTYPE_INT64;
    if (of->parameter || index || of->base != t || of->view.rank > 0) continue;
    if (of->shape[0] == m->rows) graph_uses_rows(g, t, m->computed);
  }
}

void moe_goes_by(graph *g, const moe_handle *handle, bool once, bool back)
{
  graph_node *n = &g->nodes.items[g->nodes.count - 1];
  assert(n->kind == &operator_exchange && n->dims[EXCHANGE_RESTORE] == 0);
  n->dims[EXCHANGE_RESTORE] = handle->sent;
  n->dims[EXCHANGE_BACK] = back;
  n->dims[EXCHANGE_ROWS] = once ? ROWS_BY_TOKEN : ROWS_BY_EXPERT;
  n->dims[EXCHANGE_COPIES] = handle->copies;
  n->dims[EXCHANGE_TOKENS] = handle->tokens;
  node_input(n, handle->sent);
  if (back) node_input(n, handle->source);
}

/* A view of [ranks x sequence, micro-batch, width] as [sequence, micro-batch, ranks, width]. */
void moe_attribute(graph *g, tensor_id t)
{
  graph_node *n = graph_add(g, &operator_attribute);
  n->dims[ATTRIBUTE_NUMBER] = g->attributes++;
  node_input(n, t);
}

void moe_keeps_graph(graph *g)
{
  assert(g->nodes.count > 1 && g->layer >= -1);
  g->nodes.items[g->nodes.count - 1].leaves_graph = (uint32_t)(g->layer + 1);
}

static tensor_id ranks_side_by_side(graph *g, tensor_id by_rank, graph_tensor part, int64_t ranks)
{
  int64_t s = part.shape[0], b = part.shape[1], w = part.shape[2];
  tensor_id view = graph_view(g, "gathered_columns", by_rank, false, s, b, ranks, w);
  graph_strides(g, view, 0, 4, (int64_t[]){ s, b, ranks, w },
                (int64_t[]){ b * w, w, s * b * w, 1 });
  return view;
}

tensor_id gathered_over_tp(graph *g, const settings *s, tensor_id x, collective_kind backward)
{
  graph_tensor of = g->tensors.items[x];
  tensor_id by_rank = moe_exchange(g, "gathered_by_rank", x, COLLECTIVE_ALL_GATHER, GROUP_TP,
                                   of.shape[0] * size_tp(s));
  g->nodes.items[g->nodes.count - 1].dims[EXCHANGE_BACKWARD] = backward;
  tensor_id whole = graph_tensor_new(g, "gathered", (dtype)of.dtype, of.shape[0], of.shape[1],
                                     of.shape[2] * size_tp(s), 0);
  tensor_id columns = ranks_side_by_side(g, by_rank, of, size_tp(s));
  graph_node *n = graph_add_of(g, &operator_copy, columns);
  node_output(n, whole);
  return whole;
}

/* gpt/fine_grained_callables.py: the outputs of each part, and the tensors that it detaches. */
void moe_begin_dispatch(graph *g, const settings *s, moe_frame *f, tensor_id tokens,
                        tensor_id probs)
{
  if (!runs_in_parts(s)) return;
  moe_release(g, f);
  part_output(g, tokens);
  part_output(g, probs);
  part_begin(g, s, PART_DISPATCH);
  if (!part_frees_input(s, PART_DISPATCH)) return;
  part_freed(g, tokens);
  part_freed(g, probs);
}

void moe_begin_experts(graph *g, const settings *s, moe_frame *f, tensor_id tokens, tensor_id probs)
{
  if (!runs_in_parts(s)) return;
  moe_release(g, f);
  part_output(g, tokens);
  part_detached(g, probs);
  part_begin(g, s, PART_MLP);
  if (part_frees_input(s, PART_MLP)) part_freed(g, tokens);
}

void moe_begin_combine(graph *g, const settings *s, moe_frame *f, const moe_dispatch *d,
                       tensor_id y)
{
  if (!runs_in_parts(s)) return;
  moe_release(g, f);
  if (d->norm != 0) graph_discard(g, d->norm);
  part_output(g, y);
  part_begin(g, s, PART_COMBINE);
  if (part_frees_input(s, PART_COMBINE)) part_freed(g, y);
}
