/* Filling in a node: its lists, which 0 ends unless they are full, and its numbers. */
#ifndef OFFSIM_SIM_GRAPH_NODE_H
#define OFFSIM_SIM_GRAPH_NODE_H

#include <assert.h>
#include <string.h>

#include "sim/graph/graph.h"

static inline void list_append(tensor_id *list, uint32_t capacity, tensor_id t)
{
  uint32_t i = 0;
  while (i < capacity && list[i] != 0)
    i++;
  assert(i < capacity);
  list[i] = t;
}

/* Each is a no-op for tensor 0, so that optional tensors need no case. */
static inline void node_input(graph_node *n, tensor_id t)
{
  if (t != 0) list_append(n->inputs, NODE_INPUTS, t);
}

/* graph_add with the first input. */
static inline graph_node *graph_add_of(graph *g, const struct operator_kind *kind, tensor_id x)
{
  graph_node *n = graph_add(g, kind);
  node_input(n, x);
  return n;
}

static inline void node_output(graph_node *n, tensor_id t)
{
  if (t != 0) list_append(n->outputs, NODE_OUTPUTS, t);
}

static inline void node_save(graph_node *n, tensor_id t)
{
  if (t != 0) list_append(n->saved, NODE_SAVED, t);
}

/* A floating-point number in a node's first dim. */
static inline void node_set_number(graph_node *n, double number)
{
  static_assert(sizeof number == sizeof n->dims[0], "a dim holds the bits of a number");
  memcpy(&n->dims[0], &number, sizeof number);
}

static inline double node_number(const graph_node *n)
{
  double number;
  memcpy(&number, &n->dims[0], sizeof number);
  return number;
}

#endif
